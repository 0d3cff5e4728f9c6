/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How a program begins to be watched: with its first allocation, or in our constructor when it has none before.
 *
 * Where the collector is stands in the environment (share.h). The shared memory is made, mapped and sent, and no
 * descriptor stays behind. When anything of that fails the preload is off, and the program runs as without it.
 *
 * A forked child finds a page that fork has wiped and starts anew, with memory of its own at the same addresses. A child of
 * vfork or of clone with CLONE_VM shares the page, and so goes on as the parent that it borrows the memory of.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "heap/preload/clock.h"
#include "heap/preload/preload.h"
#ifndef PRELOAD_OF_PROGRAM
#include "heap/preload/got.h"
#include "heap/preload/real.h"
#endif
#include "heap/preload/ring.h"
#include "heap/preload/sample.h"
#include "heap/preload/sys.h"
#include "heap/tables_layout.h"

#pragma weak environ
#pragma weak getauxval
#pragma weak pthread_key_create
#pragma weak walk_state_bytes
#ifndef PRELOAD_OF_PROGRAM
#pragma weak got_patch_operators /* parts of it stand alone in tests */
#endif

#define NOEXEC_SEAL 8u /* MFD_NOEXEC_SEAL of newer kernels */

struct preload preload;

/* Part of a program (heap/program/), and not in front of its allocator: it says what it wants to say, whatever others are
 * asked to write down, by the clock that it reads itself, and waits for nobody. */
#ifdef PRELOAD_OF_PROGRAM
static const bool of_program = true;
static const uint8_t no_filter[1];
#else
static const bool of_program = false;
/* What a filter is when nothing is written: no block is of interest. */
static const uint8_t no_filter[SHARE_FILTER_SLOTS];
#endif

/* What stands in the environment; a forked child uses it again, whatever became of the environment meanwhile. */
static struct wish {
	bool read;
	uint32_t mode, clock;
	uint64_t rate, options;
	char token[32];
	struct sockaddr_un address;
	uint32_t address_bytes;
} wish;

static bool failed(long ret)
{
	return ret < 0 && ret > -4096;
}

/* ---- the environment ---- */

static const char *wish_text(void)
{
	static const char name[] = SHARE_ENVIRONMENT "=";

	for (char **e = environ; e && *e; e++) {
		size_t i = 0;

		while (name[i] && (*e)[i] == name[i])
			i++;
		if (!name[i])
			return *e + i;
	}
	return NULL;
}

/* A decimal number and the ':' behind it. */
static bool read_number(const char **at, uint64_t *ret)
{
	const char *s = *at;
	uint64_t n = 0;

	for (; *s >= '0' && *s <= '9'; s++)
		if (__builtin_mul_overflow(n, 10, &n) || __builtin_add_overflow(n, (uint64_t)(*s - '0'), &n))
			return false;
	if (s == *at || *s != ':')
		return false;
	*at = s + 1;
	*ret = n;
	return true;
}

static bool read_wish(const char *at)
{
	uint64_t version, mode, clock;
	uint32_t n = 0;

	if (!read_number(&at, &version) || version != SHARE_VERSION || !read_number(&at, &mode) || mode < SHARE_EXACT ||
		mode > (of_program ? SHARE_PROGRAM : SHARE_EVERY) || !read_number(&at, &clock) || clock > SHARE_CLOCK_COUNTER ||
		!read_number(&at, &wish.rate) || !read_number(&at, &wish.options))
		return false;
	wish.mode = of_program ? SHARE_PROGRAM : (uint32_t)mode;
	if (of_program)
		wish.rate = 0;
	wish.clock = of_program ? SHARE_CLOCK_MONOTONIC : (uint32_t)clock;
	for (uint32_t i = 0; i < sizeof(wish.token); i++, at++) {
		if (!*at || *at == ':')
			return false;
		wish.token[i] = *at;
	}
	if (*at++ != ':')
		return false;
	wish.address.sun_family = AF_UNIX;
	for (; at[n]; n++) {
		if (n + 1 >= sizeof(wish.address.sun_path))
			return false;
		wish.address.sun_path[n + 1] = at[n];
	}
	wish.address_bytes = (uint32_t)offsetof(struct sockaddr_un, sun_path) + 1 + n;
	return n > 0;
}

