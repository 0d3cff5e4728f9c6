/* SPDX-License-Identifier: BSD-2-Clause */
#include "sample/state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "os/syscalls.h"
#include "symbol/symbol.h"

static bool starts_with(const char *text, const char *prefix)
{
	return !strncmp(text, prefix, strlen(prefix));
}

static bool is_any(const char *function, const char *const *list, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (starts_with(function, list[i]))
			return true;
	return false;
}
#define IS_ANY(function, list) is_any(function, list, sizeof(list) / sizeof((list)[0]))

/* Kernel functions that only a thread that is stopped or frozen sleeps in. */
static bool is_stop(const char *function)
{
	static const char *const stops[] = {
		"do_signal_stop", "ptrace_stop", "do_freezer_trap", "__refrigerator",
		"get_signal", /* what wchan shows of do_freezer_trap where that is inlined */
	};

	return IS_ANY(function, stops);
}

struct off_cpu_reason state_of_syscall(int number)
{
	const char *name = syscall_name(number);
	bool futex = name && starts_with(name, "futex");

	if (number < 0)
		return (struct off_cpu_reason){STATE_BLOCKED, -1};
	return (struct off_cpu_reason){futex ? STATE_FUTEX : STATE_SYSCALL, number};
}

struct off_cpu_reason state_of_wait(const struct thread_wait *w)
{
	struct off_cpu_reason r = {STATE_RUN_QUEUE, -1};

	if (!strchr("SDTt", w->state))
		return r;
	r = state_of_syscall(w->syscall);
	/* The call it was stopped in says nothing about why it does not run. */
	if (w->state == 'T' || w->state == 't' || is_stop(w->where))
		r.state = STATE_STOPPED;
	else if (!w->blocked)
		r.state = STATE_BLOCKED;
	else if (w->syscall < 0)
		r.state = STATE_PAGE_FAULT;
	/* After any stop a wait with a time limit goes on as restart_syscall. */
	else if (w->syscall == syscall_number("restart_syscall") && starts_with(w->where, "futex"))
		r = (struct off_cpu_reason){STATE_FUTEX, syscall_number("futex")};
	return r;
}

/* ---- from the kernel's functions ---- */

enum role {
	ROLE_OTHER = 1,
	ROLE_ENTRY,     /* every system call, or every fault, passes it */
	ROLE_SCHEDULER, /* every thread that leaves passes it */
	ROLE_CALL,      /* a system call by itself */
	ROLE_FAULT,
	ROLE_STOP,
	ROLE_SIGNAL,    /* a stop when nothing but the scheduler is below */
};

struct function {
	uint64_t address; /* 0: empty */
	int call;         /* ROLE_CALL: number */
	enum role role;
};

struct kernel_roles {
	struct symbol_source *symbols;
	struct function *slots; /* open addressing */
	size_t slot_count, used;
};

static int new_roles(int rc, struct symbol_source *symbols, struct kernel_roles **ret, struct err *err)
{
	struct kernel_roles *r = rc ? NULL : calloc(1, sizeof(*r));

	if (rc)
		return rc;
	if (!r) {
		symbol_source_free(symbols);
		return err_nomem(err);
	}
	r->symbols = symbols;
	*ret = r;
	return 0;
}

int kernel_roles_new(struct kernel_roles **ret, struct err *err)
{
	struct symbol_source *symbols = NULL;
	int rc = symbol_source_kernel(&symbols, err);

	return new_roles(rc, symbols, ret, err);
}

int kernel_roles_new_text(const char *text, size_t len, struct kernel_roles **ret, struct err *err)
{
	struct symbol_source *symbols = NULL;
	int rc = symbol_source_kernel_text(text, len, &symbols, err);

	return new_roles(rc, symbols, ret, err);
}

void kernel_roles_free(struct kernel_roles *r)
{
	if (!r)
		return;
	symbol_source_free(r->symbols);
	free(r->slots);
	free(r);
}

/* "newfstatat.isra.0" and the like: as it is, without what the kernel puts before or after. */
static int number_of(const char *name)
{
	char plain[64];
	size_t len = strcspn(name, ".");
	int number;

	if (!len || len >= sizeof(plain))
		return -1;
	memcpy(plain, name, len);
	plain[len] = '\0';
	number = syscall_number(plain);
	if (number < 0 && starts_with(plain, "new"))
		number = syscall_number(plain + 3);
	if (number < 0 && len > 2 && !strcmp(plain + len - 2, "64")) {
		plain[len - 2] = '\0';
		number = syscall_number(plain);
	}
	return number;
}

/* The function of a call; where the compiler made a jump of its last call, what it jumps to is all
 * that is on the stack. */
