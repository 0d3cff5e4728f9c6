/* SPDX-License-Identifier: BSD-2-Clause */
#include "made_up.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>

#define FIRST_PID 5000000
#define WORDS (MADE_PAGE_BYTES / 8)
#define PTHREAD_TID 720

struct made made;

uint8_t made_byte(void)
{
	return made.at < made.size ? made.tape[made.at++] : 0;
}

static unsigned below(unsigned n)
{
	return made_byte() % n;
}

struct made_process *made_process(pid_t pid)
{
	for (size_t i = 0; i < made.process_count; i++)
		if (made.processes[i].status.tgid == pid)
			return &made.processes[i];
	return NULL;
}

struct made_thread *made_thread(pid_t tid)
{
	for (size_t i = 0; i < made.thread_count; i++)
		if (made.threads[i].look.tid == tid)
			return &made.threads[i];
	return NULL;
}

pid_t made_tid(unsigned number)
{
	return made.threads[number % made.thread_count].look.tid;
}

/* ---- memory ---- */

/* What locks hold, and what they might. */
static uint32_t half(unsigned recipe, unsigned param)
{
	uint32_t tid = (uint32_t)made_tid(param);

	switch (recipe % 16) {
	case 0:
	case 1:
	case 2:
		return recipe % 16;
	case 3:
		return param;
	case 4:
		return tid;
	case 5:
		return FUTEX_WAITERS | tid;
	case 6:
		return FUTEX_WAITERS | FUTEX_OWNER_DIED | tid;
	case 7:
		return 0x40000000u | tid;
	case 8:
		return FUTEX_WAITERS | EBUSY;
	case 9:
		return 0x10100u;
	case 10:
		return FIRST_PID + 90 + param; /* nobody's */
	case 11:
		return UINT32_MAX - param;
	case 12:
		return 1u << param % 32;
	case 13:
		return param * 0x01010101u;
	case 14:
		return FUTEX_WAITERS | (FIRST_PID + 90 + param);
	default:
		return (param + 1) * 2654435761u;
	}
}

static uint64_t page_address(unsigned page)
{
	return MADE_HEAP + (uint64_t)(page % MADE_PAGES) * MADE_PAGE_BYTES;
}

static void put32(uint8_t *page, size_t at, uint32_t value)
{
	memcpy(page + at, &value, sizeof(value));
}

static void put64(uint8_t *page, size_t at, uint64_t value)
{
	memcpy(page + at, &value, sizeof(value));
}

static void fill_mutex(uint8_t *page, unsigned param, unsigned bits)
{
	static const uint8_t types[] = {0, 0, 1, 2, 3, 16, 17, 32, 33, 48, 128, 129, 255};

	put32(page, 0, half(param, param / 16));
	put32(page, 4, param % 3);
	put32(page, 8, half(param & 1 ? 10 : 4, param / 16));
	put32(page, 12, 1 + param % 5);
	put32(page, 16, types[bits % sizeof(types)]);
}

static void fill_rwlock(uint8_t *page, unsigned param)
{
	put32(page, 0, param % 64);
	put32(page, 4, param % 3);
	put32(page, 8, param % 4);
	put32(page, 12, param / 4 % 4);
	put32(page, 24, param & 16 ? half(4 + param / 128, param) : 0);
	put32(page, 28, param / 64);
}

/* Of arrays that calls are given: descriptors, times, sets, operations on semaphores, paths. */
static void fill_arguments(uint8_t *page, unsigned param)
{
	for (unsigned i = 0; i < WORDS; i++)
		switch (param % 6) {
		case 0: /* pollfd */
			put64(page, i * 8, ((uint64_t)(param / 8 % 8) << 32) | i % MADE_FDS);
			break;
		case 1: /* timespec */
			put64(page, i * 8, i % 2 ? param * 4000000u : param / 16);
			break;
		case 2: /* fd_set */
			put64(page, i * 8, param);
			break;
		case 3: /* sembuf */
			put64(page, i * 8, 0x0000ffff00000000u * (param / 8 % 2) + i % 4);
			break;
		case 4: /* all ones */
			put64(page, i * 8, UINT64_MAX - param / 8);
			break;
		case 5:
			memcpy(page + i * 8, i ? "/../fifo" : "/tmp/fif", 8);
			break;
		}
}

