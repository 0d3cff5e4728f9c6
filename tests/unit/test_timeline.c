/* SPDX-License-Identifier: BSD-2-Clause */
/* Timelines of threads off and on the CPU: synthetic sequences in, exact times and intervals out. */
#include "test.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/vec.h"
#include "capture/reader.h"
#include "recording.h"
#include "sample/off_cpu.h"
#include "sample/thinning.h"

/* Beyond the largest pid, so nobody's. */
#define NOBODY 4194305

/* What the kernel was doing for the thread: the leaf of its stack, for a name. */
#define PLACE(n) (0xffffffff81000000ULL + (n))

VEC_TYPE(intervals, struct record_off_cpu);
VEC_TYPE(all_times, struct record_thread_times);

struct world {
	struct capture_writer *writer;
	struct thread_selection selection;
	struct session *session;
	struct off_cpu *o;
	int fd;
	struct intervals intervals;
	struct all_times times;
	uint64_t lost_stacks;
};

static void init_with(struct world *w, const struct off_cpu_options *options)
{
	*w = (struct world){0};
	w->writer = recording_start(&w->fd);
	check(!session_new(w->writer, &w->selection, &w->session, NULL));
	session_renamed(w->session, NOBODY, NOBODY, "one", true, 1);
	session_forked(w->session, NOBODY, NOBODY, NOBODY, NOBODY + 1, 2);
	check(!off_cpu_new(w->session, options, &w->o, NULL));
}

static void init(struct world *w)
{
	init_with(w, &(struct off_cpu_options){0});
}

/* Ends the recording and reads it back. Of each thread the last times count. */
static void finish(struct world *w, uint64_t now_ns)
{
	struct capture_reader *r;
	const struct record_header *h;

	off_cpu_finish(w->o, now_ns);
	off_cpu_free(w->o);
	session_flush(w->session, now_ns);
	check(!capture_writer_finish(w->writer, END_DURATION, now_ns, NULL));
	session_free(w->session);

	struct bytes b = recording_bytes(w->fd);

	check(!capture_reader_open_memory(b.data, b.len, &r, NULL));
	while (capture_reader_next(r, &h, NULL) > 0) {
		const struct record_thread_times *times = (const void *)h;
		const struct record_loss *loss = (const void *)h;
		bool known = false;

		if (h->type == RECORD_OFF_CPU)
			check(!vec_push(&w->intervals, *(const struct record_off_cpu *)h));
		if (h->type == RECORD_LOSS && loss->kind == LOSS_OFF_CPU_STACK)
			w->lost_stacks += loss->count;
		if (h->type != RECORD_THREAD_TIMES)
			continue;
		vec_each(&w->times, t)
			if (t->tid == times->tid) {
				*t = *times;
				known = true;
			}
		if (!known)
			check(!vec_push(&w->times, *times));
	}
	capture_reader_free(r);
	free(b.data);
}

static void release(struct world *w)
{
	vec_release(&w->intervals);
	vec_release(&w->times);
}

/* The times of the thread; whatever happened, they sum up. */
static const struct record_thread_times *times_of(const struct world *w, int tid)
{
	static const struct record_thread_times none;

	vec_each(&w->times, t) {
		uint64_t sum = 0;

		if (t->tid != (uint32_t)tid)
			continue;
		for (int i = 0; i < 8; i++)
			sum += t->ns[i];
		check_u64(sum, t->until_ns - t->since_ns);
		return t;
	}
	check(!"its times are there");
	return &none;
}

static void in(struct world *w, uint64_t time_ns)
{
	off_cpu_in(w->o, NOBODY, NOBODY, time_ns, 1);
}

static void preempted(struct world *w, uint64_t time_ns)
{
	off_cpu_out(w->o, NOBODY, NOBODY, time_ns, 3, true);
}

/* Leaves at PLACE(place) for `state`. */
static void out_of(struct world *w, int tid, uint64_t time_ns, unsigned place, enum thread_state state)
{
	uint64_t ip = PLACE(place);
	struct raw_stack raw = {.kernel_ips = &ip, .kernel_count = 1, .kernel_thread = true};

	off_cpu_stack(w->o, NOBODY, tid, time_ns - 1, (struct off_cpu_reason){state, 7}, &raw);
	off_cpu_out(w->o, NOBODY, tid, time_ns, 3, false);
}

