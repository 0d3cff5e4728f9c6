/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The reading end of a BPF ring buffer, one record at a time.
 *
 * Layout: Documentation/bpf/ringbuf.rst and kernel/bpf/ringbuf.c of the kernel. A page with our
 * position, a page with the kernel's, then the data, mapped twice in a row so that no record wraps.
 * Records come out in the order in which room for them was taken.
 */
#ifndef SONDE_SAMPLE_BPF_RING_H
#define SONDE_SAMPLE_BPF_RING_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct bpf_ring {
	uint64_t *consumer;       /* NULL: not mapped */
	const uint64_t *producer; /* followed by the data */
	const uint8_t *data;
	size_t data_bytes; /* a power of two */
	uint64_t at;       /* of the record peeked at */
	uint32_t peeked;   /* its bytes; 0: none */
};

/* `fd` is the map, `data_bytes` its max_entries. */
int bpf_ring_map(struct bpf_ring *r, int fd, size_t data_bytes, struct err *err);
void bpf_ring_unmap(struct bpf_ring *r);

/* The oldest record, 8-byte aligned, valid until bpf_ring_pop(); NULL: none is complete. */
const void *bpf_ring_peek(struct bpf_ring *r, size_t *ret_bytes);
void bpf_ring_pop(struct bpf_ring *r);

#endif
