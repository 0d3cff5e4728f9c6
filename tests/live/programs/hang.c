/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * hang SCENARIO: hangs in a way that is known. Threads that matter bear names ("holder", "second"); the first
 * thread is the one that hangs, if any. Prints "ready" when everybody is on the way to where it stays.
 */
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "spin.h"

static pthread_mutex_t locks[5];
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_barrier_t barrier;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static sem_t semaphore;
static atomic_int taken;

static void ready(void)
{
	puts("ready");
	fflush(stdout);
}

static void call_me(const char *name)
{
	prctl(PR_SET_NAME, name);
}

static pthread_t start(void *(*body)(void *), void *arg)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, body, arg))
		abort();
	return thread;
}

static void wait_until_taken(int count)
{
	while (taken < count)
		usleep(1000);
}

static void stay(void)
{
	for (;;)
		pause();
}

/* ---- one mutex, of any type ---- */

static void make_mutex(pthread_mutex_t *m, int type, int protocol, int robust, int shared)
{
	pthread_mutexattr_t attr;

	pthread_mutexattr_init(&attr);
	pthread_mutexattr_settype(&attr, type);
	pthread_mutexattr_setprotocol(&attr, protocol);
	pthread_mutexattr_setrobust(&attr, robust);
	pthread_mutexattr_setpshared(&attr, shared);
	pthread_mutex_init(m, &attr);
}

static NOINLINE void hold_and_stay(void)
{
	pthread_mutex_lock(&locks[0]);
	taken++;
	stay();
	NOT_A_TAIL_CALL;
}

static void *holder(void *arg)
{
	call_me("holder");
	hold_and_stay();
	return arg;
}

static NOINLINE void want_lock(pthread_mutex_t *m)
{
	pthread_mutex_lock(m);
	NOT_A_TAIL_CALL;
}

static void wait_for_holder(void)
{
	start(holder, NULL);
	wait_until_taken(1);
	ready();
	want_lock(&locks[0]);
}

static void mutex_normal(void)
{
	wait_for_holder();
}

static void mutex_recursive(void)
{
	make_mutex(&locks[0], PTHREAD_MUTEX_RECURSIVE, PTHREAD_PRIO_NONE, PTHREAD_MUTEX_STALLED, 0);
	wait_for_holder();
}

static void mutex_errorcheck(void)
{
	make_mutex(&locks[0], PTHREAD_MUTEX_ERRORCHECK, PTHREAD_PRIO_NONE, PTHREAD_MUTEX_STALLED, 0);
	wait_for_holder();
}

static void mutex_pi(void)
{
	make_mutex(&locks[0], PTHREAD_MUTEX_NORMAL, PTHREAD_PRIO_INHERIT, PTHREAD_MUTEX_STALLED, 0);
	wait_for_holder();
}

static void mutex_robust(void)
{
	make_mutex(&locks[0], PTHREAD_MUTEX_NORMAL, PTHREAD_PRIO_NONE, PTHREAD_MUTEX_ROBUST, 0);
	wait_for_holder();
}

static void mutex_timed(void)
{
	struct timespec limit;

	start(holder, NULL);
	wait_until_taken(1);
	clock_gettime(CLOCK_REALTIME, &limit);
	limit.tv_sec += 1000;
	ready();
	pthread_mutex_timedlock(&locks[0], &limit);
}

static void *running_holder(void *arg)
{
	call_me("holder");
	pthread_mutex_lock(&locks[0]);
	taken++;
	for (;;)
		spin_ms(100);
	return arg;
}

static void mutex_of_running(void)
{
	start(running_holder, NULL);
	wait_until_taken(1);
	ready();
	want_lock(&locks[0]);
}

static void *waiter(void *arg)
{
	want_lock(&locks[0]);
	return arg;
}

/* 300 threads behind one, with the first idle. */
static void mutex_many(void)
{
	start(holder, NULL);
	wait_until_taken(1);
	for (int i = 0; i < 300; i++)
		start(waiter, NULL);
	ready();
	stay();
}

/* ---- nobody there to let go ---- */

