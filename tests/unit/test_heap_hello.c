/* SPDX-License-Identifier: BSD-2-Clause */
/* How watched programs meet their collector, and what is known of a program before it starts. */
#include "test.h"

#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "heap/cover.h"
#include "heap/hello.h"

struct wish {
	unsigned version, mode, clock;
	unsigned long long rate, options;
	char token[33], address[64];
};

static struct wish read_wish(const struct hello *h)
{
	struct hello_wish asked = {SHARE_SAMPLED, SHARE_CLOCK_COUNTER, 524288, SHARE_OPTION_TIMES};
	char text[HELLO_VALUE_BYTES];
	struct wish w = {0};

	hello_environment(h, &asked, text, sizeof(text));
	check_u64(sscanf(text, "%u:%u:%u:%llu:%llu:%32[0-9a-f]:%63s", &w.version, &w.mode, &w.clock, &w.rate,
			  &w.options, w.token, w.address),
		7);
	return w;
}

static int connect_to(const char *address)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	size_t len = strlen(address);

	memcpy(a.sun_path + 1, address, len);
	check(!connect(fd, (struct sockaddr *)&a,
		(socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len)));
	return fd;
}

static struct share_hello made(const struct wish *w)
{
	struct share_hello hello = {.version = SHARE_VERSION, .pid = 77};

	memcpy(hello.magic, SHARE_MAGIC, sizeof(hello.magic));
	memcpy(hello.token, w->token, sizeof(hello.token));
	return hello;
}

static void say(int fd, const void *bytes, size_t len, const int *fds, size_t count)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(16 * sizeof(int))];
	} control;
	struct iovec iov = {(void *)(uintptr_t)bytes, len};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

	if (count) {
		msg.msg_control = &control;
		msg.msg_controllen = CMSG_SPACE(count * sizeof(int));
		struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(count * sizeof(int));
		memcpy(CMSG_DATA(c), fds, count * sizeof(int));
	}
	check(sendmsg(fd, &msg, 0) == (ssize_t)len);
}

