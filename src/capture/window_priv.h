/* SPDX-License-Identifier: BSD-2-Clause */
/* What window.c keeps and replay.c reads. */
#ifndef SONDE_CAPTURE_WINDOW_PRIV_H
#define SONDE_CAPTURE_WINDOW_PRIV_H

#include "capture/window.h"
#include "capture/writer_priv.h"

struct segment {
	struct buf bytes; /* file header and blocks */
	uint32_t number;
	uint64_t start_ns, end_ns; /* its events lie in between, nearly */
};

struct window_meta {
	char *key, *value;
};

struct window {
	struct capture_window_options options;
	VEC(struct segment) closed; /* oldest first */
	struct segment open;
	size_t bytes;      /* of the closed ones */
	uint64_t since_ns; /* when the oldest segment in memory began */
	VEC(struct window_meta) meta;
	const struct stack_tables *carried_from; /* of the segment before, during a rotation */
};

#endif
