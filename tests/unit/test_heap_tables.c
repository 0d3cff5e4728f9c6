/* SPDX-License-Identifier: BSD-2-Clause */
/* Tables for watched programs: what is made of call frame information written by hand, and how it is published. */
#include <sys/mman.h>

#include "test.h"

#include "alloc_fail.h"
#include "base/vec.h"
#include "heap/table_blob.h"
#include "heap/tables.h"
#include "heap/tables_layout.h"
#include "cfi_bytes.h"
#include "unwind/rule_set.h"

#define EH 0x100000
#define AT 0x1000
#define TEXT_BYTES 0x1000

/* ---- modules ---- */

struct code {
	uint8_t text[TEXT_BYTES];
	struct unwind_section section;
	struct cfi_bytes eh;
	struct unwind_module *module;
	struct unwind_module_input input;
};

static const struct cie_spec x86 = {.letters = "zR", .encoding = DW_EH_PE_pcrel | DW_EH_PE_sdata4};
static const uint8_t arm_ops[] = {DW_CFA_def_cfa, 31, 0};
static const struct cie_spec arm = {.letters = "zR",
	.encoding = DW_EH_PE_pcrel | DW_EH_PE_sdata4,
	.ra_reg = 30,
	.ops = arm_ops,
	.ops_len = sizeof(arm_ops)};

/* nop, so that nothing is a call that is not meant to be. */
static void code_begin(struct code *c, const struct cie_spec *cie)
{
	*c = (struct code){.eh = {.vaddr = EH}};
	memset(c->text, 0x90, sizeof(c->text));
	c->section = (struct unwind_section){c->text, TEXT_BYTES, AT};
	c->input = (struct unwind_module_input){
		.arch = cie == &arm ? UNWIND_AARCH64 : UNWIND_X86_64, .text = &c->section, .text_count = 1};
	cfi_bytes_cie(&c->eh, cie);
}

static void code_end(struct code *c)
{
	c->input.eh_frame = cfi_bytes_section(&c->eh);
	check(!unwind_module_new(&c->input, &c->module, NULL));
}

static void code_release(struct code *c)
{
	unwind_module_free(c->module);
	buf_release(&c->eh.b);
}

/* The rule for a module address, by a blob that was made in one piece or in many. */
static uint64_t rule_in(const void *blob, uint64_t vaddr)
{
	const uint8_t *at = (const uint8_t *)blob;
	struct tables_blob head;
	uint64_t rule = TABLES_NONE;
	uint32_t start, last = 0;
	uint16_t number;

	memcpy(&head, at, sizeof(head));
	for (uint32_t i = 0; i < head.rows; i++) {
		memcpy(&start, at + sizeof(head) + 4 * i, 4);
		memcpy(&number, at + TABLES_RULE_OF_AT(head.rows) + 2 * i, 2);
		check(!i || start > last);
		check(number < head.rules);
		last = start;
		if (vaddr >= head.first && start <= vaddr - head.first)
			memcpy(&rule, at + TABLES_RULES_AT(head.rows) + 8 * number, 8);
	}
	return rule;
}

static void *blob_of(const struct code *c, uint64_t slice_ns, size_t *ret_bytes)
{
	struct blob_builder *b = NULL;
	void *blob = NULL;
	int rc;

	check(!blob_builder_new(c->module, &b, NULL));
	while (!(rc = blob_builder_work(b, slice_ns)))
		;
	check(rc == 1);
	check(!blob_builder_take(b, &blob, ret_bytes));
	blob_builder_free(b);
	return blob;
}

static uint64_t rule_for(const struct code *c, uint64_t vaddr)
{
	size_t bytes;
	void *blob = blob_of(c, UINT64_MAX, &bytes);
	uint64_t rule = rule_in(blob, vaddr);

	check(bytes % 8 == 0);
	free(blob);
	return rule;
}

static void put_call(struct code *c, uint64_t vaddr)
{
	c->text[vaddr - AT] = 0xe8;
}

/* ---- rows ---- */