/* ---- the memory ---- */

/* A process with a limit on its address space has reasons; what we map must not eat it up. */
bool preload_needs_room(uint64_t limit_bytes)
{
	return limit_bytes != RLIM_INFINITY && limit_bytes / 8 < SHARE_BYTES;
}

static bool limits_allow(void)
{
	struct rlimit limit;

	return !failed(sys6(SYS_prlimit64, 0, RLIMIT_AS, 0, &limit, 0, 0)) && !preload_needs_room(limit.rlim_cur);
}

/* Beyond this limit ftruncate would kill us. The soft one may be lifted for a moment: nobody else runs yet, or the files
 * that they write then are no longer than the hard one allows. */
static bool set_length(int fd)
{
	struct rlimit limit, wide;
	bool lift;
	long ret;

	if (failed(sys6(SYS_prlimit64, 0, RLIMIT_FSIZE, 0, &limit, 0, 0)))
		return false;
	lift = limit.rlim_cur < SHARE_BYTES;
	if (lift) {
		wide = limit;
		wide.rlim_cur = limit.rlim_max;
		if (limit.rlim_max < SHARE_BYTES || failed(sys6(SYS_prlimit64, 0, RLIMIT_FSIZE, &wide, 0, 0, 0)))
			return false;
	}
	ret = sys3(SYS_ftruncate, fd, SHARE_BYTES, 0);
	if (lift)
		sys6(SYS_prlimit64, 0, RLIMIT_FSIZE, &limit, 0, 0, 0);
	return !failed(ret);
}

static int make_file(void)
{
	long fd = sys3(SYS_memfd_create, "sonde-heap", MFD_CLOEXEC | MFD_ALLOW_SEALING | NOEXEC_SEAL, 0);

	if (fd == -EINVAL)
		fd = sys3(SYS_memfd_create, "sonde-heap", MFD_CLOEXEC | MFD_ALLOW_SEALING, 0);
	if (failed(fd))
		return -1;
	if (!set_length((int)fd) || failed(sys3(SYS_fcntl, fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW))) {
		sys3(SYS_close, fd, 0, 0);
		return -1;
	}
	return (int)fd;
}

/* Over what was there before. In a forked child no other thread can be in there but to read the filter; of a program
 * that is attached to again, one may still be writing what nobody reads: it must not find a page that it may not. */
static bool map_over(uint8_t *old, int fd)
{
	return !failed(sys6(SYS_mmap, old, SHARE_TABLES_AT, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED,
		       fd, 0)) &&
		!failed(sys6(SYS_mmap, old + SHARE_TABLES_AT, SHARE_BYTES - SHARE_TABLES_AT, PROT_READ,
			MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd, SHARE_TABLES_AT));
}

/* Where there was nothing: all of it in one piece. */
static uint8_t *map_new(int fd)
{
	long ret = sys6(SYS_mmap, 0, SHARE_BYTES, PROT_READ, MAP_SHARED | MAP_NORESERVE, fd, 0);

	if (failed(ret))
		return NULL;
	if (failed(sys3(SYS_mprotect, ret, SHARE_TABLES_AT, PROT_READ | PROT_WRITE))) {
		sys3(SYS_munmap, ret, SHARE_BYTES, 0);
		return NULL;
	}
	return (uint8_t *)ret;
}