/* Pointers that lead in circles: into this page, to others, to themselves. */
static void fill_circles(uint8_t *page, unsigned number, unsigned param)
{
	for (unsigned i = 0; i < WORDS; i++)
		put64(page, i * 8, param & 1 ? page_address(number) + i * 8
			: param & 2 ? page_address(number + 1) + (i + param) % WORDS * 8
				    : page_address(param + i));
}

static void fill_page(unsigned number, uint8_t *page)
{
	const struct made_page *p = &made.pages[number];
	unsigned param = p->param + (p->moods & MADE_CHANGES ? p->reads * 37 : 0);

	memset(page, 0, MADE_PAGE_BYTES);
	switch (p->kind % 8) {
	case 0:
		fill_mutex(page, param, p->moods / 8);
		break;
	case 1: /* a FILE's lock */
		put32(page, 0, 2);
		put32(page, 4, param < 255);
		put64(page, 8, page_address(param));
		break;
	case 2:
		fill_rwlock(page, param);
		break;
	case 3: /* struct pthread */
		put64(page, 16, page_address(number));
		put64(page, PTHREAD_TID + 16, page_address(number) + PTHREAD_TID + 16);
		put32(page, PTHREAD_TID, half(param & 128 ? 10 : 4, param));
		break;
	case 4:
		fill_arguments(page, param);
		break;
	case 5:
		for (unsigned i = 0; i < WORDS * 2; i++)
			put32(page, i * 4, half(param + i, param / 16 + i / 16));
		break;
	case 6:
		fill_circles(page, number, param);
		break;
	case 7:
		for (unsigned i = 0; i < WORDS * 2; i++)
			put32(page, i * 4, half(15, param * 512 + i));
		break;
	}
}

static void fill_stack(const struct made_thread *t, uint8_t *stack)
{
	memset(stack, 0, MADE_STACK_BYTES);
	for (unsigned i = 0; i + 1 < t->depth; i++) {
		unsigned from = t->moods & MADE_CHANGES ? i + made.turn : i + 1;

		put64(stack, i * 16, page_address(i));
		put64(stack, i * 16 + 8, made_function_pc(t->functions[from % MADE_FRAMES]));
	}
}

/* How much of it is there now. */
static size_t there(struct made_page *p)
{
	unsigned reads = p->reads++;

	if (((p->moods & MADE_GOES) && reads > (unsigned)p->moods >> 5) ||
		((p->moods & MADE_COMES) && reads < (unsigned)p->moods >> 5))
		return 0;
	return p->moods & MADE_PARTLY ? MADE_PAGE_BYTES / 2 : MADE_PAGE_BYTES;
}

static size_t copy_of(const uint8_t *bytes, size_t size, size_t at, void *buf, size_t len)
{
	if (at >= size)
		return 0;
	len = len < size - at ? len : size - at;
	memcpy(buf, bytes + at, len);
	return len;
}

/* As much as lies in one page, or in one stack. */
static size_t read_piece(uint64_t addr, void *buf, size_t len)
{
	uint8_t bytes[MADE_STACK_BYTES];
	uint64_t at;

	if (addr >= MADE_HEAP && addr - MADE_HEAP < MADE_PAGES * MADE_PAGE_BYTES) {
		unsigned page = (unsigned)((addr - MADE_HEAP) / MADE_PAGE_BYTES);

		at = (addr - MADE_HEAP) % MADE_PAGE_BYTES;
		fill_page(page, bytes);
		return copy_of(bytes, there(&made.pages[page]), at, buf, len);
	}
	if (addr >= MADE_STACKS && addr - MADE_STACKS < made.thread_count * MADE_STACK_BYTES) {
		at = addr - MADE_STACKS;
		fill_stack(&made.threads[at / MADE_STACK_BYTES], bytes);
		return copy_of(bytes, MADE_STACK_BYTES, at % MADE_STACK_BYTES, buf, len);
	}
	return addr >= MADE_TEXT ? made_file_read(addr - MADE_TEXT, buf, len) : 0;
}

