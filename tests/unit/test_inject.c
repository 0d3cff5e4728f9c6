/* SPDX-License-Identifier: BSD-2-Clause */
/* The injector's knowledge of a process, by this one; what it refuses. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "heap/inject/inject_priv.h"
#include "test.h"

TEST(functions_of_the_c_library)
{
	struct inject_modules m = {0};
	const struct inject_module *libc;
	uint64_t malloc_at = (uint64_t)(uintptr_t)dlsym(RTLD_DEFAULT, "malloc");
	const char *name;
	bool found = false;
	size_t at = 0;

	if (HAS_ASAN) {
		skip("malloc and dlopen are the sanitizer's here");
		return;
	}
	check(!inject_modules_read(getpid(), &m, NULL));
	check(m.any_libc && !m.old_dlopen);
	check(m.dlopen == (uint64_t)(uintptr_t)dlsym(RTLD_DEFAULT, "dlopen"));
	check(m.errno_location == (uint64_t)(uintptr_t)dlsym(RTLD_DEFAULT, "__errno_location"));
	libc = inject_module_at(&m, malloc_at);
	check(libc && libc->kind == INJECT_LIBC);
	while (libc && (name = inject_function_name(libc, malloc_at + 1, &at)))
		found |= !strcmp(name, "malloc");
	check(found);
	check(!inject_module_at(&m, 16));
	inject_modules_release(&m);
}

TEST(room_behind_a_segment)
{
	struct inject_modules m = {0};
	struct inject_place place = {0};
	int fd = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
	const struct inject_module *in;

	check(!inject_modules_read(getpid(), &m, NULL));
	check(!inject_place_find(getpid(), fd, &m, &place, NULL));
	in = inject_module_at(&m, place.address);
	check(in && place.address >= in->tail && place.address + place.size <= in->end && place.address % 16 == 0);
	close(fd);
	inject_modules_release(&m);
}

TEST(calls_that_are_left)
{
	const uint64_t none[6] = {0}, limited[6] = {0, 0, 1, 1, 0, 0};

	check(safe_syscall(SYS_read, none) && safe_syscall(SYS_futex, none) && safe_syscall(SYS_ppoll, none));
	check(!safe_syscall(SYS_mmap, none) && !safe_syscall(SYS_write, none) && !safe_syscall(-1, none));
	check(safe_syscall(SYS_rt_sigtimedwait, none) && !safe_syscall(SYS_rt_sigtimedwait, limited));
	check(safe_syscall(SYS_semtimedop, none) && !safe_syscall(SYS_semtimedop, limited));
}

TEST(what_is_refused_before_anything_is_done)
{
	struct inject *i = NULL;
	struct err err = {0};
	pid_t child = fork();

	if (!child) {
		raise(SIGSTOP);
		_exit(0);
	}
	waitpid(child, NULL, WUNTRACED);
	check(inject_open(child, NULL, &i, &err) == -EAGAIN && strstr(err.text, "kill -CONT"));
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	check(inject_open(child, NULL, &i, &err) == -ESRCH);
	check(inject_open(getpid(), NULL, &i, &err) == -EINVAL);
	check(!i);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, T(functions_of_the_c_library), T(room_behind_a_segment), T(calls_that_are_left),
		T(what_is_refused_before_anything_is_done));
}