static bool map_file(int fd)
{
	uint8_t *at = (uint8_t *)preload.memory.header;

	if (at ? !map_over(at, fd) : !(at = map_new(fd)))
		return false;
	sys3(SYS_madvise, at, SHARE_BYTES, MADV_DONTDUMP);
	preload.filter_counts = at + SHARE_FILTER_AT;
	preload.rings = (struct share_ring *)(void *)(at + SHARE_RINGS_AT);
	preload.chunks = at + SHARE_CHUNKS_AT;
	preload.memory.index = (uint32_t *)(void *)(at + SHARE_INDEX_AT);
	preload.memory.nodes = (struct share_node *)(void *)(at + SHARE_NODES_AT);
	preload.memory.tables = at + SHARE_TABLES_AT;
	preload.memory.header = (struct share_header *)(void *)at;
	return true;
}

/* ---- what a forked child has of its parent ---- */

struct inherited {
	uint32_t pid;           /* 0: it is not forked from a process that was watched */
	uint32_t tables_bytes;  /* 0: the tables were not copied */
	uint32_t wanted, done, gone;
	uint64_t directory;
};

/* The end of what the directory leads to. 0: it makes no sense, or the room is used for something else now. */
static uint64_t tables_end(const uint8_t *tables, uint64_t where)
{
	const struct tables_directory *d = (const void *)(tables + where);
	const struct tables_module *m = (const void *)(d + 1);
	uint64_t end = where + sizeof(*d);
	uint32_t count;

	if (end > SHARE_KEPT_MOST || d->magic != TABLES_MAGIC)
		return 0;
	count = d->count;
	if (count > (SHARE_KEPT_MOST - end) / sizeof(*m))
		return 0;
	end += count * sizeof(*m);
	for (uint32_t i = 0; i < count; i++) {
		uint64_t at = m[i].blob, blob_end;
		const struct tables_blob *blob = (const void *)(tables + at);

		if (!at)
			continue;
		if (at > SHARE_KEPT_MOST || blob->rows > SHARE_KEPT_MOST || blob->rules > SHARE_KEPT_MOST)
			return 0;
		blob_end = at + TABLES_RULES_AT(blob->rows) + 8ull * blob->rules;
		end = end > blob_end ? end : blob_end;
	}
	return end <= SHARE_KEPT_MOST ? end : 0;
}

/* Its code is that of its parent, so it need not wait for tables of its own. Written and not mapped: most of it is never
 * looked at, and the kernel copies faster than pages are made. */
static void copy_tables(const struct share_header *parent, int fd, struct inherited *ret)
{
	uint64_t word = __atomic_load_n(&parent->directory, __ATOMIC_ACQUIRE), end;
	const uint8_t *tables = preload.memory.tables;
	struct rlimit limit;

	if (!word || TABLES_WHERE(word) >= SHARE_KEPT_MOST || failed(sys6(SYS_prlimit64, 0, RLIMIT_FSIZE, 0, &limit, 0, 0)) ||
		limit.rlim_cur < SHARE_BYTES)
		return;
	end = tables_end(tables, TABLES_WHERE(word));
	if (!end || sys6(SYS_pwrite64, fd, tables, end, SHARE_TABLES_AT, 0, 0) != (long)end)
		return;
	/* Another one may have been published meanwhile, over what was copied. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (__atomic_load_n(&parent->directory, __ATOMIC_ACQUIRE) != word)
		return;
	ret->directory = word;
	ret->tables_bytes = (uint32_t)end;
}

static void inherit(int fd, struct inherited *ret)
{
	const struct share_header *parent = preload.memory.header;

	*ret = (struct inherited){0};
	if (!parent || preload.attached || of_program)
		return;
	ret->pid = parent->pid;
	ret->done = __atomic_load_n(&parent->modules_done, __ATOMIC_ACQUIRE);
	ret->wanted = __atomic_load_n(&parent->modules_wanted, __ATOMIC_ACQUIRE);
	ret->gone = __atomic_load_n(&parent->modules_gone, __ATOMIC_ACQUIRE);
	/* What the collector has to know of Python's frames it knows of no child before it has met it. */
	if (share_python_of(preload.memory.header)->state != SHARE_PYTHON_READY)
		copy_tables(parent, fd, ret);
}

