/* SPDX-License-Identifier: BSD-2-Clause */
#include "test.h"

#include <dwarf.h>
#include <stdlib.h>

#include "unwind/expr.h"

#define BYTES(...) {__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__})

/* Registers hold 1000 + number, but 5 is not known. Memory at 8-byte address a holds a * 2; none
 * is above 0x10000. */
static bool read_memory(void *ctx, uint64_t addr, void *buf, size_t len)
{
	uint64_t v = addr * 2;

	(void)ctx;
	if (addr >= 0x10000)
		return false;
	memcpy(buf, &v, len);
	return true;
}

static bool evaluate(const uint8_t *bytes, size_t len, uint64_t *ret)
{
	struct unwind_regs regs = {.known = UINT64_MAX & ~(1ULL << 5)};
	struct expr_input in = {.regs = &regs, .read = read_memory, .bias = 0x100000};

	for (int i = 0; i < UNWIND_MAX_REGS; i++)
		regs.value[i] = 1000 + (uint64_t)i;

	/* On the heap, so that a sanitizer sees reads before and behind the bytes. */
	uint8_t *copy = malloc(len ? len : 1);

	memcpy(copy, bytes, len);

	bool good = expr_evaluate(copy, len, &in, ret);

	free(copy);
	return good;
}

static const struct {
	const char *name;
	uint8_t bytes[20];
	size_t len;
	uint64_t want;
} values[] = {
	{"lit", BYTES(DW_OP_lit31), 31},
	{"addr", BYTES(DW_OP_addr, 0x10, 0, 0, 0, 0, 0, 0, 0), 0x100010},
	{"const1u", BYTES(DW_OP_const1u, 0xff), 0xff},
	{"const1s", BYTES(DW_OP_const1s, 0xff), UINT64_MAX},
	{"const2u", BYTES(DW_OP_const2u, 0xfe, 0xff), 0xfffe},
	{"const2s", BYTES(DW_OP_const2s, 0xfe, 0xff), (uint64_t)-2},
	{"const4u", BYTES(DW_OP_const4u, 0xfd, 0xff, 0xff, 0xff), 0xfffffffd},
	{"const4s", BYTES(DW_OP_const4s, 0xfd, 0xff, 0xff, 0xff), (uint64_t)-3},
	{"const8u", BYTES(DW_OP_const8u, 1, 2, 3, 4, 5, 6, 7, 8), 0x0807060504030201},
	{"const8s", BYTES(DW_OP_const8s, 1, 2, 3, 4, 5, 6, 7, 0x88), 0x8807060504030201},
	{"constu", BYTES(DW_OP_constu, 0x80, 0x01), 128},
	{"consts", BYTES(DW_OP_consts, 0x7f), UINT64_MAX},
	{"reg", BYTES(DW_OP_reg0 + 7), 1007},
	{"breg", BYTES(DW_OP_breg0 + 6, 0x78), 998},
	{"regx", BYTES(DW_OP_regx, 32), 1032},
	{"bregx", BYTES(DW_OP_bregx, 16, 4), 1020},
	{"deref", BYTES(DW_OP_constu, 0x80, 0x20, DW_OP_deref), 0x2000},
	{"deref_size", BYTES(DW_OP_const2u, 0x81, 0x01, DW_OP_deref_size, 1), 0x02},
	{"dup", BYTES(DW_OP_lit3, DW_OP_dup, DW_OP_mul), 9},
	{"drop", BYTES(DW_OP_lit3, DW_OP_lit4, DW_OP_drop), 3},
	{"over", BYTES(DW_OP_lit3, DW_OP_lit4, DW_OP_over), 3},
	{"pick 0", BYTES(DW_OP_lit3, DW_OP_lit4, DW_OP_pick, 0), 4},
	{"pick 2", BYTES(DW_OP_lit2, DW_OP_lit3, DW_OP_lit4, DW_OP_pick, 2), 2},
	{"swap", BYTES(DW_OP_lit9, DW_OP_lit4, DW_OP_swap, DW_OP_minus), (uint64_t)-5},
	/* 1 2 3 becomes 3 1 2: 3 * 16 - (1 - 2) would be 49 only so */
	{"rot",
		BYTES(DW_OP_lit1, DW_OP_lit2, DW_OP_lit3, DW_OP_rot, DW_OP_minus, DW_OP_swap,
			DW_OP_lit16, DW_OP_mul, DW_OP_swap, DW_OP_minus),
		49},
	{"and", BYTES(DW_OP_lit12, DW_OP_lit10, DW_OP_and), 8},
	{"or", BYTES(DW_OP_lit12, DW_OP_lit10, DW_OP_or), 14},
	{"xor", BYTES(DW_OP_lit12, DW_OP_lit10, DW_OP_xor), 6},
	{"plus", BYTES(DW_OP_lit12, DW_OP_lit10, DW_OP_plus), 22},
	{"minus", BYTES(DW_OP_lit12, DW_OP_lit10, DW_OP_minus), 2},
	{"mul", BYTES(DW_OP_lit12, DW_OP_lit10, DW_OP_mul), 120},
	{"div", BYTES(DW_OP_const1s, 0xf7, DW_OP_lit2, DW_OP_div), (uint64_t)-4},
	{"div by -1",
		BYTES(DW_OP_const8u, 0, 0, 0, 0, 0, 0, 0, 0x80, DW_OP_const1s, 0xff, DW_OP_div),
		1ULL << 63},
	{"mod", BYTES(DW_OP_lit12, DW_OP_lit10, DW_OP_mod), 2},
	{"abs", BYTES(DW_OP_const1s, 0xf7, DW_OP_abs), 9},
	{"neg", BYTES(DW_OP_lit9, DW_OP_neg), (uint64_t)-9},
	{"not", BYTES(DW_OP_lit9, DW_OP_not), ~9ULL},
	{"plus_uconst", BYTES(DW_OP_lit9, DW_OP_plus_uconst, 0x80, 0x01), 137},
	{"shl", BYTES(DW_OP_lit9, DW_OP_lit3, DW_OP_shl), 72},
	{"shl 64", BYTES(DW_OP_lit9, DW_OP_const1u, 64, DW_OP_shl), 0},
	{"shr", BYTES(DW_OP_const1s, 0xff, DW_OP_const1u, 60, DW_OP_shr), 15},
	{"shr 64", BYTES(DW_OP_lit9, DW_OP_const1u, 64, DW_OP_shr), 0},
	{"shra", BYTES(DW_OP_const1s, 0xf0, DW_OP_lit2, DW_OP_shra), (uint64_t)-4},
	{"shra 99", BYTES(DW_OP_const1s, 0xf0, DW_OP_const1u, 99, DW_OP_shra), UINT64_MAX},
	{"eq", BYTES(DW_OP_lit2, DW_OP_lit2, DW_OP_eq), 1},
	{"ne", BYTES(DW_OP_lit2, DW_OP_lit2, DW_OP_ne), 0},
	{"lt is signed", BYTES(DW_OP_const1s, 0xff, DW_OP_lit2, DW_OP_lt), 1},
	{"le", BYTES(DW_OP_lit2, DW_OP_lit2, DW_OP_le), 1},
	{"gt", BYTES(DW_OP_lit2, DW_OP_lit2, DW_OP_gt), 0},
	{"ge is signed", BYTES(DW_OP_const1s, 0xff, DW_OP_lit2, DW_OP_ge), 0},
	{"nop", BYTES(DW_OP_lit2, DW_OP_nop), 2},
	{"skip", BYTES(DW_OP_lit2, DW_OP_skip, 1, 0, DW_OP_lit5, DW_OP_nop), 2},
	{"skip to the end", BYTES(DW_OP_lit2, DW_OP_skip, 1, 0, DW_OP_lit5), 2},
	{"bra taken", BYTES(DW_OP_lit2, DW_OP_lit1, DW_OP_bra, 1, 0, DW_OP_lit5), 2},
	{"bra not taken", BYTES(DW_OP_lit2, DW_OP_lit0, DW_OP_bra, 1, 0, DW_OP_lit5), 5},
	/* a loop: counts 5 down to 0 and leaves 0 */
	{"bra back", BYTES(DW_OP_lit5, DW_OP_lit1, DW_OP_minus, DW_OP_dup, DW_OP_bra, 0xfa, 0xff),
		0},
	/* what linkers write for a slot of .plt, with rip 1016 and rsp 1007 */
	{"plt",
		BYTES(DW_OP_breg7, 8, DW_OP_breg16, 0, DW_OP_lit15, DW_OP_and, DW_OP_lit11,
			DW_OP_ge, DW_OP_lit3, DW_OP_shl, DW_OP_plus),
		1015},
};