TEST(prologues_and_epilogues_have_no_rule)
{
	struct code c;

	code_begin(&c, &x86);
	/* push %rbp; mov; the body, with a call; pop; ret */
	cfi_bytes_fde(&c.eh, AT, 0x20,
		OPS(DW_CFA_advance_loc | 1, DW_CFA_def_cfa_offset, 16, DW_CFA_offset | 6, 2, DW_CFA_advance_loc | 3,
			DW_CFA_def_cfa_register, 6, DW_CFA_advance_loc | 0x19, DW_CFA_def_cfa, 7, 8));
	put_call(&c, AT + 8);
	code_end(&c);
	for (unsigned i = 0; i < 4; i++)
		check_u64(rule_for(&c, AT + i), TABLES_NONE);
	for (unsigned i = 4; i < 0x1d; i++)
		check_u64(rule_for(&c, AT + i), TABLES_RULE(TABLES_FP, 16, -1, -2));
	for (unsigned i = 0x1d; i < 0x30; i++)
		check_u64(rule_for(&c, AT + i), TABLES_NONE);
	check_u64(rule_for(&c, AT - 1), TABLES_NONE);
	code_release(&c);
}

TEST(short_rows_with_a_call_have_one)
{
	struct code c;

	code_begin(&c, &x86);
	/* 5 bytes that hold a direct call, 2 that hold an indirect one, 4 that begin like one. */
	cfi_bytes_fde(&c.eh, AT, 0x20,
		OPS(DW_CFA_advance_loc | 1, DW_CFA_def_cfa_offset, 16, DW_CFA_advance_loc | 5, DW_CFA_def_cfa_offset, 24,
			DW_CFA_advance_loc | 2, DW_CFA_def_cfa_offset, 32, DW_CFA_advance_loc | 4,
			DW_CFA_def_cfa_offset, 40));
	put_call(&c, AT + 1);
	c.text[6] = 0xff;
	c.text[7] = 0xd0;
	put_call(&c, AT + 8);
	code_end(&c);
	check_u64(rule_for(&c, AT + 5), TABLES_RULE(TABLES_SP, 16, -1, 0));
	check_u64(rule_for(&c, AT + 7), TABLES_RULE(TABLES_SP, 24, -1, 0));
	check_u64(rule_for(&c, AT + 11), TABLES_NONE);
	check_u64(rule_for(&c, AT + 0x1f), TABLES_RULE(TABLES_SP, 40, -1, 0));
	code_release(&c);
}

TEST(what_a_rule_cannot_say_has_none)
{
	struct code c;

	code_begin(&c, &x86);
	cfi_bytes_fde(&c.eh, AT, 0x20, OPS(DW_CFA_def_cfa, 3, 16));            /* from rbx */
	cfi_bytes_fde(&c.eh, AT + 0x20, 0x20, OPS(DW_CFA_register, 16, 5));    /* return address in rdi */
	cfi_bytes_fde(&c.eh, AT + 0x40, 0x20, OPS(DW_CFA_def_cfa_expression, 2, 0x77, 8)); /* rsp + 8, but said so */
	cfi_bytes_fde(&c.eh, AT + 0x60, 0x20, OPS(DW_CFA_undefined, 16));
	cfi_bytes_fde(&c.eh, AT + 0x80, 0x20, OPS(DW_CFA_undefined, 6));
	cfi_bytes_fde(&c.eh, AT + 0xa0, 0x20, OPS(DW_CFA_def_cfa, 6, 16));     /* from rbp, which is not said to be saved */
	code_end(&c);
	check_u64(rule_for(&c, AT), TABLES_NONE);
	check_u64(rule_for(&c, AT + 0x20), TABLES_NONE);
	check_u64(rule_for(&c, AT + 0x40), TABLES_NONE);
	check_u64(rule_for(&c, AT + 0x60), TABLES_RULE(TABLES_BOTTOM, 0, 0, 0));
	check_u64(rule_for(&c, AT + 0x80), TABLES_RULE(TABLES_SP, 8, -1, TABLES_FP_LOST));
	check_u64(rule_for(&c, AT + 0xa0), TABLES_RULE(TABLES_FP, 16, -1, TABLES_FP_LOST));
	code_release(&c);
}

