#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# A function fits on a screen: none over 80 lines, nine of ten within 40. A file stays below 900
# lines, one of tests below 1,500.
cd "$(dirname "$0")/../.." || exit 1
status=0

if ! command -v ctags >/dev/null || ! ctags --version | grep -q Universal; then
	echo "skip functions-fit: universal-ctags is not installed"
else
	ctags -R -o - --languages=C --langmap=C:.c.h --kinds-C=f --fields=+ne src | awk -F'\t' '
		{ s = e = 0
		  for (i = 4; i <= NF; i++) {
			if ($i ~ /^line:/) s = substr($i, 6)
			if ($i ~ /^end:/) e = substr($i, 5)
		  }
		  if (!e) next
		  n = e - s + 1; all++
		  if (n <= 40) short++
		  if (n > 80) { print $2 ":" s ": " $1 "() has " n " lines"; bad++ }
		}
		END {
			printf "%d functions, %.1f %% of them within 40 lines\n", all, 100 * short / all
			bad = bad || short < 0.9 * all
			print bad ? "FAIL functions-fit" : "ok functions-fit"
			exit bad
		}' || status=1
fi

long=$(find src tests bench -name '*.[ch]' -exec wc -l {} + |
	awk '$2 != "total" && $1 >= ($2 ~ /^tests/ ? 1500 : 900)')
if [ -n "$long" ]; then
	echo "$long"
	echo "FAIL files-fit"
	exit 1
fi
echo "ok files-fit"
exit $status