static void self(void)
{
	pthread_mutex_lock(&locks[0]);
	ready();
	want_lock(&locks[0]);
}

static void *ends_holding(void *arg)
{
	pthread_mutex_lock(&locks[0]);
	return arg;
}

static void dead_owner(void)
{
	pthread_join(start(ends_holding, NULL), NULL);
	ready();
	want_lock(&locks[0]);
}

static void fork_inherited(void)
{
	start(holder, NULL);
	wait_until_taken(1);
	if (fork()) {
		call_me("parent");
		wait(NULL);
		return;
	}
	printf("child %d\n", (int)getpid());
	ready();
	want_lock(&locks[0]);
}

/* ---- circles ---- */

static int circle;

static NOINLINE void take_two(int first, int second)
{
	pthread_mutex_lock(&locks[first]);
	taken++;
	wait_until_taken(circle);
	want_lock(&locks[second]);
}

static void *member(void *arg)
{
	int number = (int)(intptr_t)arg;
	char name[16];

	snprintf(name, sizeof(name), "member-%d", number);
	call_me(name);
	take_two(number, (number + 1) % circle);
	return arg;
}

static void cycle(int members)
{
	circle = members;
	for (int i = 1; i < members; i++)
		start(member, (void *)(intptr_t)i);
	ready();
	take_two(0, 1);
}

static void cycle_2(void)
{
	cycle(2);
}

static void cycle_3(void)
{
	cycle(3);
}

static void cycle_5(void)
{
	cycle(5);
}

/* AB-BA of two processes over memory they share. */
static void cycle_processes(void)
{
	struct {
		pthread_mutex_t lock[2];
		atomic_int taken;
	} *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int mine;

	for (int i = 0; i < 2; i++)
		make_mutex(&shared->lock[i], PTHREAD_MUTEX_NORMAL, PTHREAD_PRIO_NONE, PTHREAD_MUTEX_ROBUST,
			PTHREAD_PROCESS_SHARED);
	mine = fork() ? 0 : 1;
	if (mine)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	else
		ready();
	pthread_mutex_lock(&shared->lock[mine]);
	shared->taken++;
	while (shared->taken < 2)
		usleep(1000);
	want_lock(&shared->lock[!mine]);
}

/* A plain mutex in shared memory, held by the child. */
static void shared_mutex(void)
{
	pthread_mutex_t *m = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int pipes[2];
	char byte;

	make_mutex(m, PTHREAD_MUTEX_NORMAL, PTHREAD_PRIO_NONE, PTHREAD_MUTEX_STALLED, PTHREAD_PROCESS_SHARED);
	if (pipe(pipes))
		abort();
	if (!fork()) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		call_me("holder");
		pthread_mutex_lock(m);
		if (write(pipes[1], "x", 1) != 1)
			abort();
		stay();
	}
	if (read(pipes[0], &byte, 1) != 1)
		abort();
	ready();
	want_lock(m);
}

/* ---- other primitives ---- */

static void *writes(void *arg)
{
	call_me("holder");
	pthread_rwlock_wrlock(&rwlock);
	taken++;
	stay();
	return arg;
}

static void rwlock_read(void)
{
	start(writes, NULL);
	wait_until_taken(1);
	ready();
	pthread_rwlock_rdlock(&rwlock);
}

static void rwlock_write(void)
{
	start(writes, NULL);
	wait_until_taken(1);
	ready();
	pthread_rwlock_wrlock(&rwlock);
}

static void *sleeps(void *arg)
{
	call_me("holder");
	taken++;
	stay();
	return arg;
}

static void join(void)
{
	pthread_t thread = start(sleeps, NULL);

	wait_until_taken(1);
	ready();
	pthread_join(thread, NULL);
}

static void initialise(void)
{
	taken++;
	stay();
}

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void *initialises(void *arg)
{
	call_me("holder");
	pthread_once(&once, initialise);
	return arg;
}

static void once_only(void)
{
	start(initialises, NULL);
	wait_until_taken(1);
	ready();
	pthread_once(&once, initialise);
}