TEST(realigned_frames)
{
	struct code c;

	code_begin(&c, &x86);
	/* CFA = *(rbp - 8), rbp saved at *(rbp + 0) */
	cfi_bytes_fde(&c.eh, AT, 0x20,
		OPS(DW_CFA_def_cfa_expression, 3, 0x76, 0x78, 0x06, DW_CFA_expression, 6, 2, 0x76, 0));
	/* The same without a word on rbp; from another register; with more behind. */
	cfi_bytes_fde(&c.eh, AT + 0x20, 0x20, OPS(DW_CFA_def_cfa_expression, 3, 0x76, 0x78, 0x06));
	cfi_bytes_fde(&c.eh, AT + 0x40, 0x20,
		OPS(DW_CFA_def_cfa_expression, 3, 0x73, 0x78, 0x06, DW_CFA_expression, 6, 2, 0x76, 0));
	cfi_bytes_fde(&c.eh, AT + 0x60, 0x20,
		OPS(DW_CFA_def_cfa_expression, 5, 0x76, 0x78, 0x06, 0x23, 8, DW_CFA_expression, 6, 2, 0x76, 0));
	code_end(&c);
	check_u64(rule_for(&c, AT), TABLES_RULE(TABLES_FP_AT, -8, -1, 0));
	for (unsigned at = 0x20; at <= 0x60; at += 0x20)
		check_u64(rule_for(&c, AT + at), TABLES_NONE);
	code_release(&c);
}

TEST(signal_frames_and_roots)
{
	static const uint8_t restore[] = {0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05};
	const struct cie_spec signal = {.letters = "zRS", .encoding = DW_EH_PE_pcrel | DW_EH_PE_sdata4};
	struct unwind_range root = {AT + 0x200, AT + 0x220};
	struct code c;

	code_begin(&c, &x86);
	cfi_bytes_fde(&c.eh, AT + 0x1f0, 0x40, NO_OPS);
	cfi_bytes_cie(&c.eh, &signal);
	/* As glibc has it: from the byte before, for return addresses point behind calls. */
	cfi_bytes_fde(&c.eh, AT + 0x3f, 0x0a, NO_OPS);
	cfi_bytes_fde(&c.eh, AT + 0x60, 0x10, NO_OPS); /* says so but does something else */
	memcpy(c.text + 0x40, restore, sizeof(restore));
	memcpy(c.text + 0x100, restore, sizeof(restore)); /* not described, as musl's */
	c.input.roots = &root;
	c.input.root_count = 1;
	c.input.entry = AT + 0x300;
	code_end(&c);
	check_u64(rule_for(&c, AT + 0x3f), TABLES_SIGNAL);
	check_u64(rule_for(&c, AT + 0x60), TABLES_NONE);
	check_u64(rule_for(&c, AT + 0xfe), TABLES_NONE);
	check_u64(rule_for(&c, AT + 0xff), TABLES_SIGNAL);
	check_u64(rule_for(&c, AT + 0x101), TABLES_NONE);
	check_u64(rule_for(&c, AT + 0x200), TABLES_BOTTOM);
	check_u64(rule_for(&c, AT + 0x21f), TABLES_BOTTOM);
	check_u64(rule_for(&c, AT + 0x220), TABLES_NONE);
	check_u64(rule_for(&c, AT + 0x300), TABLES_BOTTOM);
	check_u64(rule_for(&c, AT + 0x33f), TABLES_BOTTOM);
	check_u64(rule_for(&c, AT + 0x340), TABLES_NONE);
	code_release(&c);
}

TEST(what_coroutines_return_to)
{
	struct code c;

	code_begin(&c, &x86);
	cfi_bytes_fde(&c.eh, AT, 0x20, NO_OPS);
	cfi_bytes_fde(&c.eh, AT + 0x28, 0x20, NO_OPS);
	cfi_bytes_fde(&c.eh, AT + 0x48, 0x20, NO_OPS);
	memcpy(c.text + 0x28, "\x48\x89\xdc", 3); /* mov %rbx,%rsp */
	memcpy(c.text + 0x48, "\x48\x89\xe5", 3); /* mov %rsp,%rbp */
	code_end(&c);
	check_u64(rule_for(&c, AT + 0x26), TABLES_NONE);
	check_u64(rule_for(&c, AT + 0x27), TABLES_BOTTOM);
	check_u64(rule_for(&c, AT + 0x28), TABLES_RULE(TABLES_SP, 8, -1, 0));
	check_u64(rule_for(&c, AT + 0x47), TABLES_RULE(TABLES_SP, 8, -1, 0));
	code_release(&c);
}