size_t made_read(uint64_t addr, void *buf, size_t len)
{
	size_t done = 0, got = 1;

	made.turn++;
	while (done < len && got && addr + done >= addr) {
		got = read_piece(addr + done, (uint8_t *)buf + done, len - done);
		done += got;
	}
	return done;
}

/* ---- threads ---- */

static const int calls[] = {SYS_futex, SYS_futex, SYS_futex, SYS_futex, 449, 455, SYS_poll, SYS_ppoll, SYS_select,
	SYS_pselect6, SYS_epoll_wait, SYS_epoll_pwait2, SYS_nanosleep, SYS_clock_nanosleep, SYS_read, SYS_write,
	SYS_splice, SYS_tee, SYS_wait4, SYS_waitid, SYS_flock, SYS_fcntl, SYS_semop, SYS_semtimedop, SYS_msgrcv,
	SYS_msgsnd, SYS_mq_timedreceive, SYS_mq_timedsend, SYS_openat, SYS_connect, SYS_accept, SYS_vfork,
	SYS_clone, SYS_pause, SYS_rt_sigtimedwait, SYS_restart_syscall, SYS_io_uring_enter, SYS_ioctl, SYS_fsync,
	SYS_recvfrom, 1000, -1, SYS_sendmsg, SYS_openat2};

static const char *const wheres[] = {"", "futex_wait_queue", "hrtimer_nanosleep", "do_sys_poll", "pipe_read",
	"pipe_write", "do_wait", "locks_lock_inode_wait", "wait_for_partner", "ep_poll", "handle_userfault",
	"kernel_clone", "do_coredump", "flock_lock_inode", "rwsem_down_write_slowpath", "inet_csk_accept",
	"unix_stream_connect", "do_freezer_trap", "pipe_wait_opipe", "a_where_that_fills_all_of_the_room_that_there_is_fo"};

/* An argument: an address, a descriptor, an operation, anything. */
static uint64_t argument(void)
{
	unsigned sort = below(8), param = made_byte();

	switch (sort) {
	case 0:
	case 1:
	case 2:
		return page_address(param) + param / 16 % 8 * 4;
	case 3:
		return param % 16;
	case 4:
		return param;
	case 5:
		return half(param, param / 16);
	case 6:
		return page_address(param) + PTHREAD_TID;
	default:
		return UINT64_MAX - param;
	}
}

static void draw_futex(struct thread_wait *w)
{
	static const uint16_t operations[] = {0, 128, 128, 9, 137, 137, 393, 6, 134, 141, 11, 139, 5};
	unsigned page = made_byte(), at = made_byte(), expected = made_byte();

	w->args[0] = page_address(page) + (at % 4 == 3 ? PTHREAD_TID : at % 4 * 4);
	w->args[1] = operations[at / 4 % (sizeof(operations) / sizeof(operations[0]))];
	w->args[2] = half(expected, expected / 16);
	w->args[3] = at & 128 ? page_address(page + 1) : 0;
}