static unsigned open_descriptors(void)
{
	unsigned count = 0;

	for (int fd = 0; fd < 1024; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

TEST(a_program_says_hello)
{
	struct hello *h = NULL;
	struct hello_program got = {0};

	check(!hello_new(&h, NULL));
	check_u64(hello_next(h, &got), 0);

	struct wish w = read_wish(h);
	struct share_hello hello = made(&w);
	int memory = memfd_create("memory", 0), fd = connect_to(w.address);

	check_u64(w.version, SHARE_VERSION);
	check_u64(w.mode, SHARE_SAMPLED);
	check_u64(w.clock, SHARE_CLOCK_COUNTER);
	check_u64(w.rate, 524288);
	check_u64(w.options, SHARE_OPTION_TIMES);
	check(!ftruncate(memory, 12345));
	say(fd, &hello, sizeof(hello), &memory, 1);

	struct pollfd p = {.fd = hello_fd(h), .events = POLLIN};
	struct stat st;

	check_u64(poll(&p, 1, 1000), 1);
	check_u64(hello_next(h, &got), 1);
	check_u64(got.pid, getpid());
	check_u64(got.own_pid, 77);
	check(!fstat(got.fd, &st) && st.st_size == 12345);
	check(fcntl(got.fd, F_GETFD) & FD_CLOEXEC);
	check_u64(hello_next(h, &got), 0);
	check_u64(hello_refused(h), 0);
	close(got.fd);
	close(memory);
	close(fd);
	hello_free(h);
}

TEST(two_sockets_have_other_names_and_tokens)
{
	struct hello *a = NULL, *b = NULL;

	check(!hello_new(&a, NULL) && !hello_new(&b, NULL));

	struct wish x = read_wish(a), y = read_wish(b);

	check(strcmp(x.token, y.token) != 0);
	check(strcmp(x.address, y.address) != 0);
	hello_free(a);
	hello_free(b);
}

/* Each says something else that is no hello. */
static void say_wrong(const struct wish *w, unsigned which, int memory)
{
	struct share_hello hello = made(w);
	int fds[9], fd = connect_to(w->address);

	for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
		fds[i] = memory;
	switch (which) {
	case 0:
		hello.token[31] ^= 1;
		say(fd, &hello, sizeof(hello), fds, 1);
		break;
	case 1:
		hello.magic[0] = 'x';
		say(fd, &hello, sizeof(hello), fds, 1);
		break;
	case 2:
		hello.version++;
		say(fd, &hello, sizeof(hello), fds, 1);
		break;
	case 3: /* no memory */
		say(fd, &hello, sizeof(hello), fds, 0);
		break;
	case 4: /* too many */
		say(fd, &hello, sizeof(hello), fds, 2);
		break;
	case 5:
		say(fd, &hello, sizeof(hello), fds, 9);
		break;
	case 6: /* too short */
		say(fd, &hello, sizeof(hello) - 1, fds, 1);
		break;
	case 7: { /* too long */
		char bytes[sizeof(hello) + 8] = {0};

		memcpy(bytes, &hello, sizeof(hello));
		say(fd, bytes, sizeof(bytes), fds, 1);
		break;
	}
	default: /* nothing */
		break;
	}
	close(fd);
}

TEST(strangers_are_sent_away_and_leave_nothing_open)
{
	struct hello *h = NULL;
	struct hello_program got;
	int memory = memfd_create("memory", 0);

	check(!hello_new(&h, NULL));

	struct wish w = read_wish(h);
	unsigned before = open_descriptors();

	for (unsigned i = 0; i < 9; i++) {
		say_wrong(&w, i, memory);
		check_u64(hello_next(h, &got), 0);
		check_u64(hello_refused(h), i + 1);
	}
	check_u64(open_descriptors(), before);
	close(memory);
	hello_free(h);
}

TEST(those_who_say_nothing_do_not_keep_others_out)
{
	struct hello *h = NULL;
	struct hello_program got = {.fd = -1};
	int silent[300];

	check(!hello_new(&h, NULL));

	struct wish w = read_wish(h);
	struct share_hello hello = made(&w);
	int memory = memfd_create("memory", 0);

	for (size_t i = 0; i < 300; i++)
		silent[i] = connect_to(w.address);

	int fd = connect_to(w.address);

	say(fd, &hello, sizeof(hello), &memory, 1);
	check_u64(hello_next(h, &got), 1);
	close(got.fd);
	close(fd);
	close(memory);
	for (size_t i = 0; i < 300; i++)
		close(silent[i]);
	hello_free(h);
}

/* A descriptor that was handed on to another process does not make that one the one who connected. */
TEST(who_speaks_is_who_connected)
{
	struct hello *h = NULL;
	struct hello_program got;

	check(!hello_new(&h, NULL));

	struct wish w = read_wish(h);
	struct share_hello hello = made(&w);
	int memory = memfd_create("memory", 0), fd = connect_to(w.address), status;
	pid_t child = fork();

	if (!child) {
		say(fd, &hello, sizeof(hello), &memory, 1);
		_exit(0);
	}
	waitpid(child, &status, 0);
	check_u64(hello_next(h, &got), 0);
	check_u64(hello_refused(h), 1);
	close(fd);
	close(memory);
	hello_free(h);
}

TEST(programs_that_take_no_library_are_known)
{
	struct heap_cover cover;
	char script[] = "/tmp/test_heap_hello.XXXXXX", text[] = "#! /proc/self/exe -e\ntrue\n";
	/* With a sanitizer its malloc is in us. */
	enum heap_cover_kind ourselves = HAS_ASAN ? HEAP_OWN_ALLOCATOR : HEAP_COVERED;
	int fd = mkstemp(script);

	heap_cover_file("/proc/self/exe", &cover);
	check_u64(cover.kind, ourselves);
	check(HAS_ASAN || !*cover.words);
	check(write(fd, text, strlen(text)) > 0);
	close(fd);
	heap_cover_file(script, &cover);
	check_u64(cover.kind, ourselves);
	heap_cover_file("/nowhere/at/all", &cover);
	check_u64(cover.kind, HEAP_COVERED);

	/* A script of its own file has no end. */
	fd = open(script, O_WRONLY | O_TRUNC);
	dprintf(fd, "#!%s\n", script);
	close(fd);
	heap_cover_file(script, &cover);
	check_u64(cover.kind, HEAP_COVERED);

	/* The loader itself is linked statically, and 32-bit files are refused by their first bytes. */
	fd = open(script, O_WRONLY | O_TRUNC);
	check(write(fd, "\x7f" "ELF\1\1\1", 7) == 7);
	close(fd);
	heap_cover_file(script, &cover);
	check_u64(cover.kind, HEAP_NOT_PRELOADED);
	check(strstr(cover.words, "32-bit") != NULL);
	unlink(script);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv,
		T(a_program_says_hello), T(two_sockets_have_other_names_and_tokens),
		T(strangers_are_sent_away_and_leave_nothing_open),
		T(those_who_say_nothing_do_not_keep_others_out), T(who_speaks_is_who_connected),
		T(programs_that_take_no_library_are_known));
}