TEST(link_register)
{
	static const uint8_t bl[] = {0, 0, 0, 0x94}, blr[] = {0, 0, 0x3f, 0xd6}, blraa[] = {0, 0x08, 0x3f, 0xd7};
	struct code c;

	code_begin(&c, &arm);
	/* stp x29, x30, [sp, #-32]!; mov x29, sp; ... */
	cfi_bytes_fde(&c.eh, AT, 0x40,
		OPS(DW_CFA_advance_loc | 4, DW_CFA_def_cfa_offset, 32, DW_CFA_offset | 29, 4, DW_CFA_offset | 30, 3,
			DW_CFA_advance_loc | 4, DW_CFA_def_cfa_register, 29, DW_CFA_advance_loc | 8,
			DW_CFA_def_cfa, 31, 32, DW_CFA_advance_loc | 4, DW_CFA_def_cfa_offset, 48,
			DW_CFA_advance_loc | 4, DW_CFA_def_cfa_offset, 64));
	memcpy(c.text + 8, bl, 4);
	memcpy(c.text + 0x10, blr, 4);
	memcpy(c.text + 0x14, blraa, 4);
	cfi_bytes_fde(&c.eh, AT + 0x40, 0x40, NO_OPS);
	code_end(&c);
	check_u64(rule_for(&c, AT), TABLES_NONE);
	check_u64(rule_for(&c, AT + 8), TABLES_RULE(TABLES_FP, 32, -3, -4));
	check_u64(rule_for(&c, AT + 0x10), TABLES_RULE(TABLES_SP, 32, -3, -4));
	check_u64(rule_for(&c, AT + 0x14), TABLES_RULE(TABLES_SP, 48, -3, -4));
	check_u64(rule_for(&c, AT + 0x18), TABLES_RULE(TABLES_SP, 64, -3, -4));
	check_u64(rule_for(&c, AT + 0x40), TABLES_RULE(TABLES_SP, 0, 0, 0));
	code_release(&c);
}

TEST(debug_frame_says_what_eh_frame_does_not)
{
	struct cfi_bytes debug = {.debug = true};
	const struct cie_spec plain = {.version = 1};
	struct code c;

	code_begin(&c, &x86);
	cfi_bytes_fde(&c.eh, AT, 0x40, OPS(DW_CFA_def_cfa_offset, 16));
	cfi_bytes_cie(&debug, &plain);
	cfi_bytes_fde(&debug, AT + 0x20, 0x40, OPS(DW_CFA_def_cfa_offset, 24));
	cfi_bytes_fde(&debug, AT + 0x60, 0x40, OPS(DW_CFA_def_cfa_offset, 32));
	c.input.debug_frame = cfi_bytes_section(&debug);
	code_end(&c);
	check_u64(rule_for(&c, AT + 0x30), TABLES_RULE(TABLES_SP, 16, -1, 0));
	check_u64(rule_for(&c, AT + 0x50), TABLES_NONE);
	check_u64(rule_for(&c, AT + 0x60), TABLES_RULE(TABLES_SP, 32, -1, 0));
	code_release(&c);
	buf_release(&debug.b);
}

TEST(slices_make_the_same)
{
	struct code c;
	size_t bytes, bytes2;
	void *one, *two;

	code_begin(&c, &x86);
	for (unsigned i = 0; i < 2000; i++)
		cfi_bytes_fde(&c.eh, AT + 0x1000 + i * 0x40, 0x40,
			OPS(DW_CFA_advance_loc | 1, DW_CFA_def_cfa_offset, (uint8_t)(16 + i % 13 * 8)));
	code_end(&c);
	one = blob_of(&c, UINT64_MAX, &bytes);
	two = blob_of(&c, 0, &bytes2);
	check_u64(bytes, bytes2);
	check(!memcmp(one, two, bytes));
	free(one);
	free(two);
	code_release(&c);
}

TEST(broken_and_empty_modules)
{
	struct code c;
	size_t bytes;
	void *blob;

	code_begin(&c, &x86);
	code_end(&c);
	blob = blob_of(&c, 0, &bytes);
	check_u64(bytes, sizeof(struct tables_blob));
	free(blob);
	code_release(&c);

	code_begin(&c, &x86);
	cfi_bytes_fde(&c.eh, AT, 0x40, OPS(DW_CFA_advance_loc | 1, 0x3f, 0x3f)); /* no such operation */
	cfi_bytes_fde(&c.eh, UINT64_MAX - 0x10, 0x40, NO_OPS);
	cfi_bytes_fde(&c.eh, AT + 0x40, 0, NO_OPS);
	code_end(&c);
	check_u64(rule_for(&c, AT + 0x20), TABLES_NONE);
	code_release(&c);
}

/* ---- directories ---- */

struct process {
	struct share_header header;
	uint8_t *area;
	struct heap_tables *tables;
};