/* Locks and arguments as they are when nobody lies. struct pthread of a thread is in the page of its number. */
static void set_scene(struct made_thread *t, unsigned scene, unsigned param)
{
	struct thread_wait *w = &t->look.wait;
	unsigned other = param % (unsigned)made.thread_count, page = param / 2 % MADE_PAGES;

	w->syscall = SYS_futex;
	w->args[0] = page_address(page);
	switch (scene) {
	case 0: /* a mutex */
		w->args[1] = 128;
		w->args[2] = 2;
		made.pages[page] = (struct made_page){.kind = 0, .param = (uint8_t)(2 | param << 4), .set = true};
		break;
	case 1: /* a FILE */
		w->args[1] = 128;
		w->args[2] = 2;
		made.pages[page] = (struct made_page){.kind = 1, .param = (uint8_t)(other & 15), .set = true};
		made.pages[other] = (struct made_page){.kind = 3, .param = (uint8_t)other, .set = true};
		break;
	case 2: /* join */
		w->args[0] = page_address(other) + PTHREAD_TID;
		w->args[1] = 9;
		w->args[2] = (uint32_t)made_tid(other);
		made.pages[other] = (struct made_page){.kind = 3, .param = (uint8_t)other, .set = true};
		break;
	case 3: /* a rwlock */
		w->args[0] += param & 1 ? 8 : 12;
		w->args[1] = 137;
		w->args[2] = 2 | (param & 1);
		t->functions[0] = 3;
		made.pages[page] = (struct made_page){.kind = 2, .param = (uint8_t)(10 | param << 4), .set = true};
		break;
	case 4:
		w->syscall = SYS_poll;
		w->args[1] = 1 + param % 3;
		w->args[2] = UINT64_MAX;
		made.pages[page] = (struct made_page){.kind = 4, .param = param & 1 ? 48 : 12, .set = true};
		break;
	case 5:
		w->syscall = SYS_epoll_wait;
		w->args[0] = param % MADE_FDS;
		w->args[3] = UINT64_MAX;
		break;
	case 6:
		w->syscall = SYS_select;
		w->args[0] = MADE_FDS;
		w->args[1] = page_address(page);
		made.pages[page] = (struct made_page){.kind = 4, .param = (uint8_t)(2 + param / 16 * 6), .set = true};
		break;
	}
}

static void draw_wait(struct made_thread *t, size_t index)
{
	struct thread_wait *w = &t->look.wait;
	unsigned scene = below(12);

	w->state = "SSSSSSSDRTtZXI"[below(14)];
	w->blocked = !strchr("RZX", w->state);
	if (!w->blocked)
		return;
	w->syscall = calls[below(sizeof(calls) / sizeof(calls[0]))];
	snprintf(w->where, sizeof(w->where), "%s", wheres[below(sizeof(wheres) / sizeof(wheres[0]))]);
	if (scene < 7)
		set_scene(t, scene, made_byte());
	else if (w->syscall == SYS_futex)
		draw_futex(w);
	else
		for (size_t i = 0; i < 5; i++)
			w->args[i] = argument();
	w->sp = MADE_STACKS + index * MADE_STACK_BYTES;
	w->pc = made_function_pc(t->functions[0]);
}

static void draw_thread(struct made_thread *t, size_t index)
{
	static const char *const names[] = {"main", "worker", "holder", "?[31m", "\"\\", "a\xff\xfe", "",
		"\xe2\x80\xae.txt", "fifteen letters", "\302\23331m"};
	unsigned bits = made_byte();

	t->moods = made_byte();
	t->depth = (uint8_t)(below(MADE_FRAMES) + 1);
	for (size_t i = 0; i < MADE_FRAMES; i++)
		t->functions[i] = i < t->depth ? made_byte() : 0;
	draw_wait(t, index);
	snprintf(t->look.name, sizeof(t->look.name), "%s", names[bits % (sizeof(names) / sizeof(names[0]))]);
	t->look.regs.value[UNWIND_X86_RSP] = t->look.wait.sp;
	t->look.regs.value[UNWIND_X86_PC] = t->look.wait.pc;
	t->look.regs.known = t->look.wait.blocked ? 1u << UNWIND_X86_RSP | 1u << UNWIND_X86_PC : 0;
	t->look.compat = bits / 16 == 7;
	t->look.idle_ns = bits & 32 ? LOOK_UNKNOWN : (uint64_t)bits << 24;
	t->look.ran_ns = bits & 64 ? LOOK_UNKNOWN : bits;
	t->look.queued_ns = bits;
	t->look.switches = 1;
}

