/* SPDX-License-Identifier: BSD-2-Clause */
#include "test.h"

#include <errno.h>
#include <stdlib.h>
#include <zlib.h>

#include "alloc_fail.h"
#include "base/cursor.h"
#include "format/format.h"
#include "small_wall.h"

/* What a format writes of a profile, which it frees; malloc'ed. */
static char *written_of(struct profile *p, const struct format_ops *format, size_t *ret_len)
{
	char *text = NULL;
	FILE *out = open_memstream(&text, ret_len);

	check(p && !format->write(p, out, NULL));
	fclose(out);
	profile_free(p);
	return text;
}

static char *written(
	const struct format_ops *format, const struct profile_load_options *load, size_t *ret_len)
{
	return written_of(small_profile(load), format, ret_len);
}

TEST(formats_by_name_and_path)
{
	check(format_by_name("pprof") == &format_pprof);
	check(!format_by_name("perf"));
	check(format_by_path("a/b.pb.gz") == &format_pprof);
	check(format_by_path("x.speedscope.json") == &format_speedscope);
	check(format_by_path("x.json") == &format_speedscope);
	check(format_by_path("x.folded") == &format_folded);
	check(!format_by_path("x.gz"));
	check(!format_by_path(""));
}

TEST(folded)
{
	size_t len;
	char *text = written(&format_folded, NULL, &len);

	check_str(text, "_start;main;serve;parse<int: char> 6\n"
			"_start;main;serve;memcpy 2\n"
			"clone;worker;ksys_read 1\n"
			"[truncated];libc.so.6+0x2fff;serve;parse<int: char> 1\n");
	free(text);
}

TEST(folded_of_one_thread_without_inlines)
{
	struct profile_load_options load = {.filter = {.main_only = true, .no_inline = true}};
	size_t len;
	char *text = written(&format_folded, &load, &len);

	check_str(text, "_start;main;serve 6\n_start;main;serve;memcpy 2\n");
	free(text);
}

/* Time on the CPU and off it, in nanoseconds. */
TEST(folded_wall_clock)
{
	size_t len;
	char *text = written_of(wall_profile(NULL), &format_folded, &len);

	check_str(text, "clone;bio_wait;do_futex;[futex] 300000000\n"
			"clone;worker;ksys_read;[syscall read] 80000000\n"
			"clone;worker;memcpy 20000000\n"
			"_start;main;serve;parse<int: char> 50000000\n"
			"_start;main;serve;parse<int: char>;[run queue] 1500000\n"
			"_start;main;clock_nanosleep;[syscall clock_nanosleep] 28000000\n"
			"_start;main;clock_nanosleep;[run queue] 500000\n"
			"_start;main;pthread_mutex_lock;do_futex;schedule;[futex] 18000000\n"
			"[truncated];[syscall poll] 2000000\n");
	free(text);
}

/* A thread's time line: what it did, in that order and for that long. */
TEST(speedscope_wall_clock)
{
	struct profile_load_options load = {.filter.tid = 101};
	size_t len;
	char *text = written_of(wall_profile(&load), &format_speedscope, &len);

	check(strstr(text, "{\"name\":\"[syscall read]\"}"));
	check(strstr(text, "\"name\":\"holder (tid 101)\",\"unit\":\"nanoseconds\","
			   "\"startValue\":0,\"endValue\":100000000,\n"));
	check(strstr(text, "\"weights\":[5000000,5000000,5000000,5000000,80000000]}\n]}\n"));
	free(text);
}

