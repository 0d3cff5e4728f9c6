// SPDX-License-Identifier: BSD-2-Clause
// guards KIND: threads named by what they do with a lock that does not say who holds it. Prints "ready".
//
//	shared    "holder" reads a std::shared_mutex in an object on the heap, "writer" waits to write
//	two       "holder" has two std::mutex by one std::scoped_lock, "waiter" waits for the second
//	local     "holder" reads a std::shared_mutex that is a variable of main(), "writer" waits to write
//
// In all of them 20 threads "ex" have held the lock and left pointers to it on their stacks, "unlocked" has a
// guard that it has let go of, and "later" sleeps above the line of a guard that it had before.
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <vector>

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

namespace app {

struct Cache {
	long hits = 0;
	std::shared_mutex rw; // line "rw"
	std::mutex first, second;
};

}

using app::Cache;

static int ready;

static void sleep_for_ever()
{
	__atomic_add_fetch(&ready, 1, __ATOMIC_SEQ_CST);
	for (;;)
		pause();
}

// Enough of a frame that what a guard leaves behind is not overwritten by the next call.
static __attribute__((noinline)) long use(std::shared_mutex &m, long depth)
{
	volatile char pad[64];
	std::shared_lock<std::shared_mutex> lock(m);
	pad[0] = (char)depth;
	usleep(1);
	return pad[0];
}

static __attribute__((noinline)) long deeper(std::shared_mutex &m, long depth)
{
	volatile long here = depth;
	return here ? deeper(m, depth - 1) + here : use(m, depth);
}

static __attribute__((noinline)) void ex(std::shared_mutex &m)
{
	pthread_setname_np(pthread_self(), "ex");
	deeper(m, 3);
	sleep_for_ever();
}

static __attribute__((noinline)) void unlocked(std::shared_mutex &m)
{
	pthread_setname_np(pthread_self(), "unlocked");
	std::shared_lock<std::shared_mutex> lock(m);
	lock.unlock();
	sleep_for_ever();
}

static __attribute__((noinline)) void sleeps_above(std::shared_mutex &m, bool last)
{
	if (last)
		sleep_for_ever();
	std::shared_lock<std::shared_mutex> lock(m);
	usleep(1);
}

static __attribute__((noinline)) void later(std::shared_mutex &m)
{
	pthread_setname_np(pthread_self(), "later");
	sleeps_above(m, false);
	sleeps_above(m, true);
}

static __attribute__((noinline)) void hold_shared(std::shared_mutex &m)
{
	std::shared_lock<std::shared_mutex> taken(m); // line "taken"
	sleep_for_ever();
}

static __attribute__((noinline)) void hold_two(Cache *c)
{
	std::scoped_lock both(c->first, c->second); // line "both"
	sleep_for_ever();
}

static __attribute__((noinline)) void want_second(Cache *cache)
{
	std::unique_lock<std::mutex> lock(cache->second);
	cache->hits++;
}

static __attribute__((noinline)) void want_write(Cache *cache)
{
	std::unique_lock<std::shared_mutex> lock(cache->rw);
	cache->hits++;
}

static __attribute__((noinline)) void want_local(std::shared_mutex &it)
{
	std::unique_lock<std::shared_mutex> lock(it);
	usleep(1);
}

static void until_ready(int count)
{
	while (__atomic_load_n(&ready, __ATOMIC_SEQ_CST) < count)
		usleep(1000);
}

template <class F> static void start(std::vector<std::thread> &threads, const char *name, F f)
{
	threads.emplace_back([=] {
		pthread_setname_np(pthread_self(), name);
		f();
	});
}

int main(int argc, char **argv)
{
	const char *kind = argc > 1 ? argv[1] : "shared";
	std::shared_mutex local; // line "local"
	Cache *cache = new Cache;
	std::shared_mutex *m = strcmp(kind, "local") ? &cache->rw : &local;
	std::vector<std::thread> threads;

	for (int i = 0; i < 20; i++)
		start(threads, "ex", [=] { ex(*m); });
	start(threads, "unlocked", [=] { unlocked(*m); });
	start(threads, "later", [=] { later(*m); });
	until_ready(22);
	if (strcmp(kind, "two"))
		start(threads, "holder", [=] { hold_shared(*m); });
	else
		start(threads, "holder", [=] { hold_two(cache); });
	until_ready(23);
	if (!strcmp(kind, "two"))
		start(threads, "waiter", [=] { want_second(cache); });
	else if (!strcmp(kind, "local"))
		start(threads, "writer", [=] { want_local(*m); });
	else
		start(threads, "writer", [=] { want_write(cache); });
	usleep(100000);
	puts("ready");
	fflush(stdout);
	threads.back().join();
}
