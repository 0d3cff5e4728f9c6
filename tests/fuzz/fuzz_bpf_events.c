/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Any bytes as events of the BPF program, through the decoder into a session whose recording goes to
 * /dev/null. Each event is a byte with its kind, two with its length, and that many bytes after the kind. Kind
 * 255 is what the other program writes about a thread.
 *
 * Process ids are moved beyond what a kernel gives out, so that no process of this machine is read.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "sample/bpf/bpf_priv.h"
#include "sample/snapshot/bpf_task.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define NOBODY 0x40000000u

static uint32_t nobody(uint32_t id)
{
	return NOBODY | (id & 7);
}

/* In memory of exactly its size, so that a read past it shows. */
static void decode_one(struct bpf_sampler *s, uint32_t kind, const uint8_t *bytes, size_t size)
{
	uint8_t *record = calloc(1, sizeof(kind) + size);
	struct off_cpu_event *e = (struct off_cpu_event *)(void *)record;

	memcpy(record, &kind, sizeof(kind));
	memcpy(record + sizeof(kind), bytes, size);
	if (sizeof(kind) + size >= sizeof(e->head)) {
		e->head.tid = nobody(e->head.tid);
		e->head.tgid = nobody(e->head.tgid);
	}
	if (sizeof(kind) + size >= offsetof(struct off_cpu_event, bytes)) {
		e->waker_tid = nobody(e->waker_tid);
		e->waker_tgid = nobody(e->waker_tgid);
	}
	bpf_decode(s, record, sizeof(kind) + size);
	free(record);
}

/* A record of it has one length, or is not looked at. */
static void look_at_one(const uint8_t *bytes, size_t size)
{
	struct snapshot_task task = {0};
	struct thread_look look;

	memcpy(&task, bytes, size < sizeof(task) ? size : sizeof(task));
	if (bpf_task_look(&task, &look) && (!memchr(look.name, 0, sizeof(look.name)) ||
						   !memchr(look.wait.where, 0, sizeof(look.wait.where))))
		__builtin_trap();
}

static void decode_all(struct bpf_sampler *s, const uint8_t *data, size_t size)
{
	while (size > 3) {
		/* Not OFF_CPU_EXIT: it gives its slot back to the program. */
		uint32_t kind = data[0] % 8 == OFF_CPU_EXIT ? OFF_CPU_INTERVAL : data[0] % 8;
		size_t len = data[1] | (size_t)data[2] << 8;
		bool is_task = data[0] == 255;

		data += 3;
		size -= 3;
		len = len < size ? len : size;
		if (is_task)
			look_at_one(data, len);
		else
			decode_one(s, kind, data, len);
		data += len;
		size -= len;
	}
	bpf_settle(s, UINT64_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct bpf_sampler s;
	static struct off_cpu_thread threads[OFF_CPU_THREADS];
	struct thread_selection everything = {0};
	struct capture_writer *writer;

	memset(&s, 0, sizeof(s));
	s.threads = threads;
	s.kernel_names_refused = -1;
	if (python_copier_new(&(struct python_copier_maps){0}, &s.python, NULL))
		return 0;
	if (capture_writer_to_fd(open("/dev/null", O_WRONLY | O_CLOEXEC), "null", &writer, NULL))
		return 0;
	if (!session_new(writer, &everything, &s.session, NULL)) {
		decode_all(&s, data, size);
		session_flush(s.session, 1);
		session_free(s.session);
	}
	vec_release(&s.finished);
	bpf_release_chains(&s);
	python_copier_free(s.python);
	capture_writer_abandon(writer);
	return 0;
}
