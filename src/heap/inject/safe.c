/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whether a thread stands where it may be made to run other code: docs/heuristics/safe-points.md.
 *
 * What is asked is which locks and which half-done work it may have that dlopen() and the allocator need. The call it
 * waits in tells of the innermost frame, exported names of the C library of those further out; whoever computes
 * may not be in the C library at all, whose inner functions have no names.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>

#include "base/clock.h"
#include "heap/inject/inject_priv.h"
#include "os/syscalls.h"

/* In none of these, nor in anything that they call. */
static const char *const unsafe[] = {
	"malloc", "calloc", "realloc", "reallocarray", "free", "cfree", "memalign", "posix_memalign", "aligned_alloc",
	"valloc", "pvalloc", "malloc_trim", "malloc_info", "mallinfo", "mallinfo2", "mallopt", "malloc_stats",
	"malloc_usable_size", "_int_malloc", "_int_free", "_int_realloc", "sysmalloc", "arena_get2", "free_sized",
	"free_aligned_sized", "__libc_freeres", "__libc_thread_freeres",
	"dlopen", "dlclose", "dlsym", "dlvsym", "dladdr", "dladdr1", "dlinfo", "dlmopen", "dlerror", "dl_iterate_phdr",
	"_dl_find_object", "__libc_dlopen_mode", "__libc_dlsym", "__libc_dlclose", "_dl_catch_exception", "_dl_catch_error",
	"_dl_addr", "__tls_get_addr",
	"exit", "quick_exit", "at_quick_exit", "atexit", "on_exit", "__cxa_atexit", "__cxa_finalize", "__cxa_thread_atexit_impl",
	"__call_tls_dtors", "__run_exit_handlers",
	"fork", "_Fork", "vfork", "posix_spawn", "posix_spawnp", "system", "popen", "pclose", "daemon", "pthread_atfork",
	"__register_atfork", "pthread_create", "pthread_exit", "__nptl_deallocate_tsd", "__restore_rt",
	"pthread_mutex_lock", "pthread_mutex_timedlock", "pthread_mutex_clocklock", "pthread_mutex_unlock",
	"pthread_rwlock_rdlock", "pthread_rwlock_wrlock", "pthread_once", "flockfile", "setuid", "setgid", "setresuid", "setresgid",
	"__nptl_setxid",
};

/* Waits in futex(2) that keep no lock meanwhile: entries of the C library. */
static const char *const waits[] = {
	"pthread_cond_wait", "pthread_cond_timedwait", "pthread_cond_clockwait", "sem_wait", "sem_timedwait",
	"sem_clockwait", "pthread_join", "pthread_timedjoin_np", "pthread_clockjoin_np", "pthread_barrier_wait", "syscall",
	"cnd_wait", "cnd_timedwait", "thrd_join",
	/* Of calls that the kernel began again: restart_syscall(2) does not tell which. */
	"nanosleep", "clock_nanosleep", "usleep", "sleep", "thrd_sleep", "poll", "__poll", "__poll_chk",
};

static bool is_in(const char *name, const char *const *list, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (!strcmp(name, list[i]))
			return true;
	return false;
}
#define IS_IN(name, list) is_in(name, list, sizeof(list) / sizeof((list)[0]))

bool safe_syscall(int number, const uint64_t args[6])
{
	switch (number) {
	case SYS_read:
	case SYS_readv:
	case SYS_recvfrom:
	case SYS_recvmsg:
	case SYS_recvmmsg:
	case SYS_accept:
	case SYS_accept4:
	case SYS_nanosleep:
	case SYS_clock_nanosleep:
	case SYS_ppoll:
	case SYS_pselect6:
	case SYS_futex:
	case SYS_wait4:
	case SYS_waitid:
	case SYS_rt_sigsuspend:
	case SYS_restart_syscall:
	case SYS_epoll_pwait:
	case SYS_semop:
	case SYS_msgrcv:
	case SYS_flock:
#if defined(__x86_64__)
	case SYS_poll:
	case SYS_select:
	case SYS_pause:
	case SYS_epoll_wait:
#endif
		return true;
	/* Began again, these have their whole time anew. */
	case SYS_rt_sigtimedwait:
		return !args[2];
	case SYS_epoll_pwait2:
	case SYS_semtimedop:
		return !args[3];
	default:
		return false;
	}
}

/* ---- the walker ---- */

int safe_walker_open(struct safe_walker *w, pid_t pid, struct err *err)
{
	int rc = session_new_unrecorded(&w->all, &source_live, &w->writer, &w->session, err);

	if (rc)
		return rc;
	session_maps_untold(w->session);
	return session_adopt(w->session, pid, err);
}

void safe_walker_release(struct safe_walker *w)
{
	session_free(w->session);
	if (w->writer)
		capture_writer_abandon(w->writer);
	*w = (struct safe_walker){0};
}

#if defined(__x86_64__)
#define REG_SP UNWIND_X86_RSP
#else
#define REG_SP UNWIND_A64_SP
#endif

