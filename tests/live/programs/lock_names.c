/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * lock_names KIND: "holder" has a lock, "waiter" waits for it. Prints "ready".
 *
 *	global    a variable of the file
 *	array     an element of an array of structs
 *	heap      a member of a struct on the heap
 *	alone     on the heap, by itself
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct account {
	long balance;
	pthread_mutex_t guard;
};

static pthread_mutex_t big_lock = PTHREAD_MUTEX_INITIALIZER;
static struct account accounts[4];

static pthread_mutex_t *which;
static struct account *account;

static __attribute__((noinline)) void *hold(void *arg)
{
	pthread_setname_np(pthread_self(), "holder");
	pthread_mutex_lock(which);
	*(volatile int *)arg = 1;
	for (;;)
		pause();
	return NULL;
}

static __attribute__((noinline)) void deposit(struct account *a, long sum)
{
	pthread_mutex_lock(&a->guard);
	a->balance += sum;
	pthread_mutex_unlock(&a->guard);
}

static __attribute__((noinline)) void lock_it(pthread_mutex_t *it)
{
	pthread_mutex_lock(it);
	pthread_mutex_unlock(it);
}

static void *want(void *arg)
{
	pthread_setname_np(pthread_self(), "waiter");
	if (account)
		deposit(account, 5);
	else
		lock_it(which);
	return arg;
}

int main(int argc, char **argv)
{
	const char *kind = argc > 1 ? argv[1] : "global";
	volatile int held = 0;
	pthread_t holder, waiter;

	which = &big_lock;
	if (!strcmp(kind, "array"))
		which = &accounts[2].guard;
	if (!strcmp(kind, "heap")) {
		account = calloc(1, sizeof(*account));
		which = &account->guard;
	}
	if (!strcmp(kind, "alone"))
		which = calloc(1, sizeof(*which));
	pthread_create(&holder, NULL, hold, (void *)&held);
	while (!held)
		usleep(1000);
	pthread_create(&waiter, NULL, want, NULL);
	usleep(100000);
	puts("ready");
	fflush(stdout);
	pthread_join(waiter, NULL);
	return 0;
}
