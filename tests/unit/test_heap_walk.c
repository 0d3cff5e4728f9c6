/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Walks of this process by itself: what is found must be what the unwinder of samples finds from the same registers.
 */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <ucontext.h>

#include "test.h"

#include "base/hash.h"
#include "own_paths.h"
#include "own_tables.h"

#define FRAMES 256
#define STACK_COPY (256u << 10)

static struct own own;
static __thread struct walk_state *state, *second, *third;
static __thread struct unwinder *unwinder;
static __thread uint64_t walks, raw, different, by_paths;
static __thread uint8_t *copy;

static void enter_thread(void)
{
	state = own_state();
	second = own_state();
	third = own_state();
	copy = (uint8_t *)malloc(STACK_COPY);
	if (!copy || unwinder_new(&unwinder, NULL))
		abort();
	walks = raw = different = by_paths = 0;
}

static void leave_thread(void)
{
	munmap(state, walk_state_bytes());
	munmap(second, walk_state_bytes());
	munmap(third, walk_state_bytes());
	free(copy);
	unwinder_free(unwinder);
}

/* ---- the two walks ---- */

/* Addresses of a node, innermost first. */
static size_t pcs_of(uint32_t node, uint64_t *pcs, size_t limit)
{
	size_t count = 0;

	while (node >= SHARE_STACK_FIRST && count < limit) {
		const struct share_node *n = &own.memory.nodes[node];

		check(n->parent < node);
		if (n->pc >= SHARE_FIRST_PC)
			pcs[count++] = n->pc;
		node = n->parent;
	}
	return node == SHARE_STACK_ROOT ? count : 0;
}

static bool read_self(void *ctx, uint64_t addr, void *buf, size_t len)
{
	int fds[2];
	bool good;

	(void)ctx;
	if (pipe(fds))
		return false;
	good = write(fds[1], (const void *)(uintptr_t)addr, len) == (ssize_t)len &&
	       read(fds[0], buf, len) == (ssize_t)len;
	close(fds[0]);
	close(fds[1]);
	return good;
}

/* Plainly, word by word: this looks at what is no object of C's. */
__attribute__((no_sanitize("address"))) static size_t copy_stack(uint64_t sp, uint64_t end)
{
	size_t words = end > sp ? (size_t)(end - sp) / 8 : 0;

	if (words > STACK_COPY / 8)
		words = STACK_COPY / 8;
	for (size_t i = 0; i < words; i++)
		((volatile uint64_t *)copy)[i] = ((const volatile uint64_t *)(uintptr_t)sp)[i];
	return words * 8;
}

static __thread uint64_t stack_end; /* of the stack that the thread is on; 0: read what is needed */

static void report(const uint64_t *pcs, size_t count, const struct unwind_frame *frames, size_t frame_count)
{
	if (different++ > 3)
		return;
	printf("%" PRIu32 " nodes, %" PRIu64 " lost; %zu frames, not %zu:", own.memory.header->node_count,
		own.memory.header->lost[SHARE_LOST_NODE], count, frame_count);
	for (size_t i = 0; i < count || i < frame_count; i++)
		printf(" [%zx %zx]", (size_t)(i < count ? pcs[i] : 0), (size_t)(i < frame_count ? frames[i].pc : 0));
	printf("\n");
}

/* Modules of the unwinder of samples are one thread's at a time. */
static pthread_mutex_t modules_lock = PTHREAD_MUTEX_INITIALIZER;

static size_t walk_sample(const struct unwind_regs *regs, struct unwind_frame *frames, enum unwind_end *ret_end)
{
	struct unwind_target target = {
		.arch = UNWIND_X86_64, .ctx = &own, .find_mapping = own_find_mapping, .read_memory = read_self};
	uint64_t sp = regs->value[UNWIND_X86_RSP];
	struct unwind_dump dump = {sp, copy, copy_stack(sp, stack_end)};
	size_t found;

	pthread_mutex_lock(&modules_lock);
	found = unwinder_walk(unwinder, &target, regs, stack_end ? &dump : NULL, frames, FRAMES, ret_end);
	pthread_mutex_unlock(&modules_lock);
	return found;
}

