/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * speedscope's own JSON (https://www.speedscope.app/file-format-schema.json): one "sampled" profile
 * of all threads together, heaviest stacks gathered, then one a thread in time order.
 *
 * A sample is a list of frames, outermost first, and is written out in full each time; the text of
 * a stack is made once. speedscope joins samples by frame, and lines of one function would be
 * different frames to it: a frame here is a function with its lowest sampled line.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "format/format_priv.h"

struct stack_text {
	size_t at, len; /* in scope.texts; len 0: not made yet */
};

struct scope {
	const struct profile *p;
	FILE *out;
	struct buf line; /* what is on its way to `out` */
	struct buf texts;
	struct stack_text *stacks; /* by node */
	uint32_t *lines;           /* by function: lowest sampled line, 0 unknown */
	VEC(uint32_t) levels;
};

#define DRAIN_BYTES (64u << 10)

static void drain_when_full(struct scope *s)
{
	if (s->line.len >= DRAIN_BYTES)
		drain(&s->line, s->out);
}

static void find_lines(struct scope *s)
{
	vec_each(&s->p->levels, level) {
		uint32_t *line = &s->lines[level->function];

		if (level->line && (!*line || level->line < *line))
			*line = level->line;
	}
}

static void write_frames(struct scope *s)
{
	const struct profile *p = s->p;

	buf_str(&s->line, "\"shared\":{\"frames\":[");
	for (uint32_t i = 0; i < p->functions.len; i++) {
		const struct profile_function *f = &p->functions.data[i];
		const char *file = f->file;

		buf_str(&s->line, i ? ",\n{\"name\":" : "\n{\"name\":");
		buf_json(&s->line, f->name);
		if (!file && f->module != PROFILE_NONE)
			file = p->modules.data[f->module].path;
		if (file) {
			buf_str(&s->line, ",\"file\":");
			buf_json(&s->line, file);
		}
		if (f->file && s->lines[i])
			buf_printf(&s->line, ",\"line\":%u", s->lines[i]);
		buf_char(&s->line, '}');
		drain_when_full(s);
	}
	buf_str(&s->line, "\n]},\n");
}

/* The frames of a stack as JSON, outermost first. */
static int make_text(struct scope *s, uint32_t node)
{
	struct stack_text *text = &s->stacks[node];
	size_t count = profile_stack_levels(s->p, node, NULL, 0);

	if (vec_reserve(&s->levels, count))
		return -ENOMEM;
	profile_stack_levels(s->p, node, s->levels.data, count);
	text->at = s->texts.len;
	buf_char(&s->texts, '[');
	for (size_t i = count; i-- > 0;)
		buf_printf(&s->texts, i ? "%u," : "%u",
			s->p->levels.data[s->levels.data[i]].function);
	buf_char(&s->texts, ']');
	text->len = s->texts.len - text->at;
	return s->texts.failed ? -ENOMEM : 0;
}

static int add_stack(struct scope *s, uint32_t node)
{
	if (node == PROFILE_NONE) {
		buf_str(&s->line, "[]");
		return 0;
	}
	if (!s->stacks[node].len && make_text(s, node))
		return -ENOMEM;
	buf_add(&s->line, s->texts.data + s->stacks[node].at, s->stacks[node].len);
	return 0;
}

/* One entry of a speedscope profile. */
struct look {
	uint32_t stack;
	uint64_t weight;
};
VEC_TYPE(looks, struct look);

static int write_profile(struct scope *s, const char *name, const struct looks *looks, bool first)
{
	uint64_t end = 0;

	vec_each(looks, l)
		end += l->weight;
	buf_str(&s->line,
		first ? "{\"type\":\"sampled\",\"name\":" : ",\n{\"type\":\"sampled\",\"name\":");
	buf_json(&s->line, name);
	buf_printf(&s->line,
		",\"unit\":\"%s\",\"startValue\":0,\"endValue\":%" PRIu64 ",\n"
		"\"samples\":[",
		s->p->mode == PROFILE_HEAP ? "bytes" : "nanoseconds", end);
	for (size_t i = 0; i < looks->len; i++) {
		if (i)
			buf_char(&s->line, ',');
		if (add_stack(s, looks->data[i].stack))
			return -ENOMEM;
		drain_when_full(s);
	}
	buf_str(&s->line, "],\n\"weights\":[");
	for (size_t i = 0; i < looks->len; i++) {
		buf_printf(&s->line, i ? ",%" PRIu64 : "%" PRIu64, looks->data[i].weight);
		drain_when_full(s);
	}
	buf_str(&s->line, "]}");
	return 0;
}