static void fill_header(const struct inherited *from)
{
	static const char magic[] = SHARE_MAGIC;
	struct share_header *h = preload.memory.header;

	for (int i = 0; i < 8; i++)
		h->magic[i] = magic[i];
	h->version = SHARE_VERSION;
	h->mode = wish.mode;
	h->clock = wish.clock;
	h->pid = (uint32_t)sys3(SYS_getpid, 0, 0, 0);
#if defined(__aarch64__)
	h->arch = 1;
#endif
	h->bytes = SHARE_BYTES;
	h->began = clock_before(wish.clock);
	h->options = wish.options;
#ifndef PRELOAD_OF_PROGRAM
	h->sizes = real.sizes;
#endif
	h->node_count = SHARE_STACK_FIRST;
	h->modules_wanted = 1;
	h->forked_from = from->pid;
	if (from->tables_bytes) {
		h->tables_kept = from->tables_bytes;
		h->modules_wanted = from->wanted + 1; /* the collector's own, once there are any */
		h->modules_gone = from->gone;
		h->modules_done = from->done;
		h->directory = from->directory;
	}
	h->rate = wish.rate;
	h->chunk_limit = SHARE_CHUNKS - 1;
	h->lost[SHARE_LOST_EARLY] = preload.early;
	__atomic_store_n(&h->ready, 1, __ATOMIC_RELEASE);
}

