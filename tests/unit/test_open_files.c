/* SPDX-License-Identifier: BSD-2-Clause */
/* Who has what open, sockets, file locks, children: texts, and this machine as far as we made it. */
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <netinet/in.h>
#include <unistd.h>

#include "base/clock.h"
#include "os/children.h"
#include "os/fdinfo.h"
#include "os/file_locks.h"
#include "os/freezer.h"
#include "os/in_namespace.h"
#include "os/open_files.h"
#include "os/sockets.h"
#include "os/sysv.h"

/* A child that does nothing until it is killed. */
static pid_t idle_child(void)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	for (;;)
		pause();
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* ---- file locks ---- */

TEST(lines_of_locks)
{
	struct file_lock l;

	check(file_lock_parse("1: POSIX  ADVISORY  READ  902 fe:00:9979251 128 255", &l));
	check(l.id == 1 && !l.waits && l.type == FILE_LOCK_POSIX && !l.write && l.pid == 902);
	check(l.device == makedev(0xfe, 0) && l.inode == 9979251 && l.start == 128 && l.end == 255);
	check(file_lock_parse("12: -> FLOCK  ADVISORY  WRITE 903 08:01:7 0 EOF", &l));
	check(l.id == 12 && l.waits && l.type == FILE_LOCK_FLOCK && l.write && l.end == UINT64_MAX);
	check(file_lock_parse("12:   -> OFDLCK ADVISORY  WRITE -1 08:01:7 0 EOF", &l));
	check(l.waits && l.type == FILE_LOCK_OFD && l.pid == -1);
	check(file_lock_parse("3: LEASE  ACTIVE    READ  4 08:01:7 0 EOF", &l));
	check(l.type == FILE_LOCK_OTHER);
	check(!file_lock_parse("", &l) && !file_lock_parse("1:", &l) && !file_lock_parse("1: ->", &l));
	check(!file_lock_parse("1: POSIX ADVISORY WRITE 3 <none>:0 0 EOF", &l));
	check(!file_lock_parse("x: POSIX ADVISORY WRITE 3 08:01:7 0 EOF", &l));
}

TEST(waiters_find_their_lock)
{
	static const char text[] = "1: FLOCK  ADVISORY  WRITE 11 08:01:7 0 EOF\n"
				   "2: POSIX  ADVISORY  WRITE 12 08:01:8 0 EOF\n"
				   "2: -> POSIX  ADVISORY  WRITE 13 08:01:8 0 EOF\n"
				   "nonsense\n"
				   "2:  -> POSIX  ADVISORY  WRITE 14 08:01:8 0 EOF\n"
				   "3: -> POSIX  ADVISORY  WRITE 15 08:01:8 0 EOF";
	struct file_locks locks = {0};

	check(!file_locks_parse(text, &locks));
	check_u64(locks.len, 5);
	check(file_lock_holder(&locks, 2) && file_lock_holder(&locks, 2)->pid == 12);
	check(file_lock_holder(&locks, 3) && file_lock_holder(&locks, 3)->pid == 12);
	check(!file_lock_holder(&locks, 4));
	vec_release(&locks);
}

TEST(our_own_lock_is_listed)
{
	FILE *f = tmpfile();
	struct file_locks locks = {0};
	struct fdinfo info;
	struct stat st;
	bool found = false;

	check(f && !flock(fileno(f), LOCK_EX) && !fstat(fileno(f), &st));
	check(!file_locks_read(&locks, NULL));
	vec_each(&locks, l)
		found |= l->inode == st.st_ino && l->pid == getpid() && l->type == FILE_LOCK_FLOCK;
	check(found);
	check(!fdinfo_read(getpid(), fileno(f), &info, NULL));
	check_u64(info.locks.len, 1);
	check(info.locks.len && info.locks.data[0].inode == st.st_ino && info.locks.data[0].write);
	fdinfo_release(&info);
	vec_release(&locks);
	fclose(f);
}

/* ---- fdinfo ---- */