/* The same walk from nothing, and by what is kept of the last one alone, and by paths alone. */
static void compare_ways(const struct walk_start *start, enum walk_result result, uint32_t node)
{
	uint32_t again = 0, once_more = 0;
	bool known;

	walk_forget(second);
	if (walk_stack(&own.memory, second, start, &again) != result || again != node) {
		different++;
		check_u64(again, node);
	}
	paths_skip(third);
	if (walk_stack(&own.memory, third, start, &once_more) != result || once_more != node) {
		different++;
		check_u64(once_more, node);
	}
	if (!paths_agree(&own.memory, third, start, result, &known)) {
		different++;
		check(!"paths lead to another stack");
	}
	by_paths += known;
}

/* Walks from the caller of the function that calls this, in all ways, and with all registers. */
static void compare_walks(const struct walk_start *start, const struct unwind_regs *regs)
{
	struct unwind_frame frames[FRAMES];
	uint64_t pcs[FRAMES];
	uint32_t node;
	enum unwind_end end;
	enum walk_result result = walk_stack(&own.memory, state, start, &node);

	walks++;
	compare_ways(start, result, node);
	if (result == WALK_RAW) {
		raw++;
		return;
	}

	size_t count = pcs_of(node, pcs, FRAMES);
	size_t found = walk_sample(regs, frames, &end);
	bool same = end == UNWIND_ROOT && result == WALK_WHOLE && count + 1 == found;

	for (size_t i = 0; same && i < count; i++)
		same = pcs[i] == frames[i + 1].pc;
	if (!same)
		report(pcs, count, frames + 1, found ? found - 1 : 0);
}

OWN_HOOK static void hook(void)
{
	struct unwind_regs regs = {0};
	struct walk_start start = own_start();

	own_registers(&regs);
	compare_walks(&start, &regs);
	__asm__ volatile("" ::: "memory");
}

static void check_all(uint64_t least)
{
	check(walks >= least);
	check_u64(different, 0);
	check(raw * 1000 <= walks);
	check(by_paths * 2 > least);
	if (raw)
		printf("%" PRIu64 " of %" PRIu64 " walks were raw\n", raw, walks);
}

/* The end of the mapping that holds the stack. */
static void find_stack_end(void)
{
	uint64_t here = (uint64_t)__builtin_frame_address(0), start, end;
	FILE *f = fopen("/proc/self/maps", "r");
	char line[512];

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "%" SCNx64 "-%" SCNx64, &start, &end) == 2 && here >= start && here < end)
			stack_end = end;
	if (f)
		fclose(f);
}

/* ---- call trees ---- */

static __thread uint64_t seed;

static uint64_t draw(uint64_t below)
{
	seed = hash_u64(seed + 1);
	return seed % below;
}

static volatile uint64_t sink;
typedef void (*function)(unsigned depth);
static function functions[];
#define FUNCTIONS 10

/* Calls more functions of its own level, each of which may walk. */
static void wander(unsigned depth)
{
	if (!depth) {
		hook();
		return;
	}
	for (uint64_t n = draw(3); n; n--)
		functions[draw(FUNCTIONS)](depth - 1);
	if (!draw(3))
		hook();
}

__attribute__((noinline)) static void plain(unsigned depth)
{
	wander(depth);
	sink++;
}

/* All registers that a callee keeps are in use. */
__attribute__((noinline)) static void many_registers(unsigned depth)
{
	uint64_t a = sink, b = a * 3, c = b + 7, d = c ^ a, e = d * 5, f = e + b, g = f ^ c;

	wander(depth);
	sink = a + b + c;
	wander(depth ? depth - 1 : 0);
	sink += d + e + f + g;
}

__attribute__((noinline)) static void moving_stack(unsigned depth)
{
	uint64_t bytes = 8 + draw(3000);
	volatile uint8_t *room = (volatile uint8_t *)__builtin_alloca(bytes);

	room[0] = room[bytes - 1] = 1;
	wander(depth);
	sink += room[0];
}

__attribute__((noinline)) static void large_frame(unsigned depth)
{
	volatile uint8_t room[5000];

	room[0] = room[4999] = 1;
	wander(depth);
	sink += room[0];
}

