/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * peers MODE [ARGUMENT]: a process that waits for another one, in the way that MODE names. Prints "ready",
 * then "WAITER HOLDER": the process that waits, and the one that is in its way (0: nobody). It goes on until
 * it is killed.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <mqueue.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

static void die(const char *what)
{
	perror(what);
	exit(2);
}

static void idle(void)
{
	for (;;)
		pause();
}

static void say(pid_t waiter, pid_t holder)
{
	printf("ready\n%d %d\n", (int)waiter, (int)holder);
	fflush(stdout);
}

/* A process that ends when its parent does. 0 in the child. */
static pid_t child(void)
{
	pid_t pid = fork();

	if (pid < 0)
		die("fork");
	if (!pid)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	return pid;
}

static char byte;

/* For more than one byte, as timers and signals want it. */
static void read_one(int fd)
{
	char much[256];

	while (read(fd, much, sizeof(much)) > 0 || errno == EINTR)
		continue;
	die("read came back");
}

static void fill(int fd)
{
	static char much[65536];

	for (;;)
		if (write(fd, much, sizeof(much)) < 0)
			die("write");
}

/* ---- pipes ---- */

static void pipe_reader(void)
{
	int p[2];
	pid_t writer;

	if (pipe(p))
		die("pipe");
	writer = child();
	if (!writer) {
		close(p[0]);
		idle();
	}
	close(p[1]);
	say(getpid(), writer);
	read_one(p[0]);
}

static void pipe_writer_of_stopped(void)
{
	int p[2];
	pid_t reader;

	if (pipe(p))
		die("pipe");
	reader = child();
	if (!reader) {
		close(p[1]);
		raise(SIGSTOP);
		read_one(p[0]);
	}
	close(p[0]);
	waitpid(reader, NULL, WUNTRACED);
	say(getpid(), reader);
	fill(p[1]);
}

static void own_pipe(void)
{
	int p[2];

	if (pipe(p))
		die("pipe");
	say(getpid(), 0);
	read_one(p[0]);
}

/* A shell that has kept the write end, and waits for the command that is to write. */
static void pipe_of_shell(void)
{
	int p[2], ids[2];
	pid_t shell, writer;

	if (pipe(p) || pipe(ids))
		die("pipe");
	shell = child();
	if (!shell) {
		close(p[0]);
		writer = child();
		if (!writer)
			idle();
		if (write(ids[1], &writer, sizeof(writer)) < 0)
			die("write");
		waitpid(writer, NULL, 0);
		_exit(0);
	}
	close(p[1]);
	if (read(ids[0], &writer, sizeof(writer)) != sizeof(writer))
		die("read");
	say(getpid(), writer);
	read_one(p[0]);
}

static void two_writers(void)
{
	int p[2];

	if (pipe(p))
		die("pipe");
	for (int i = 0; i < 2; i++)
		if (!child()) {
			close(p[0]);
			idle();
		}
	close(p[1]);
	say(getpid(), 0);
	read_one(p[0]);
}

static void fifo_open(const char *path)
{
	if (mkfifo(path, 0600))
		die(path);
	say(getpid(), 0);
	if (open(path, O_RDONLY) >= 0)
		die("somebody opened it");
}

static void fifo_read(const char *path)
{
	pid_t writer;

	if (mkfifo(path, 0600))
		die(path);
	writer = child();
	if (!writer) {
		if (open(path, O_WRONLY) < 0)
			die(path);
		idle();
	}
	int fd = open(path, O_RDONLY);

	say(getpid(), writer);
	read_one(fd);
}

/* ---- sockets ---- */

static void unix_socket(void)
{
	int s[2];
	pid_t other;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, s))
		die("socketpair");
	other = child();
	if (!other) {
		close(s[0]);
		idle();
	}
	close(s[1]);
	say(getpid(), other);
	read_one(s[0]);
}

static void unix_not_accepted(const char *path)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	int listener = socket(AF_UNIX, SOCK_STREAM, 0), s = socket(AF_UNIX, SOCK_STREAM, 0);
	pid_t server;

	snprintf(at.sun_path, sizeof(at.sun_path), "%s", path);
	if (bind(listener, (struct sockaddr *)&at, sizeof(at)) || listen(listener, 5))
		die(path);
	server = child();
	if (!server)
		idle();
	close(listener);
	if (connect(s, (struct sockaddr *)&at, sizeof(at)))
		die("connect");
	say(getpid(), server);
	read_one(s);
}