TEST(texts_of_fdinfo)
{
	struct fdinfo f;

	check(!fdinfo_parse("pos:\t0\nflags:\t02100001\nmnt_id:\t27\nino:\t99\nPid:\t-1\n"
			    "tty-index:\t3\neventfd-count:  10\neventfd-id: 4\n",
		&f));
	check((f.flags & O_ACCMODE) == O_WRONLY && f.inode == 99 && f.pidfd == -1);
	check(!fdinfo_reads(&f) && fdinfo_writes(&f));
	check(f.tty_index == 3 && f.eventfd_id == 4 && f.eventfd_count == 16);
	fdinfo_release(&f);

	check(!fdinfo_parse("clockid: 1\nticks: 0\nit_value: (3, 500000000)\nit_interval: (0, 0)\n"
			    "SqHead:\t5\nSqTail:\t7\npending:\t1\ntotal:\t2\n",
		&f));
	check(f.timer && f.timer_clock == 1);
	check_u64(f.timer_ns, 3500000000);
	check(f.uring && f.uring_taken == 5 && f.uring_submitted == 7);
	check(f.uffd && f.uffd_pending == 1 && f.uffd_total == 2);
	fdinfo_release(&f);

	check(!fdinfo_parse("tfd:        4 events:       19 data:      4  pos:0 ino:3 sdev:800001\n"
			    "tfd: nonsense\ntfd:  5 events: 1\nlock:\t1: FLOCK  ADVISORY  WRITE 5 "
			    "fe:00:7 0 EOF\nit_value: (18446744073709551615, 9)",
		&f));
	check_u64(f.watches.len, 2);
	check(f.watches.data[0].fd == 4 && f.watches.data[0].events == 0x19);
	check(f.watches.data[0].inode == 3 && f.watches.data[0].device == makedev(8, 1));
	check(f.watches.data[1].fd == 5 && f.watches.data[1].inode == 0);
	check(f.locks.len == 1 && f.locks.data[0].inode == 7);
	check(f.timer_ns > 1000000000000ULL);
	fdinfo_release(&f);
	check(!fdinfo_parse("", &f) && f.eventfd_id == -1 && f.tty_index == -1 && !f.pidfd);
}

TEST(descriptors_of_ourselves)
{
	int event = eventfd(3, EFD_CLOEXEC), timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
	int epoll = epoll_create1(EPOLL_CLOEXEC);
	struct itimerspec in = {.it_value = {.tv_sec = 100}};
	struct epoll_event e = {.events = EPOLLIN};
	struct open_file file;
	struct fdinfo info;
	char link[OPEN_MOST_NAME];

	timerfd_settime(timer, 0, &in, NULL);
	epoll_ctl(epoll, EPOLL_CTL_ADD, event, &e);

	check(!fdinfo_read(getpid(), event, &info, NULL));
	check(info.eventfd_count == 3 && info.eventfd_id >= 0);
	fdinfo_release(&info);
	check(!fdinfo_read(getpid(), timer, &info, NULL));
	check(info.timer && info.timer_ns > 90 * NS_PER_S && info.timer_ns <= 100 * NS_PER_S);
	fdinfo_release(&info);
	check(!fdinfo_read(getpid(), epoll, &info, NULL));
	check(info.watches.len == 1 && info.watches.data[0].fd == event);
	fdinfo_release(&info);
	check(fdinfo_read(getpid(), 9999, &info, NULL) == -ESRCH);

	check(!open_file_read(getpid(), event, &file, link, sizeof(link)));
	check(file.what == OPEN_EVENTFD);
	check(!open_file_read(getpid(), epoll, &file, link, sizeof(link)) && file.what == OPEN_EPOLL);
	check(open_file_read(getpid(), 9999, &file, link, sizeof(link)) == -ESRCH);
	close(event);
	close(timer);
	close(epoll);
}

/* ---- open files ---- */

TEST(links_are_told_apart)
{
	uint64_t key;

	check(open_file_classify("pipe:[77]", &key) == OPEN_PIPE && key == 77);
	check(open_file_classify("socket:[78]", &key) == OPEN_SOCKET && key == 78);
	check(open_file_classify("anon_inode:[eventfd]", &key) == OPEN_EVENTFD && key == 0);
	check(open_file_classify("anon_inode:inotify", &key) == OPEN_INOTIFY);
	check(open_file_classify("anon_inode:bpf-prog", &key) == OPEN_ANON);
	check(open_file_classify("pidfd:[5]", &key) == OPEN_PIDFD);
	check(open_file_classify("/tmp/a", &key) == OPEN_PATH && key == open_path_key("/var/a"));
	check_u64(open_path_key("/tmp/a (deleted)"), open_path_key("a"));
	check(open_path_key("/tmp/a") != open_path_key("/tmp/b"));
	check(open_file_classify("", &key) == OPEN_ANON);
	check(open_file_classify("(unreachable)/x", &key) == OPEN_ANON);
	open_path_key(" (deleted)");
	open_path_key("/ (deleted)");
}