TEST(values)
{
	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		uint64_t got = 0x5e5e;
		bool good = evaluate(values[i].bytes, values[i].len, &got);

		if (!good || got != values[i].want)
			printf("in %s: ", values[i].name);
		check(good);
		check_u64(got, values[i].want);
	}
}

static const struct {
	const char *name;
	uint8_t bytes[12];
	size_t len;
} failures[] = {
	{"nothing", {0}, 0},
	{"empty stack at the end", BYTES(DW_OP_lit1, DW_OP_drop)},
	{"operand cut off", BYTES(DW_OP_const4u, 1, 2)},
	{"endless LEB128",
		BYTES(DW_OP_constu, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80)},
	{"unknown register", BYTES(DW_OP_breg0 + 5, 0)},
	{"register beyond all", BYTES(DW_OP_bregx, 0x80, 0x02, 0)},
	{"register 64", BYTES(DW_OP_regx, 64)},
	{"memory that cannot be read", BYTES(DW_OP_const4u, 0, 0, 1, 0, DW_OP_deref)},
	{"deref_size 0", BYTES(DW_OP_lit8, DW_OP_deref_size, 0)},
	{"deref_size 9", BYTES(DW_OP_lit8, DW_OP_deref_size, 9)},
	{"no operands", BYTES(DW_OP_plus)},
	{"one operand", BYTES(DW_OP_lit1, DW_OP_plus)},
	{"swap of one", BYTES(DW_OP_lit1, DW_OP_swap)},
	{"rot of two", BYTES(DW_OP_lit1, DW_OP_lit1, DW_OP_rot)},
	{"dup of none", BYTES(DW_OP_dup)},
	{"pick too deep", BYTES(DW_OP_lit1, DW_OP_pick, 1)},
	{"division by zero", BYTES(DW_OP_lit1, DW_OP_lit0, DW_OP_div)},
	{"modulo zero", BYTES(DW_OP_lit1, DW_OP_lit0, DW_OP_mod)},
	{"jump beyond the end", BYTES(DW_OP_lit1, DW_OP_skip, 1, 0)},
	{"jump before the start", BYTES(DW_OP_lit1, DW_OP_skip, 0xfb, 0xff)},
	{"endless loop", BYTES(DW_OP_lit1, DW_OP_skip, 0xfd, 0xff)},
	{"endless pushing", BYTES(DW_OP_lit1, DW_OP_skip, 0xfc, 0xff)},
	{"a loop of 1000 rounds", BYTES(DW_OP_const2u, 0xe8, 0x03, DW_OP_lit1, DW_OP_minus,
					  DW_OP_dup, DW_OP_bra, 0xfa, 0xff)},
	{"no CFA to push", BYTES(DW_OP_call_frame_cfa)},
	{"not an operation", BYTES(DW_OP_lit1, 0xff)},
	{"an operation of debug information", BYTES(DW_OP_lit1, DW_OP_push_object_address)},
};

