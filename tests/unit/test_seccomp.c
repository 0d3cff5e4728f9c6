/* SPDX-License-Identifier: BSD-2-Clause */
/* What a filter says here is what it does to a process that has it; broken filters. */
#include <errno.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/seccomp.h"
#include "test.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define WORD(field) (uint32_t)offsetof(struct seccomp_data, field)
#define ALLOW BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
#define FAIL BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM)
#define KILL BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)
#define TRAP BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP)
#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, WORD(field))
#define WHEN(op, k, yes, no) BPF_JUMP(BPF_JMP | (op) | BPF_K, k, yes, no)

static struct seccomp_call call_of(int number, uint64_t first)
{
	return (struct seccomp_call){.number = number, .args = {first}, .known = 0x3f};
}

static enum seccomp_says says(const struct sock_filter *filter, size_t count, int number, uint64_t first)
{
	const struct seccomp_call call = call_of(number, first);

	return seccomp_judge(filter, count, &call);
}
#define SAYS(filter, number, first) says(filter, COUNT(filter), number, first)

/* The call of a child that is under the filter: as seccomp_judge() puts it. */
static enum seccomp_says tried(const struct sock_filter *filter, size_t count, int number, uint64_t first)
{
	struct sock_fprog program = {.len = (unsigned short)count, .filter = (struct sock_filter *)(uintptr_t)filter};
	pid_t child = fork();
	int status;

	if (!child) {
		if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0))
			_exit(9);
		_exit(syscall(number, first, 0, 0, 0) == -1 && errno == EPERM ? 1 : 0);
	}
	waitpid(child, &status, 0);
	if (WIFSIGNALED(status))
		return SECCOMP_KILLS;
	return WEXITSTATUS(status) == 9 ? SECCOMP_UNSURE : WEXITSTATUS(status) ? SECCOMP_ERROR : SECCOMP_ALLOWS;
}

static void same(const struct sock_filter *filter, size_t count, int number, uint64_t first, enum seccomp_says expected)
{
	enum seccomp_says kernel = tried(filter, count, number, first);

	check_u64(says(filter, count, number, first), expected);
	if (kernel == SECCOMP_UNSURE)
		skip("seccomp filters cannot be made here");
	else
		check_u64(kernel, expected);
}
#define SAME(filter, number, first, expected) same(filter, COUNT(filter), number, first, expected)

TEST(by_number)
{
	const struct sock_filter f[] = {LOAD(nr), WHEN(BPF_JEQ, SYS_getppid, 0, 1), FAIL, WHEN(BPF_JEQ, SYS_getpgid, 0, 1), KILL,
		WHEN(BPF_JEQ, SYS_getsid, 0, 1), TRAP, ALLOW};

	SAME(f, SYS_getppid, 0, SECCOMP_ERROR);
	SAME(f, SYS_getpgid, 0, SECCOMP_KILLS);
	SAME(f, SYS_getsid, 0, SECCOMP_KILLS);
	SAME(f, SYS_gettid, 0, SECCOMP_ALLOWS);
}

TEST(by_arguments_and_arithmetic)
{
	/* getpgid(x) fails when ((x + 3) * 2 ^ 5) >> 1 & 0xff is greater than 20, by way of memory and X. */
	const struct sock_filter f[] = {LOAD(nr), WHEN(BPF_JEQ, SYS_getpgid, 1, 0), ALLOW, LOAD(args[0]),
		BPF_STMT(BPF_ALU | BPF_ADD | BPF_K, 3), BPF_STMT(BPF_ST, 7), BPF_STMT(BPF_LDX | BPF_MEM, 7),
		BPF_STMT(BPF_ALU | BPF_ADD | BPF_X, 0), BPF_STMT(BPF_ALU | BPF_XOR | BPF_K, 5), BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, 1),
		BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xff), BPF_STMT(BPF_MISC | BPF_TAX, 0), BPF_STMT(BPF_LD | BPF_IMM, 20),
		BPF_JUMP(BPF_JMP | BPF_JGE | BPF_X, 0, 1, 0), FAIL, ALLOW};

	for (uint64_t x = 0; x < 40; x += 3)
		SAME(f, SYS_getpgid, x, (((x + 3) * 2 ^ 5) >> 1 & 0xff) > 20 ? SECCOMP_ERROR : SECCOMP_ALLOWS);
}