/* The queue of a listener is full, so that connect() waits. */
static void unix_connect(const char *path)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	int listener = socket(AF_UNIX, SOCK_STREAM, 0);
	pid_t server;

	snprintf(at.sun_path, sizeof(at.sun_path), "%s", path);
	if (bind(listener, (struct sockaddr *)&at, sizeof(at)) || listen(listener, 0))
		die(path);
	server = child();
	if (!server)
		idle();
	close(listener);
	say(getpid(), server);
	for (int i = 0; i < 10; i++)
		if (connect(socket(AF_UNIX, SOCK_STREAM, 0), (struct sockaddr *)&at, sizeof(at)))
			die("connect");
}

static int tcp_listener(struct sockaddr_in *at)
{
	socklen_t len = sizeof(*at);
	int listener = socket(AF_INET, SOCK_STREAM, 0);

	*at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	if (bind(listener, (struct sockaddr *)at, len) || listen(listener, 5) ||
		getsockname(listener, (struct sockaddr *)at, &len))
		die("listen");
	return listener;
}

static void tcp(int accepts)
{
	struct sockaddr_in at;
	int listener = tcp_listener(&at), s = socket(AF_INET, SOCK_STREAM, 0);
	pid_t server = child();

	if (!server) {
		if (accepts && accept(listener, NULL, NULL) < 0)
			die("accept");
		idle();
	}
	close(listener);
	if (connect(s, (struct sockaddr *)&at, sizeof(at)))
		die("connect");
	say(getpid(), server);
	read_one(s);
}

/* 192.0.2.0/24 is for documentation: nobody answers there. */
static void tcp_remote(const char *address)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(4711)};
	int s = socket(AF_INET, SOCK_STREAM, 0);

	inet_pton(AF_INET, address, &at.sin_addr);
	say(getpid(), 0);
	if (connect(s, (struct sockaddr *)&at, sizeof(at)))
		die("connect");
	read_one(s);
}

static void accepts(void)
{
	struct sockaddr_in at;
	int listener = tcp_listener(&at);

	say(getpid(), 0);
	accept(listener, NULL, NULL);
	die("accept came back");
}

/* ---- descriptors of events ---- */

static void event(void)
{
	int fd = eventfd(0, 0);
	pid_t other = child();
	uint64_t count;

	if (!other)
		idle();
	say(getpid(), other);
	if (read(fd, &count, sizeof(count)) >= 0)
		die("read came back");
}

static void epoll_loop(void)
{
	struct sockaddr_in at;
	int e = epoll_create1(0), s[2], listener = tcp_listener(&at), wake = eventfd(0, 0);
	struct epoll_event what = {.events = EPOLLIN};

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, s))
		die("socketpair");
	if (!child()) {
		close(s[0]);
		idle();
	}
	close(s[1]);
	epoll_ctl(e, EPOLL_CTL_ADD, s[0], &what);
	epoll_ctl(e, EPOLL_CTL_ADD, listener, &what);
	epoll_ctl(e, EPOLL_CTL_ADD, wake, &what);
	say(getpid(), 0);
	epoll_wait(e, &what, 1, -1);
	die("epoll_wait came back");
}

static void epoll_one(void)
{
	int e = epoll_create1(0), s[2];
	struct epoll_event what = {.events = EPOLLIN};
	pid_t other;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, s))
		die("socketpair");
	other = child();
	if (!other) {
		close(s[0]);
		idle();
	}
	close(s[1]);
	epoll_ctl(e, EPOLL_CTL_ADD, s[0], &what);
	say(getpid(), other);
	epoll_wait(e, &what, 1, -1);
	die("epoll_wait came back");
}

static void poll_one(int with_select)
{
	int s[2];
	pid_t other;
	fd_set set;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, s))
		die("socketpair");
	other = child();
	if (!other) {
		close(s[0]);
		idle();
	}
	close(s[1]);
	say(getpid(), other);
	FD_ZERO(&set);
	FD_SET(s[0], &set);
	if (with_select)
		select(s[0] + 1, &set, NULL, NULL, NULL);
	else
		poll(&(struct pollfd){.fd = s[0], .events = POLLIN}, 1, -1);
	die("it came back");
}

