/* SPDX-License-Identifier: BSD-2-Clause */
#include "sample/bpf/ring.h"

#include <errno.h>
#include <linux/bpf.h>
#include <sys/mman.h>
#include <unistd.h>

int bpf_ring_map(struct bpf_ring *r, int fd, size_t data_bytes, struct err *err)
{
	size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
	void *own = mmap(NULL, page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), *rest;

	if (own == MAP_FAILED)
		return err_errno(err, errno, "mmap of a BPF ring");
	rest = mmap(NULL, page_bytes + 2 * data_bytes, PROT_READ, MAP_SHARED, fd,
		(off_t)page_bytes);
	if (rest == MAP_FAILED) {
		int code = errno;

		munmap(own, page_bytes);
		return err_errno(err, code, "mmap of a BPF ring");
	}
	*r = (struct bpf_ring){
		.consumer = own,
		.producer = rest,
		.data = (const uint8_t *)rest + page_bytes,
		.data_bytes = data_bytes,
	};
	return 0;
}

void bpf_ring_unmap(struct bpf_ring *r)
{
	size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);

	if (r->consumer) {
		munmap(r->consumer, page_bytes);
		munmap((void *)(uintptr_t)r->producer, page_bytes + 2 * r->data_bytes);
	}
	*r = (struct bpf_ring){0};
}

/* Past the record at r->at. */
static void pass(struct bpf_ring *r, uint32_t bytes)
{
	r->at += (BPF_RINGBUF_HDR_SZ + (uint64_t)bytes + 7) & ~7ULL;
	__atomic_store_n(r->consumer, r->at, __ATOMIC_RELEASE);
}

const void *bpf_ring_peek(struct bpf_ring *r, size_t *ret_bytes)
{
	while (__atomic_load_n(r->producer, __ATOMIC_ACQUIRE) != r->at) {
		const uint8_t *header = r->data + (r->at & (r->data_bytes - 1));
		uint32_t word = __atomic_load_n((const uint32_t *)(const void *)header,
			__ATOMIC_ACQUIRE);
		uint32_t bytes = word & ~(BPF_RINGBUF_BUSY_BIT | BPF_RINGBUF_DISCARD_BIT);

		if (word & BPF_RINGBUF_BUSY_BIT || bytes > r->data_bytes)
			return NULL;
		if (word & BPF_RINGBUF_DISCARD_BIT) {
			pass(r, bytes);
			continue;
		}
		r->peeked = bytes;
		*ret_bytes = bytes;
		return header + BPF_RINGBUF_HDR_SZ;
	}
	return NULL;
}

void bpf_ring_pop(struct bpf_ring *r)
{
	pass(r, r->peeked);
	r->peeked = 0;
}
