/* SPDX-License-Identifier: BSD-2-Clause */
#include "wait/world.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/table.h"
#include "base/vec.h"
#include "os/freezer.h"
#include "os/in_namespace.h"
#include "os/proc.h"
#include "wait/pythons.h"

#define FILES_NS (1500 * NS_PER_MS)
#define SOCKETS_NS (500 * NS_PER_MS)

/* More network namespaces than this are not searched for the other end of a connection. */
#define MOST_NETS 64u

/* So many descriptors are looked into: a process may have a million. */
#define MOST_FDINFO 65536u

struct net {
	uint64_t id; /* of the namespace; 0: it could not be told */
	pid_t pid;   /* a process in it */
	bool read;
	struct sockets sockets;
};

struct info {
	struct table_node node;
	bool known;
	struct fdinfo fdinfo;
};

/* Of a process; read once. */
struct frozen {
	struct table_node node;
	char path[128]; /* "": it is not */
};

struct wait_world {
	bool files_read, locks_read, nets_listed, nets_cut, sockets_missing;
	struct open_files files;
	struct file_locks locks;
	VEC(struct net *) nets;
	struct table infos;  /* struct info, by process and descriptor */
	struct table frozen; /* struct frozen, by process */
	struct table pythons; /* struct python_look, by process */
};

int wait_world_new(struct wait_world **ret, struct err *err)
{
	*ret = calloc(1, sizeof(**ret));
	return *ret ? 0 : err_nomem(err);
}

static void forget_files(struct wait_world *w)
{
	open_files_release(&w->files);
	w->files = (struct open_files){0};
	vec_each(&w->nets, n) {
		sockets_release(&(*n)->sockets);
		free(*n);
	}
	vec_release(&w->nets);
	w->files_read = w->nets_listed = w->nets_cut = w->sockets_missing = false;
}

void wait_world_forget(struct wait_world *w, bool files)
{
	if (files)
		forget_files(w);
	vec_release(&w->locks);
	w->locks_read = false;
	for (struct table_node *n; (n = table_next(&w->infos, NULL));) {
		struct info *i = (struct info *)n;

		table_remove(&w->infos, n);
		if (i->known)
			fdinfo_release(&i->fdinfo);
		free(i);
	}
	table_release(&w->infos);
	for (struct table_node *n; (n = table_next(&w->frozen, NULL));) {
		table_remove(&w->frozen, n);
		free(n);
	}
	table_release(&w->frozen);
	wait_pythons_forget(&w->pythons);
}

struct table *wait_world_pythons(struct wait_world *w)
{
	return &w->pythons;
}

void wait_world_free(struct wait_world *w)
{
	if (!w)
		return;
	wait_world_forget(w, true);
	free(w);
}

const struct open_files *wait_world_files(struct wait_world *w)
{
	if (!w->files_read &&
		open_files_read(0, clock_monotonic_ns() + FILES_NS, &w->files, NULL))
		w->files = (struct open_files){.cut = true};
	w->files_read = true;
	return &w->files;
}

bool wait_world_saw_all(struct wait_world *w)
{
	const struct open_files *files = wait_world_files(w);

	return !files->refused && !files->cut;
}

/* ---- sockets ---- */

static struct net *add_net(struct wait_world *w, uint64_t id, pid_t pid)
{
	struct net *n = calloc(1, sizeof(*n));

	if (!n || vec_push(&w->nets, n)) {
		free(n);
		return NULL;
	}
	n->id = id;
	n->pid = pid;
	return n;
}

static struct net *find_net(struct wait_world *w, uint64_t id)
{
	vec_each(&w->nets, n)
		if ((*n)->id == id)
			return *n;
	return NULL;
}

static void read_net(struct wait_world *w, struct net *n)
{
	if (n->read)
		return;
	n->read = true;
	if (sockets_read(n->pid, SOCKETS_NS, &n->sockets, NULL)) {
		n->sockets = (struct sockets){.cut = true};
		w->sockets_missing = true;
	}
	w->sockets_missing |= n->sockets.cut || n->sockets.from_text;
}

