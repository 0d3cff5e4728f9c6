/* SPDX-License-Identifier: BSD-2-Clause */
#include "os/rights.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/rights_priv.h"
#include "test.h"

static bool says(const struct err *err, const char *word)
{
	if (strstr(err->text, word))
		return true;
	printf("\"%s\" lacks \"%s\"\n", err->text, word);
	return false;
}

TEST(words_are_filled_in)
{
	char text[64];

	rights_expand(text, sizeof(text), "pid {pid} has {value}, {unknown}.", 12, -3);
	check_str(text, "pid 12 has -3, .");
	rights_expand(text, sizeof(text), "no pid: {pid}", 0, 0);
	check_str(text, "no pid:");
	rights_expand(text, sizeof(text), "an open { brace", 1, 1);
	check_str(text, "an open { brace");
	rights_expand(text, 6, "cut off here", 1, 1);
	check_str(text, "cut o");
	rights_expand(text, sizeof(text), "{exe}", 1, 1);
	check(text[0] == '/');
}

TEST(every_wall_has_words)
{
	for (int id = WALL_PARANOID; id <= WALL_UNKNOWN; id++) {
		const struct rights_wall *wall = rights_wall_of((enum rights_wall_id)id);

		check(wall->why && *wall->why);
		check(wall->cost && *wall->cost);
		check(wall->fix != NULL);
	}
}

TEST(refusals_keep_their_code)
{
	static const int codes[] = {ESRCH, EACCES, EPERM, EMFILE, ENOSYS, EINVAL, ENODEV};
	static const pid_t pids[] = {-1, 0, 1, 0x7ffffff0};

	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
		for (size_t k = 0; k < sizeof(pids) / sizeof(pids[0]); k++) {
			struct err err = {0};

			check_u64(-rights_perf_refused(codes[i], pids[k], &err), codes[i]);
			check_u64(err.code, codes[i]);
			check(err.text[0] != '\0');
			check_u64(-rights_perf_refused(codes[i], pids[k], NULL), codes[i]);
		}
	}
}

TEST(refusals_name_the_way_out)
{
	struct err err = {0};

	rights_perf_refused(EMFILE, getpid(), &err);
	check(says(&err, "ulimit -n"));
	rights_ring_refused(EPERM, 1 << 20, &err);
	check(says(&err, "perf_event_mlock_kb") && says(&err, "1024 KiB"));
	rights_perf_refused(ESRCH, 0x7ffffff0, &err);
	check(says(&err, "gone"));
	check_u64(-rights_read_refused(EACCES, 0x7ffffff0, "maps", &err), ESRCH);
	check(says(&err, "maps"));
}

TEST(targets)
{
	struct err err = {0};
	pid_t child = fork();
	siginfo_t info;

	if (!child)
		_exit(0);
	check_u64(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
	check_u64(-rights_check_target(child, &err), ECHILD);
	check(says(&err, "zombie"));
	waitpid(child, NULL, 0);
	check_u64(-rights_check_target(child, &err), ESRCH);
	check_u64(rights_check_target(getpid(), &err), 0);
}

TEST(the_machine_is_looked_at_without_leaving_anything_open)
{
	struct right_vec rights = {0};
	int before = dup(0), after;

	close(before);
	check_u64(rights_probe_machine(&rights, NULL), 0);
	check_u64(rights_probe_process(getpid(), &rights, NULL), 0);
	check_u64(-rights_probe_process(0x7ffffff0, &rights, NULL), ESRCH);
	after = dup(0);
	close(after);
	check_u64(after, before);
	check(rights.len > 15);
	vec_each(&rights, r) {
		check(r->id && *r->found);
		check(r->state == RIGHT_YES || *r->cost);
	}
	vec_release(&rights);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, T(words_are_filled_in), T(every_wall_has_words),
		T(refusals_keep_their_code), T(refusals_name_the_way_out), T(targets),
		T(the_machine_is_looked_at_without_leaving_anything_open));
}