TEST(a_pipe_is_found_in_both_processes)
{
	struct open_files files;
	const struct open_file *at;
	struct open_identity a, b;
	struct stat st;
	int pipe_fd[2];
	unsigned own = 0, theirs = 0;

	check(!pipe(pipe_fd) && !fstat(pipe_fd[0], &st));

	pid_t child = idle_child();

	check(!open_files_read(0, clock_monotonic_ns() + 10 * NS_PER_S, &files, NULL));
	check(files.processes > 1 && !files.cut);
	size_t n = open_files_find(&files, OPEN_PIPE, st.st_ino, &at);
	for (size_t i = 0; i < n; i++) {
		own += at[i].pid == getpid();
		theirs += at[i].pid == child;
	}
	check_u64(own, 2);
	check_u64(theirs, 2);
	check(!open_files_find(&files, OPEN_PIPE, 0, &at) && !at);
	open_files_release(&files);

	check(!open_files_read(getpid(), clock_monotonic_ns() + 10 * NS_PER_S, &files, NULL));
	check_u64(open_files_find(&files, OPEN_PIPE, st.st_ino, &at), 2);
	open_files_release(&files);

	check(!open_files_read(0, 0, &files, NULL) && files.cut);
	open_files_release(&files);
	check(open_file_identity(getpid(), pipe_fd[0], &a));
	check(open_file_identity(child, pipe_fd[1], &b) && open_file_same(&a, &b));
	check(a.mode == S_IFIFO);
	check(!open_file_identity(child, 9999, &b));
	end(child);
	close(pipe_fd[0]);
	close(pipe_fd[1]);
}

/* ---- sockets ---- */

static uint64_t inode_of(int fd)
{
	struct stat st;

	return fstat(fd, &st) ? 0 : st.st_ino;
}

TEST(unix_sockets_know_their_peers)
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	struct sockets s;
	int pair[2], listener = socket(AF_UNIX, SOCK_STREAM, 0), client = socket(AF_UNIX, SOCK_STREAM, 0);
	bool pending = false;

	snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1, "sonde-test-%d", (int)getpid());
	check(!socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	check(!bind(listener, (struct sockaddr *)&name, sizeof(name)) && !listen(listener, 5));
	check(!connect(client, (struct sockaddr *)&name, sizeof(name)));
	check(write(pair[0], "abc", 3) == 3);

	check(!sockets_read(getpid(), 10 * NS_PER_S, &s, NULL));
	check(!s.cut);
	if (s.from_text) {
		skip("the kernel has no unix_diag");
	} else {
		const struct socket_info *a = sockets_find(&s, inode_of(pair[1]));

		check(a && a->family == AF_UNIX && a->peer == inode_of(pair[0]) && a->received == 3);
		vec_each(&s.pending, p)
			pending |= p->listener == inode_of(listener) && p->client == inode_of(client);
		check(pending);
		a = sockets_find(&s, inode_of(listener));
		check(a && a->name[0] == '@' && sockets_find_name(&s, a->name) == a);
	}
	check(!sockets_find(&s, 0) && !sockets_find_name(&s, ""));
	sockets_release(&s);
	close(pair[0]);
	close(pair[1]);
	close(listener);
	close(client);
}

TEST(the_other_end_of_tcp_is_found)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(at);
	int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
	struct sockets s;
	char text[64];

	check(!bind(listener, (struct sockaddr *)&at, len) && !listen(listener, 5));
	check(!getsockname(listener, (struct sockaddr *)&at, &len));
	if (connect(client, (struct sockaddr *)&at, len)) {
		skip("there is no loopback network here");
		close(listener);
		close(client);
		return;
	}
	int server = accept(listener, NULL, NULL);

	check(write(client, "hello", 5) == 5);
	check(!sockets_read(getpid(), 10 * NS_PER_S, &s, NULL));
	const struct socket_info *c = sockets_find(&s, inode_of(client));
	check(c && c->family == AF_INET && c->remote.port == ntohs(at.sin_port));
	if (c) {
		const struct socket_info *other = sockets_find_tcp(&s, &c->remote, &c->local);
		const struct socket_info *l = sockets_find_listener(&s, &c->remote);

		check(other && other->inode == inode_of(server) && other->received == 5);
		check(l && l->inode == inode_of(listener));
		check(socket_address_is_loopback(&c->remote));
		socket_address_text(&c->local, text, sizeof(text));
		check(!strncmp(text, "127.0.0.1:", 10));
	}
	sockets_release(&s);
	close(server);
	close(client);
	close(listener);
}