TEST(halves_of_arguments_and_the_architecture)
{
	const struct sock_filter high[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, WORD(args[0]) + 4), WHEN(BPF_JEQ, 7, 0, 1), FAIL, ALLOW};
	const struct sock_filter other[] = {LOAD(arch), WHEN(BPF_JEQ, AUDIT_ARCH_I386, 0, 1), KILL, ALLOW};

	check_u64(SAYS(high, SYS_getpgid, 7ull << 32), SECCOMP_ERROR);
	check_u64(SAYS(high, SYS_getpgid, 7), SECCOMP_ALLOWS);
	SAME(other, SYS_getpgid, 0, SECCOMP_ALLOWS);
}

TEST(what_is_not_known)
{
	const struct sock_filter by_argument[] = {LOAD(nr), WHEN(BPF_JEQ, SYS_mmap, 0, 1), LOAD(args[1]), ALLOW};
	const struct sock_filter by_place[] = {LOAD(instruction_pointer), ALLOW};
	struct seccomp_call call = {.number = SYS_mmap, .known = 1};

	check_u64(seccomp_judge(by_argument, COUNT(by_argument), &call), SECCOMP_UNSURE);
	call.number = SYS_munmap;
	check_u64(seccomp_judge(by_argument, COUNT(by_argument), &call), SECCOMP_ALLOWS);
	check_u64(seccomp_judge(by_place, COUNT(by_place), &call), SECCOMP_UNSURE);
}

TEST(broken_filters)
{
	const struct sock_filter bad[][2] = {
		{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 64), ALLOW}, {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 2), ALLOW},
		{BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 0), ALLOW}, {BPF_STMT(BPF_LD | BPF_MEM, 16), ALLOW},
		{BPF_STMT(BPF_STX, 0xffffffff), ALLOW}, {BPF_STMT(BPF_ALU | BPF_DIV | BPF_K, 0), ALLOW},
		{BPF_STMT(BPF_ALU | BPF_LSH | BPF_K, 32), ALLOW}, {BPF_STMT(BPF_JMP | BPF_JA, 0xffffffff), ALLOW},
		{BPF_STMT(BPF_LDX | BPF_W | BPF_ABS, 0), ALLOW}, {BPF_STMT(BPF_ALU | 0xf0, 0), ALLOW},
	};
	const struct seccomp_call call = {.number = SYS_getpid};

	for (size_t i = 0; i < COUNT(bad); i++)
		check_u64(seccomp_judge(bad[i], 2, &call), SECCOMP_KILLS);
	check_u64(seccomp_judge(bad[0], 0, &call), SECCOMP_KILLS);
}

TEST(modes)
{
	unsigned filters = 7;
	pid_t child;

	check_u64(seccomp_mode(getpid(), getpid(), &filters) & ~2, 0);
	child = fork();
	if (!child) {
		if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0, 0, 0))
			_exit(1);
		for (;;)
			;
	}
	for (int i = 0; i < 1000 && seccomp_mode(child, child, &filters) != 1; i++) {
		if (waitpid(child, NULL, WNOHANG) == child) {
			skip("strict mode cannot be had here");
			return;
		}
		usleep(1000);
	}
	check_u64(seccomp_mode(child, child, &filters), 1);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	check(seccomp_mode(child, child, &filters) < 0);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, T(by_number), T(by_arguments_and_arithmetic), T(halves_of_arguments_and_the_architecture),
		T(what_is_not_known), T(broken_filters), T(modes));
}