const struct sockets *wait_world_sockets(struct wait_world *w, pid_t pid)
{
	static const struct sockets none;
	uint64_t id = namespace_of(pid, "net");
	struct net *n = find_net(w, id);

	if (!n)
		n = add_net(w, id, pid);
	if (!n)
		return &none;
	read_net(w, n);
	return &n->sockets;
}

/* One process of each network namespace there is. */
static void list_nets(struct wait_world *w)
{
	struct pid_vec all = {0};

	if (w->nets_listed)
		return;
	w->nets_listed = true;
	if (!proc_all(&all, NULL))
		vec_each(&all, pid) {
			uint64_t id = namespace_of(*pid, "net");

			if (!id || find_net(w, id))
				continue;
			if (w->nets.len == MOST_NETS)
				w->nets_cut = true;
			else
				add_net(w, id, *pid);
		}
	vec_release(&all);
}

const struct socket_info *wait_world_tcp_peer(struct wait_world *w, pid_t pid,
	const struct socket_info *info, const struct sockets **ret_in)
{
	const struct sockets *own = wait_world_sockets(w, pid);
	const struct socket_info *found = sockets_find_tcp(own, &info->remote, &info->local);

	*ret_in = own;
	if (found || socket_address_is_loopback(&info->remote))
		return found;
	list_nets(w);
	for (size_t i = 0; !found && i < w->nets.len; i++) {
		read_net(w, w->nets.data[i]);
		*ret_in = &w->nets.data[i]->sockets;
		found = sockets_find_tcp(*ret_in, &info->remote, &info->local);
	}
	return found;
}

/* ---- the rest ---- */

const struct file_locks *wait_world_locks(struct wait_world *w)
{
	if (!w->locks_read && file_locks_read(&w->locks, NULL))
		w->locks.len = 0;
	w->locks_read = true;
	return &w->locks;
}

const struct fdinfo *wait_world_fdinfo(struct wait_world *w, pid_t pid, int fd)
{
	uint64_t key = (uint64_t)(uint32_t)pid << 32 | (uint32_t)fd;
	struct info *i = (struct info *)table_find(&w->infos, key);

	if (!i && w->infos.count < MOST_FDINFO) {
		i = calloc(1, sizeof(*i));
		if (!i || table_add(&w->infos, &i->node, key)) {
			free(i);
			return NULL;
		}
		i->known = !fdinfo_read(pid, fd, &i->fdinfo, NULL);
	}
	return i && i->known ? &i->fdinfo : NULL;
}

unsigned wait_world_threads(struct wait_world *w, pid_t pid)
{
	struct pid_vec tids = {0};
	unsigned n = proc_threads(pid, &tids, NULL) ? 0 : (unsigned)tids.len;

	(void)w;
	vec_release(&tids);
	return n;
}

const char *wait_world_frozen(struct wait_world *w, pid_t pid)
{
	struct frozen *f = (struct frozen *)table_find(&w->frozen, (uint64_t)pid);

	if (!f) {
		f = calloc(1, sizeof(*f));
		if (!f || table_add(&w->frozen, &f->node, (uint64_t)pid)) {
			free(f);
			return NULL;
		}
		freezer_frozen(pid, f->path, sizeof(f->path));
	}
	return f->path[0] ? f->path : NULL;
}

void wait_world_gaps(struct wait_world *w, char *buf, size_t size)
{
	char files[96] = "", sockets[64] = "";

	if (w->files.cut)
		snprintf(files, sizeof(files), "some descriptors (there are too many)");
	else if (w->files.refused)
		snprintf(files, sizeof(files), "the descriptors of %zu %s", w->files.refused,
			w->files.refused == 1 ? "process" : "processes");
	if (w->sockets_missing || w->nets_cut)
		snprintf(sockets, sizeof(sockets), "%ssome sockets", *files ? ", and " : "");
	snprintf(buf, size, "%s%s", files, sockets);
}