static void process_init(struct process *p, struct heap_rules *r, uint64_t limit)
{
	*p = (struct process){0};
	p->area = (uint8_t *)mmap(NULL, SHARE_TABLES_BYTES, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p->area == MAP_FAILED)
		abort();
	check(!heap_tables_new(r, p->area, &p->header, limit, &p->tables, NULL));
}

static void process_release(struct process *p)
{
	heap_tables_free(p->tables);
	munmap(p->area, SHARE_TABLES_BYTES);
}

/* Entry i of the directory that is published; all zero when there is none. */
static struct tables_module entry(const struct process *p, uint32_t i)
{
	uint64_t at = TABLES_WHERE(p->header.directory);
	struct tables_module m = {0};
	struct tables_directory d;

	memcpy(&d, p->area + at, sizeof(d));
	if (at && d.magic == TABLES_MAGIC && i < d.count)
		memcpy(&m, p->area + at + sizeof(d) + i * sizeof(m), sizeof(m));
	return m;
}

static struct code many[3];

static void make_many(void)
{
	for (unsigned i = 0; i < 3; i++) {
		code_begin(&many[i], &x86);
		cfi_bytes_fde(&many[i].eh, AT, 0x20, OPS(DW_CFA_def_cfa_offset, (uint8_t)(16 + 8 * i)));
		code_end(&many[i]);
	}
}

static void release_many(void)
{
	for (unsigned i = 0; i < 3; i++)
		code_release(&many[i]);
}

static struct heap_tables_module mapped(uint64_t start, uint64_t end, const struct code *c)
{
	return (struct heap_tables_module){start, end, start - AT, c ? c->module : NULL};
}

TEST(directories_name_what_is_mapped)
{
	struct heap_rules *r;
	struct process p;

	make_many();
	check(!heap_rules_new(&r, NULL));
	process_init(&p, r, 0);
	check_u64(p.header.directory, 0);

	/* Unsorted, overlapping, empty, and one without a module. */
	const struct heap_tables_module list[] = {mapped(0x30000, 0x38000, &many[1]), mapped(0x10000, 0x31000, &many[0]),
		mapped(0x50000, 0x50000, &many[2]), mapped(0x60000, 0x70000, NULL)};

	check(!heap_tables_set(p.tables, list, 4, 7, 5, UINT64_MAX, NULL));
	check_u64(p.header.modules_done, 7);
	check_u64(entry(&p, 0).start, 0x10000);
	check_u64(entry(&p, 0).end, 0x30000);
	check_u64(entry(&p, 0).bias, 0x10000 - AT);
	check_u64(entry(&p, 1).start, 0x30000);
	check_u64(entry(&p, 2).start, 0);
	check_u64(rule_in(p.area + entry(&p, 0).blob, AT), TABLES_RULE(TABLES_SP, 16, -1, 0));
	check_u64(rule_in(p.area + entry(&p, 1).blob, AT), TABLES_RULE(TABLES_SP, 24, -1, 0));

	struct tables_directory d;

	memcpy(&d, p.area + TABLES_WHERE(p.header.directory), sizeof(d));
	check_u64(d.modules_gone, 5);
	check_u64(d.address_mask, UINT64_MAX);

	/* Mapped elsewhere: another directory, the same blob. */
	uint64_t word = p.header.directory, blob = entry(&p, 1).blob;
	const struct heap_tables_module moved = mapped(0x90000, 0x98000, &many[1]);

	check(!heap_tables_set(p.tables, &moved, 1, 8, 5, UINT64_MAX, NULL));
	check(p.header.directory != word);
	check_u64(entry(&p, 0).start, 0x90000);
	check_u64(entry(&p, 0).blob, blob);
	process_release(&p);
	heap_rules_free(r);
	release_many();
}

