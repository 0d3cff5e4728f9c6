#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# What a compiler does not check: licences, headers on their own, libraries that keep quiet.
cd "$(dirname "$0")/../.." || exit 1
failed=0

# report NAME: what stands on stdin are the violations.
report() {
	lines=$(cat)
	if [ -z "$lines" ]; then
		echo "ok $1"
	else
		printf '%s\n' "$lines"
		echo "FAIL $1"
		failed=1
	fi
}

missing_licence() {
	find src tests bench bpf -name '*.[ch]' | while read -r file; do
		head -n 1 "$file" | grep -q 'SPDX-License-Identifier: BSD-2-Clause' || echo "$file"
	done
}

broken_headers() {
	find src -name '*.h' | while read -r header; do
		printf '#include "%s"\n' "${header#src/}" |
			gcc -std=gnu17 -D_GNU_SOURCE -Isrc -I. -fsyntax-only -Wall -Werror -x c - 2>&1
	done
}

# Below cmd/ nothing prints to the terminal and nothing ends the process (a forked child may).
loud_libraries() {
	grep -rnE '\b(printf|puts|putchar|vprintf|perror|exit|abort)\(|[^/\"a-z](stdout|stderr)\b' \
		--include='*.c' src | grep -v '^src/cmd/' | grep -vE ':[0-9]+:\s*(/?\*|//)'
}

untidy_lines() {
	grep -rnE '[[:blank:]]+$' --include='*.[ch]' --include='meson.build' src tests bench bpf
	grep -rnE '^    +[a-z].*[;{]$' --include='*.[ch]' src tests bench
}

unfinished_work() {
	grep -rnE '\b(TODO|FIXME|XXX|HACK)\b' --include='*.[ch]' src tests bench
}

missing_licence | report licences
broken_headers | report headers-compile-alone
loud_libraries | report libraries-keep-quiet
untidy_lines | report tidy-lines
unfinished_work | report nothing-unfinished
exit $failed
