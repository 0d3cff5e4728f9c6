/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Any bytes as a stream of perf records, through the decoder into a session whose recording goes
 * to /dev/null; and as lines of /proc/PID/maps; and as chains of Python frames that a program in the kernel has
 * copied. The first byte says which.
 *
 * Process ids are moved beyond what a kernel gives out, so that no process of this machine is read.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "os/proc.h"
#include "sample/perf/perf_priv.h"
#include "sample/python/stopped.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define NOBODY 0x40000000u

static volatile size_t touched; /* keeps the compiler from leaving the reads out */

static void parse_lines(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1), *line = text;

	memcpy(text, data, size);
	text[size] = '\0';
	while (line) {
		char *next = strchr(line, '\n');
		struct proc_mapping m;

		if (next)
			*next++ = '\0';
		if (proc_parse_mapping(line, &m))
			touched += strlen(m.path) + (m.end - m.start);
		line = next;
	}
	free(text);
}

/* In memory of exactly their size. */
static void parse_chains(const uint8_t *data, size_t size)
{
	uint8_t *record = malloc(size + 1);
	uint64_t *room = malloc(PYTHON_STOPPED_ROOM);
	struct raw_chain chains[PYTHON_STOPPED_CHAINS];
	size_t count;

	memcpy(record, data, size);
	count = python_stopped_read(record, size, room, chains, PYTHON_STOPPED_CHAINS);
	for (size_t i = 0; i < count; i++) {
		const struct python_chain *c = &chains[i].chain;

		for (size_t k = 0; k < c->count; k++)
			touched += c->links[k].at + c->links[k].marks;
		for (size_t k = 0; k < c->cframe_count; k++)
			touched += c->cframes[k];
	}
	free(room);
	free(record);
}

/* Ids at `offset` of the record; few different ones, so that records meet. */
static void nobody(uint8_t *record, size_t len, size_t offset, size_t count)
{
	for (size_t i = 0; i < count && offset + 4 <= len; i++, offset += 4) {
		uint32_t id;

		memcpy(&id, record + offset, 4);
		id = NOBODY | (id & 7);
		memcpy(record + offset, &id, 4);
	}
}

#define TRAILER_BYTES sizeof(struct perf_trailer)

/* Records that only have a trailer name their thread there. */
static void nobody_in_trailer(uint8_t *record, size_t len)
{
	if (len >= sizeof(struct perf_event_header) + TRAILER_BYTES)
		nobody(record, len, len - TRAILER_BYTES, 2);
}

static void decode_one(struct perf_sampler *s, struct cpu_ring *r, uint8_t *record, size_t len)
{
	struct perf_event_header header;

	memcpy(&header, record, sizeof(header));
	header.type &= 15;
	header.size = (uint16_t)len;
	memcpy(record, &header, sizeof(header));
	if (header.type == PERF_RECORD_SAMPLE)
		nobody(record, len, sizeof(header) + 16, 2);
	else if (header.type == PERF_RECORD_FORK || header.type == PERF_RECORD_EXIT)
		nobody(record, len, sizeof(header), 4);
	else if (header.type == PERF_RECORD_SWITCH || header.type == PERF_RECORD_SWITCH_CPU_WIDE)
		nobody_in_trailer(record, len);
	else
		nobody(record, len, sizeof(header), 2);
	r->next = (const struct perf_event_header *)record;
	r->next_ns = perf_record_time(s, r->next);
	perf_decode(s, r);
	r->handled_ns = r->next_ns;
}

/* Each record is copied to memory of exactly its size, so that a read past it shows. */
static void decode_all(
	struct perf_sampler *s, struct cpu_ring *r, const uint8_t *data, size_t size)
{
	while (size >= sizeof(struct perf_event_header)) {
		struct perf_event_header header;
		size_t len;

		memcpy(&header, data, sizeof(header));
		len = header.size < sizeof(header) ? sizeof(header) : header.size & ~7u;
		len = len < size ? len : size;

		uint8_t *record = malloc(len);

		memcpy(record, data, len);
		decode_one(s, r, record, len);
		free(record);
		data += len;
		size -= len;
	}
}

/* Samples with an id of 1 are of threads that leave their CPU. */
static void watch_switches(struct perf_sampler *s, struct cpu_ring *r)
{
	const struct watched_event event = {.fd = -1, .tid = -1, .off_cpu = true};
	const struct off_cpu_options options = {0};

	s->off_attr.sample_type = PERF_SAMPLE_CALLCHAIN;
	s->new_threads = true;
	if (throttling_new(&s->throttling, NULL) || !event_table_add(&r->events, &event, 1) ||
		off_cpu_new(s->session, &options, &s->off_cpu, NULL))
		abort();
}

static void finish_switches(struct perf_sampler *s)
{
	off_cpu_settle(s->off_cpu, 1);
	off_cpu_settle(s->off_cpu, UINT64_MAX / 2);
	off_cpu_finish(s->off_cpu, UINT64_MAX / 2);
	perf_off_cpu_free(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct perf_sampler s = {.period_ns = 1000000};
	struct cpu_ring r = {0};
	struct thread_selection everything = {0};
	struct capture_writer *writer;

	if (!size)
		return 0;
	if (data[0] & 1) {
		parse_lines(data + 1, size - 1);
		return 0;
	}
	if (data[0] == 'P') {
		parse_chains(data + 1, size - 1);
		return 0;
	}
	if (capture_writer_to_fd(open("/dev/null", O_WRONLY | O_CLOEXEC), "null", &writer, NULL))
		return 0;
	if (data[0] & 2)
		s.attr.sample_type |= PERF_SAMPLE_CALLCHAIN;
	s.attr.freq = data[0] >> 2 & 1;
	s.adaptive = data[0] >> 4 & 1;
	if (!session_new(writer, &everything, &s.session, NULL)) {
		if (data[0] & 8)
			watch_switches(&s, &r);
		decode_all(&s, &r, data + 1, size - 1);
		if (data[0] & 8)
			finish_switches(&s);
		session_flush(s.session, 1);
		session_free(s.session);
	}
	event_table_release(&r.events);
	vec_release(&r.sampled);
	thread_table_release(&s.threads);
	vec_release(&s.retired);
	capture_writer_abandon(writer);
	return 0;
}
