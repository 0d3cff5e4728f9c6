/* SPDX-License-Identifier: BSD-2-Clause */
/* What the steps of loading share: ids, texts, processes. And the end of a profile. */
#include <string.h>

#include "base/hash.h"
#include "profile/profile_priv.h"

uint32_t id_map_find(const struct id_map *m, uint32_t id)
{
	if (id < m->ids.len && m->ids.data[id] == id)
		return id;

	size_t low = 0, high = m->ids.len;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (m->ids.data[middle] == id)
			return (uint32_t)middle;
		if (m->ids.data[middle] < id)
			low = middle + 1;
		else
			high = middle;
	}
	return PROFILE_NONE;
}

static bool is_control(char c)
{
	return (unsigned char)c < ' ' || c == 0x7f;
}

const char *loader_text(struct loader *l, const char *bytes, size_t len)
{
	size_t clean = 0;

	len = strnlen(bytes, len);
	while (clean < len && !is_control(bytes[clean]))
		clean++;

	char *copy = NULL;

	if (clean < len) {
		copy = malloc(len);
		if (!copy)
			return NULL;
		for (size_t i = 0; i < len; i++)
			copy[i] = is_control(bytes[i]) ? '?' : bytes[i];
	}

	uint32_t id = intern_add(&l->p->strings, copy ? copy : bytes, len);

	free(copy);
	return id == INTERN_NONE ? NULL : intern_get(&l->p->strings, id, NULL);
}

uint64_t loader_process_hash(const void *ctx, uint32_t index)
{
	return hash_u64(((const struct loader *)ctx)->processes.data[index].pid);
}

struct loaded_process *loader_process(const struct loader *l, uint32_t pid)
{
	struct id_probe probe = id_probe_start(&l->process_ids, hash_u64(pid));

	while (id_probe_next(&l->process_ids, &probe))
		if (l->processes.data[probe.id].pid == pid)
			return &l->processes.data[probe.id];
	return NULL;
}

const char *loader_command(const struct loader *l, uint32_t pid)
{
	const struct loaded_process *process = loader_process(l, pid);

	return process ? process->command : NULL;
}

void profile_free(struct profile *p)
{
	if (!p)
		return;
	intern_release(&p->strings);
	vec_release(&p->modules);
	vec_release(&p->functions);
	vec_release(&p->levels);
	vec_release(&p->frames);
	vec_release(&p->nodes);
	vec_release(&p->threads);
	vec_release(&p->samples);
	vec_release(&p->waits);
	vec_release(&p->wakers);
	vec_release(&p->meta);
	profile_heap_free(p->heap);
	profile_notes_free(p->notes);
	free(p);
}

const char *profile_meta(const struct profile *p, const char *key)
{
	for (size_t i = p->meta.len; i >= 2; i -= 2)
		if (!strcmp(p->meta.data[i - 2], key))
			return p->meta.data[i - 1];
	return NULL;
}