static int call_of(const char *function)
{
	static const char *const prefixes[] = {
		"__x64_sys_", "__arm64_sys_", "__do_sys_", "__se_sys_", "ksys_", "__sys_", "do_sys_",
		"kernel_", "do_",
	};

	for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
		if (starts_with(function, prefixes[i])) {
			int number = number_of(function + strlen(prefixes[i]));

			if (number >= 0)
				return number;
		}
	return -1;
}

static struct function role_of(const char *name)
{
	static const char *const entries[] = {"entry_SYSCALL", "do_syscall_64", "x64_sys_call",
		"el0t_64_sync", "el0_svc", "do_el0_svc", "invoke_syscall", "ret_from_fork"};
	static const char *const schedulers[] = {"schedule", "__schedule", "preempt_schedule",
		"io_schedule", "context_switch", "perf_", "__perf_", "prepare_task_switch", "__traceiter"};
	static const char *const faults[] = {"asm_exc_page_fault", "exc_page_fault",
		"do_user_addr_fault", "handle_mm_fault", "do_page_fault", "do_mem_abort", "el0_da",
		"el0_ia"};
	static const char *const stops[] = {
		"do_signal_stop", "ptrace_stop", "do_freezer_trap", "__refrigerator"};
	struct function f = {.role = ROLE_OTHER, .call = -1};

	if (!strcmp(name, "get_signal"))
		f.role = ROLE_SIGNAL;
	else if (IS_ANY(name, stops))
		f.role = ROLE_STOP;
	else if (IS_ANY(name, faults))
		f.role = ROLE_FAULT;
	else if (IS_ANY(name, entries))
		f.role = ROLE_ENTRY;
	else if (IS_ANY(name, schedulers))
		f.role = ROLE_SCHEDULER;
	else if ((f.call = call_of(name)) >= 0)
		f.role = ROLE_CALL;
	return f;
}

static int grow(struct kernel_roles *r)
{
	size_t count = r->slot_count ? r->slot_count * 2 : 256, mask = count - 1;
	struct function *slots = calloc(count, sizeof(*slots));

	if (!slots)
		return -ENOMEM;
	for (size_t i = 0; i < r->slot_count; i++) {
		size_t at = hash_u64(r->slots[i].address) & mask;

		while (r->slots[i].address && slots[at].address)
			at = (at + 1) & mask;
		if (r->slots[i].address)
			slots[at] = r->slots[i];
	}
	free(r->slots);
	r->slots = slots;
	r->slot_count = count;
	return 0;
}

static struct function look_up(struct kernel_roles *r, uint64_t address)
{
	struct function f = {.role = ROLE_OTHER, .call = -1};

	if (!r || (r->used * 2 >= r->slot_count && grow(r)))
		return f;

	size_t mask = r->slot_count - 1, at = hash_u64(address) & mask;

	while (r->slots[at].address && r->slots[at].address != address)
		at = (at + 1) & mask;
	if (r->slots[at].address)
		return r->slots[at];

	struct symbol_answer answer = symbol_resolve(r->symbols, address);

	if (answer.count)
		f = role_of(answer.levels[answer.count - 1].name);
	f.address = address;
	r->slots[at] = f;
	r->used++;
	return f;
}

/* The instruction that enters the kernel leaves its own traces in the registers. */
static bool is_in_some_call(const struct unwind_regs *regs)
{
#if defined(__x86_64__)
	/* rcx is the address after it, and the kernel has put -ENOSYS into rax. */
	return (regs->known & 5) == 5 && regs->value[2] == regs->value[UNWIND_X86_PC] &&
		regs->value[0] == (uint64_t)-38;
#else
	return false;
#endif
}

struct off_cpu_reason state_of_chain(struct kernel_roles *roles, const uint64_t *ips, size_t count,
	const struct unwind_regs *regs)
{
	struct off_cpu_reason r = {STATE_BLOCKED, -1};
	struct function outermost = {.role = ROLE_ENTRY, .call = -1};
	bool only_scheduler = true;

	for (size_t i = count; i-- > 0 && outermost.role == ROLE_ENTRY;)
		outermost = look_up(roles, ips[i] - (i > 0));
	if (outermost.role == ROLE_CALL)
		r = state_of_syscall(outermost.call);
	else if (regs && outermost.role != ROLE_FAULT && is_in_some_call(regs))
		r.state = STATE_SYSCALL;
	for (size_t i = 0; i < count; i++) {
		enum role role = look_up(roles, ips[i] - (i > 0)).role;

		if (role == ROLE_STOP || (role == ROLE_SIGNAL && only_scheduler)) {
			r.state = STATE_STOPPED;
			return r;
		}
		if (role == ROLE_FAULT)
			return (struct off_cpu_reason){STATE_PAGE_FAULT, -1};
		only_scheduler &= role == ROLE_SCHEDULER;
	}
	return r;
}