TEST(room_is_used_again_and_never_too_much)
{
	struct heap_rules *r;
	struct process p;
	uint64_t word = 0;

	make_many();
	check(!heap_rules_new(&r, NULL));
	/* Room for two directories and some blobs of 40 bytes. */
	process_init(&p, r, 4096 + 240);
	for (unsigned i = 0; i < 1000; i++) {
		struct heap_tables_module one = mapped(0x10000, 0x20000, &many[i % 3]);

		check(!heap_tables_set(p.tables, &one, 1, i, 0, UINT64_MAX, NULL));
		check(p.header.directory != word);
		check(entry(&p, 0).blob != 0);
		check_u64(rule_in(p.area + entry(&p, 0).blob, AT), TABLES_RULE(TABLES_SP, 16 + 8 * (i % 3), -1, 0));
		check(heap_tables_bytes(p.tables) <= 240);
		word = p.header.directory;
	}

	/* Three directory entries and blobs do not fit: those that have no room have no rules, and that is said. */
	struct heap_tables_module all[] = {mapped(0x10000, 0x20000, &many[0]), mapped(0x20000, 0x30000, &many[1]),
		mapped(0x30000, 0x40000, &many[2])};
	struct err err = {0};

	check_u64((uint64_t)-heap_tables_set(p.tables, all, 3, 1001, 0, UINT64_MAX, &err), ENOSPC);
	check(strstr(err.text, "unwind tables") != NULL);
	process_release(&p);
	heap_rules_free(r);
	release_many();
}

TEST(large_files_come_later)
{
	struct heap_rules_stats stats;
	struct heap_rules *r;
	struct process p, q;

	make_many();
	check(!heap_rules_new(&r, NULL));
	process_init(&p, r, 0);
	process_init(&q, r, 0);

	struct heap_tables_module two[] = {mapped(0x10000, 0x20000, &many[0]), mapped(0x20000, 0x30000, &many[1])};

	check(!heap_tables_set(p.tables, two, 2, 1, 0, 0, NULL));
	check(!heap_tables_set(q.tables, two, 1, 1, 0, 0, NULL));
	check_u64(p.header.modules_done, 1);
	check_u64(entry(&p, 0).start, 0x10000);
	check_u64(entry(&p, 0).blob, 0);
	heap_rules_stats(r, &stats);
	check_u64(stats.unfinished, 2);

	uint64_t before = p.header.directory;

	check(!heap_rules_work(r, UINT64_MAX));
	check(p.header.directory != before);
	check(entry(&p, 0).blob && entry(&p, 1).blob && entry(&q, 0).blob);
	heap_rules_stats(r, &stats);
	check_u64(stats.unfinished, 0);
	check_u64(stats.modules, 2);
	check(!heap_rules_work(r, 0));

	/* Forgotten once nobody maps it: made anew when it comes back. */
	check(!heap_tables_set(p.tables, two, 1, 2, 0, 0, NULL));
	heap_rules_forget(r, many[1].module);
	heap_rules_stats(r, &stats);
	check_u64(stats.modules, 1);
	check(!heap_tables_set(p.tables, two, 2, 3, 0, UINT64_MAX, NULL));
	check_u64(rule_in(p.area + entry(&p, 1).blob, AT), TABLES_RULE(TABLES_SP, 24, -1, 0));
	process_release(&p);
	process_release(&q);
	heap_rules_free(r);
	release_many();
}

static int build_all(void)
{
	struct heap_rules *r;
	struct heap_tables *t;
	struct share_header header = {0};
	static uint8_t area[16384];
	struct heap_tables_module two[] = {mapped(0x10000, 0x20000, &many[0]), mapped(0x20000, 0x30000, &many[1])};
	int rc = heap_rules_new(&r, NULL);

	if (rc)
		return rc;
	rc = heap_tables_new(r, area, &header, sizeof(area), &t, NULL);
	if (!rc) {
		rc = heap_tables_set(t, two, 2, 1, 0, UINT64_MAX, NULL);
		/* What could not be made is left out, and said. */
		check(rc == 0 || rc == -ENOMEM);
		heap_tables_free(t);
	}
	heap_rules_free(r);
	return rc;
}

TEST(out_of_memory)
{
	make_many();
	for (uint64_t n = 0; n < 1000; n++) {
		alloc_fail_begin(n);
		int rc = build_all();

		if (!alloc_fail_end()) {
			check(!rc);
			break;
		}
		check(rc == -ENOMEM);
	}
	release_many();
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, T(prologues_and_epilogues_have_no_rule), T(short_rows_with_a_call_have_one),
		T(what_a_rule_cannot_say_has_none), T(realigned_frames), T(signal_frames_and_roots),
		T(what_coroutines_return_to), T(link_register), T(debug_frame_says_what_eh_frame_does_not),
		T(slices_make_the_same), T(broken_and_empty_modules), T(directories_name_what_is_mapped),
		T(room_is_used_again_and_never_too_much), T(large_files_come_later), T(out_of_memory));
}