TEST(speedscope)
{
	size_t len;
	char *text = written(&format_speedscope, NULL, &len);

	check_str(text,
		"{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\",\n"
		"\"exporter\":\"sonde 0.1.0\",\"activeProfileIndex\":0,"
		"\"name\":\"server --port 80 <&\\\">\",\n"
		"\"shared\":{\"frames\":[\n"
		"{\"name\":\"_start\",\"file\":\"/usr/bin/server\"},\n"
		"{\"name\":\"main\",\"file\":\"server.c\",\"line\":12},\n"
		"{\"name\":\"parse<int; char>\",\"file\":\"parse.h\",\"line\":7},\n"
		"{\"name\":\"serve\",\"file\":\"server.c\",\"line\":30},\n"
		"{\"name\":\"memcpy\",\"file\":\"/lib/libc.so.6\"},\n"
		"{\"name\":\"clone\",\"file\":\"/lib/libc.so.6\"},\n"
		"{\"name\":\"worker\",\"file\":\"server.c\",\"line\":50},\n"
		"{\"name\":\"ksys_read\",\"file\":\"[kernel]\"},\n"
		"{\"name\":\"libc.so.6+0x2fff\",\"file\":\"/lib/libc.so.6\"},\n"
		"{\"name\":\"[truncated]\"}\n"
		"]},\n"
		"\"profiles\":[\n"
		"{\"type\":\"sampled\",\"name\":\"all threads\",\"unit\":\"nanoseconds\","
		"\"startValue\":0,\"endValue\":50000000,\n"
		"\"samples\":[[0,1,3,2],[0,1,3,4],[5,6,7],[8,3,2]],\n"
		"\"weights\":[30000000,10000000,5000000,5000000]},\n"
		"{\"type\":\"sampled\",\"name\":\"server (tid 100)\",\"unit\":\"nanoseconds\","
		"\"startValue\":0,\"endValue\":40000000,\n"
		"\"samples\":[[0,1,3,2],[0,1,3,2],[0,1,3,2],[0,1,3,2],[0,1,3,2],[0,1,3,2],[0,1,"
		"3,4],[0,1,3,4]],\n"
		"\"weights\":[5000000,5000000,5000000,5000000,5000000,5000000,5000000,5000000]},\n"
		"{\"type\":\"sampled\",\"name\":\"io (tid 101)\",\"unit\":\"nanoseconds\","
		"\"startValue\":0,\"endValue\":10000000,\n"
		"\"samples\":[[5,6,7],[8,3,2]],\n"
		"\"weights\":[5000000,5000000]}\n"
		"]}\n");
	free(text);
}

/* ---- pprof, read back by hand ---- */

struct pprof {
	struct bytes plain;
	unsigned counts[16]; /* of each field of Profile */
	struct cursor strings[64];
	struct cursor samples[16], locations[16], mappings[16];
};

static struct bytes inflated(const char *data, size_t len)
{
	struct bytes plain = {.data = malloc(1 << 16)};
	z_stream z = {.next_in = (unsigned char *)data, .avail_in = (unsigned)len,
		.next_out = plain.data, .avail_out = 1 << 16};

	check(inflateInit2(&z, 15 + 16) == Z_OK);
	check(inflate(&z, Z_FINISH) == Z_STREAM_END);
	plain.len = z.total_out;
	inflateEnd(&z);
	return plain;
}

/* The next field of a message: its number, its value or its bytes. 0 at the end. */
static unsigned next_field(struct cursor *c, uint64_t *value, struct cursor *bytes)
{
	if (!cursor_left(c))
		return 0;

	uint64_t tag = cursor_uleb(c);

	*value = cursor_uleb(c);
	if ((tag & 7) == 2)
		*bytes = cursor_sub(c, *value);
	else
		check_u64(tag & 7, 0);
	check(!c->bad);
	return (unsigned)(tag >> 3);
}

static struct pprof read_pprof(const char *data, size_t len)
{
	struct pprof r = {.plain = inflated(data, len)};
	struct cursor c = cursor_over(r.plain.data, r.plain.len), bytes = {0};
	uint64_t value;
	unsigned field;

	while ((field = next_field(&c, &value, &bytes)) && field < 16) {
		unsigned at = r.counts[field]++;

		if (field == 6 && at < 64)
			r.strings[at] = bytes;
		else if (field == 2 && at < 16)
			r.samples[at] = bytes;
		else if (field == 3 && at < 16)
			r.mappings[at] = bytes;
		else if (field == 4 && at < 16)
			r.locations[at] = bytes;
	}
	return r;
}

/* The value of one field of a message; its bytes in *bytes. */
static uint64_t get(struct cursor message, unsigned wanted, struct cursor *bytes)
{
	struct cursor b = {0};
	uint64_t value;
	unsigned field;

	while ((field = next_field(&message, &value, &b)))
		if (field == wanted) {
			if (bytes)
				*bytes = b;
			return value;
		}
	return 0;
}

static bool is_string(const struct pprof *r, uint64_t id, const char *want)
{
	return id < 64 && cursor_left(&r->strings[id]) == strlen(want) &&
	       (!*want || !memcmp(r->strings[id].at, want, strlen(want)));
}

TEST(pprof_messages)
{
	size_t len;
	char *data = written(&format_pprof, NULL, &len);
	struct pprof r = read_pprof(data, len);
	uint64_t samples = 0, weight = 0;

	check_u64(r.counts[1], 2); /* sample types */
	check_u64(r.counts[2], 4);
	check_u64(r.counts[3], 3);
	check_u64(r.counts[4], 9);
	check(is_string(&r, 0, ""));
	for (unsigned i = 0; i < r.counts[2]; i++) {
		struct cursor values = {0};

		get(r.samples[i], 2, &values);
		samples += cursor_uleb(&values);
		weight += cursor_uleb(&values);
		check_u64(cursor_left(&values), 0);
	}
	check_u64(samples, 10);
	check_u64(weight, 10 * SMALL_WEIGHT_NS);
	check(is_string(&r, get(r.mappings[0], 5, NULL), "/usr/bin/server"));
	check(is_string(&r, get(r.mappings[0], 6, NULL), "aaaaaaaa"));
	check_u64(get(r.mappings[0], 1, NULL), 1);
	check_u64(get(r.mappings[0], 2, NULL), 0x400000);
	free(r.plain.data);
	free(data);
}