static size_t walk(struct safe_walker *w, pid_t pid, pid_t tid, const struct safe_stack *stack,
	const struct unwind_frame **ret, enum unwind_end *ret_end)
{
	struct raw_stack raw = {.has_regs = true, .python = PYTHON_NOT_NOW};
	struct stored_stack stored = {.end = UNWIND_NO_REGS};
	const uint32_t *ids;

	ptrace_copy_stack(tid, &stack->regs, &raw.regs, NULL, 0);
	raw.dump = (struct unwind_dump){raw.regs.value[REG_SP], stack->bytes, stack->size};
	if (!raw.regs.known || !session_stack(w->session, pid, tid, clock_monotonic_ns(), &raw, &stored))
		return 0;
	*ret_end = stored.end;
	*ret = session_last_walk(w->session);
	return session_last_frames(w->session, &ids);
}

/* ---- the verdict ---- */

struct standing {
	const struct inject_modules *modules;
	const struct unwind_frame *frames;
	size_t count;
	int number;
	char *why;
};

static bool refuse(struct standing *s, const char *words, const char *name)
{
	snprintf(s->why, SAFE_WHY_BYTES, "%s%s", words, name);
	return false;
}

/* The address to look a frame up by: that of the call. */
static uint64_t code_of(const struct unwind_frame *f)
{
	return f->pc - (f->is_return ? 1 : 0);
}

static const struct inject_module *module_of(const struct standing *s, size_t frame)
{
	return inject_module_at(s->modules, code_of(&s->frames[frame]));
}

static bool is_libc(const struct standing *s, size_t frame)
{
	const struct inject_module *m = module_of(s, frame);

	return m && m->kind == INJECT_LIBC;
}

/* Frames [from, to) are in the C library, called by the program, or the bottom of the stack. */
static bool libc_part(struct standing *s, size_t from, size_t to)
{
	bool named = false, waiting = false, bottom = to == s->count;

	for (size_t i = from; i < to; i++) {
		const struct inject_module *m = module_of(s, i);
		const char *name;
		size_t at = 0;

		if (i == to - 1)
			named = waiting = false;
		while ((name = inject_function_name(m, code_of(&s->frames[i]), &at))) {
			if (IS_IN(name, unsafe))
				return refuse(s, "in ", name);
			named = true;
			waiting |= IS_IN(name, waits);
		}
	}
	if (bottom && from)
		return true; /* what has started the thread */
	if (from == 0 && s->number < 0)
		return refuse(s, "computes in the C library", "");
	if (from == 0 && (s->number == SYS_futex || s->number == SYS_restart_syscall) && !waiting)
		return refuse(s, "waits for a lock in the C library", "");
	if (from && !named)
		return refuse(s, "in a function of the C library that has no name", "");
	return true;
}

static bool allocator_frame(struct standing *s, const struct inject_module *m, size_t frame)
{
	static const char *const prefixes[] = {"malloc", "calloc", "realloc", "free", "je_", "_rjem_", "mi_", "_mi_", "tc_",
		"arena_", "tcache_", "memalign", "posix_memalign", "aligned_alloc", "_Zn", "_Zd"};
	const char *name;
	size_t at = 0;
	bool named = false;

	while ((name = inject_function_name(m, code_of(&s->frames[frame]), &at))) {
		named = true;
		for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
			if (!strncmp(name, prefixes[i], strlen(prefixes[i])))
				return refuse(s, "in ", name);
	}
	/* Who waits in one of our calls is in no allocator, unless that is all there is. */
	if ((m->stripped || !named) && s->number < 0)
		return refuse(s, "may be in the allocator of ", m->name);
	return true;
}

static bool frame_is_safe(struct standing *s, size_t frame)
{
	const struct inject_module *m = module_of(s, frame);

	if (frame && !s->frames[frame].is_return)
		return refuse(s, "in a signal handler", "");
	if (!m)
		return true; /* the kernel's page, code made at run time */
	if (m->kind == INJECT_LOADER)
		return refuse(s, "in the loader ", m->name);
	if (m->kind == INJECT_OURS)
		return refuse(s, "in ", m->name);
	return m->kind != INJECT_ALLOCATOR || allocator_frame(s, m, frame);
}

bool safe_stand(const struct inject_modules *m, struct safe_walker *w, pid_t pid, pid_t tid, const struct safe_stack *stack,
	int number, char *why)
{
	struct standing s = {.modules = m, .number = number, .why = why};
	enum unwind_end end = UNWIND_NO_REGS;

	s.count = walk(w, pid, tid, stack, &s.frames, &end);
	if (!s.count)
		return refuse(&s, "its stack cannot be read", "");
	for (size_t i = 0; i < s.count; i++)
		if (!frame_is_safe(&s, i))
			return false;
	for (size_t i = 0, to; i < s.count; i = to) {
		to = i + 1;
		if (!is_libc(&s, i))
			continue;
		while (to < s.count && is_libc(&s, to))
			to++;
		if (!libc_part(&s, i, to))
			return false;
	}
	if (end != UNWIND_ROOT)
		return refuse(&s, "its stack cannot be followed to its end: ", unwind_end_name(end));
	return true;
}
