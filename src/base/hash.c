/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/hash.h"

#include <string.h>

#define P1 0x9e3779b185ebca87ULL
#define P2 0xc2b2ae3d27d4eb4fULL
#define P3 0x165667b19e3779f9ULL
#define P4 0x85ebca77c2b2ae63ULL
#define P5 0x27d4eb2f165667c5ULL

static uint64_t rotl(uint64_t x, int bits)
{
	return (x << bits) | (x >> (64 - bits));
}

static uint64_t load64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static uint64_t load32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static uint64_t round_one(uint64_t acc, uint64_t lane)
{
	return rotl(acc + lane * P2, 31) * P1;
}

static uint64_t merge_lane(uint64_t acc, uint64_t lane)
{
	return (acc ^ round_one(0, lane)) * P1 + P4;
}

static uint64_t stripes(const uint8_t **p, const uint8_t *end)
{
	uint64_t a = P1 + P2, b = P2, c = 0, d = -P1;

	for (; end - *p >= 32; *p += 32) {
		a = round_one(a, load64(*p));
		b = round_one(b, load64(*p + 8));
		c = round_one(c, load64(*p + 16));
		d = round_one(d, load64(*p + 24));
	}
	uint64_t h = rotl(a, 1) + rotl(b, 7) + rotl(c, 12) + rotl(d, 18);
	return merge_lane(merge_lane(merge_lane(merge_lane(h, a), b), c), d);
}

uint64_t hash_bytes(const void *bytes, size_t len)
{
	const uint8_t *p = bytes, *end = p + len;
	uint64_t h = len >= 32 ? stripes(&p, end) : P5;

	h += len;
	for (; end - p >= 8; p += 8)
		h = rotl(h ^ round_one(0, load64(p)), 27) * P1 + P4;
	for (; end - p >= 4; p += 4)
		h = rotl(h ^ load32(p) * P1, 23) * P2 + P3;
	for (; p < end; p++)
		h = rotl(h ^ *p * P5, 11) * P1;
	h = (h ^ (h >> 33)) * P2;
	h = (h ^ (h >> 29)) * P3;
	return h ^ (h >> 32);
}
