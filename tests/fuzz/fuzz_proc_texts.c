/* SPDX-License-Identifier: BSD-2-Clause */
/* Any bytes as what the kernel tells of descriptors, locks, sockets, families and mappings: the first byte says as
 * which of them. */
#include <stdlib.h>
#include <string.h>

#include "os/children.h"
#include "os/fdinfo.h"
#include "os/freezer.h"
#include "os/open_files.h"
#include "os/smaps.h"
#include "os/sockets.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use_sockets(struct sockets *s)
{
	char text[64];

	sockets_sort(s);
	vec_each(&s->list, i) {
		if (memchr(i->name, 0, sizeof(i->name)) == NULL)
			abort();
		if (i->inode && !sockets_find(s, i->inode))
			abort();
		socket_address_text(&i->local, text, sizeof(text));
		sockets_find_tcp(s, &i->remote, &i->local);
		sockets_find_listener(s, &i->remote);
		sockets_find_name(s, i->name);
	}
	sockets_release(s);
}

static int take_mapping(void *ctx, const struct smaps_mapping *m)
{
	if (m->m.start >= m->m.end || !m->m.path)
		abort();
	++*(unsigned *)ctx;
	return 0;
}

static void as_smaps(const char *text)
{
	char *copy = strdup(text);
	unsigned count = 0;

	if (copy)
		smaps_parse(copy, take_mapping, &count);
	free(copy);
}

static void as_text(unsigned which, const char *text)
{
	struct sockets s = {0};
	struct file_locks locks = {0};
	struct fdinfo info;
	struct proc_family family;
	uint64_t key;
	char path[32];

	if (which == 1) {
		fdinfo_parse(text, &info);
		fdinfo_release(&info);
	} else if (which == 2) {
		file_locks_parse(text, &locks);
		for (size_t i = 0; i < locks.len; i++)
			file_lock_holder(&locks, i);
		vec_release(&locks);
	} else if (which == 3) {
		sockets_parse_unix(text, &s);
	} else if (which == 4 || which == 5) {
		sockets_parse_tcp(text, which == 5, &s);
	} else if (which == 8) {
		as_smaps(text);
	} else if (which == 6) {
		proc_family_parse(text, &family);
		open_file_classify(text, &key);
	} else {
		freezer_path(text, true, path, sizeof(path));
		freezer_path(text, false, path, sizeof(path));
		freezer_events_frozen(text);
	}
	use_sockets(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sockets s = {0};
	bool done = false;
	int code = 0;

	/* Finding is a walk over all: long inputs would only be slow. */
	if (!size || size > 8192)
		return 0;
	if (*data % 9) {
		char *text = strndup((const char *)data + 1, size - 1);

		as_text(*data % 9, text);
		free(text);
		return 0;
	}
	sockets_parse_diag(data + 1, size - 1, &s, &done, &code);
	use_sockets(&s);
	return 0;
}