static void draw_process(struct made_process *p, size_t index)
{
	static const char *const titles[] = {"prog --flag", "postgres: u d [local] UPDATE waiting",
		"postgres: u d [local] idle in transaction", "\x1b[31mred", "\"quoted\" \\", ""};
	unsigned bits = made_byte();

	*p = (struct made_process){.moods = made_byte()};
	p->sort = (uint8_t)bits;
	p->status = (struct proc_status){.state = bits & 1 ? 'Z' : 'S', .tgid = FIRST_PID + (pid_t)index * 100,
		.ppid = FIRST_PID + (pid_t)(bits / 2 % MADE_PROCESSES) * 100,
		.tracer = bits & 8 ? FIRST_PID : 0, .kernel_thread = (bits & 0xf0) == 0xf0};
	p->status.ns_pid = bits & 16 ? p->status.tgid : 7;
	p->refused = (bits & 0xe0) == 0xa0 ? EPERM : 0;
	snprintf(p->title, sizeof(p->title), "%s", titles[p->moods % 6]);
	snprintf(p->status.name, sizeof(p->status.name), "%s", p->moods % 6 == 1 ? "postgres" : "prog");
}

/* As a core tells of the first process. */
static void draw_core(void)
{
	struct core_info *c = &made.core;

	vec_release(&c->threads);
	*c = (struct core_info){.machine = 62, .pid = FIRST_PID, .ppid = 1, .name = "prog", .arguments = "prog a b"};
	c->signal = made.world & 15;
	c->has_signal = made.world & 16;
	c->signal_code = made.world & 32 ? 1 : -1;
	c->missing_bytes = made.world & 64 ? 4096 : 0;
	for (size_t i = 0; i < made.thread_count; i++)
		if (made.threads[i].look.pid == FIRST_PID)
			(void)vec_push(&c->threads, (struct core_thread){.tid = made.threads[i].look.tid,
							    .signal = c->signal});
}

static void draw_threads(void)
{
	unsigned own[MADE_PROCESSES] = {0};

	made.thread_count = made.process_count + below(MADE_THREADS - MADE_PROCESSES + 1);
	for (size_t i = 0; i < made.thread_count; i++) {
		struct thread_look *l = &made.threads[i].look;
		size_t process = i < made.process_count ? i : below((unsigned)made.process_count);

		*l = (struct thread_look){.pid = FIRST_PID + (pid_t)process * 100};
		l->tid = l->pid + (pid_t)own[process]++;
	}
	for (size_t i = 0; i < made.thread_count; i++)
		draw_thread(&made.threads[i], i);
}

void made_begin(const uint8_t *bytes, size_t size)
{
	struct core_info core = made.core;
	unsigned bits;

	made = (struct made){.tape = bytes, .size = size, .core = core};
	bits = made_byte();
	made.still = bits & 1;
	made.process_count = 1 + bits / 2 % MADE_PROCESSES;
	made.world = made_byte();
	for (size_t i = 0; i < made.process_count; i++)
		draw_process(&made.processes[i], i);
	draw_threads();
	for (size_t i = 0; i < MADE_PAGES; i++) {
		struct made_page drawn = {.kind = made_byte(), .param = made_byte(), .moods = made_byte()};

		if (made.pages[i].set)
			made.pages[i].moods = drawn.moods;
		else
			made.pages[i] = drawn;
	}
	for (size_t i = 0; i < made.process_count; i++)
		for (size_t fd = 0; fd < MADE_FDS; fd++)
			made.fds[i][fd] = (struct made_fd){made_byte(), made_byte(), made_byte()};
	for (size_t i = 0; i < sizeof(made.sockets); i++)
		made.sockets[i / 4][i % 4] = made_byte();
	for (size_t i = 0; i < sizeof(made.locks); i++)
		made.locks[i / 4][i % 4] = made_byte();
	draw_core();
}