TEST(texts_of_sockets)
{
	static const char unix_text[] =
		"Num       RefCount Protocol Flags    Type St Inode Path\n"
		"ffff8880: 00000002 00000000 00010000 0001 01 1234 /run/x\n"
		"ffff8880: 00000003 00000000 00000000 0001 03 1235\n"
		"nonsense\n"
		"ffff8880: 00000002 00000000 00010000 0001 01 1236 @abc";
	static const char tcp_text[] =
		"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n"
		"   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0"
		"        0 555 1 0000 100 0 0 10 0\n"
		"   1: 0100007F:1F90 0100007F:C000 01 00000005:00000007 00:00000000 00000002     0"
		"        0 556 1 0000 20 4 30 10 -1\n"
		"   2: 0100007F:1F90 01\n";
	struct sockets s = {0};

	check(!sockets_parse_unix(unix_text, &s) && s.list.len == 3);
	check(!sockets_parse_tcp(tcp_text, false, &s) && s.list.len == 5);
	check(!sockets_parse_tcp("", false, &s) && !sockets_parse_tcp("\n", true, &s));
	sockets_sort(&s);
	check(sockets_find(&s, 1234) && !strcmp(sockets_find(&s, 1234)->name, "/run/x"));
	check(!sockets_find(&s, 1234)->peer_known);
	check(sockets_find_name(&s, "@abc"));
	const struct socket_info *t = sockets_find(&s, 556);
	check(t && t->local.port == 8080 && t->remote.port == 0xc000 && t->state == 1);
	check(t && t->unsent == 5 && t->received == 7 && t->retransmits == 2);
	check(t && sockets_find_listener(&s, &t->local) == sockets_find(&s, 555));
	sockets_release(&s);
}

TEST(broken_netlink_is_survived)
{
	uint8_t bytes[256];
	struct sockets s = {0};
	bool done = false;
	int code = 0;

	for (unsigned fill = 0; fill < 256; fill++)
		for (size_t len = 0; len < sizeof(bytes); len += 7) {
			memset(bytes, (int)fill, sizeof(bytes));
			memcpy(bytes, &(uint32_t){(uint32_t)len}, 4);
			memcpy(bytes + 4, &(uint16_t){20}, 2);
			bytes[16] = fill & 1 ? AF_UNIX : AF_INET;
			check(!sockets_parse_diag(bytes, len, &s, &done, &code));
		}
	sockets_release(&s);
}

/* ---- processes ---- */

TEST(children_and_families)
{
	struct pid_vec children = {0};
	struct proc_family f;
	pid_t a = idle_child(), b = idle_child();
	unsigned found = 0;

	check(!proc_children(getpid(), 0, &children, NULL));
	vec_each(&children, c)
		found += *c == a || *c == b;
	check_u64(found, 2);
	check(!proc_children(a, 0, &children, NULL) && !children.len);
	check(!proc_family_read(a, &f) && f.ppid == getpid() && f.group == getpgrp());
	check(proc_family_parse("7 (a) b) S 1 2 3 34816 5 0 0", &f));
	check(f.state == 'S' && f.ppid == 1 && f.group == 2 && f.session == 3 && f.foreground == 5);
	check(f.terminal == makedev(136, 0));
	check(!proc_family_parse("7 (a", &f) && !proc_family_parse("7 (a) S", &f));
	check(!proc_tracees(getpid(), &children, NULL) && !children.len);
	end(a);
	end(b);
	check(proc_family_read(a, &f) == -ESRCH);
	check(proc_children(a, 0, &children, NULL) == -ESRCH);
	vec_release(&children);
}

static void note_ids(void *arg)
{
	uint64_t *n = arg;

	n[0] = namespace_of(gettid(), "net");
	n[1]++;
}

