/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The unit test harness: functions, checks, one line a failure.
 *
 *	TEST(name) { check(1 + 1 == 2); check_u64(f(), 3); }
 *	int main(int argc, char **argv) { return test_main(argc, argv, TESTS(name, ...)); }
 *
 * A failed check prints where and what, and the test goes on. `test_x NAME` runs one test. A test
 * calls skip("reason") and returns when this machine cannot run it. Prints one line a test:
 * "ok NAME", "FAIL NAME" or "skip NAME: reason"; exit status 1 when one failed.
 */
#ifndef SONDE_TESTS_UNIT_TEST_H
#define SONDE_TESTS_UNIT_TEST_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Whether this program brings the allocator and the interceptors of AddressSanitizer along. */
#if defined(__SANITIZE_ADDRESS__)
#define HAS_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAS_ASAN 1
#endif
#endif
#ifndef HAS_ASAN
#define HAS_ASAN 0
#endif

struct test {
	const char *name;
	void (*run)(void);
};

static int test_failures_;
static const char *test_skip_;

#define TEST(name) static void test_##name(void)
#define T(name) {#name, test_##name}

static inline void test_fail_(const char *file, int line)
{
	test_failures_++;
	printf("%s:%d: ", file, line);
}

#define check(cond)                                                                                \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			test_fail_(__FILE__, __LINE__);                                            \
			printf("not true: %s\n", #cond);                                           \
		}                                                                                  \
	} while (0)

#define check_u64(got, want)                                                                       \
	do {                                                                                       \
		uint64_t got_ = (uint64_t)(got), want_ = (uint64_t)(want);                         \
		if (got_ != want_) {                                                               \
			test_fail_(__FILE__, __LINE__);                                            \
			printf("%s is %" PRIu64 " (0x%" PRIx64 "), not %" PRIu64 " (0x%" PRIx64    \
			       ")\n",                                                              \
				#got, got_, got_, want_, want_);                                   \
		}                                                                                  \
	} while (0)

#define check_str(got, want)                                                                       \
	do {                                                                                       \
		const char *got_ = (got), *want_ = (want);                                         \
		if (!got_ || strcmp(got_, want_)) {                                                \
			test_fail_(__FILE__, __LINE__);                                            \
			printf("%s is \"%s\", not \"%s\"\n", #got, got_ ? got_ : "(null)", want_); \
		}                                                                                  \
	} while (0)

#define skip(reason) (test_skip_ = (reason))

static inline int test_run(const char *only, const struct test *tests, size_t count)
{
	int failed = 0;

	for (size_t i = 0; i < count; i++) {
		if (only && strcmp(only, tests[i].name))
			continue;
		test_failures_ = 0;
		test_skip_ = NULL;
		tests[i].run();
		if (test_failures_) {
			failed++;
			printf("FAIL %s\n", tests[i].name);
		} else if (test_skip_) {
			printf("skip %s: %s\n", tests[i].name, test_skip_);
		} else {
			printf("ok %s\n", tests[i].name);
		}
		fflush(stdout);
	}
	return failed != 0;
}

#define test_main(argc, argv, ...)                                                                 \
	({                                                                                         \
		const struct test tests_[] = {__VA_ARGS__};                                        \
		test_run((argc) > 1 ? (argv)[1] : NULL, tests_,                                    \
			sizeof(tests_) / sizeof(tests_[0]));                                       \
	})

#endif
