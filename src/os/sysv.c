/* SPDX-License-Identifier: BSD-2-Clause */
#include "os/sysv.h"

#include <errno.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>

#include "base/clock.h"
#include "os/in_namespace.h"

#define LIMIT_NS (100 * NS_PER_MS)

struct sem_job {
	int id, code;
	unsigned number;
	struct sysv_sem sem;
};

/* Ids of processes come translated into the pid namespace of who asks. */
static void ask_sem(void *arg)
{
	struct sem_job *j = arg;
	int number = (int)j->number;
	int value = semctl(j->id, number, GETVAL), last = semctl(j->id, number, GETPID);
	int waiting = semctl(j->id, number, GETNCNT), zero = semctl(j->id, number, GETZCNT);

	if (value < 0 || last < 0 || waiting < 0 || zero < 0) {
		j->code = errno;
		return;
	}
	j->sem = (struct sysv_sem){
		.value = value, .last = last, .waiting = waiting, .waiting_for_0 = zero};
}

int sysv_sem_read(pid_t pid, int id, unsigned number, struct sysv_sem *ret, struct err *err)
{
	struct sem_job j = {.id = id, .number = number};
	int rc = in_namespace(pid, "ipc", ask_sem, &j, sizeof(j), LIMIT_NS, err);

	if (rc)
		return rc;
	if (j.code)
		return err_errno(err, j.code, "semaphore %u of set %d", number, id);
	*ret = j.sem;
	return 0;
}

struct queue_job {
	int id, code;
	struct sysv_queue queue;
};

static void ask_queue(void *arg)
{
	struct queue_job *j = arg;
	struct msqid_ds ds;

	if (msgctl(j->id, IPC_STAT, &ds)) {
		j->code = errno;
		return;
	}
	j->queue = (struct sysv_queue){
		.messages = ds.msg_qnum,
		.bytes = ds.msg_cbytes,
		.most_bytes = ds.msg_qbytes,
		.last_sender = ds.msg_lspid,
		.last_receiver = ds.msg_lrpid,
	};
}

int sysv_queue_read(pid_t pid, int id, struct sysv_queue *ret, struct err *err)
{
	struct queue_job j = {.id = id};
	int rc = in_namespace(pid, "ipc", ask_queue, &j, sizeof(j), LIMIT_NS, err);

	if (rc)
		return rc;
	if (j.code)
		return err_errno(err, j.code, "message queue %d", id);
	*ret = j.queue;
	return 0;
}