static void *holds_stdout(void *arg)
{
	call_me("holder");
	flockfile(stderr);
	taken++;
	stay();
	return arg;
}

static void stdio_lock(void)
{
	start(holds_stdout, NULL);
	wait_until_taken(1);
	ready();
	fputs("never\n", stderr);
}

static void *pool_worker(void *arg)
{
	call_me("pool");
	pthread_mutex_lock(&locks[1]);
	for (;;)
		pthread_cond_wait(&condition, &locks[1]);
	return arg;
}

static void start_pool(void)
{
	for (int i = 0; i < 8; i++)
		start(pool_worker, NULL);
}

static void pool(void)
{
	start_pool();
	ready();
	pthread_mutex_lock(&locks[0]);
	pthread_cond_wait(&condition, &locks[0]);
}

/* Idle workers beside a real wait: they are not to blame. */
static void pool_and_mutex(void)
{
	start_pool();
	wait_for_holder();
}

static void semaphore_wait(void)
{
	sem_init(&semaphore, 0, 0);
	ready();
	sem_wait(&semaphore);
}

static void barrier_wait(void)
{
	pthread_barrier_init(&barrier, NULL, 3);
	ready();
	pthread_barrier_wait(&barrier);
}

static void busy(void)
{
	ready();
	for (;;)
		spin_ms(100);
}

static void sleeping(void)
{
	ready();
	sleep(1000);
}

static pthread_spinlock_t spinlock;

static void *holds_spinlock(void *arg)
{
	call_me("holder");
	pthread_spin_lock(&spinlock);
	taken++;
	stay();
	return arg;
}

static void spinning(void)
{
	pthread_spin_init(&spinlock, 0);
	start(holds_spinlock, NULL);
	wait_until_taken(1);
	ready();
	pthread_spin_lock(&spinlock);
}

static void *first_has_ended(void *arg)
{
	usleep(100000);
	wait_for_holder();
	return arg;
}

static void zombie_leader(void)
{
	start(first_has_ended, NULL);
	pthread_exit(NULL);
}

/* The first thread waits for a mutex; its holder reads from a pipe that a second process is to write to; that one
 * waits for a lock on a file (the second argument), and the third, which has it, is stopped. */
static int long_pipe[2];
static const char *locked_file;

static void *reads_pipe(void *arg)
{
	char byte;

	call_me("holder");
	pthread_mutex_lock(&locks[0]);
	taken++;
	if (read(long_pipe[0], &byte, 1) < 0)
		abort();
	return arg;
}

static void lock_and_stop(void)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	call_me("backup");
	close(long_pipe[0]);
	close(long_pipe[1]);
	flock(open(locked_file, O_RDWR | O_CREAT, 0600), LOCK_EX);
	raise(SIGSTOP);
}

static void want_file_then_write(void)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	call_me("writer");
	close(long_pipe[0]);
	flock(open(locked_file, O_RDWR), LOCK_EX);
	if (write(long_pipe[1], "x", 1) < 0)
		abort();
}

static void long_chain(void)
{
	pid_t backup;

	if (pipe(long_pipe))
		abort();
	backup = fork();
	if (!backup) {
		lock_and_stop();
		_exit(0);
	}
	waitpid(backup, NULL, WUNTRACED);
	if (!fork()) {
		want_file_then_write();
		_exit(0);
	}
	close(long_pipe[1]);
	start(reads_pipe, NULL);
	wait_until_taken(1);
	ready();
	want_lock(&locks[0]);
}

/* Sleeps until a lock on a file can be had, which it tries for again and again. */
static void poll_for_lock(void)
{
	struct flock whole = {.l_type = F_WRLCK};
	int file = open(locked_file, O_RDWR | O_CREAT, 0600), pipes[2];
	char byte;

	if (pipe(pipes))
		abort();
	if (!fork()) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		call_me("holder");
		fcntl(file, F_SETLK, &whole);
		if (write(pipes[1], "x", 1) != 1)
			abort();
		stay();
	}
	if (read(pipes[0], &byte, 1) != 1)
		abort();
	ready();
	while (fcntl(file, F_SETLK, &whole))
		usleep(20000);
}

