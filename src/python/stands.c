/* SPDX-License-Identifier: BSD-2-Clause */
#include "python/layout.h"
#include "python/object.h"

bool python_thread_stands(struct python *p, const struct python_thread *thread)
{
	const struct python_layout *l = python_layout(p);
	uint64_t interpreter, pthread;

	return python_read_u64(p, thread->address + l->thread.interpreter, &interpreter) &&
		python_read_u64(p, thread->address + l->thread.pthread, &pthread) &&
		interpreter == thread->interpreter && pthread == thread->pthread;
}
