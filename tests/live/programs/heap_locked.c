/* SPDX-License-Identifier: BSD-2-Clause */
/* A program that allows itself few system calls, and ends if it makes another one. With each byte of input 1000 blocks of
 * 1000 bytes are kept and 1000 of 500 bytes are freed at once. */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

__attribute__((noinline)) char *keeps(void)
{
	return malloc(1000);
}

static int lock(void)
{
	static const int allowed[] = {SYS_read, SYS_write, SYS_exit_group, SYS_brk, SYS_mmap, SYS_munmap, SYS_mprotect,
		SYS_madvise, SYS_getrandom, SYS_futex, SYS_restart_syscall, SYS_rt_sigreturn};
	enum { COUNT = sizeof(allowed) / sizeof(allowed[0]) };
	struct sock_filter code[2 * COUNT + 2];
	unsigned short n = 0;

	code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
	for (int i = 0; i < COUNT; i++) {
		code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, allowed[i], 0, 1);
		code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	}
	code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL);

	struct sock_fprog filter = {n, code};

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
}

int main(void)
{
	char word;

	if (lock())
		return 1;
	write(1, "ready\n", 6);
	while (read(0, &word, 1) == 1) {
		for (int i = 0; i < 1000; i++) {
			char *kept = keeps(), *dropped = malloc(500);

			kept[0] = dropped[0] = 1;
			free(dropped);
		}
		write(1, "done\n", 5);
	}
	return 0;
}
