/* SPDX-License-Identifier: BSD-2-Clause */
#include "capture/window.h"

#include <string.h>

#include "base/clock.h"
#include "capture/window_priv.h"

/* Of the open segment. More make better use of what a segment has already defined; this much is
 * enough for ten thousand samples of a compiler. */
#define TABLE_BYTES ((size_t)6 << 20)
#define SEGMENTS_A_WINDOW 8
#define LEAST_SEGMENT_NS (50 * NS_PER_MS)
/* Events may be told a little late. */
#define LATE_NS NS_PER_S
/* Node ids count on over segments, so that an old one is known as such; from here on from 0. */
#define WRAP_NODES (1u << 31)

int capture_window_new(const struct capture_window_options *options, uint64_t now_ns,
	struct capture_writer **ret, struct err *err)
{
	struct capture_writer *w = NULL;
	int rc = writer_new("window", &w, err);

	if (rc)
		return rc;
	w->window = calloc(1, sizeof(*w->window));
	if (!w->window) {
		writer_free(w);
		return err_nomem(err);
	}
	w->window->options = *options;
	if (!options->table_bytes)
		w->window->options.table_bytes = TABLE_BYTES;
	w->window->open = (struct segment){.number = 1, .start_ns = now_ns};
	w->window->since_ns = now_ns;
	writer_put_file_header(w, now_ns, 0);
	rc = capture_writer_error(w, err);
	if (rc) {
		writer_free(w);
		return rc;
	}
	*ret = w;
	return 0;
}

void window_free(struct capture_writer *w)
{
	struct window *window = w->window;

	vec_each(&window->closed, s)
		buf_release(&s->bytes);
	vec_release(&window->closed);
	buf_release(&window->open.bytes);
	vec_each(&window->meta, m) {
		free(m->key);
		free(m->value);
	}
	vec_release(&window->meta);
	free(window);
}

void window_put(struct capture_writer *w, const void *bytes, size_t len)
{
	buf_add(&w->window->open.bytes, bytes, len);
	if (w->window->open.bytes.failed)
		err_nomem(&w->error);
}

void window_meta(struct capture_writer *w, const char *key, const char *value)
{
	struct window_meta m = {strdup(key), strdup(value)};

	if (m.key && m.value) {
		vec_each(&w->window->meta, known) {
			if (strcmp(known->key, key))
				continue;
			free(m.key);
			free(known->value);
			known->value = m.value;
			return;
		}
		if (!vec_push(&w->window->meta, m))
			return;
	}
	free(m.key);
	free(m.value);
	writer_no_memory(w);
}

uint32_t capture_segment(const struct capture_writer *w)
{
	return w->window ? w->window->open.number : 0;
}

/* ---- segments ---- */

bool capture_window_due(const struct capture_writer *w, uint64_t now_ns)
{
	const struct window *window = w->window;

	if (!window)
		return false;

	uint64_t ns = window->options.length_ns / SEGMENTS_A_WINDOW;

	if (ns < LEAST_SEGMENT_NS)
		ns = LEAST_SEGMENT_NS;
	return (now_ns > window->open.start_ns && now_ns - window->open.start_ns >= ns) ||
		tables_bytes(w) > window->options.table_bytes;
}

static void drop_oldest(struct window *window)
{
	struct segment *s = window->closed.data;

	window->bytes -= s->bytes.len;
	window->since_ns = s->end_ns;
	buf_release(&s->bytes);
	window->closed.len--;
	memmove(s, s + 1, window->closed.len * sizeof(*s));
}

static void drop_old(struct window *window, uint64_t now_ns)
{
	uint64_t length = window->options.length_ns + LATE_NS;

	while (window->closed.len && window->closed.data[0].end_ns + length < now_ns)
		drop_oldest(window);
	while (window->closed.len && window->bytes > window->options.limit_bytes)
		drop_oldest(window);
}

/* The bytes are as long as they will ever be: what the buffer has too much goes back. */
static int close_segment(struct capture_writer *w, uint64_t now_ns)
{
	struct segment *s = &w->window->open;
	char *fitting;

	if (vec_reserve(&w->window->closed, w->window->closed.len + 1))
		return -ENOMEM;
	fitting = realloc(s->bytes.data, s->bytes.len);
	if (fitting) {
		s->bytes.data = fitting;
		s->bytes.cap = s->bytes.len;
	}
	s->end_ns = now_ns;
	w->window->bytes += s->bytes.len;
	w->window->closed.data[w->window->closed.len++] = *s;
	return 0;
}

void capture_window_rotate(
	struct capture_writer *w, uint64_t now_ns, void (*each_kept)(void *ctx), void *ctx)
{
	struct window *window = w->window;
	struct stack_tables old;

	writer_end_block(w);
	if (w->error.code)
		return;
	if (close_segment(w, now_ns)) {
		writer_no_memory(w);
		return;
	}
	drop_old(window, now_ns);
	window->open = (struct segment){.number = window->open.number + 1, .start_ns = now_ns};
	w->sequence = 0;
	writer_put_file_header(w, now_ns, 0);
	tables_tidy_modules(w);
	intern_release(&w->strings);
	old = w->stacks;
	w->stacks = (struct stack_tables){.first_node = old.first_node + (uint32_t)old.nodes.len};
	if (w->stacks.first_node > WRAP_NODES)
		w->stacks.first_node = 0;
	window->carried_from = &old;
	if (each_kept)
		each_kept(ctx);
	window->carried_from = NULL;
	stack_tables_release(&old);
}

static uint32_t carry_frame(struct capture_writer *w, uint32_t frame)
{
	const struct stack_tables *old = w->window->carried_from;

	return frame < old->frames.len ? capture_frame(w, &old->frames.data[frame]) : CAPTURE_NONE;
}

uint32_t capture_window_carry(struct capture_writer *w, uint32_t leaf)
{
	const struct stack_tables *old = w->window->carried_from;
	VEC(uint32_t) frames = {0};
	uint32_t node = CAPTURE_NONE;

	for (uint32_t at = leaf; at != CAPTURE_NONE;) {
		uint32_t index = at - old->first_node;

		if (index >= old->nodes.len || vec_push(&frames, old->nodes.data[index].frame)) {
			frames.len = 0;
			break;
		}
		at = old->nodes.data[index].parent;
	}
	while (frames.len)
		node = capture_stack(w, node, carry_frame(w, frames.data[--frames.len]));
	vec_release(&frames);
	return node;
}

bool capture_window_knows(const struct capture_writer *w, uint32_t leaf)
{
	return !w->window || leaf - w->stacks.first_node < w->stacks.nodes.len;
}

/* ---- modules ---- */

bool capture_window_names_module(const struct capture_writer *w, uint32_t id)
{
	const struct window *window = w->window;
	uint32_t oldest = window->closed.len ? window->closed.data[0].number : window->open.number;

	return id < w->modules.len && w->modules.data[id].segment >= oldest;
}

void capture_window_forget_module(struct capture_writer *w, uint32_t id)
{
	tables_forget_module(w, id);
}

void capture_window_stats(
	const struct capture_writer *w, uint64_t now_ns, struct capture_window_stats *ret)
{
	const struct window *window = w->window;
	uint64_t wanted = window->options.length_ns < now_ns ? now_ns - window->options.length_ns : 0;

	*ret = (struct capture_window_stats){
		.since_ns = window->since_ns > wanted ? window->since_ns : wanted,
		.bytes = window->bytes,
		.segments = window->closed.len + 1,
		.limited = window->since_ns > wanted && window->open.number > window->closed.len + 1,
	};
}