__attribute__((noinline)) static void aligned_frame(unsigned depth)
{
	volatile uint64_t room[8] __attribute__((aligned(64)));

	room[0] = (uintptr_t)room % 64;
	check(!room[0]);
	wander(depth);
	sink += room[0];
}

__attribute__((noinline)) static void many_arguments(
	unsigned depth, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f, uint64_t g, uint64_t h)
{
	wander(depth);
	sink += a + b + c + d + e + f + g + h;
}

/* The frame is found through a word on the stack: the compiler aligns it and still has to find its arguments. */
__attribute__((noinline)) static void aligned_with_arguments(
	unsigned depth, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f, uint64_t g)
{
	volatile uint64_t room[8] __attribute__((aligned(64)));
	volatile uint8_t *more = (volatile uint8_t *)__builtin_alloca(16 + depth);

	room[0] = a;
	more[0] = 1;
	wander(depth);
	room[1] = b + c + d + e + f + g + more[0];
	wander(depth ? depth - 1 : 0);
	sink += g + room[1];
}

__attribute__((noinline)) static void realigned(unsigned depth)
{
	aligned_with_arguments(depth, sink, 1, 2, 3, 4, sink + 5, sink + 6);
	sink++;
}

__attribute__((noinline)) static void pushes_arguments(unsigned depth)
{
	many_arguments(depth, sink, 2, 3, 4, 5, sink, sink + 1, sink + 2);
	sink++;
}

static __thread unsigned depth_of_callback;

static int callback(const void *a, const void *b)
{
	unsigned depth = depth_of_callback;

	if (depth && !draw(4)) {
		depth_of_callback = 0;
		wander(depth - 1);
		depth_of_callback = depth;
	} else if (!draw(8)) {
		hook();
	}
	return (*(const int *)a > *(const int *)b) - (*(const int *)a < *(const int *)b);
}

__attribute__((noinline)) static void through_libc(unsigned depth)
{
	int numbers[6] = {5, 3, 1, 2, 4, 0}, key = 3;
	unsigned before = depth_of_callback;

	depth_of_callback = depth;
	qsort(numbers, 6, sizeof(int), callback);
	sink += bsearch(&key, numbers, 6, sizeof(int), callback) != NULL;
	depth_of_callback = before;
}

static __thread jmp_buf *way_out;

/* Frames between here and where it jumps from are gone without having returned. */
__attribute__((noinline)) static void jumped_over(unsigned depth)
{
	jmp_buf here, *before = way_out;

	way_out = &here;
	if (!setjmp(here)) {
		wander(depth);
		if (draw(2)) {
			hook();
			longjmp(*way_out, 1);
		}
	}
	way_out = before;
	hook();
}

__attribute__((noinline)) static void keeps_frame_pointer(unsigned depth)
{
	uint64_t a = sink, b = a ^ depth;

	__asm__ volatile("" : : "r"(__builtin_frame_address(0))); /* which makes it keep one */
	wander(depth);
	sink = a * b;
}

static function functions[FUNCTIONS] = {plain, many_registers, moving_stack, large_frame, aligned_frame,
	pushes_arguments, through_libc, jumped_over, keeps_frame_pointer, realigned};

/* Random stacks fill the tree of nodes, which real ones do not. */
static void empty_tree(void)
{
	if (own.memory.header->node_count < SHARE_NODES / 2)
		return;
	madvise(own.memory.nodes, SHARE_NODES * sizeof(struct share_node), MADV_DONTNEED);
	madvise(own.memory.index, SHARE_INDEX_SLOTS * 4, MADV_DONTNEED);
	own.memory.header->node_count = 0;
	walk_forget(state);
	walk_forget(third);
}

static void wander_long(uint64_t count, uint64_t from_seed)
{
	seed = from_seed;
	way_out = NULL;
	while (walks < count) {
		empty_tree();
		functions[draw(FUNCTIONS)](2 + (unsigned)draw(12));
	}
}

TEST(random_call_trees)
{
	const char *asked = getenv("SONDE_TEST_WALKS");
	uint64_t count = asked ? strtoull(asked, NULL, 10) : 30000;

	enter_thread();
	find_stack_end();
	wander_long(count, 1);
	check_all(count);
	leave_thread();
}

