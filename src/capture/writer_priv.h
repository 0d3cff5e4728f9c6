/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Between the files of the writer:
 *	writer.c  records -> blocks -> bytes
 *	tables.c  the interning tables
 *	window.c  where the bytes of a rolling window go: segments in memory
 *	replay.c  a window -> a recording
 */
#ifndef SONDE_CAPTURE_WRITER_PRIV_H
#define SONDE_CAPTURE_WRITER_PRIV_H

#include <zstd.h>

#include "base/buf.h"
#include "base/intern.h"
#include "base/vec.h"
#include "capture/id_table.h"
#include "capture/writer.h"

struct node {
	uint32_t parent, frame;
};

/* What stacks are made of. */
struct stack_tables {
	VEC(struct record_frame) frames;
	struct id_table frame_ids;
	VEC(struct node) nodes;   /* those not forgotten: ids from first_node on */
	struct id_table node_ids; /* indices of `nodes` */
	uint32_t first_node;
};

struct module_entry {
	struct record_module record; /* in a window its `path` is not meant, but this: */
	char *path;
	uint32_t segment; /* of a window: the last that defines it */
	bool free;        /* the id may be given to another */
};

struct window;

struct capture_writer {
	int fd;                /* -1: a window */
	struct window *window; /* NULL: a file */
	char *name;
	struct err error;
	uint64_t written, sequence;

	struct buf block; /* plain records */
	ZSTD_CCtx *zstd;
	uint8_t *stored; /* block header and compressed payload */
	size_t stored_cap;

	struct intern strings;
	VEC(struct module_entry) modules;
	struct id_table module_ids;
	struct stack_tables stacks;
};

/* writer.c. One record of a fixed part, a tail and padding. Both together are far below a block's
 * limit: the longest are strings of CAPTURE_MAX_STRING_BYTES. */
void writer_add_record(struct capture_writer *w, enum record_type type, void *fixed,
	size_t fixed_bytes, const void *tail, size_t tail_bytes);
void writer_end_block(struct capture_writer *w);
void writer_put_file_header(
	struct capture_writer *w, uint64_t start_monotonic_ns, uint64_t start_realtime_ns);
uint32_t writer_no_memory(struct capture_writer *w); /* CAPTURE_NONE */
/* Without a place to write to yet; it frees itself on failure. */
int writer_new(const char *name, struct capture_writer **ret, struct err *err);
void writer_free(struct capture_writer *w);

/* tables.c */
void stack_tables_release(struct stack_tables *t);
void tables_release(struct capture_writer *w);
size_t tables_bytes(const struct capture_writer *w);
/* Equal stack nodes get new numbers from now on, if there are so many that looking them up takes too
 * much memory. */
void tables_forget_nodes(struct capture_writer *w, size_t if_more_than);
/* In a window: this segment defines the module. */
void tables_define_module(struct capture_writer *w, uint32_t id);
void tables_forget_module(struct capture_writer *w, uint32_t id);
/* After any were forgotten, before the next segment. */
void tables_tidy_modules(struct capture_writer *w);

/* window.c */
void window_put(struct capture_writer *w, const void *bytes, size_t len);
void window_free(struct capture_writer *w);
void window_meta(struct capture_writer *w, const char *key, const char *value);

#endif
