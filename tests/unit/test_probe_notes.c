/* SPDX-License-Identifier: BSD-2-Clause */
/* Notes of USDT probes: what stands in them, and what makes no sense; what a weight says. */
#include "test.h"

#include <elf.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "elf/probe_notes.h"
#include "heap/told.h"

struct notes {
	uint8_t bytes[1024];
	size_t size;
};

static void put(struct notes *n, const void *bytes, size_t size)
{
	memcpy(n->bytes + n->size, bytes, size);
	n->size += size;
}

static void put_text(struct notes *n, const char *text)
{
	put(n, text, strlen(text) + 1);
}

static void align(struct notes *n)
{
	while (n->size % 4)
		n->bytes[n->size++] = 0;
}

static void add(struct notes *n, uint32_t type, const char *name, const char *arguments)
{
	uint64_t addresses[] = {0x1234, 0x2000, 0x3002};
	uint32_t header[] = {8, (uint32_t)(sizeof(addresses) + strlen("otel_memory") + strlen(name) + strlen(arguments) + 3), type};

	put(n, header, sizeof(header));
	put_text(n, "stapsdt");
	put(n, addresses, sizeof(addresses));
	put_text(n, "otel_memory");
	put_text(n, name);
	put_text(n, arguments);
	align(n);
}

struct seen {
	struct elf_probe last;
	unsigned count;
	int answer;
};

static int take(void *ctx, const struct elf_probe *p)
{
	struct seen *s = ctx;

	s->last = *p;
	s->count++;
	return s->answer;
}

static struct elf_operand operand_of(unsigned machine, const char *text)
{
	struct notes n = {0};
	struct seen s = {0};

	add(&n, 3, "alloc", text);
	elf_probe_notes(n.bytes, n.size, machine, NULL, take, &s);
	check_u64(s.count, 1);
	check_u64(s.last.count, 1);
	return s.last.operands[0];
}

TEST(a_note_is_read)
{
	uint64_t base = 0x2100;
	struct notes n = {0};
	struct seen s = {0};

	add(&n, 3, "alloc", "8@%rdi -4@%r9d 8@$16 8@-8(%rbp)");
	add(&n, 1, "other", "");
	add(&n, 3, "free", "8@%rax");
	check_u64(elf_probe_notes(n.bytes, n.size, EM_X86_64, &base, take, &s), 0);
	check_u64(s.count, 2);
	check(!strcmp(s.last.name, "free") && !strcmp(s.last.provider, "otel_memory"));
	check_u64(s.last.at, 0x1334);
	check_u64(s.last.semaphore, 0x3102);
	s = (struct seen){.answer = 7};
	check_u64(elf_probe_notes(n.bytes, n.size, EM_X86_64, NULL, take, &s), 7);
	check_u64(s.count, 1);
	check_u64(s.last.at, 0x1234);
	check_u64(s.last.count, 4);
	check_u64(s.last.operands[0].reg, 5);
	check(s.last.operands[1].size == -4 && s.last.operands[1].reg == 9 && s.last.operands[1].kind == ELF_OPERAND_REGISTER);
	check(s.last.operands[2].kind == ELF_OPERAND_CONSTANT && s.last.operands[2].value == 16);
	check(s.last.operands[3].kind == ELF_OPERAND_MEMORY && s.last.operands[3].value == -8 && s.last.operands[3].reg == 6);
}

TEST(operands_of_other_forms_are_known_as_such)
{
	static const char *const odd[] = {"8@", "8", "@%rdi", "3@%rdi", "16@%xmm0", "8@%xmm0", "8@(%rax,%rbx,8)", "8@x(%rip)", "8@8(%rip)",
		"8@$", "8@$x", "8@%", "8@-8(%rbp", "8@(%rbp)x", "8@)(", "8@(", "-@%rdi", "8@x0",
		"8@%aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
	static const char *const odd_arm[] = {"8@x31", "8@x", "8@[x0", "8@[x0, x1]", "8@[x0]!", "8@[]", "8@x0x", "8@%rdi", "8@[x0,"};

	for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++)
		check_u64(operand_of(EM_X86_64, odd[i]).kind, ELF_OPERAND_OTHER);
	for (size_t i = 0; i < sizeof(odd_arm) / sizeof(odd_arm[0]); i++)
		check_u64(operand_of(EM_AARCH64, odd_arm[i]).kind, ELF_OPERAND_OTHER);
}