static void pidfd(void)
{
	pid_t other = child();

	if (!other)
		idle();

	int fd = (int)syscall(SYS_pidfd_open, other, 0);

	if (fd < 0)
		die("pidfd_open");
	say(getpid(), other);
	poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, -1);
}

static void timer(void)
{
	int fd = timerfd_create(CLOCK_MONOTONIC, 0);
	struct itimerspec in = {.it_value = {.tv_sec = 1000}};

	timerfd_settime(fd, 0, &in, NULL);
	say(getpid(), 0);
	read_one(fd);
}

static void watch_files(void)
{
	int fd = inotify_init();

	say(getpid(), 0);
	read_one(fd);
}

static void read_signal(void)
{
	sigset_t set;
	int fd;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, NULL);
	fd = signalfd(-1, &set, 0);
	say(getpid(), 0);
	read_one(fd);
}

static void sleeper(int until)
{
	struct timespec at = {.tv_sec = 1000};

	say(getpid(), 0);
	if (until) {
		clock_gettime(CLOCK_MONOTONIC, &at);
		at.tv_sec += 1000;
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
	} else {
		nanosleep(&at, NULL);
	}
}

/* ---- children ---- */

static void wait_for_stopped(void)
{
	pid_t other = child();

	if (!other) {
		raise(SIGSTOP);
		idle();
	}
	waitpid(other, NULL, WUNTRACED);
	say(getpid(), other);
	waitpid(other, NULL, 0);
}

static void wait_for_any(void)
{
	if (!child() || !child())
		idle();
	say(getpid(), 0);
	wait(NULL);
}

/* The parent cannot say anything any more: the child does. */
static void with_vfork(void)
{
	static char stack[65536];
	sigset_t none;

	sigemptyset(&none);
	if (!vfork()) {
		int n = snprintf(stack, sizeof(stack), "ready\n%d %d\n", (int)getppid(), (int)getpid());

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (write(1, stack, (size_t)n) != n)
			_exit(1);
		for (;;)
			sigsuspend(&none);
	}
}

/* ---- locks of files ---- */

static void lock_file(const char *path, int how)
{
	struct flock whole = {.l_type = F_WRLCK};
	int to_parent[2], fd, rc;
	pid_t other;

	if (pipe(to_parent))
		die("pipe");
	other = child();
	fd = open(path, O_RDWR | O_CREAT, 0600);
	if (fd < 0)
		die(path);
	if (other && read(to_parent[0], &byte, 1) != 1)
		die("read");
	if (other)
		say(getpid(), other);
	if (how == 'f')
		rc = flock(fd, LOCK_EX);
	else
		rc = fcntl(fd, how == 'o' ? F_OFD_SETLKW : F_SETLKW, &whole);
	if (rc || other)
		die("lock");
	if (write(to_parent[1], "x", 1) != 1)
		die("write");
	idle();
}

/* Who took the lock has ended; a child of it has the descriptor. */
static void lock_left_behind(const char *path)
{
	int ids[2], fd;
	pid_t heir;

	if (pipe(ids))
		die("pipe");
	if (!fork()) {
		fd = open(path, O_RDWR | O_CREAT, 0600);
		if (fd < 0 || flock(fd, LOCK_EX))
			_exit(1);
		heir = fork();
		if (!heir) {
			heir = getpid();
			if (write(ids[1], &heir, sizeof(heir)) < 0)
				_exit(1);
			idle();
		}
		_exit(0);
	}
	wait(NULL);
	if (read(ids[0], &heir, sizeof(heir)) != sizeof(heir))
		die("read");
	close(ids[1]);
	fd = open(path, O_RDWR);
	say(getpid(), heir);
	flock(fd, LOCK_EX);
	die("got the lock");
}

static void self_flock(const char *path)
{
	int a = open(path, O_RDWR | O_CREAT, 0600), b = open(path, O_RDWR);

	flock(a, LOCK_EX);
	say(getpid(), getpid());
	flock(b, LOCK_EX);
}

/* ---- System V, POSIX queues ---- */

