/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The program that copies Python's frames as a sample is taken (bpf/python.bpf.c), for events of a sampler that
 * has a ring a CPU.
 *
 * Its records come out of the same ring as the samples, each in front of the sample it belongs to: one for
 * each interpreter that the thread is in.
 */
#ifndef SONDE_SAMPLE_BPF_PYTHON_PROGRAM_H
#define SONDE_SAMPLE_BPF_PYTHON_PROGRAM_H

#include "sample/python/copier.h"

struct python_program;

/* -EPERM and others: not here, or not with these rights. */
int python_program_new(struct python_program **ret, struct err *err);
void python_program_free(struct python_program *p);

/* For PERF_EVENT_IOC_SET_BPF. */
int python_program_fd(const struct python_program *p);

/* What it copies on that CPU goes to the event, one of PERF_COUNT_SW_BPF_OUTPUT. 0 or -errno. */
int python_program_output(struct python_program *p, int cpu, int event_fd);

/* Who tells it what to copy. */
struct python_copier *python_program_copier(struct python_program *p);

/* Chains that were copied, and for which there was no room. */
uint64_t python_program_not_written(const struct python_program *p);

/* The same in the maps of another skeleton. */
int python_map_update(void *ctx, int map, const void *key, const void *value);
int python_map_remove(void *ctx, int map, const void *key);

/* By its file, the pid namespace that we are in; 0, 0: the first. */
void python_own_namespace(uint64_t *ret_device, uint64_t *ret_inode);

#endif