static int heavier(const void *left, const void *right)
{
	const struct look *a = left, *b = right;

	if (a->weight != b->weight)
		return a->weight < b->weight ? 1 : -1;
	return (a->stack > b->stack) - (a->stack < b->stack);
}

/* All threads: each different stack once, the heaviest first. */
static int write_all(struct scope *s, struct looks *looks)
{
	size_t nodes = s->p->nodes.len;
	uint64_t *weights = calloc(nodes + 1, sizeof(*weights)); /* the last: no stack */
	int rc = weights ? 0 : -ENOMEM;

	looks->len = 0;
	vec_each(&s->p->samples, sample)
		if (!rc)
			weights[sample->stack == PROFILE_NONE ? nodes : sample->stack] +=
				sample->weight;
	for (size_t i = 0; i <= nodes && !rc; i++)
		if (weights[i])
			rc = vec_push(looks, (struct look){i == nodes ? PROFILE_NONE : (uint32_t)i,
						     weights[i]});
	if (!rc && looks->len)
		qsort(looks->data, looks->len, sizeof(*looks->data), heavier);
	free(weights);
	return rc ? rc : write_profile(s, "all threads", looks, true);
}

/* With time off the CPU, the weights of a thread add up to how long it was watched. */
static int write_thread(struct scope *s, const struct profile_timelines *lines, size_t thread,
	struct looks *looks)
{
	const struct profile_thread *t = &s->p->threads.data[thread];
	struct buf name = {0};
	int rc = 0;

	looks->len = 0;
	for (size_t i = lines->begin[thread]; i < lines->begin[thread + 1] && !rc; i++) {
		const struct profile_sample *sample = &s->p->samples.data[lines->order[i]];

		rc = vec_push(looks, (struct look){sample->stack, sample->weight});
	}
	if (rc || !looks->len)
		return rc;
	buf_printf(&name, "%s (tid %u)", t->name, t->tid);
	rc = name.failed ? -ENOMEM : write_profile(s, name.data, looks, false);
	buf_release(&name);
	return rc;
}

static int write_threads(struct scope *s, struct looks *looks)
{
	struct profile_timelines lines;
	int rc = profile_timelines_build(s->p, &lines, NULL);

	if (rc)
		return rc;
	for (size_t t = 0; t < s->p->threads.len && !rc; t++)
		rc = write_thread(s, &lines, t, looks);
	profile_timelines_release(&lines);
	return rc;
}

static void write_head(struct scope *s)
{
	const char *command = profile_meta(s->p, "command");

	buf_str(&s->line,
		"{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\",\n"
		"\"exporter\":\"sonde " SONDE_VERSION "\",\"activeProfileIndex\":0,\"name\":");
	buf_json(&s->line, command ? command : "sonde");
	buf_str(&s->line, ",\n");
}

static int write_speedscope(const struct profile *p, FILE *out, struct err *err)
{
	struct scope s = {.p = p, .out = out};
	struct looks looks = {0};
	int rc = -ENOMEM;

	s.stacks = calloc(p->nodes.len + 1, sizeof(*s.stacks));
	s.lines = calloc(p->functions.len + 1, sizeof(*s.lines));
	if (s.stacks && s.lines) {
		find_lines(&s);
		write_head(&s);
		write_frames(&s);
		buf_str(&s.line, "\"profiles\":[\n");
		rc = write_all(&s, &looks);
		if (!rc)
			rc = write_threads(&s, &looks);
		buf_str(&s.line, "\n]}\n");
		drain(&s.line, out);
		if (s.line.failed)
			rc = -ENOMEM;
	}
	vec_release(&looks);
	vec_release(&s.levels);
	buf_release(&s.line);
	buf_release(&s.texts);
	free(s.stacks);
	free(s.lines);
	return rc ? err_nomem(err) : 0;
}

const struct format_ops format_speedscope = {
	.name = "speedscope",
	.extensions = {".speedscope.json", ".json"},
	.help = "https://www.speedscope.app, or npx speedscope FILE",
	.loses = "modules, the line of each sample, which frames are inlined or guessed, gaps "
		 "between samples, who woke whom",
	.write = write_speedscope,
};