static void out(struct world *w, uint64_t time_ns, unsigned place, enum thread_state state)
{
	out_of(w, NOBODY, time_ns, place, state);
}

static void begin(struct world *w, uint64_t time_ns, enum off_cpu_begin how)
{
	off_cpu_begin(w->o, &(struct off_cpu_start){.time_ns = time_ns,
				    .pid = NOBODY,
				    .tid = NOBODY,
				    .how = how,
				    .reason = {STATE_FUTEX, 9},
				    .stack = {.leaf = CAPTURE_NONE}});
}

TEST(every_nanosecond_is_in_one_state)
{
	struct world w;

	init(&w);
	begin(&w, 1000, BEGIN_AWAKE);
	out(&w, 1500, 1, STATE_FUTEX); /* 500 on the CPU */
	in(&w, 2500);		       /* 1000 futex */
	preempted(&w, 2600);	       /* 100 on */
	in(&w, 2650);		       /* 50 queued */
	out(&w, 2700, 2, STATE_SYSCALL);
	off_cpu_woken(w.o, NOBODY, 2900, &(struct off_cpu_waker){.kind = WAKER_THREAD, .pid = 5, .tid = 6, .leaf = CAPTURE_NONE});
	in(&w, 3000); /* 200 syscall, 100 queued */
	finish(&w, 5000);

	const struct record_thread_times *t = times_of(&w, NOBODY);
	check_u64(t->since_ns, 1000);
	check_u64(t->until_ns, 5000);
	check_u64(t->ns[STATE_ON_CPU], 500 + 100 + 50 + 2000);
	check_u64(t->ns[STATE_FUTEX], 1000);
	check_u64(t->ns[STATE_SYSCALL], 200);
	check_u64(t->ns[STATE_RUN_QUEUE], 150);

	check_u64(w.intervals.len, 3);
	const struct record_off_cpu *i = w.intervals.data;
	check_u64(i[0].start_ns, 1500);
	check_u64(i[0].duration_ns, 1000);
	check_u64(i[0].blocked_ns, 1000);
	check_u64(i[0].queued_ns, 0);
	check_u64(i[0].state, STATE_FUTEX);
	check_u64(i[0].syscall, 7);
	check_u64(i[0].cpu, 3);
	check(i[0].stack != CAPTURE_NONE && !i[0].open);
	check_u64(i[1].state, STATE_RUN_QUEUE);
	check_u64(i[1].queued_ns, 50);
	check_u64(i[1].blocked_ns, 0);
	check_u64((uint32_t)i[1].syscall, (uint32_t)-1);
	check_u64(i[2].blocked_ns, 200);
	check_u64(i[2].queued_ns, 100);
	check_u64(i[2].waker, WAKER_THREAD);
	check_u64(i[2].waker_tid, 6);
	check(i[2].stack != i[0].stack);
	check_u64(w.lost_stacks, 1); /* the preempted one came without */
	release(&w);
}

TEST(threads_that_sleep_when_we_come_and_when_we_go)
{
	struct world w;

	init(&w);
	begin(&w, 1000, BEGIN_BLOCKED);
	begin(&w, 1100, BEGIN_AWAKE); /* is known, and stays */
	in(&w, 900);		      /* of before */
	in(&w, 4000);
	out(&w, 5000, 1, STATE_PAGE_FAULT);
	finish(&w, 7000);

	const struct record_thread_times *t = times_of(&w, NOBODY);
	check_u64(t->ns[STATE_FUTEX], 3000);
	check_u64(t->ns[STATE_ON_CPU], 1000);
	check_u64(t->ns[STATE_PAGE_FAULT], 2000);
	check_u64(w.intervals.len, 2);
	check_u64(w.intervals.data[0].open, 1);
	check_u64(w.intervals.data[0].syscall, 9);
	check_u64(w.intervals.data[1].open, 2);
	release(&w);
}

TEST(a_thread_that_sleeps_all_the_time)
{
	struct world w;

	init(&w);
	begin(&w, 1000, BEGIN_BLOCKED);
	for (uint64_t now = 1000; now < 40 * 1000000000ULL; now += 1000000000ULL)
		off_cpu_settle(w.o, now);
	finish(&w, 40 * 1000000000ULL);
	check_u64(w.intervals.len, 1);
	check_u64(w.intervals.data[0].open, 3);
	check_u64(w.intervals.data[0].blocked_ns, 40 * 1000000000ULL - 1000);
	check_u64(times_of(&w, NOBODY)->ns[STATE_FUTEX], 40 * 1000000000ULL - 1000);
	release(&w);
}

