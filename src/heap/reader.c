/* SPDX-License-Identifier: BSD-2-Clause */
#include "heap/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/magic.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "heap/reader_priv.h"
#include "unwind/unwind.h"

#define CAS_TRIES 64u

#if defined(__aarch64__)
#define OWN_ARCH UNWIND_AARCH64
#else
#define OWN_ARCH UNWIND_X86_64
#endif

/* ---- what is taken ---- */

/* Memory that cannot shrink: touching what is not there any more would end us. */
static int check_memory(int fd, struct err *err)
{
	struct stat st;
	struct statfs fs;
	int seals;

	if (fstat(fd, &st) || fstatfs(fd, &fs))
		return err_errno(err, errno, "memory of a watched program");
	if (!S_ISREG(st.st_mode) || fs.f_type != TMPFS_MAGIC)
		return err_set(err, EINVAL, "what a watched program sent is no memory file");
	(void)!fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
	seals = fcntl(fd, F_GET_SEALS);
	if (seals < 0 || !(seals & F_SEAL_SHRINK))
		return err_set(err, EINVAL, "the memory of a watched program cannot be sealed against shrinking");
	if (fstat(fd, &st))
		return err_errno(err, errno, "memory of a watched program");
	if (st.st_size < (off_t)SHARE_BYTES)
		return err_set(err, EINVAL, "the memory of a watched program is too small: %lld bytes of %llu",
			(long long)st.st_size, (unsigned long long)SHARE_BYTES);
	return 0;
}

/* *h is a copy: what it says does not change any more. */
static int check_header(const struct share_header *h, struct err *err)
{
	if (memcmp(h->magic, SHARE_MAGIC, sizeof(h->magic)))
		return err_set(err, EINVAL, "the memory of a watched program is not laid out as it should be");
	if (h->version != SHARE_VERSION)
		return err_set(err, EINVAL, "a watched program has another version of our library: %u, not %u", h->version,
			SHARE_VERSION);
	if (!h->ready || h->bytes != SHARE_BYTES || h->mode < SHARE_EXACT || h->mode > SHARE_PROGRAM ||
		h->clock > SHARE_CLOCK_COUNTER)
		return err_set(err, EINVAL, "the memory of a watched program makes no sense: ready %u, %llu bytes, "
			"mode %u, clock %u", h->ready, (unsigned long long)h->bytes, h->mode, h->clock);
	if (h->arch != OWN_ARCH)
		return err_set(err, EINVAL, "a watched program runs on another processor than ours (emulated)");
	return 0;
}

static int read_header(struct heap_readers *set, struct process *p, struct err *err)
{
	struct share_header h;
	uint32_t ready = shared_acquire(&shared_header(p)->ready);

	memcpy(&h, shared_header(p), sizeof(h));
	h.ready = ready;

	int rc = check_header(&h, err);

	if (rc)
		return rc;
	p->header = (struct heap_header){
		.pid = h.pid,
		.mode = h.mode,
		.clock = h.clock,
		.sizes = h.sizes <= SHARE_SIZES_TOLD ? h.sizes : SHARE_SIZES_UNKNOWN,
		.arch = h.arch,
		.rate = h.mode == SHARE_EXACT ? 0 : h.rate,
		.options = h.options,
		.began_ns = h.began,
	};
	if (h.clock == SHARE_CLOCK_COUNTER) {
		set->uses_counter = true;
		counter_update(&set->counter);
		p->header.began_ns = counter_ns(&set->counter, h.began);
	}
	return 0;
}

/* ---- the set ---- */

int heap_readers_new(const struct heap_reader_ops *ops, void *ctx, struct heap_readers **ret, struct err *err)
{
	struct heap_readers *set = calloc(1, sizeof(*set));

	if (!set)
		return err_nomem(err);
	set->ops = ops;
	set->ctx = ctx;
	set->more = (struct heap_event_more){.text = {"", "", ""}};
	*ret = set;
	return 0;
}

static void process_free(struct process *p)
{
	if (!p)
		return;
	/* A target that was told to stop and lives on keeps its mapping, and no memory but the header. */
	if (p->memory && shared_load(&shared_header(p)->stop))
		madvise(p->memory + SHARE_PAGE, SHARE_BYTES - SHARE_PAGE, MADV_REMOVE);
	if (p->memory)
		munmap(p->memory, SHARE_BYTES);
	vec_each(&p->rings, r)
		free(r->raw);
	vec_release(&p->rings);
	vec_release(&p->notes);
	vec_release(&p->kept);
	free(p);
}

void heap_readers_free(struct heap_readers *set)
{
	if (!set)
		return;
	for (uint32_t i = 0; i < set->slot_count; i++)
		process_free(set->processes[i]);
	vec_release(&set->turns);
	free(set->raw);
	free(set);
}

static struct process *process_of(const struct heap_readers *set, uint32_t number)
{
	uint32_t slot = HEAP_SLOT(number);
	struct process *p = slot < set->slot_count ? set->processes[slot] : NULL;

	return p && p->number == number ? p : NULL;
}