/* Whether a sample has the label `key` with this text. */
static bool has_label(const struct pprof *r, struct cursor sample, const char *key, const char *text)
{
	struct cursor label = {0};
	uint64_t value;
	unsigned field;

	while ((field = next_field(&sample, &value, &label)))
		if (field == 3 && is_string(r, get(label, 1, NULL), key) &&
			is_string(r, get(label, 2, NULL), text))
			return true;
	return false;
}

TEST(pprof_wall_clock)
{
	struct profile_load_options load = {.filter.tid = 100};
	uint64_t sums[4] = {0}, futex = 0, held = 0;
	size_t len;
	char *data = written_of(wall_profile(&load), &format_pprof, &len);
	struct pprof r = read_pprof(data, len);

	check_u64(r.counts[1], 4); /* samples, cpu, off_cpu, wall */
	for (unsigned i = 0; i < r.counts[2]; i++) {
		struct cursor values = {0};
		uint64_t v[4];

		get(r.samples[i], 2, &values);
		for (unsigned k = 0; k < 4; k++)
			sums[k] += v[k] = cursor_uleb(&values);
		check_u64(cursor_left(&values), 0);
		check(!v[1] || !v[2]);
		if (has_label(&r, r.samples[i], "state", "futex"))
			futex += v[2];
		if (has_label(&r, r.samples[i], "waker", "holder (server)"))
			held += v[2];
	}
	check_u64(sums[0], 18);
	check(sums[1] == 50 * WALL_MS && sums[2] == 50 * WALL_MS && sums[3] == 100 * WALL_MS);
	check(futex == 18 * WALL_MS && held == 15 * WALL_MS);
	free(r.plain.data);
	free(data);
}

TEST(pprof_off_cpu)
{
	size_t len;
	struct profile *p = wall_profile(NULL);

	p->mode = PROFILE_OFF_CPU;

	char *data = written_of(p, &format_pprof, &len);
	struct pprof r = read_pprof(data, len);

	check_u64(r.counts[1], 2); /* samples, off_cpu */
	check_u64(r.counts[11], 0); /* no period */
	free(r.plain.data);
	free(data);
}

TEST(pprof_inlines_and_addresses)
{
	size_t len;
	char *data = written(&format_pprof, NULL, &len);
	struct pprof r = read_pprof(data, len);
	unsigned with_inlines = 0;

	for (unsigned i = 0; i < r.counts[4]; i++) {
		struct cursor c = r.locations[i], line = {0};
		uint64_t value, address = get(c, 3, NULL);
		unsigned field, lines = 0;

		while ((field = next_field(&c, &value, &line)))
			lines += field == 4;
		check(lines >= 1);
		with_inlines += lines == 2;
		if (lines == 2) {
			check_u64(address, 0x401230);       /* sampled: the address itself */
			check_u64(get(line, 2, NULL), 30);  /* the real function is last */
		}
		if (get(r.locations[i], 1, NULL) == 1)
			check_u64(address, 0x40100f); /* _start, a return address: one less */
	}
	check_u64(with_inlines, 1);
	free(r.plain.data);
	free(data);
}

static void without_memory(struct profile *p)
{

	for (const struct format_ops *const *f = formats; *f; f++) {
		for (uint64_t n = 0;; n++) {
			char *text = NULL;
			size_t len;
			FILE *out = open_memstream(&text, &len);

			alloc_fail_begin(n);
			int rc = (*f)->write(p, out, NULL);
			bool hit = alloc_fail_end();

			check(rc == (hit ? -ENOMEM : 0));
			fclose(out);
			free(text);
			if (!hit)
				break;
		}
	}
	profile_free(p);
}

TEST(no_memory)
{
	without_memory(small_profile(NULL));
	without_memory(wall_profile(NULL));
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, T(formats_by_name_and_path), T(folded),
		T(folded_of_one_thread_without_inlines), T(folded_wall_clock), T(speedscope),
		T(speedscope_wall_clock), T(pprof_messages), T(pprof_wall_clock), T(pprof_off_cpu),
		T(pprof_inlines_and_addresses), T(no_memory));
}