static void *thread_main(void *number)
{
	enter_thread();
	find_stack_end();
	wander_long(5000, 7 + (uint64_t)(uintptr_t)number % 2);
	check_all(5000);
	leave_thread();
	return NULL;
}

/* Two of them walk the same stacks and race for the same nodes. */
TEST(threads_share_nodes)
{
	pthread_t threads[4];

	for (uintptr_t i = 0; i < 4; i++)
		check(!pthread_create(&threads[i], NULL, thread_main, (void *)i));
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
}

/* ---- limits ---- */

static struct walk_state *deep_state;
static uint32_t deep_node;
static enum walk_result deep_result;

OWN_HOOK static void deep_hook(void)
{
	struct walk_start start = own_start();

	deep_result = walk_stack(&own.memory, deep_state, &start, &deep_node);
	__asm__ volatile("" ::: "memory");
}

/* Walks at the deepest level, or at each level on the way down. */
__attribute__((noinline)) static void deep(unsigned depth, bool always)
{
	if (always || !depth)
		deep_hook();
	if (depth)
		deep(depth - 1, always);
	sink++;
}

static size_t length_of(uint32_t node, uint32_t *ret_parent)
{
	size_t count = 0;

	for (; node >= SHARE_STACK_FIRST; node = own.memory.nodes[node].parent)
		count++;
	*ret_parent = node;
	return count;
}

TEST(very_deep_stacks)
{
	uint64_t lost = own.memory.header->lost[SHARE_LOST_NODE];
	uint32_t parent;
	size_t few, many;

	deep_state = own_state();
	deep(1, false);
	few = length_of(deep_node, &parent);
	deep(10000, true);
	many = length_of(deep_node, &parent);
	check_u64(deep_result, WALK_WHOLE);
	check_u64(many, few + 9999);
	check_u64(parent, SHARE_STACK_ROOT);

	/* Cut, and counted. */
	deep(20000, false);
	many = length_of(deep_node, &parent);
	check_u64(deep_result, WALK_CUT);
	check_u64(many, 16384);
	check_u64(parent, SHARE_STACK_CUT);
	check_u64(own.memory.header->lost[SHARE_LOST_NODE], lost + 1);

	/* And none the worse for it. */
	deep(1, false);
	check_u64(deep_result, WALK_WHOLE);
	check_u64(length_of(deep_node, &parent), few);
	munmap(deep_state, walk_state_bytes());
}

TEST(no_room_for_nodes)
{
	static const unsigned depths[] = {3, 30, 3};
	static const enum walk_result results[] = {WALK_WHOLE, WALK_CUT, WALK_WHOLE};
	struct share_header *h = own.memory.header;
	uint64_t lost = h->lost[SHARE_LOST_NODE];
	uint32_t count = 0, parent;
	volatile unsigned rounds = 3; /* from one call: the third is the first one's stack, which is there */

	deep_state = own_state();
	for (unsigned i = 0; i < rounds; i++) {
		if (i == 1) {
			count = h->node_count;
			h->node_count = SHARE_NODES - 3;
		}
		deep(depths[i], false);
		check_u64(deep_result, results[i]);
		length_of(deep_node, &parent);
		check_u64(parent, SHARE_STACK_ROOT);
	}
	check_u64(h->node_count, SHARE_NODES);
	check_u64(h->lost[SHARE_LOST_NODE], lost + 1);
	h->node_count = count;
	munmap(deep_state, walk_state_bytes());
}

/* Code that was unmapped: what is found from then on is not what has the same addresses. */
TEST(code_that_was_unmapped)
{
	struct share_header *h = own.memory.header;
	uint32_t before, parent, at;

	deep_state = own_state();
	deep(3, false);
	before = deep_node;
	h->modules_gone++;
	deep(3, false);
	check_u64(deep_result, WALK_RAW); /* until there are tables that know of it */
	check(!own_publish(&own, UINT64_MAX));
	deep(3, false);
	check_u64(deep_result, WALK_WHOLE);
	check(deep_node != before);
	for (at = deep_node; own.memory.nodes[at].parent >= SHARE_STACK_FIRST;)
		at = own.memory.nodes[at].parent;
	check_u64(own.memory.nodes[at].pc, h->modules_gone + 1);
	length_of(deep_node, &parent);
	check_u64(parent, SHARE_STACK_ROOT);
	munmap(deep_state, walk_state_bytes());
}