/* The loader's lock, which is held while somebody looks at what is loaded. */
static int stay_there(struct dl_phdr_info *info, size_t size, void *arg)
{
	taken++;
	stay();
	return 0;
}

static int pass_by(struct dl_phdr_info *info, size_t size, void *arg)
{
	return 0;
}

static void *looks_at_what_is_loaded(void *arg)
{
	call_me("holder");
	dl_iterate_phdr(stay_there, NULL);
	return arg;
}

static void loader_lock(void)
{
	start(looks_at_what_is_loaded, NULL);
	wait_until_taken(1);
	ready();
	dl_iterate_phdr(pass_by, NULL);
}

/* A signal comes while the heap is locked, and its handler allocates. */
static void *volatile heap_sink;

static void use_heap(int signal)
{
	for (int i = 0; i < 20; i++) {
		heap_sink = malloc(3000);
		free(heap_sink);
	}
}

static void heap_in_handler(void)
{
	struct itimerval often = {{0, 200}, {0, 200}};

	start(sleeps, NULL); /* alone the heap needs no locks */
	wait_until_taken(1);
	signal(SIGALRM, use_heap);
	setitimer(ITIMER_REAL, &often, NULL);
	ready();
	for (;;)
		use_heap(0);
}

/* As PostgreSQL's processes look: a server, and backends that say in their titles what they do. The last argument
 * is long enough to be overwritten by any of these. */
static char *title_room;
static size_t title_bytes;

static NOINLINE void ProcSleep(void)
{
	stay();
	NOT_A_TAIL_CALL;
}

static pid_t backend(const char *title, void (*body)(void))
{
	pid_t pid = fork();

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	call_me("postgres");
	memset(title_room, 0, title_bytes);
	memcpy(title_room, title, strlen(title));
	body();
	_exit(0);
}

static void postgres(void)
{
	backend("postgres: checkpointer ", stay);
	backend("postgres: me db [local] idle", stay);
	printf("holder %d\n", (int)backend("postgres: me db [local] idle in transaction", stay));
	printf("waiter %d\n", (int)backend("postgres: me db [local] UPDATE waiting", ProcSleep));
	fflush(stdout);
	stay();
}

static const struct {
	const char *name;
	void (*run)(void);
} scenarios[] = {
	{"mutex", mutex_normal}, {"recursive", mutex_recursive}, {"errorcheck", mutex_errorcheck},
	{"pi", mutex_pi}, {"robust", mutex_robust}, {"timed", mutex_timed}, {"running", mutex_of_running},
	{"many", mutex_many}, {"self", self}, {"dead", dead_owner}, {"fork", fork_inherited},
	{"cycle-2", cycle_2}, {"cycle-3", cycle_3}, {"cycle-5", cycle_5},
	{"cycle-processes", cycle_processes}, {"shared", shared_mutex}, {"rwlock-read", rwlock_read},
	{"rwlock-write", rwlock_write}, {"join", join}, {"once", once_only}, {"stdio", stdio_lock},
	{"pool", pool}, {"pool-and-mutex", pool_and_mutex}, {"semaphore", semaphore_wait},
	{"barrier", barrier_wait}, {"busy", busy}, {"sleeping", sleeping}, {"spinning", spinning},
	{"zombie-leader", zombie_leader}, {"chain", long_chain}, {"loader", loader_lock},
	{"heap", heap_in_handler}, {"postgres", postgres}, {"poll-lock", poll_for_lock},
};

int main(int argc, char **argv)
{
	title_room = argv[0];
	title_bytes = (size_t)(argv[argc - 1] + strlen(argv[argc - 1]) - argv[0]);
	locked_file = argc > 2 ? argv[2] : "hang.lock";
	for (size_t i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]); i++)
		if (argc > 1 && !strcmp(argv[1], scenarios[i].name)) {
			scenarios[i].run();
			return 0;
		}
	fprintf(stderr, "usage: hang SCENARIO\n");
	return 2;
}