TEST(failures)
{
	for (size_t i = 0; i < sizeof(failures) / sizeof(failures[0]); i++) {
		uint64_t got = 0x5e5e;
		bool good = evaluate(failures[i].bytes, failures[i].len, &got);

		if (good)
			printf("in %s: ", failures[i].name);
		check(!good);
		check_u64(got, 0x5e5e);
	}
}

TEST(initial_value)
{
	static const uint8_t plus[] = {DW_OP_lit8, DW_OP_minus}, again[] = {DW_OP_call_frame_cfa};
	struct expr_input in = {.has_initial = true, .initial = 0x7000};
	uint64_t got = 0;

	check(expr_evaluate(plus, sizeof(plus), &in, &got));
	check_u64(got, 0x6ff8);
	check(expr_evaluate(again, sizeof(again), &in, &got));
	check_u64(got, 0x7000);
	check(expr_evaluate(NULL, 0, &in, &got)); /* the CFA itself */
	check_u64(got, 0x7000);
}

TEST(no_memory_and_no_registers)
{
	static const uint8_t deref[] = {DW_OP_lit8, DW_OP_deref}, reg[] = {DW_OP_breg7, 0};
	struct expr_input in = {0};
	uint64_t got;

	check(!expr_evaluate(deref, sizeof(deref), &in, &got));
	check(!expr_evaluate(reg, sizeof(reg), &in, &got));
}

TEST(the_stack_takes_64)
{
	uint8_t bytes[EXPR_MAX_STACK + 1];
	uint64_t got;

	memset(bytes, DW_OP_lit7, sizeof(bytes));
	check(evaluate(bytes, EXPR_MAX_STACK, &got));
	check(!evaluate(bytes, EXPR_MAX_STACK + 1, &got));
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, T(values), T(failures), T(initial_value),
		T(no_memory_and_no_registers), T(the_stack_takes_64));
}