TEST(operands_of_arm)
{
	struct elf_operand o = operand_of(EM_AARCH64, "8@[sp, 16]");

	check(o.kind == ELF_OPERAND_MEMORY && o.reg == 31 && o.value == 16);
	o = operand_of(EM_AARCH64, "8@[x29]");
	check(o.kind == ELF_OPERAND_MEMORY && o.reg == 29 && o.value == 0);
	o = operand_of(EM_AARCH64, "-4@w3");
	check(o.kind == ELF_OPERAND_REGISTER && o.reg == 3 && o.size == -4);
	o = operand_of(EM_AARCH64, "8@-5");
	check(o.kind == ELF_OPERAND_CONSTANT && o.value == -5);
}

TEST(notes_that_make_no_sense_end_it)
{
	struct notes n = {0};

	add(&n, 3, "alloc", "8@%rdi 8@%rsi 8@%rdx");
	for (size_t size = 0; size < n.size; size++) {
		struct seen s = {0};
		uint8_t *copy = malloc(size + !size); /* so that a sanitizer sees its end */

		memcpy(copy, n.bytes, size);
		elf_probe_notes(copy, size, EM_X86_64, NULL, take, &s);
		/* The padding at the end may be missing. */
		check(s.count == (size >= 12 + 8 + 24 + strlen("otel_memory") + strlen("alloc") + strlen("8@%rdi 8@%rsi 8@%rdx") + 3));
		free(copy);
	}
	for (size_t at = 0; at < 12; at++) {
		struct notes bad = n;
		struct seen s = {0};

		bad.bytes[at] = 0xff;
		elf_probe_notes(bad.bytes, bad.size, EM_X86_64, NULL, take, &s);
		check_u64(s.count, 0);
	}
}

TEST(more_arguments_than_there_is_room_for)
{
	struct notes n = {0};
	struct seen s = {0};

	add(&n, 3, "alloc", "8@$0 8@$1 8@$2 8@$3 8@$4 8@$5 8@$6 8@$7 8@$8 8@$9 8@$10 8@$11 8@$12 8@$13");
	elf_probe_notes(n.bytes, n.size, EM_X86_64, NULL, take, &s);
	check_u64(s.last.count, ELF_PROBE_OPERANDS);
	check_u64(s.last.operands[11].value, 11);
}

/* ---- weights ---- */

static double weight_of(double size, uint64_t rate)
{
	return size / -expm1(-size / (double)rate);
}

TEST(a_rate_gives_the_weight_back)
{
	static const uint64_t rates[] = {1, 100, 4096, 65536, 524288, 1ull << 30};
	static const uint64_t sizes[] = {1, 8, 1000, 65536, 300000, 10000000};

	for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++)
		for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {
			uint64_t weight = (uint64_t)(weight_of((double)sizes[k], rates[i]) + 0.5);
			uint64_t rate = heap_told_rate(sizes[k], weight, 0);

			check(fabs(weight_of((double)sizes[k], rate) - (double)weight) <= 1.5);
			check_u64(heap_told_rate(sizes[k], weight, rates[i]), rates[i]);
		}
}

TEST(weights_that_cannot_be)
{
	check_u64(heap_told_rate(1000, 0, 0), 1);
	check_u64(heap_told_rate(1000, 999, 65536), 1);
	check_u64(heap_told_rate(0, 0, 65536), 65536);
	check_u64(heap_told_rate(0, 0, 0), 1);
	check_u64(heap_told_rate(1, UINT64_MAX, 0), HEAP_PROBE_RATE_MOST);
	check_u64(heap_told_rate(UINT64_MAX, UINT64_MAX, 0), 1);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv,
		T(a_note_is_read), T(operands_of_other_forms_are_known_as_such), T(operands_of_arm), T(notes_that_make_no_sense_end_it),
			T(more_arguments_than_there_is_room_for), T(a_rate_gives_the_weight_back), T(weights_that_cannot_be));
}
