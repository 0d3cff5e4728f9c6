/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * faulting N: the first thread touches N pages, each of which another thread brings only 50 ms after it was
 * asked for (userfaultfd). Prints "ready"; status 77 when the kernel does not allow that.
 */
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "spin.h"

#define PAGE 4096ul

static int uffd;

static void *bring_pages(void *arg)
{
	for (;;) {
		struct uffd_msg msg;
		struct timespec pause = {.tv_nsec = 50000000};

		if (read(uffd, &msg, sizeof(msg)) != sizeof(msg))
			return arg;

		struct uffdio_zeropage zero = {
			.range = {msg.arg.pagefault.address & ~(PAGE - 1), PAGE}};

		nanosleep(&pause, NULL);
		ioctl(uffd, UFFDIO_ZEROPAGE, &zero);
	}
}

NOINLINE int touch(volatile char *page)
{
	return *page + 1;
}

int main(int argc, char **argv)
{
	size_t pages = argc > 1 ? (size_t)atol(argv[1]) : 10;
	struct uffdio_api api = {.api = UFFD_API};
	struct uffdio_register range = {.mode = UFFDIO_REGISTER_MODE_MISSING};
	pthread_t thread;
	char *memory = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
	range.range.start = (uintptr_t)memory;
	range.range.len = pages * PAGE;
	if (uffd < 0 || ioctl(uffd, UFFDIO_API, &api) || ioctl(uffd, UFFDIO_REGISTER, &range))
		return 77;
	pthread_create(&thread, NULL, bring_pages, NULL);
	puts("ready");
	fflush(stdout);
	for (size_t i = 0; i < pages; i++)
		touch(memory + i * PAGE);
	return 0;
}
