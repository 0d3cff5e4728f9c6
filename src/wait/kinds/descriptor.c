/* SPDX-License-Identifier: BSD-2-Clause */
/* Calls that read or write one descriptor; what it stands for says who is in the way (fd.c). */
#include <string.h>
#include <sys/syscall.h>

#include "os/syscalls.h"
#include "wait/call.h"
#include "wait/fd.h"
#include "wait/kinds.h"

struct call {
	const char *name;
	int argument;
	bool out;
};

/* By name: numbers differ, and some calls exist on some architectures only. */
static const struct call calls[] = {
	{"read", 0, false},        {"write", 0, true},         {"readv", 0, false},
	{"writev", 0, true},       {"pread64", 0, false},      {"pwrite64", 0, true},
	{"preadv", 0, false},      {"pwritev", 0, true},       {"preadv2", 0, false},
	{"pwritev2", 0, true},     {"recvfrom", 0, false},     {"sendto", 0, true},
	{"recvmsg", 0, false},     {"sendmsg", 0, true},       {"recvmmsg", 0, false},
	{"sendmmsg", 0, true},     {"accept", 0, false},       {"accept4", 0, false},
	{"sendfile", 0, true},     {"splice", 0, false},       {"tee", 0, false},
	{"vmsplice", 0, true},     {"fsync", 0, true},         {"fdatasync", 0, true},
	{"sync_file_range", 0, true}, {"ftruncate", 0, true},  {"fallocate", 0, true},
	{"copy_file_range", 2, true}, {"getdents64", 0, false}, {"getdents", 0, false},
	{"ioctl", 0, false},       {"close", 0, true},         {"syncfs", 0, true},
	{"readahead", 0, false},   {"fstat", 0, false},
};

/* splice() waits for its source or for its destination; the function it sleeps in may tell. */
static bool waits_for_room(const struct wait_look *l)
{
	const char *where = l->look->wait.where;

	return strstr(where, "write") || strstr(where, "opipe") || strstr(where, "wait_for_space") ||
		strstr(where, "send");
}

static bool is_file(const struct wait_look *l, int fd)
{
	struct open_file f;
	char link[OPEN_MOST_NAME];

	return !open_file_read(l->process->reader, fd, &f, link, sizeof(link)) && f.what == OPEN_PATH;
}

static bool look(struct wait_look *l, struct wait *ret)
{
	const char *name = wait_has_call(l) ? syscall_name(l->call) : NULL;
	struct call c = {0};

	for (size_t i = 0; name && i < sizeof(calls) / sizeof(calls[0]); i++)
		if (!strcmp(calls[i].name, name))
			c = calls[i];
	if (!c.name)
		return false;
	if (!strcmp(name, "splice") && waits_for_room(l))
		c = (struct call){name, 2, true};
	else if (!strcmp(name, "tee") && waits_for_room(l))
		c = (struct call){name, 1, true};
	/* Who waits for a peer can be disturbed; in state D it waits for the kernel's own lock of the pipe or
	 * the socket. */
	if (l->look->wait.state == 'D' && !is_file(l, (int)l->args[c.argument]))
		return false;
	return wait_on_fd(l, (int)l->args[c.argument], c.out, ret);
}

const struct wait_kind wait_kind_descriptor = {.name = "descriptor", .look = look};