TEST(inside_namespaces)
{
	uint64_t n[2] = {0, 1};
	int to_parent[2];
	char byte;

	check(!in_namespace(getpid(), "net", note_ids, n, sizeof(n), NS_PER_S, NULL));
	check(n[0] == namespace_of(getpid(), "net") && n[1] == 2);
	check(in_namespace(4194304, "net", note_ids, n, sizeof(n), NS_PER_S, NULL) == -ESRCH);
	check(!pipe(to_parent));
	pid_t child = fork();
	if (!child) {
		byte = unshare(CLONE_NEWNET) ? 'n' : 'y';
		if (write(to_parent[1], &byte, 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	if (read(to_parent[0], &byte, 1) != 1 || byte != 'y') {
		skip("network namespaces cannot be made here");
	} else {
		check(!in_namespace(child, "net", note_ids, n, sizeof(n), NS_PER_S, NULL));
		check(n[0] == namespace_of(child, "net") && n[0] != namespace_of(getpid(), "net"));
		check_u64(n[1], 3);
	}
	end(child);
	close(to_parent[0]);
	close(to_parent[1]);
}

/* Its own child is 2 in the namespace in which it is 1. */
static int first_of_namespace(void *arg)
{
	int *to_parent = arg;
	pid_t child = idle_child();

	if (write(to_parent[1], &child, sizeof(child)) != sizeof(child))
		return 1;
	for (;;)
		pause();
}

TEST(ids_of_another_pid_namespace)
{
	static char stack[65536] __attribute__((aligned(16)));
	int to_parent[2];
	pid_t inner;

	check(pid_seen_by(getpid(), getppid()) == getppid() || !getppid());
	check_u64(pid_from_inside(getpid(), getpid()), getpid());
	check_u64(pid_from_inside(getpid(), 4194304), 0);
	check(!pipe(to_parent));
	pid_t first = clone(first_of_namespace, stack + sizeof(stack), CLONE_NEWPID | SIGCHLD, to_parent);
	if (first < 0) {
		skip("pid namespaces cannot be made here");
		return;
	}
	check(read(to_parent[0], &inner, sizeof(inner)) == sizeof(inner) && inner == 2);
	check_u64(pid_from_inside(first, 1), first);
	check_u64(pid_seen_by(first, first), 1);
	check_u64(pid_seen_by(first, getpid()), 0);

	pid_t second = pid_from_inside(first, 2);

	check(second > 2 && pid_seen_by(first, second) == 2);
	end(first);
	close(to_parent[0]);
	close(to_parent[1]);
}

TEST(system_v)
{
	int sem = semget(IPC_PRIVATE, 2, 0600), queue = msgget(IPC_PRIVATE, 0600);
	struct sembuf up = {.sem_num = 1, .sem_op = 3};
	struct { long type; char text[4]; } m = {1, "abc"};
	struct sysv_sem s;
	struct sysv_queue q;

	check(sem >= 0 && queue >= 0 && !semop(sem, &up, 1) && !msgsnd(queue, &m, 4, 0));
	check(!sysv_sem_read(getpid(), sem, 1, &s, NULL));
	check(s.value == 3 && s.last == getpid() && !s.waiting);
	check(sysv_sem_read(getpid(), sem, 2, &s, NULL) == -EINVAL);
	check(!sysv_queue_read(getpid(), queue, &q, NULL));
	check(q.messages == 1 && q.bytes == 4 && q.last_sender == getpid() && !q.last_receiver);
	semctl(sem, 0, IPC_RMID);
	msgctl(queue, IPC_RMID, NULL);
	check(sysv_queue_read(getpid(), queue, &q, NULL) < 0);
}

TEST(freezers)
{
	char path[64];

	check(freezer_path("5:cpu:/a\n4:freezer:/b\n0::/c\n", true, path, sizeof(path)));
	check_str(path, "/b");
	check(freezer_path("5:cpu:/a\n4:freezer:/b\n0::/c\n", false, path, sizeof(path)));
	check_str(path, "/c");
	check(!freezer_path("5:cpu:/a\n", true, path, sizeof(path)));
	check(!freezer_path("", false, path, sizeof(path)) && !freezer_path(":", false, path, 64));
	check(!freezer_path("0::/long", false, path, 4));
	check(freezer_events_frozen("populated 1\nfrozen 1\n"));
	check(!freezer_events_frozen("populated 1\nfrozen 0\n"));
	check(!freezer_frozen(getpid(), path, sizeof(path)) && !*path);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, T(lines_of_locks), T(waiters_find_their_lock),
		T(our_own_lock_is_listed), T(texts_of_fdinfo), T(descriptors_of_ourselves),
		T(links_are_told_apart), T(a_pipe_is_found_in_both_processes),
		T(unix_sockets_know_their_peers), T(the_other_end_of_tcp_is_found),
		T(texts_of_sockets), T(broken_netlink_is_survived), T(children_and_families),
		T(inside_namespaces), T(ids_of_another_pid_namespace), T(system_v), T(freezers));
}
