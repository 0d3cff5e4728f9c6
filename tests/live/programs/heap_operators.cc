// SPDX-License-Identifier: BSD-2-Clause
// C++ with an allocator whose operators are its own: 20,000 objects of 1000 bytes are kept, by one process and then by a
// child of it, and memory that nobody has is asked for, which throws.
#include <cstdio>
#include <cstdlib>
#include <new>
#include <sys/wait.h>
#include <unistd.h>

struct kept_object {
	char bytes[1000];
};

__attribute__((noinline)) kept_object *keeps()
{
	return new kept_object;
}

__attribute__((noinline)) static int refused(size_t size)
{
	try {
		char *volatile p = new char[size];
		delete[] p;
		return 0;
	} catch (const std::bad_alloc &) {
		return 1;
	}
}

static void work()
{
	for (int i = 0; i < 20000; i++)
		keeps()->bytes[0] = 1;
}

int main()
{
	volatile size_t much = (size_t)1 << 62;
	int thrown = 0, status = 0;

	for (int i = 0; i < 10; i++)
		thrown += refused(much);
	work();
	pid_t child = fork();

	if (!child) {
		work();
		_exit(7);
	}
	waitpid(child, &status, 0);
	std::printf("thrown %d, child %d\n", thrown, WEXITSTATUS(status));
	return 0;
}