TEST(an_awake_thread_is_what_its_next_step_says)
{
	struct world w;

	init(&w);
	begin(&w, 1000, BEGIN_AWAKE);
	in(&w, 1400); /* so it was queued */
	finish(&w, 1500);
	check_u64(times_of(&w, NOBODY)->ns[STATE_RUN_QUEUE], 400);
	check_u64(times_of(&w, NOBODY)->ns[STATE_ON_CPU], 100);
	check_u64(w.intervals.data[0].open, 1);
	check_u64(w.lost_stacks, 0);
	release(&w);

	init(&w);
	begin(&w, 1000, BEGIN_CREATED);
	in(&w, 1300);
	finish(&w, 1500);
	check_u64(times_of(&w, NOBODY)->ns[STATE_RUN_QUEUE], 300);
	check_u64(w.intervals.data[0].open, 0);
	check_u64(w.intervals.data[0].stack, CAPTURE_NONE);
	release(&w);

	init(&w); /* never announced: it begins with its first event */
	out(&w, 1000, 1, STATE_FUTEX);
	in(&w, 1200);
	finish(&w, 1300);
	check_u64(times_of(&w, NOBODY)->ns[STATE_FUTEX], 200);
	check_u64(times_of(&w, NOBODY)->ns[STATE_ON_CPU], 101);
	release(&w);
}

TEST(exit_and_exec_end_timelines)
{
	struct world w;

	init(&w);
	begin(&w, 1000, BEGIN_AWAKE);
	out_of(&w, NOBODY + 1, 1100, 1, STATE_FUTEX);
	out(&w, 1200, 2, STATE_FUTEX);
	/* The other thread calls exec: the first is killed as it sleeps, and its number goes on. */
	off_cpu_exec(w.o, NOBODY, 2000);
	check(!off_cpu_knows(w.o, NOBODY + 1));
	out(&w, 2500, 3, STATE_SYSCALL);
	in(&w, 2600);
	off_cpu_exit(w.o, NOBODY, 2700);
	check(!off_cpu_knows(w.o, NOBODY));
	finish(&w, 9000);

	const struct record_thread_times *t = times_of(&w, NOBODY);
	check_u64(t->until_ns, 2700);
	check_u64(t->ns[STATE_ON_CPU], 200 + 500 + 100);
	check_u64(t->ns[STATE_FUTEX], 800);
	check_u64(t->ns[STATE_SYSCALL], 100);
	check_u64(times_of(&w, NOBODY + 1)->until_ns, 2000);
	check_u64(times_of(&w, NOBODY + 1)->ns[STATE_FUTEX], 900);
	release(&w);
}

/* It leaves its CPU for the last time after the kernel has told its end. */
TEST(nobody_waits_after_its_end)
{
	struct world w;

	init(&w);
	begin(&w, 1000, BEGIN_AWAKE);
	in(&w, 1000);
	off_cpu_exit(w.o, NOBODY, 2000);
	preempted(&w, 2010);
	in(&w, 2020);
	begin(&w, 2025, BEGIN_AWAKE); /* met, not made */
	out(&w, 2030, 1, STATE_SYSCALL);
	finish(&w, 9000);
	check_u64(times_of(&w, NOBODY)->until_ns, 2000);
	check_u64(w.intervals.len, 0);
	release(&w);

	/* The number was given to a new thread, which is seen to begin, or is seen much later. */
	for (int later = 0; later < 2; later++) {
		uint64_t from = later ? 5 * NS_PER_S : 3000;

		init(&w);
		begin(&w, 1000, BEGIN_AWAKE);
		in(&w, 1000);
		off_cpu_exit(w.o, NOBODY, 2000);
		if (!later)
			begin(&w, from, BEGIN_CREATED);
		in(&w, from + 10);
		out(&w, from + 20, 1, STATE_SYSCALL);
		in(&w, from + 50);
		finish(&w, from + 100);
		check_u64(times_of(&w, NOBODY)->ns[STATE_SYSCALL], 30);
		release(&w);
	}
}

