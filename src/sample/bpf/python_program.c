/* SPDX-License-Identifier: BSD-2-Clause */
#include "sample/bpf/python_program.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os/rights.h"
#include "sample/bpf/common.h"

#include <python.skel.h>

/* The first pid namespace is this one on every system: PROC_PID_INIT_INO. */
#define FIRST_NAMESPACE 0xeffffffcu

struct python_program {
	struct python_bpf *skeleton;
	struct python_copier *copier;
};

int python_map_update(void *ctx, int map, const void *key, const void *value)
{
	return bpf_map_update_elem(map, key, value, BPF_ANY);
}

int python_map_remove(void *ctx, int map, const void *key)
{
	return bpf_map_delete_elem(map, key);
}

void python_own_namespace(uint64_t *ret_device, uint64_t *ret_inode)
{
	struct stat st;

	*ret_device = *ret_inode = 0;
	if (stat("/proc/self/ns/pid", &st) || st.st_ino == FIRST_NAMESPACE)
		return;
	*ret_device = st.st_dev;
	*ret_inode = st.st_ino;
}

/* A refusal costs next to nothing in this way: before the kernel's type information is read. */
static int try_map(void)
{
	int fd = bpf_map_create(BPF_MAP_TYPE_HASH, NULL, sizeof(uint32_t), sizeof(uint32_t), 1, NULL);

	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

static int load(struct python_program *p, struct err *err)
{
	int rc = try_map();

	if (rc)
		return rights_bpf_refused(-rc, err);
	bpf_keep_quiet();
	p->skeleton = python_bpf__open();
	if (!p->skeleton)
		return err_errno(err, errno, "opening the BPF program");
	python_own_namespace((uint64_t *)&p->skeleton->rodata->own_ns_device,
		(uint64_t *)&p->skeleton->rodata->own_ns_inode);
	rc = python_bpf__load(p->skeleton);
	return rc ? rights_bpf_refused(-rc, err) : 0;
}

int python_program_new(struct python_program **ret, struct err *err)
{
	struct python_program *p = calloc(1, sizeof(*p));
	struct python_copier_maps maps = {.update = python_map_update, .remove = python_map_remove};
	int rc;

	if (!p)
		return err_nomem(err);
	rc = load(p, err);
	if (!rc) {
		maps.processes = bpf_map__fd(p->skeleton->maps.processes);
		maps.threads = bpf_map__fd(p->skeleton->maps.python_threads);
		maps.process_count = &p->skeleton->bss->python_processes;
		rc = python_copier_new(&maps, &p->copier, err);
	}
	if (rc) {
		python_program_free(p);
		return rc;
	}
	*ret = p;
	return 0;
}

void python_program_free(struct python_program *p)
{
	if (!p)
		return;
	python_copier_free(p->copier);
	python_bpf__destroy(p->skeleton);
	free(p);
}

int python_program_fd(const struct python_program *p)
{
	return bpf_program__fd(p->skeleton->progs.on_sample);
}

int python_program_output(struct python_program *p, int cpu, int event_fd)
{
	uint32_t key = (uint32_t)cpu, value = (uint32_t)event_fd;

	return bpf_map_update_elem(bpf_map__fd(p->skeleton->maps.output), &key, &value, BPF_ANY);
}

struct python_copier *python_program_copier(struct python_program *p)
{
	return p->copier;
}

uint64_t python_program_not_written(const struct python_program *p)
{
	return p->skeleton->bss->not_written;
}
