/* SPDX-License-Identifier: BSD-2-Clause */
#include "os/seccomp.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <unistd.h>

#include "base/cleanup.h"

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#else
#define ARCH AUDIT_ARCH_AARCH64
#endif

/* include/linux/ptrace.h of the kernel; musl has no name for it */
#define GET_FILTER 0x420c

/* ---- running ---- */

struct machine {
	uint32_t a, x, memory[BPF_MEMWORDS];
	const struct seccomp_call *call;
	bool unsure;
};

/* A word of struct seccomp_data: number, architecture, instruction pointer, six arguments. False: there is none. */
static bool load(struct machine *m, uint32_t at)
{
	uint32_t arg;

	if (at % 4 || at >= sizeof(struct seccomp_data))
		return false;
	if (at == offsetof(struct seccomp_data, nr)) {
		m->a = (uint32_t)m->call->number;
	} else if (at == offsetof(struct seccomp_data, arch)) {
		m->a = ARCH;
	} else if (at < offsetof(struct seccomp_data, args)) {
		m->unsure = true;
	} else {
		arg = (at - (uint32_t)offsetof(struct seccomp_data, args)) / 8;
		m->unsure |= !(m->call->known >> arg & 1);
		m->a = (uint32_t)(m->call->args[arg] >> (at % 8 ? 32 : 0));
	}
	return true;
}

/* Shifts and divisions as the kernel has them: what C leaves open is refused by it, or 0. */
static bool compute(struct machine *m, uint16_t code, uint32_t k)
{
	uint32_t b = BPF_SRC(code) == BPF_X ? m->x : k;

	switch (BPF_OP(code)) {
	case BPF_ADD: m->a += b; return true;
	case BPF_SUB: m->a -= b; return true;
	case BPF_MUL: m->a *= b; return true;
	case BPF_AND: m->a &= b; return true;
	case BPF_OR: m->a |= b; return true;
	case BPF_XOR: m->a ^= b; return true;
	case BPF_NEG: m->a = -m->a; return true;
	case BPF_DIV:
		if (!b)
			return false; /* by X: the kernel returns 0 then, which kills */
		m->a /= b;
		return true;
	case BPF_LSH:
	case BPF_RSH:
		if (b > 31)
			return false;
		m->a = BPF_OP(code) == BPF_LSH ? m->a << b : m->a >> b;
		return true;
	default:
		return false;
	}
}

/* The instructions that are passed over; -1: no valid jump. */
static int64_t jump(const struct machine *m, const struct sock_filter *f)
{
	uint32_t b = BPF_SRC(f->code) == BPF_X ? m->x : f->k;

	switch (BPF_OP(f->code)) {
	case BPF_JA:
		return f->k;
	case BPF_JEQ:
		return m->a == b ? f->jt : f->jf;
	case BPF_JGT:
		return m->a > b ? f->jt : f->jf;
	case BPF_JGE:
		return m->a >= b ? f->jt : f->jf;
	case BPF_JSET:
		return m->a & b ? f->jt : f->jf;
	default:
		return -1;
	}
}

static bool load_into(struct machine *m, const struct sock_filter *f)
{
	uint32_t *to = BPF_CLASS(f->code) == BPF_LD ? &m->a : &m->x;

	switch (f->code & (BPF_MODE(0xff) | BPF_SIZE(0xff))) {
	case BPF_W | BPF_ABS:
		return to == &m->a && load(m, f->k);
	case BPF_W | BPF_LEN:
		*to = sizeof(struct seccomp_data);
		return true;
	case BPF_W | BPF_IMM:
		*to = f->k;
		return true;
	case BPF_W | BPF_MEM:
		if (f->k >= BPF_MEMWORDS)
			return false;
		*to = m->memory[f->k];
		return true;
	default:
		return false;
	}
}

static bool store(struct machine *m, const struct sock_filter *f)
{
	if (f->k >= BPF_MEMWORDS)
		return false;
	m->memory[f->k] = BPF_CLASS(f->code) == BPF_ST ? m->a : m->x;
	return true;
}

static bool move(struct machine *m, const struct sock_filter *f)
{
	if (BPF_MISCOP(f->code) == BPF_TAX)
		m->x = m->a;
	else
		m->a = m->x;
	return true;
}

static enum seccomp_says meaning(uint32_t action)
{
	switch (action & SECCOMP_RET_ACTION_FULL) {
	case SECCOMP_RET_ALLOW:
	case SECCOMP_RET_LOG:
		return SECCOMP_ALLOWS;
	case SECCOMP_RET_ERRNO:
	case SECCOMP_RET_TRACE: /* the tracer is we, and we did not ask to be told: ENOSYS */
		return SECCOMP_ERROR;
	case SECCOMP_RET_USER_NOTIF:
		return SECCOMP_UNSURE;
	default:
		return SECCOMP_KILLS;
	}
}

/* Jumps only lead forwards, so it ends. */
enum seccomp_says seccomp_judge(const struct sock_filter *filter, size_t count, const struct seccomp_call *call)
{
	struct machine m = {.call = call};
	uint64_t at = 0;

	for (; at < count; at++) {
		const struct sock_filter *f = &filter[at];
		int64_t over;
		bool good = false;

		switch (BPF_CLASS(f->code)) {
		case BPF_LD:
		case BPF_LDX:
			good = load_into(&m, f);
			break;
		case BPF_ST:
		case BPF_STX:
			good = store(&m, f);
			break;
		case BPF_ALU:
			good = compute(&m, f->code, f->k);
			break;
		case BPF_JMP:
			over = jump(&m, f);
			good = over >= 0;
			at += good ? (uint64_t)over : 0;
			break;
		case BPF_MISC:
			good = move(&m, f);
			break;
		case BPF_RET:
			return m.unsure ? SECCOMP_UNSURE : meaning(BPF_RVAL(f->code) == BPF_A ? m.a : f->k);
		}
		if (!good)
			return SECCOMP_KILLS;
	}
	return SECCOMP_KILLS;
}

/* ---- reading ---- */

int seccomp_filter_read(pid_t tid, unsigned index, struct seccomp_filter *ret)
{
	long count = ptrace((enum __ptrace_request)GET_FILTER, tid, (void *)(uintptr_t)index, NULL);

	if (count < 0)
		return -errno;
	if (count > BPF_MAXINSNS)
		return -E2BIG;
	ret->len = 0;
	for (long i = 0; i < count; i++)
		if (vec_push(ret, (struct sock_filter){0}))
			return -ENOMEM;
	count = ptrace((enum __ptrace_request)GET_FILTER, tid, (void *)(uintptr_t)index, ret->data);
	return count < 0 ? -errno : 0;
}

static long field(const char *text, const char *name)
{
	const char *at = strstr(text, name);

	return at ? strtol(at + strlen(name), NULL, 10) : 0;
}

int seccomp_mode(pid_t pid, pid_t tid, unsigned *ret_filters)
{
	char path[64], text[8192];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/status", (int)pid, (int)tid);
	autoclose int fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (n <= 0)
		return -ESRCH;
	text[n] = 0;
	*ret_filters = (unsigned)field(text, "\nSeccomp_filters:");
	return (int)field(text, "\nSeccomp:");
}
