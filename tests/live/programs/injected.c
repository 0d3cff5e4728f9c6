/* SPDX-License-Identifier: BSD-2-Clause */
/* A library that is put into running programs: counts its calls, and does what could get in their way. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

long count_call(const char *text, unsigned long number);
long allocate(const char *text, unsigned long number);
long take_time(const char *text, unsigned long number);
long crash(const char *text, unsigned long number);

static long calls;

/* The text has to be the number, so that both have arrived. */
long count_call(const char *text, unsigned long number)
{
	errno = ERANGE;
	return strtoul(text, NULL, 10) == number ? ++calls : -1;
}

/* Through the allocator and back, and all vector registers are others afterwards. */
long allocate(const char *text, unsigned long number)
{
	char *blocks[64];
	long sum = 0;

	for (int i = 0; i < 64; i++) {
		blocks[i] = malloc(100 + 50 * (size_t)i);
		memset(blocks[i], i, 100);
		sum += blocks[i][99];
	}
	for (int i = 0; i < 64; i++)
		free(blocks[i]);
	return sum;
}

long take_time(const char *text, unsigned long number)
{
	usleep(20000);
	return 1;
}

long crash(const char *text, unsigned long number)
{
	*(volatile int *)8 = 1;
	return 0;
}
