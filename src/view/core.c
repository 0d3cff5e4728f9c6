/* SPDX-License-Identifier: BSD-2-Clause */
/* What a core file is of, and what of it could not be read. */
#include "view/why_priv.h"

#include <inttypes.h>
#include <signal.h>
#include <string.h>

#include "sample/snapshot/core.h"

/* So many files are named; the others are counted. */
#define MOST_FILES 6u

/* ", killed by SIGSEGV at 0x10" */
static void signal_of(const struct core *c, struct buf *out)
{
	const struct core_info *info = core_info(c);
	int signal = core_signal(c);
	bool told = info->has_signal && info->signal == signal;

	if (!signal)
		return;
	buf_printf(out, ", killed by SIG%s", sigabbrev_np(signal));
	if (told && info->signal_code > 0 && info->signal_code < SI_KERNEL)
		buf_printf(out, " at 0x%" PRIx64, info->signal_address);
	else if (told && info->signal_code <= 0 && info->signal_sender > 0 &&
		info->signal_sender != info->pid)
		buf_printf(out, " from process %d", (int)info->signal_sender);
}

struct file_list {
	enum core_found found;
	size_t count;
	struct buf *out;
};

static void list_file(void *ctx, const char *path, enum core_found found)
{
	struct file_list *list = ctx;

	if (found != list->found || list->count++ >= MOST_FILES)
		return;
	buf_str(list->out, list->count == 1 ? " " : ", ");
	words_text(list->out, path);
}

static void files(const struct core *c, enum core_found found, const char *words, const struct term *t,
	struct buf *out)
{
	struct buf names = {0};
	struct file_list list = {.found = found, .out = &names};

	core_each_file(c, list_file, &list);
	if (list.count) {
		paint_on(out, t, PAINT_WARN);
		buf_str(out, words);
		buf_add(out, names.data, names.len);
		if (list.count > MOST_FILES)
			buf_printf(out, " and %zu more", list.count - MOST_FILES);
		paint_off(out, t, PAINT_WARN);
		buf_char(out, '\n');
	}
	out->failed |= names.failed;
	buf_release(&names);
}

void core_text(const struct core *c, const struct term *t, struct buf *out)
{
	const struct core_info *info = core_info(c);

	paint_on(out, t, PAINT_TITLE);
	buf_str(out, "core of ");
	words_text(out, info->name);
	buf_printf(out, "[%d]", (int)info->pid);
	signal_of(c, out);
	paint_off(out, t, PAINT_TITLE);
	if (info->arguments[0]) {
		paint_on(out, t, PAINT_DIM);
		buf_str(out, ": ");
		words_text(out, info->arguments);
		paint_off(out, t, PAINT_DIM);
	}
	buf_char(out, '\n');
	if (info->missing_bytes) {
		paint_on(out, t, PAINT_WARN);
		buf_str(out, "The file is cut off: ");
		words_bytes(out, info->missing_bytes);
		buf_str(out, " of memory are not in it.");
		paint_off(out, t, PAINT_WARN);
		buf_char(out, '\n');
	}
	files(c, CORE_MISSING, "Not found, so nothing is known of code there:", t, out);
	files(c, CORE_ANOTHER, "Not the files that ran, so not used:", t, out);
	files(c, CORE_UNCHECKED, "Used, though the core does not tell whether they are the ones:", t, out);
}

/* ---- JSON ---- */

static void json_file(void *ctx, const char *path, enum core_found found)
{
	static const char *const names[] = {[CORE_NOT_LOOKED_FOR] = "", [CORE_FOUND] = "found",
		[CORE_UNCHECKED] = "unchecked", [CORE_MISSING] = "missing", [CORE_ANOTHER] = "another"};
	struct file_list *list = ctx;

	buf_str(list->out, list->count++ ? ",{\"path\":" : "{\"path\":");
	buf_json(list->out, path);
	buf_printf(list->out, ",\"found\":\"%s\"}", names[found]);
}

void core_json(const struct core *c, struct buf *out)
{
	const struct core_info *info = core_info(c);
	struct file_list list = {.out = out};
	int signal = core_signal(c);

	buf_printf(out, "\"core\":{\"pid\":%d,\"name\":", (int)info->pid);
	buf_json(out, info->name);
	buf_str(out, ",\"arguments\":");
	buf_json(out, info->arguments);
	if (signal)
		buf_printf(out, ",\"signal\":\"SIG%s\",\"tid\":%d", sigabbrev_np(signal),
			(int)info->threads.data[0].tid);
	if (signal && info->has_signal && info->signal == signal && info->signal_code > 0 &&
		info->signal_code < SI_KERNEL)
		buf_printf(out, ",\"address\":\"0x%" PRIx64 "\"", info->signal_address);
	buf_printf(out, ",\"missing_bytes\":%" PRIu64 ",\"files\":[", info->missing_bytes);
	core_each_file(c, json_file, &list);
	buf_str(out, "]}");
}
