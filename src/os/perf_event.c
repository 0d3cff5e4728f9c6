/* SPDX-License-Identifier: BSD-2-Clause */
#include "os/perf_event.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"

int perf_event_open(struct perf_event_attr *attr, pid_t tid, int cpu, int group_fd)
{
	int fd = (int)syscall(
		SYS_perf_event_open, attr, tid, cpu, group_fd, PERF_FLAG_FD_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

int perf_event_open_cgroup(struct perf_event_attr *attr, int cgroup_fd, int cpu)
{
	int fd = (int)syscall(SYS_perf_event_open, attr, cgroup_fd, cpu, -1,
		PERF_FLAG_FD_CLOEXEC | PERF_FLAG_PID_CGROUP);

	return fd < 0 ? -errno : fd;
}

int perf_sysctl(const char *name, int fallback)
{
	char path[96], text[32];

	snprintf(path, sizeof(path), "/proc/sys/kernel/%s", name);
	autoclose int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (n <= 0)
		return fallback;
	text[n] = '\0';
	return (int)strtol(text, NULL, 10);
}

int perf_ring_map(struct perf_ring *r, int fd, size_t pages)
{
	size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
	size_t bytes = (pages + 1) * page_bytes;
	uint8_t *linear = malloc(PERF_RECORD_MAX_BYTES);

	if (!linear)
		return -ENOMEM;

	void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (map == MAP_FAILED) {
		int code = errno;
		free(linear);
		return -code;
	}
	*r = (struct perf_ring){
		.page = map,
		.data = (const uint8_t *)map + page_bytes,
		.data_bytes = pages * page_bytes,
		.linear = linear,
	};
	return 0;
}

void perf_ring_unmap(struct perf_ring *r)
{
	if (r->page)
		munmap(r->page, r->data_bytes + (size_t)sysconf(_SC_PAGESIZE));
	free(r->linear);
	*r = (struct perf_ring){0};
}

size_t perf_ring_begin(struct perf_ring *r)
{
	r->head = __atomic_load_n(&r->page->data_head, __ATOMIC_ACQUIRE);
	return (size_t)(r->head - r->tail);
}

static const void *linearised(struct perf_ring *r, size_t at, size_t len)
{
	size_t first = r->data_bytes - at;

	if (len <= first)
		return r->data + at;
	memcpy(r->linear, r->data + at, first);
	memcpy(r->linear + first, r->data, len - first);
	return r->linear;
}

const struct perf_event_header *perf_ring_peek(struct perf_ring *r, bool *ret_malformed)
{
	uint64_t left = r->head - r->tail;
	struct perf_event_header header;

	r->peeked = 0;
	if (!left)
		return NULL;

	size_t at = (size_t)(r->tail & (r->data_bytes - 1));

	/* Records are 8-byte aligned, so the 8-byte header never wraps. */
	memcpy(&header, r->data + at, sizeof(header));
	if (left > r->data_bytes || header.size < sizeof(header) || header.size % 8 ||
		header.size > left) {
		*ret_malformed = true;
		r->peeked = (size_t)left;
		perf_ring_pop(r);
		return NULL;
	}
	r->peeked = header.size;
	return linearised(r, at, header.size);
}

void perf_ring_pop(struct perf_ring *r)
{
	r->tail += r->peeked;
	r->peeked = 0;
	__atomic_store_n(&r->page->data_tail, r->tail, __ATOMIC_RELEASE);
}

uint64_t perf_ring_head(const struct perf_ring *r)
{
	return __atomic_load_n(&r->page->data_head, __ATOMIC_ACQUIRE);
}

uint64_t perf_ring_tail(const struct perf_ring *r)
{
	return __atomic_load_n(&r->page->data_tail, __ATOMIC_ACQUIRE);
}

uint64_t perf_ring_word(const struct perf_ring *r, uint64_t position)
{
	return *(const uint64_t *)(r->data + (position & (r->data_bytes - 1)));
}
