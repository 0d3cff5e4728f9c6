/* SPDX-License-Identifier: BSD-2-Clause */
/* Any bytes as a seccomp filter, asked about a call: the first bytes say which. */
#include <stdlib.h>
#include <string.h>

#include "os/seccomp.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sock_filter filter[256];
	struct seccomp_call call = {0};
	size_t count;

	if (size < 4)
		return 0;
	call.number = data[0];
	call.known = data[1];
	for (int i = 0; i < 6; i++)
		call.args[i] = data[2] * 0x0101010101010101ull << i;
	count = (size - 4) / sizeof(filter[0]);
	count = count < 256 ? count : 256;
	memcpy(filter, data + 4, count * sizeof(filter[0]));
	if ((unsigned)seccomp_judge(filter, count, &call) > SECCOMP_KILLS)
		abort();
	return 0;
}
