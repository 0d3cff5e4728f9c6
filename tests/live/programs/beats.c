/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * beats FILE: threads that compute, sleep, and do both, for ever; each counts in its own word of FILE, so
 * that others can see that all of them go on. Prints "ready".
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "spin.h"

enum { THREADS = 6 };

static volatile uint64_t *beats;

static void *beat(void *arg)
{
	uintptr_t i = (uintptr_t)arg;

	for (;;) {
		if (i % 3 != 1)
			spin_until(spin_cpu_ns() + 100000);
		if (i % 3)
			usleep(1000);
		else
			getppid();
		beats[i]++;
	}
	return NULL;
}

int main(int argc, char **argv)
{
	int fd = argc < 2 ? -1 : open(argv[1], O_RDWR | O_CREAT, 0600);
	pthread_t thread;

	if (fd < 0 || ftruncate(fd, THREADS * sizeof(*beats)))
		return 2;
	beats = mmap(NULL, THREADS * sizeof(*beats), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (beats == MAP_FAILED)
		return 2;
	for (uintptr_t i = 1; i < THREADS; i++)
		if (pthread_create(&thread, NULL, beat, (void *)i))
			return 2;
	puts("ready");
	fflush(stdout);
	beat(NULL);
	return 0;
}
