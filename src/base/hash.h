/* SPDX-License-Identifier: BSD-2-Clause */
/* Hash functions for tables in memory and for checksums in files. Not for secrets. */
#ifndef SONDE_BASE_HASH_H
#define SONDE_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* A bijective mix of 64 bits (the finaliser of splitmix64): all input bits reach all output bits. */
static inline uint64_t hash_u64(uint64_t x)
{
	x ^= x >> 30;
	x *= 0xbf58476d1ce4e5b9ULL;
	x ^= x >> 27;
	x *= 0x94d049bb133111ebULL;
	return x ^ (x >> 31);
}

static inline uint64_t hash_pair(uint64_t a, uint64_t b)
{
	return hash_u64(a ^ (hash_u64(b) + 0x9e3779b97f4a7c15ULL));
}

/* XXH64 with seed 0 (the xxHash specification, section "XXH64"): part of the recording format,
 * so the value for given bytes never changes. */
uint64_t hash_bytes(const void *bytes, size_t len);

#endif