TEST(short_intervals_only_count)
{
	struct world w;

	init_with(&w, &(struct off_cpu_options){.min_block_ns = 1000});
	begin(&w, 1000, BEGIN_AWAKE);
	for (uint64_t at = 2000; at < 102000; at += 1000) {
		out(&w, at, 1, STATE_SYSCALL);
		in(&w, at + 999);
	}
	out(&w, 200000, 2, STATE_FUTEX);
	in(&w, 201000);
	finish(&w, 300000);
	check_u64(w.intervals.len, 1);
	check_u64(w.intervals.data[0].duration_ns, 1000);
	check_u64(times_of(&w, NOBODY)->ns[STATE_SYSCALL], 99900);
	check_u64(w.lost_stacks, 0);
	release(&w);
}

/* ---- losses ---- */

TEST(lost_time_is_in_no_state)
{
	struct world w;

	/* Nothing says where it was between 2000 and 3000: it left, and we missed it. */
	init(&w);
	begin(&w, 1000, BEGIN_AWAKE);
	out(&w, 1100, 1, STATE_FUTEX);
	in(&w, 1200);
	off_cpu_lost(w.o, 2000, 3000);
	in(&w, 3500);
	finish(&w, 4000);

	const struct record_thread_times *t = times_of(&w, NOBODY);
	check_u64(t->until_ns, 4000);
	check_u64(t->since_ns, 2000); /* 1000 + the 1000 of which nothing is known */
	check_u64(t->ns[STATE_ON_CPU], 100 + 800 + 500);
	check_u64(t->ns[STATE_FUTEX], 100);
	check_u64(t->ns[STATE_BLOCKED], 500); /* it came back at 3500, so it was away since 3000 */
	check_u64(w.intervals.len, 2);
	check_u64(w.intervals.data[1].start_ns, 3000);
	check_u64(w.intervals.data[1].stack, CAPTURE_NONE);
	check_u64(w.lost_stacks, 1);
	release(&w);
}

TEST(a_missed_return_ends_where_the_loss_began)
{
	struct world w;

	init(&w);
	begin(&w, 1000, BEGIN_AWAKE);
	out(&w, 1100, 1, STATE_FUTEX);
	off_cpu_lost(w.o, 1500, 2000);
	out(&w, 2300, 2, STATE_SYSCALL);
	in(&w, 2400);
	finish(&w, 2500);

	const struct record_thread_times *t = times_of(&w, NOBODY);
	check_u64(t->since_ns, 1500);
	check_u64(t->ns[STATE_FUTEX], 400);
	check_u64(t->ns[STATE_ON_CPU], 100 + 300 + 100);
	check_u64(t->ns[STATE_SYSCALL], 100);
	check_u64(w.intervals.len, 2);
	check_u64(w.intervals.data[0].duration_ns, 400);
	check_u64(w.intervals.data[1].duration_ns, 100);
	release(&w);
}

/* A long sleep is not doubted for a short loss in the middle; a short one within it is. */
TEST(sleepers_outlast_losses)
{
	struct world w;

	init(&w);
	begin(&w, 1000, BEGIN_AWAKE);
	out(&w, 1100, 1, STATE_FUTEX);
	off_cpu_lost(w.o, 1500, 2000);
	in(&w, 9100);
	finish(&w, 9200);
	check_u64(times_of(&w, NOBODY)->ns[STATE_FUTEX], 8000);
	check_u64(times_of(&w, NOBODY)->since_ns, 1000);
	check_u64(w.intervals.len, 1);
	release(&w);

	init(&w);
	begin(&w, 1000, BEGIN_AWAKE);
	out(&w, 1100, 1, STATE_FUTEX);
	off_cpu_lost(w.o, 1050, 2000); /* began before it left */
	in(&w, 2100);
	finish(&w, 2200);
	check_u64(times_of(&w, NOBODY)->ns[STATE_FUTEX], 0);
	check_u64(times_of(&w, NOBODY)->ns[STATE_BLOCKED], 100);
	check_u64(times_of(&w, NOBODY)->since_ns, 1900);
	release(&w);
}