static int map_process(struct heap_readers *set, struct process *p, int fd, struct err *err)
{
	int rc = check_memory(fd, err);
	void *memory;

	if (rc)
		return rc;
	memory = mmap(NULL, SHARE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
	if (memory == MAP_FAILED)
		return err_errno(err, errno, "the memory of a watched program cannot be mapped");
	p->memory = memory;
	return read_header(set, p, err);
}

int heap_readers_add(struct heap_readers *set, int fd, uint32_t pid, uint32_t *ret_number, struct err *err)
{
	autoclose int taken = fd;
	uint32_t slot = 0;
	int rc;

	while (slot < HEAP_PROCESSES && set->processes[slot])
		slot++;
	if (slot == HEAP_PROCESSES)
		return err_set(err, EMFILE, "more than %u programs at once are not watched", HEAP_PROCESSES);

	struct process *p = calloc(1, sizeof(*p));

	if (!p)
		return err_nomem(err);
	p->pid = pid;
	rc = map_process(set, p, taken, err);
	if (rc) {
		process_free(p);
		return rc;
	}
	p->number = (uint32_t)set->used_before[slot]++ << 16 | slot;
	set->processes[slot] = p;
	if (slot >= set->slot_count)
		set->slot_count = slot + 1;
	*ret_number = p->number;
	return 0;
}

void heap_readers_remove(struct heap_readers *set, uint32_t number)
{
	if (!process_of(set, number))
		return;
	process_free(set->processes[HEAP_SLOT(number)]);
	set->processes[HEAP_SLOT(number)] = NULL;
}

/* ---- what stands there ---- */

const struct heap_header *heap_readers_header(const struct heap_readers *set, uint32_t number)
{
	const struct process *p = process_of(set, number);

	return p ? &p->header : NULL;
}

bool heap_readers_node(const struct heap_readers *set, uint32_t number, uint32_t node, struct heap_node *ret)
{
	const struct process *p = process_of(set, number);

	if (!p || node < SHARE_STACK_FIRST || node >= SHARE_NODES)
		return false;

	const struct share_node *n = (const struct share_node *)(const void *)(p->memory + SHARE_NODES_AT) + node;
	uint32_t parent = shared_load(&n->parent);

	if (parent >= node)
		return false;
	*ret = (struct heap_node){shared_load(&n->pc), parent, shared_load(&n->detail)};
	return true;
}

uint8_t *heap_readers_tables(struct heap_readers *set, uint32_t number)
{
	struct process *p = process_of(set, number);

	return p ? p->memory + SHARE_TABLES_AT : NULL;
}

struct share_header *heap_readers_shared(struct heap_readers *set, uint32_t number)
{
	struct process *p = process_of(set, number);

	return p ? (struct share_header *)p->memory : NULL;
}

uint32_t heap_readers_modules_wanted(const struct heap_readers *set, uint32_t number)
{
	const struct process *p = process_of(set, number);

	return p ? shared_acquire(&shared_header(p)->modules_wanted) : 0;
}

void heap_readers_publish(struct heap_readers *set, uint32_t number, uint64_t directory, uint32_t modules_done)
{
	struct process *p = process_of(set, number);

	if (!p)
		return;
	__atomic_store_n(&shared_header(p)->directory, directory, __ATOMIC_RELEASE);
	__atomic_store_n(&shared_header(p)->modules_done, modules_done, __ATOMIC_RELEASE);
	syscall(SYS_futex, &shared_header(p)->modules_done, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void heap_readers_set_rate(struct heap_readers *set, uint32_t number, uint64_t rate)
{
	struct process *p = process_of(set, number);

	if (p)
		__atomic_store_n(&shared_header(p)->rate, rate, __ATOMIC_RELAXED);
}

void heap_readers_set_chunks(struct heap_readers *set, uint32_t number, uint32_t chunks)
{
	struct process *p = process_of(set, number);

	if (p)
		__atomic_store_n(&shared_header(p)->chunk_limit, chunks < SHARE_CHUNKS ? chunks : SHARE_CHUNKS - 1,
			__ATOMIC_RELAXED);
}

void heap_readers_stop(struct heap_readers *set, uint32_t number)
{
	struct process *p = process_of(set, number);

	if (p)
		__atomic_store_n(&shared_header(p)->stop, 1, __ATOMIC_RELEASE);
}

void heap_readers_unfilter(struct heap_readers *set, uint32_t number, uint64_t address)
{
	struct process *p = process_of(set, number);

	if (!p)
		return;

	uint8_t *slot = p->memory + SHARE_FILTER_AT + share_filter_slot(address), now = shared_load(slot);

	for (unsigned i = 0; i < CAS_TRIES && now && now != UINT8_MAX; i++)
		if (__atomic_compare_exchange_n(slot, &now, (uint8_t)(now - 1), false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
			return;
}

void heap_readers_thread_gone(struct heap_readers *set, uint32_t number, uint32_t tid)
{
	struct process *p = process_of(set, number);

	for (size_t i = 0; p && i < p->rings.len; i++) {
		struct share_ring *r = (struct share_ring *)(void *)(p->memory + SHARE_RINGS_AT) + i;
		uint32_t owned = SHARE_RING_OWNED;

		if (shared_load(&r->tid) == tid)
			__atomic_compare_exchange_n(&r->state, &owned, SHARE_RING_RELEASED, false, __ATOMIC_ACQ_REL,
				__ATOMIC_RELAXED);
	}
}

void heap_readers_losses(struct heap_readers *set, uint32_t number, struct heap_losses *ret)
{
	struct process *p = process_of(set, number);

	*ret = (struct heap_losses){0};
	for (unsigned i = 0; p && i < SHARE_LOST_COUNT; i++) {
		uint64_t lost = shared_load(&shared_header(p)->lost[i]);

		if (lost > p->losses.lost[i])
			p->losses.lost[i] = lost;
	}
	if (p)
		*ret = p->losses;
}

uint64_t heap_readers_bytes(const struct heap_readers *set)
{
	return set->bytes;
}
