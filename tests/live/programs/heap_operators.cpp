/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Calls every form of operator new and delete, in known numbers: heap_operators [attached]. Prints "truth FUNCTION total_count
 * total_bytes live_count live_bytes". "attached": waits for a line before it begins, and for another one at its end.
 */
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <new>
#include <string>
#include <unistd.h>
#include <vector>

#define NOINLINE __attribute__((noinline))
#define NOT_A_TAIL_CALL __asm__ volatile("" ::: "memory")

static const std::align_val_t wide{256};

NOINLINE static void *plain(size_t size)
{
	void *p = ::operator new(size);

	NOT_A_TAIL_CALL;
	return p;
}

NOINLINE static void *array(size_t size)
{
	void *p = ::operator new[](size);

	NOT_A_TAIL_CALL;
	return p;
}

NOINLINE static void *nothrow_plain(size_t size)
{
	void *p = ::operator new(size, std::nothrow);

	NOT_A_TAIL_CALL;
	return p;
}

NOINLINE static void *nothrow_array(size_t size)
{
	void *p = ::operator new[](size, std::nothrow);

	NOT_A_TAIL_CALL;
	return p;
}

NOINLINE static void *aligned(size_t size)
{
	void *p = ::operator new(size, wide);

	NOT_A_TAIL_CALL;
	return p;
}

NOINLINE static void *aligned_array(size_t size)
{
	void *p = ::operator new[](size, wide);

	NOT_A_TAIL_CALL;
	return p;
}

NOINLINE static void *aligned_nothrow(size_t size)
{
	void *p = ::operator new(size, wide, std::nothrow);

	NOT_A_TAIL_CALL;
	return p;
}

NOINLINE static void *aligned_nothrow_array(size_t size)
{
	void *p = ::operator new[](size, wide, std::nothrow);

	NOT_A_TAIL_CALL;
	return p;
}

struct form {
	const char *name;
	void *(*make)(size_t size);
	bool is_aligned, is_array;
};

static const form forms[] = {{"plain", plain, false, false}, {"array", array, false, true},
	{"nothrow_plain", nothrow_plain, false, false}, {"nothrow_array", nothrow_array, false, true},
	{"aligned", aligned, true, false}, {"aligned_array", aligned_array, true, true},
	{"aligned_nothrow", aligned_nothrow, true, false}, {"aligned_nothrow_array", aligned_nothrow_array, true, true}};

/* In each of the ways that fit. */
static void drop(const form &f, void *p, size_t size, int way)
{
	if (f.is_aligned && f.is_array) {
		way % 3 == 0 ? ::operator delete[](p, wide) : way % 3 == 1 ? ::operator delete[](p, size, wide)
									   : ::operator delete[](p, wide, std::nothrow);
	} else if (f.is_aligned) {
		way % 3 == 0 ? ::operator delete(p, wide) : way % 3 == 1 ? ::operator delete(p, size, wide)
									 : ::operator delete(p, wide, std::nothrow);
	} else if (f.is_array) {
		way % 3 == 0 ? ::operator delete[](p) : way % 3 == 1 ? ::operator delete[](p, size)
								     : ::operator delete[](p, std::nothrow);
	} else {
		way % 3 == 0 ? ::operator delete(p) : way % 3 == 1 ? ::operator delete(p, size)
								   : ::operator delete(p, std::nothrow);
	}
}

/* What is thrown when there is no memory comes through. */
NOINLINE static bool too_much()
{
	bool thrown = false;
	volatile size_t much = (size_t)1 << 62;
	void *volatile block = nullptr;

	try {
		block = ::operator new(much);
	} catch (const std::bad_alloc &) {
		thrown = true;
	}
	try {
		block = ::operator new[](much, wide);
		thrown = false;
	} catch (const std::bad_alloc &) {
	}
	return thrown && !block && !::operator new(much, std::nothrow);
}

NOINLINE static std::vector<std::string> *library()
{
	auto *v = new std::vector<std::string>;

	v->reserve(500);
	for (int i = 0; i < 500; i++)
		v->push_back(std::string(100, 'x'));
	NOT_A_TAIL_CALL;
	return v;
}

static void wait_for_line()
{
	char c;

	while (read(0, &c, 1) == 1 && c != '\n')
		;
}

#define COUNT 600

int main(int argc, char **argv)
{
	bool attached = argc > 1 && !strcmp(argv[1], "attached");

	if (attached) {
		dprintf(1, "ready\n");
		wait_for_line();
	}
	for (const form &f : forms) {
		size_t total = 0, live = 0;

		for (int i = 0; i < COUNT; i++) {
			size_t size = 100 + (size_t)i;
			void *p = f.make(size);

			if (!p)
				return 1;
			memset(p, 1, size);
			total += size;
			if (i % 4)
				drop(f, p, size, i);
			else
				live += size;
		}
		dprintf(1, "truth %s %d %zu %d %zu\n", f.name, COUNT, total, COUNT / 4, live);
	}
	/* The vector, its strings, and the bytes of those. */
	std::vector<std::string> *kept = library();
	size_t bytes = sizeof(*kept) + 500 * sizeof(std::string) + 500 * 101;

	dprintf(1, "truth library %d %zu %d %zu\n", 502, bytes, 502, bytes);
	if (!too_much())
		return 2;
	dprintf(1, "done\n");
	if (attached)
		wait_for_line();
	return kept->size() == 500 ? 0 : 3;
}