/* ---- other stacks ---- */

static volatile sig_atomic_t handled;

static void on_signal(int sig)
{
	uint64_t before = stack_end;

	(void)sig;
	stack_end = 0;
	wander(3);
	hook();
	stack_end = before;
	handled = handled + 1;
}

static void with_handler(int flags)
{
	struct sigaction action = {.sa_handler = on_signal, .sa_flags = flags}, before;
	stack_t stack = {.ss_sp = malloc(1 << 20), .ss_size = 1 << 20}, old;

	check(!sigaltstack(&stack, &old));
	check(!sigaction(SIGUSR1, &action, &before));
	handled = 0;
	for (int i = 0; i < 40; i++) {
		hook();
		raise(SIGUSR1);
		hook();
	}
	check(handled == 40);
	sigaction(SIGUSR1, &before, NULL);
	sigaltstack(&old, NULL);
	free(stack.ss_sp);
}

TEST(signal_handlers)
{
	enter_thread();
	seed = 3;
	stack_end = 0;
	with_handler(0);
	with_handler(SA_ONSTACK);
	check_all(80);
	leave_thread();
}

static ucontext_t main_context, contexts[3];
static int turns;

static void coroutine(int number)
{
	stack_end = 0;
	for (int i = 0; i < 20; i++) {
		wander(2);
		hook();
		turns++;
		swapcontext(&contexts[number], i % 3 ? &contexts[(number + 1) % 3] : &main_context);
	}
}

TEST(coroutines)
{
	uint8_t *stacks = (uint8_t *)own_memory(3 << 18);

	enter_thread();
	seed = 4;
	stack_end = 0;
	turns = 0;
	for (int i = 0; i < 3; i++) {
		getcontext(&contexts[i]);
		contexts[i].uc_stack = (stack_t){.ss_sp = stacks + (i << 18), .ss_size = 1 << 18};
		contexts[i].uc_link = &main_context;
		makecontext(&contexts[i], (void (*)(void))coroutine, 1, i);
	}
	for (int i = 0; i < 12; i++) {
		swapcontext(&main_context, &contexts[i % 3]);
		hook();
	}
	check(turns > 12);
	check_all(40);
	leave_thread();
	munmap(stacks, 3 << 18);
}

static ucontext_t short_context;

static void short_coroutine(void)
{
	wander(3);
	hook();
	hook();
	swapcontext(&short_context, &main_context);
}

/* The same addresses are a large stack, nothing, and a small one: what was readable is not any more. */
TEST(stacks_that_are_unmapped)
{
	const size_t most = 256 << 10;
	uint8_t *at = (uint8_t *)own_memory(most + 4096);

	enter_thread();
	seed = 5;
	stack_end = 0;
	munmap(at, most + 4096);
	for (unsigned i = 0; i < 60; i++) {
		size_t bytes = i % 3 == 2 ? most : (size_t)65536 << (i & 1);
		void *p = mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);

		check(p == at);
		getcontext(&short_context);
		short_context.uc_stack = (stack_t){.ss_sp = at, .ss_size = bytes};
		short_context.uc_link = &main_context;
		makecontext(&short_context, short_coroutine, 0);
		swapcontext(&main_context, &short_context);
		munmap(at, bytes);
		if (i & 1)
			hook();
	}
	check_all(60);
	leave_thread();
}

int main(int argc, char **argv)
{
	int status;

	own_init(&own);
	if (own_publish(&own, UINT64_MAX))
		return 1;
	status = test_main(argc, argv, T(random_call_trees), T(threads_share_nodes), T(very_deep_stacks),
		T(no_room_for_nodes), T(code_that_was_unmapped), T(signal_handlers), T(coroutines),
		T(stacks_that_are_unmapped));
	own_release(&own);
	return status;
}