static void semaphore(void)
{
	int id = semget(IPC_PRIVATE, 1, 0600), to_parent[2];
	struct sembuf take = {.sem_op = -1}, give = {.sem_op = 1};
	pid_t other;

	if (id < 0 || semop(id, &give, 1) || pipe(to_parent))
		die("semget");
	other = child();
	if (!other) {
		semop(id, &take, 1);
		if (write(to_parent[1], "x", 1) != 1)
			die("write");
		idle();
	}
	if (read(to_parent[0], &byte, 1) != 1)
		die("read");
	if (!child()) { /* takes the set away when all is over */
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		signal(SIGTERM, SIG_DFL);
		sigset_t set;

		sigemptyset(&set);
		sigaddset(&set, SIGTERM);
		sigprocmask(SIG_BLOCK, &set, NULL);
		int got;
		sigwait(&set, &got);
		semctl(id, 0, IPC_RMID);
		_exit(0);
	}
	say(getpid(), other);
	semop(id, &take, 1);
}

/* Full, and who received from it before is stopped. */
static void sysv_queue(void)
{
	struct {
		long type;
		char text[1024];
	} m = {.type = 1};
	int id = msgget(IPC_PRIVATE, 0600);
	pid_t other;

	if (id < 0 || msgsnd(id, &m, sizeof(m.text), 0))
		die("msgget");
	other = child();
	if (!other) {
		if (msgrcv(id, &m, sizeof(m.text), 0, 0) < 0)
			die("msgrcv");
		raise(SIGSTOP);
		idle();
	}
	waitpid(other, NULL, WUNTRACED);
	while (!msgsnd(id, &m, sizeof(m.text), IPC_NOWAIT))
		continue;
	fprintf(stderr, "%d\n", id);
	say(getpid(), other);
	msgsnd(id, &m, sizeof(m.text), 0);
}

static void posix_queue(const char *name)
{
	struct mq_attr attr = {.mq_maxmsg = 2, .mq_msgsize = 8};
	mqd_t q = mq_open(name, O_RDONLY | O_CREAT | O_EXCL, 0600, &attr);
	char text[8];
	pid_t other;

	if (q < 0)
		die(name);
	other = child();
	if (!other) {
		mq_close(q);
		if (mq_open(name, O_WRONLY) < 0)
			die(name);
		mq_unlink(name);
		raise(SIGSTOP);
		idle();
	}
	waitpid(other, NULL, WUNTRACED);
	say(getpid(), other);
	mq_receive(q, text, sizeof(text), NULL);
}

/* ---- terminals ---- */

static void terminal(void)
{
	int master = posix_openpt(O_RDWR | O_NOCTTY);
	pid_t reader;

	if (master < 0 || grantpt(master) || unlockpt(master))
		die("posix_openpt");
	reader = child();
	if (!reader) {
		int slave = open(ptsname(master), O_RDWR | O_NOCTTY);

		close(master);
		read_one(slave);
	}
	say(reader, getpid());
	idle();
}

/* ---- inside the kernel ---- */

/*
 * A page that nobody supplies. The one who touches it does so inside write(), for the sake of a pipe, and so
 * holds the pipe's lock in the kernel meanwhile.
 */
static char *missing_page(void)
{
	struct uffdio_api api = {.api = UFFD_API};
	struct uffdio_register area = {.mode = UFFDIO_REGISTER_MODE_MISSING};
	char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int fd = (int)syscall(SYS_userfaultfd, 0);

	if (fd < 0 || page == MAP_FAILED || ioctl(fd, UFFDIO_API, &api))
		die("userfaultfd");
	area.range.start = (unsigned long)page;
	area.range.len = 4096;
	if (ioctl(fd, UFFDIO_REGISTER, &area))
		die("userfaultfd");
	return page;
}

static void own_page(void)
{
	char *page = missing_page();

	say(getpid(), 0);
	byte = *(volatile char *)page;
}

static void kernel_lock(void)
{
	int p[2];
	pid_t holder;

	if (pipe(p))
		die("pipe");
	holder = child();
	if (!holder) {
		const char *page = missing_page();

		if (write(p[1], page, 4096) >= 0)
			die("write came back");
	}
	usleep(300000);
	say(getpid(), holder);
	if (write(p[1], "x", 1) == 1)
		die("write came back");
}

