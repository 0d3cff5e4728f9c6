/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A mapped file that is truncated, or sits on a disk that fails, raises SIGBUS where it is read.
 * Files under profile are rebuilt while we look at them, so that is an ordinary event: the handler
 * puts a page of zeros there and the reader sees a broken file instead of dying. Everything in it
 * is async-signal-safe. A write to such a page still ends in SIGSEGV, as it should.
 */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#include "elf/elf_file.h"

static atomic_uint_fast64_t zeroed_pages;
static uintptr_t page_bytes;

static void die_by_default(int sig)
{
	struct sigaction dfl = {.sa_handler = SIG_DFL};

	sigaction(sig, &dfl, NULL);
	raise(sig); /* blocked until the handler returns */
}

static void on_sigbus(int sig, siginfo_t *info, void *context)
{
	int saved = errno;
	uintptr_t page = (uintptr_t)info->si_addr & ~(page_bytes - 1);

	if (info->si_code != BUS_ADRERR ||
		mmap((void *)page, page_bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
			-1, 0) == MAP_FAILED)
		die_by_default(sig);
	else
		atomic_fetch_add(&zeroed_pages, 1);
	errno = saved;
}

void elf_guard_sigbus(void)
{
	struct sigaction action = {.sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO};

	page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
	sigaction(SIGBUS, &action, NULL);
}

uint64_t elf_guard_zeroed_pages(void)
{
	return atomic_load(&zeroed_pages);
}
