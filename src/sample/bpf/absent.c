/* SPDX-License-Identifier: BSD-2-Clause */
/* In the place of what uses BPF, where it could not be built. */
#include "sample/bpf/python_program.h"
#include "sample/sampler.h"
#include "sample/snapshot/look.h"

#include <errno.h>

static int absent(struct err *err)
{
	return err_set(err, EOPNOTSUPP,
		"cannot use BPF: this sonde was built without libbpf 1.0 or later, clang and bpftool");
}

static int absent_open(const struct sampler_options *options, struct sampler **ret, struct err *err)
{
	return absent(err);
}

static int absent_look(struct look **ret, struct err *err)
{
	return absent(err);
}

int python_program_new(struct python_program **ret, struct err *err)
{
	return absent(err);
}

void python_program_free(struct python_program *p)
{
}

/* There is none that these could be asked of. */
int python_program_fd(const struct python_program *p)
{
	return -1;
}

int python_program_output(struct python_program *p, int cpu, int event_fd)
{
	return -EOPNOTSUPP;
}

struct python_copier *python_program_copier(struct python_program *p)
{
	return NULL;
}

uint64_t python_program_not_written(const struct python_program *p)
{
	return 0;
}

const struct sampler_ops sampler_bpf = {
	.name = "bpf",
	.open = absent_open,
};

const struct look_ops look_bpf = {
	.name = "bpf",
	.open = absent_look,
};