TEST(a_stack_without_its_record_still_says_that_it_left)
{
	struct world w;
	uint64_t ip = PLACE(1);
	struct raw_stack raw = {.kernel_ips = &ip, .kernel_count = 1, .kernel_thread = true};

	init(&w);
	begin(&w, 1000, BEGIN_AWAKE);
	off_cpu_stack(w.o, NOBODY, NOBODY, 1500, (struct off_cpu_reason){STATE_FUTEX, 7}, &raw);
	in(&w, 2000);
	finish(&w, 2100);
	check_u64(times_of(&w, NOBODY)->ns[STATE_FUTEX], 500);
	check_u64(w.intervals.len, 1);
	check(w.intervals.data[0].stack != CAPTURE_NONE);
	release(&w);
}

/* Any sequence, also one that makes no sense: times sum up, and nothing is told twice. */
TEST(nonsense_sums_up)
{
	for (uint64_t seed = 0; seed < 200; seed++) {
		struct world w;
		uint64_t now = 1000, random = seed * 1000, told = 0, off = 0;

		init_with(&w, &(struct off_cpu_options){.min_block_ns = 0});
		for (int step = 0; step < 300; step++) {
			now += (random = hash_u64(random + 1)) % 200;
			switch (random >> 32 & 7) {
			case 0:
			case 1:
				in(&w, now - random % 3);
				break;
			case 2:
			case 3:
				out(&w, now, 1, STATE_FUTEX);
				break;
			case 4:
				preempted(&w, now);
				break;
			case 5:
				off_cpu_woken(w.o, NOBODY, now, &(struct off_cpu_waker){.leaf = CAPTURE_NONE});
				break;
			case 6:
				off_cpu_lost(w.o, now - random % 300, now);
				break;
			default:
				off_cpu_settle(w.o, now);
			}
		}
		finish(&w, now);

		const struct record_thread_times *t = times_of(&w, NOBODY);
		for (int i = 1; i < 8; i++)
			off += t->ns[i];
		vec_each(&w.intervals, i) {
			told += i->duration_ns;
			check_u64(i->blocked_ns + i->queued_ns, i->duration_ns);
			check(i == w.intervals.data ||
				i->start_ns >= i[-1].start_ns + i[-1].duration_ns);
		}
		check_u64(told, off);
		release(&w);
	}
}

/* ---- thinning ---- */

/* 200,000 intervals a second at two places, one with three times the time of the other. */
TEST(thinned_intervals_weigh_what_all_would)
{
	struct world w;
	uint64_t now = 1000000, at[2] = {0}, short_ns, total = 0;

	init(&w);
	begin(&w, now, BEGIN_AWAKE);
	for (unsigned i = 0; i < 400000; i++) {
		/* In step: a long one after each short one, as in a ping-pong. */
		short_ns = i % 2 ? 1000 : 3000;
		now += 2000;
		out(&w, now, i % 2, STATE_SYSCALL);
		now += short_ns;
		in(&w, now);
		total += short_ns;
		if (i % 10000 == 9999) { /* a rare long one */
			out(&w, now + 10, 2, STATE_FUTEX);
			now += 5000010;
			in(&w, now);
		}
	}
	finish(&w, now);
	check_u64(times_of(&w, NOBODY)->ns[STATE_SYSCALL], total);
	check(w.intervals.len < 6000);
	unsigned long_ones = 0;
	vec_each(&w.intervals, i) {
		if (i->state == STATE_SYSCALL)
			at[i->duration_ns == 1000] += i->blocked_ns;
		else if (i->blocked_ns == 5000000 && i->duration_ns == 5000000)
			long_ones++;
	}
	check_u64(long_ones, 40);
	check(at[0] > 0.7 * 600e6 && at[0] < 1.3 * 600e6);
	check(at[1] > 0.7 * 200e6 && at[1] < 1.3 * 200e6);
	release(&w);
}

TEST(few_intervals_are_all_kept)
{
	struct thinning t = {0};
	uint64_t now = 0;

	for (int i = 0; i < 1000; i++) {
		now += 2000000;
		check_u64(thinning_weight(&t, now, 1000, THINNING_MOST, hash_u64((uint64_t)i)), 1000);
	}
	/* A storm, and when it is over all are kept again. */
	uint64_t kept = 0;
	for (int i = 0; i < 100000; i++) {
		now += 1000;
		kept += thinning_weight(&t, now, 500, THINNING_MOST, hash_u64((uint64_t)i)) != 0;
	}
	check(kept < 1500);
	now += 10000000000ULL;
	for (int i = 0; i < 2000; i++)
		thinning_weight(&t, now += 2000000, 1000, THINNING_MOST, hash_u64((uint64_t)i));
	check_u64(t.threshold_ns, 0);
	check_u64(thinning_weight(&t, now += 2000000, 1000, THINNING_MOST, UINT64_MAX), 1000);
}