/* ---- memory that is gone ---- */

static void *polls(void *fds)
{
	poll(fds, 2, -1);
	return NULL;
}

/* What the call was given is not there any more when somebody looks. */
static void poll_of_nothing(void)
{
	struct pollfd *fds = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pthread_t t;
	int p[2];

	if (fds == MAP_FAILED || pipe(p))
		die("pipe");
	fds[0] = fds[1] = (struct pollfd){.fd = p[0], .events = POLLIN};
	if (pthread_create(&t, NULL, polls, fds))
		die("pthread_create");
	usleep(300000);
	munmap(fds, 4096);
	say(getpid(), 0);
	idle();
}

/* ---- threads of one process ---- */

static int queue[2];

static void *worker(void *arg)
{
	(void)arg;
	read_one(queue[0]);
	return NULL;
}

/* A worker waits for what other threads of its process may write: no mistake. */
static void own_queue(void)
{
	pthread_t t;

	if (pipe(queue) || pthread_create(&t, NULL, worker, NULL))
		die("pipe");
	say(getpid(), 0);
	idle();
}

struct mode {
	const char *name;
	void (*plain)(void);
	void (*with_text)(const char *text);
	void (*with_number)(int number);
	int number;
};

static void flock_held(const char *path)
{
	lock_file(path, 'f');
}

static void fcntl_held(const char *path)
{
	lock_file(path, 'p');
}

static void ofd_held(const char *path)
{
	lock_file(path, 'o');
}

static const struct mode modes[] = {
	{"pipe_reader", .plain = pipe_reader},
	{"pipe_writer_of_stopped", .plain = pipe_writer_of_stopped},
	{"own_pipe", .plain = own_pipe},
	{"own_queue", .plain = own_queue},
	{"pipe_of_shell", .plain = pipe_of_shell},
	{"two_writers", .plain = two_writers},
	{"fifo_open", .with_text = fifo_open},
	{"fifo_read", .with_text = fifo_read},
	{"unix_socket", .plain = unix_socket},
	{"unix_not_accepted", .with_text = unix_not_accepted},
	{"unix_connect", .with_text = unix_connect},
	{"tcp", .with_number = tcp, .number = 1},
	{"tcp_not_accepted", .with_number = tcp, .number = 0},
	{"tcp_remote", .with_text = tcp_remote},
	{"accept", .plain = accepts},
	{"eventfd", .plain = event},
	{"epoll_loop", .plain = epoll_loop},
	{"epoll_one", .plain = epoll_one},
	{"poll_one", .with_number = poll_one, .number = 0},
	{"select_one", .with_number = poll_one, .number = 1},
	{"pidfd", .plain = pidfd},
	{"timer", .plain = timer},
	{"inotify", .plain = watch_files},
	{"signalfd", .plain = read_signal},
	{"sleep", .with_number = sleeper, .number = 0},
	{"sleep_until", .with_number = sleeper, .number = 1},
	{"wait_for_stopped", .plain = wait_for_stopped},
	{"wait_for_any", .plain = wait_for_any},
	{"vfork", .plain = with_vfork},
	{"flock", .with_text = flock_held},
	{"fcntl", .with_text = fcntl_held},
	{"ofd", .with_text = ofd_held},
	{"lock_left_behind", .with_text = lock_left_behind},
	{"self_flock", .with_text = self_flock},
	{"semaphore", .plain = semaphore},
	{"sysv_queue", .plain = sysv_queue},
	{"poll_of_nothing", .plain = poll_of_nothing},
	{"posix_queue", .with_text = posix_queue},
	{"terminal", .plain = terminal},
	{"own_page", .plain = own_page},
	{"kernel_lock", .plain = kernel_lock},
};

int main(int argc, char **argv)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (size_t i = 0; argc > 1 && i < sizeof(modes) / sizeof(modes[0]); i++) {
		const struct mode *m = &modes[i];

		if (strcmp(m->name, argv[1]))
			continue;
		if (m->plain)
			m->plain();
		else if (m->with_number)
			m->with_number(m->number);
		else
			m->with_text(argc > 2 ? argv[2] : "");
	}
	return 2;
}
