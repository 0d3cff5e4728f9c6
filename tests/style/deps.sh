#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Every quoted include under src/ names a module that src/deps.txt allows. Its lines are
# "module: allowed allowed"; a file belongs to the longest module name its path begins with.
cd "$(dirname "$0")/../../src" || exit 1
grep -rHn '^#include "' --include='*.[ch]' . | sed 's|^\./||' | awk -F'"' '
	function module(path,   m, best) {
		for (m in known)
			if (index(path, m "/") == 1 && length(m) > length(best))
				best = m
		return best
	}
	BEGIN {
		while ((getline line < "deps.txt") > 0) {
			n = split(line, w, /[: ]+/)
			known[w[1]] = ok[w[1], w[1]] = 1
			for (i = 2; i <= n; i++)
				ok[w[1], w[i]] = 1
		}
	}
	$2 == "config.h" { next }
	{
		from = module($1); to = module($2)
		if (from == "" || to == "" || !((from, to) in ok)) {
			print $0 ": \047" from "\047 may not include \047" to "\047"
			bad = 1
		}
	}
	END { print bad ? "FAIL includes-point-downwards" : "ok includes-point-downwards"; exit bad }'