/* Stacks are copied for 2 ms of 52: the rest stands behind those, in states and in places. */
TEST(intervals_without_a_stack_stand_behind_others)
{
	struct world w;
	uint64_t now = 1000000, at[2] = {0}, total[2] = {0}, all = 0, long_ns = 0;

	init(&w);
	begin(&w, now, BEGIN_AWAKE);
	off_cpu_leaves_out(w.o);
	for (unsigned i = 0; i < 1000000; i++) {
		unsigned place = hash_u64(i) % 4 == 0;
		uint64_t short_ns = place ? 1500 : 3000;

		now += 2000;
		if (now % 52000000 < 2000000)
			out(&w, now, place, place ? STATE_FUTEX : STATE_SYSCALL);
		else
			off_cpu_out(w.o, NOBODY, NOBODY, now, 3, false);
		now += short_ns;
		in(&w, now);
		total[place] += short_ns;
		all += short_ns;
		if (i % 50000 == 49999) { /* a long one without a stack is a loss */
			off_cpu_out(w.o, NOBODY, NOBODY, now + 10, 3, false);
			now += 60000010;
			in(&w, now);
		}
	}
	finish(&w, now);

	const struct record_thread_times *t = times_of(&w, NOBODY);
	check_u64(t->ns[STATE_SYSCALL] + t->ns[STATE_FUTEX] + t->ns[STATE_BLOCKED], all + 20 * 60000000);
	check(t->ns[STATE_BLOCKED] < 20 * 60000000 + 1000);
	check(t->ns[STATE_FUTEX] > 0.9 * (double)total[1] && t->ns[STATE_FUTEX] < 1.1 * (double)total[1]);
	check_u64(w.lost_stacks, 20);
	check(w.intervals.len < 6000);
	vec_each(&w.intervals, i) {
		if (i->stack == CAPTURE_NONE)
			long_ns += i->blocked_ns;
		else
			at[i->state == STATE_FUTEX] += i->blocked_ns;
	}
	check_u64(long_ns, 20 * 60000000);
	for (int i = 0; i < 2; i++)
		check(at[i] > 0.7 * (double)total[i] && at[i] < 1.3 * (double)total[i]);
	check(at[0] + at[1] > 0.85 * (double)all && at[0] + at[1] < 1.05 * (double)all);
	release(&w);
}

/* ---- throttling ---- */

static bool always(void *ctx, pid_t pid, uint64_t from_ns, uint64_t to_ns)
{
	++*(int *)ctx;
	return true;
}

TEST(only_long_waits_are_asked_about)
{
	struct world w;
	int asked = 0;

	init_with(&w, &(struct off_cpu_options){.throttled = always, .ctx = &asked});
	begin(&w, 1000, BEGIN_AWAKE);
	preempted(&w, 2000);
	in(&w, 3000);
	preempted(&w, 4000);
	in(&w, 10004000);
	finish(&w, 10005000);
	check_u64(asked, 1);
	check_u64(times_of(&w, NOBODY)->ns[STATE_RUN_QUEUE], 1000);
	check_u64(times_of(&w, NOBODY)->ns[STATE_THROTTLED], 10000000);
	check_u64(w.intervals.data[1].state, STATE_THROTTLED);
	check_u64(w.intervals.data[1].queued_ns, 10000000);
	release(&w);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, T(every_nanosecond_is_in_one_state),
		T(threads_that_sleep_when_we_come_and_when_we_go),
		T(a_thread_that_sleeps_all_the_time),
		T(an_awake_thread_is_what_its_next_step_says), T(exit_and_exec_end_timelines),
		T(nobody_waits_after_its_end),
		T(short_intervals_only_count), T(lost_time_is_in_no_state),
		T(a_missed_return_ends_where_the_loss_began), T(sleepers_outlast_losses),
		T(a_stack_without_its_record_still_says_that_it_left), T(nonsense_sums_up),
		T(thinned_intervals_weigh_what_all_would), T(few_intervals_are_all_kept),
		T(intervals_without_a_stack_stand_behind_others),
		T(only_long_waits_are_asked_about));
}
