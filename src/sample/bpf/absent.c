/* SPDX-License-Identifier: BSD-2-Clause */
/* In the place of what uses BPF, where it could not be built. */
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

const struct sampler_ops sampler_bpf = {
	.name = "bpf",
	.open = absent_open,
};

const struct look_ops look_bpf = {
	.name = "bpf",
	.open = absent_look,
};