/* A page that is zero in forked children. Not freed: whoever looks at it may do so at any time. */
static bool make_alive(void)
{
	long ret = (long)preload.alive;

	if (!ret)
		ret = sys6(SYS_mmap, 0, SHARE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (failed(ret) || failed(sys3(SYS_madvise, ret, SHARE_PAGE, MADV_WIPEONFORK)))
		return false;
	preload.alive = (const uint32_t *)ret;
	return true;
}

/* ---- hello ---- */

static bool connect_to(int fd)
{
	struct timespec pause = {.tv_nsec = 1000000};
	long ret = -EAGAIN;

	/* EAGAIN: others are waiting to be taken. */
	for (int tries = 0; tries < 500 && ret == -EAGAIN; tries++) {
		if (tries)
			sys3(SYS_nanosleep, &pause, 0, 0);
		ret = sys3(SYS_connect, fd, &wish.address, wish.address_bytes);
	}
	return !failed(ret);
}

static bool send_hello(int fd, int memory)
{
	static const char magic[] = SHARE_MAGIC;
	struct share_hello hello = {.version = SHARE_VERSION, .pid = preload.memory.header->pid};
	union {
		struct cmsghdr header;
		uint8_t bytes[CMSG_SPACE(sizeof(int))];
	} control = {.header = {.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
	struct iovec iov = {.iov_base = &hello, .iov_len = sizeof(hello)};
	struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control,
		.msg_controllen = sizeof(control)};

	for (int i = 0; i < 8; i++)
		hello.magic[i] = magic[i];
	for (uint32_t i = 0; i < sizeof(hello.token); i++)
		hello.token[i] = wish.token[i];
	*(int *)(void *)CMSG_DATA(&control.header) = memory;
	return sys3(SYS_sendmsg, fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == (long)sizeof(hello);
}

static bool say_hello(int memory)
{
	long fd = sys3(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	bool ok;

	if (failed(fd))
		return false;
	ok = connect_to((int)fd) && send_hello((int)fd, memory);
	sys3(SYS_close, fd, 0, 0);
	return ok;
}

void preload_wait(uint32_t milliseconds)
{
	struct share_header *h = preload.memory.header;
	uint64_t now = clock_ns(CLOCK_MONOTONIC), end = now + milliseconds * 1000000ull;
	uint32_t wanted = __atomic_load_n(&h->modules_wanted, __ATOMIC_ACQUIRE), done;

	for (; now < end && !h->stop; now = clock_ns(CLOCK_MONOTONIC)) {
		/* A wake that is missed costs no more than this. */
		struct timespec left = {.tv_nsec = (long)(end - now < 50000000u ? end - now : 50000000u)};

		done = __atomic_load_n(&h->modules_done, __ATOMIC_ACQUIRE);
		if ((int32_t)(done - wanted) >= 0)
			return;
		sys6(SYS_futex, &h->modules_done, FUTEX_WAIT, done, &left, 0, 0);
	}
}

/* ---- all of it ---- */

static bool meet(void)
{
	struct inherited from;
	int fd = make_file();
	bool ok;

	if (fd < 0)
		return false;
	inherit(fd, &from);
	ok = map_file(fd);
	if (ok) {
		fill_header(&from);
		ok = say_hello(fd);
	}
	sys3(SYS_close, fd, 0, 0);
	return ok;
}

static void switch_on(void)
{
	preload.mode = wish.mode;
	preload.clock = wish.clock;
	preload.options = (uint32_t)wish.options;
	preload.size_mask = wish.mode == SHARE_SAMPLED ? SAMPLE_BYTES_MASK : 0;
	preload.generation++;
	*(uint32_t *)(uintptr_t)preload.alive = preload.generation;
	preload.plain = wish.mode == SHARE_EXACT && wish.clock == SHARE_CLOCK_COUNTER &&
		!(wish.options & (SHARE_OPTION_FREE_STACKS | SHARE_OPTION_TIMES));
#ifndef PRELOAD_OF_PROGRAM
	preload.tells_sizes = real.sizes == SHARE_SIZES_TOLD && wish.mode != SHARE_EVERY;
#endif
	__atomic_store_n(&preload.filter, wish.mode == SHARE_SAMPLED ? preload.filter_counts : NULL, __ATOMIC_RELEASE);
	__atomic_store_n(&preload.state, PRELOAD_ON, __ATOMIC_RELEASE);
}

void preload_off(void)
{
	/* Counts down all the same, from so far above that it never gets there. */
	preload.size_mask = 0;
	preload.plain = false;
	__atomic_store_n(&preload.filter, no_filter, __ATOMIC_RELEASE);
	__atomic_store_n(&preload.state, PRELOAD_OFF, __ATOMIC_RELEASE);
}

void preload_give_up(void)
{
	uint8_t *at = (uint8_t *)preload.memory.header;

	__atomic_store_n(&preload.memory.header->gave_up, SHARE_LEFT_UNREAD, __ATOMIC_RELEASE);
	preload_off();
	/* Threads that are in the middle of an event write it to pages that are new and nobody's; tables are not ours. */
	sys3(SYS_madvise, at + SHARE_INDEX_AT, SHARE_TABLES_AT - SHARE_INDEX_AT, MADV_REMOVE);
}

/* The parent lives, after the hello: so the collector hears of this child before it hears of the parent's end, and knows
 * from the parent what code this one has. */
static bool need_not_wait(void)
{
	const struct share_header *h = preload.memory.header;

	return h->tables_kept && h->forked_from == (uint32_t)sys3(SYS_getppid, 0, 0, 0);
}

static void start(void)
{
	int saved = errno;

	if (!preload.has_key && pthread_key_create)
		preload.has_key = !pthread_key_create(&preload.key, thread_ended);
	if (limits_allow() && make_alive() && meet()) {
		if (!of_program && !need_not_wait())
			preload_wait(SHARE_WAIT_START_MS);
		switch_on();
#ifndef PRELOAD_OF_PROGRAM
		if (got_patch_operators)
			got_patch_operators();
#endif
	} else {
		preload_off();
	}
	errno = saved;
}

/* The environment is not there before libc is. */
static bool wish_known(void)
{
	const char *text;

	if (wish.read)
		return true;
	if (!&environ || !environ || !getauxval)
		return false;
	text = wish_text();
	if (getauxval(AT_SECURE) || !text || !read_wish(text) || preload_in_sandbox(wish.options))
		preload_off();
	wish.read = true;
	return true;
}

static bool started(void)
{
	uint32_t state = __atomic_load_n(&preload.state, __ATOMIC_ACQUIRE);
	bool child = state == PRELOAD_ON && !*preload.alive;

	if (state == PRELOAD_ON && !child)
		return true;
	if (state == PRELOAD_OFF || state == PRELOAD_STARTING ||
		!__atomic_compare_exchange_n(&preload.state, &state, PRELOAD_STARTING, false, __ATOMIC_ACQUIRE,
			__ATOMIC_RELAXED))
		return false;
	if (!wish_known())
		__atomic_store_n(&preload.state, PRELOAD_NEW, __ATOMIC_RELEASE);
	else if (preload.state != PRELOAD_OFF)
		start();
	return preload.state == PRELOAD_ON;
}

bool preload_ready(struct thread *t)
{
	bool on = started();

	if (on && preload.memory.header->stop) {
		preload_off();
		on = false;
	}
	if (!on) {
		if (preload.state == PRELOAD_OFF && !preload.attached)
			t->left = INT64_MAX;
		else
			__atomic_fetch_add(&preload.early, 1, __ATOMIC_RELAXED);
		return false;
	}
	if (t->generation != preload.generation) {
		t->generation = preload.generation;
		t->ring = 0;
		t->chunk = NULL;
		t->walk = NULL;
		t->last = 0;
		t->ended = t->rounds = 0;
		t->cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	}
	return true;
}

/* ---- attached ---- */

static int share(const char *text)
{
	int fd;

	if (!read_wish(text))
		return -EINVAL;
	wish.read = true;
	if (!preload.has_key && pthread_key_create)
		preload.has_key = !pthread_key_create(&preload.key, thread_ended);
	if (!limits_allow() || !make_alive())
		return -ENOMEM;
	fd = make_file();
	if (fd < 0)
		return -ENOMEM;
	if (!map_file(fd)) {
		sys3(SYS_close, fd, 0, 0);
		return -ENOMEM;
	}
	preload.early = 0;
	thread_leave_walks();
	fill_header(&(struct inherited){0});
	return fd;
}

int preload_share(const char *text)
{
	uint32_t state = __atomic_load_n(&preload.state, __ATOMIC_ACQUIRE);
	int fd;

	/* One that was attached and is starting still has lost its collector. */
	if ((state == PRELOAD_ON && *preload.alive) || (state == PRELOAD_STARTING && !preload.attached))
		return -EBUSY;
	preload.attached = true;
	/* Whoever comes in before all is patched passes through. */
	__atomic_store_n(&preload.state, PRELOAD_STARTING, __ATOMIC_RELEASE);
	fd = share(text);
	if (fd < 0)
		preload_off();
	return fd;
}

void preload_shared_on(void)
{
	switch_on();
	/* What a thread has left of an earlier time runs out, which it would not where sizes do not count. */
	preload.size_mask = SAMPLE_BYTES_MASK;
}

void preload_unshare(void)
{
	preload_off();
	if (preload.memory.header)
		sys6(SYS_mmap, preload.memory.header, SHARE_BYTES, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

/* For programs that allocate nothing before main; and only from here on, where libc is ready in any case. */
__attribute__((constructor)) static void begin(void)
{
	struct thread *t = &thread;

#ifndef PRELOAD_OF_PROGRAM
	if (!real_ready(t))
		return;
#endif
	if (t->busy)
		return;
	t->busy = 1;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	preload_ready(t);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	t->busy = 0;
}

/* The end of the process by exit, as an event: what is live now was live at its end. */
__attribute__((destructor)) static void end(void)
{
	struct thread *t = &thread;
	uint64_t *e;

	if (t->busy || preload.state != PRELOAD_ON || !*preload.alive)
		return;
	t->busy = 1;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	/* A child of vfork that exits the wrong way is not the process. */
	if (preload_ready(t) && preload.memory.header->pid == (uint32_t)sys3(SYS_getpid, 0, 0, 0)) {
		e = ring_reserve(t, 16);
		if (e) {
			e[0] = clock_before(preload.clock);
			e[1] = SHARE_WORD(SHARE_PROCESS_END, 0);
			ring_commit(t, 16);
		}
	}
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	t->busy = 0;
}
