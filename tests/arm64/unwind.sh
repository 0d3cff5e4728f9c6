#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Builds base, unwind, python and what of heap walks for aarch64, and runs on an emulated processor every unit test that needs
# nothing else.
cd "$(dirname "$0")/../.." || exit 1
cc=aarch64-linux-gnu-gcc
emulator=qemu-aarch64-static
out=${SONDE_BUILD:-build}/arm64
flags='-std=gnu17 -O2 -g -static -D_GNU_SOURCE -DSONDE_VERSION="arm64" -Isrc -I. -Itests
	-include base/banned.h -Wall -Wextra -Werror -Wshadow -Wformat=2 -fno-strict-aliasing
	-Wno-unused-parameter -Wno-missing-field-initializers'
flags="$flags -DSOURCE_ROOT=\"$PWD\"" # of images that tests read

for tool in $cc $emulator; do
	if ! command -v $tool >/dev/null; then
		echo "skip unwind: $tool is not installed"
		exit 0
	fi
done

# Only base/, unwind/, python/ and walks of heap/ among the quoted includes of the test.
portable() {
	! grep '^#include "' "$1" | grep -vqE '"(base/|unwind/|python/|heap/table|heap/preload/walk\.h|cfi_bytes\.h|alloc_fail\.h|python_image\.h|test\.h|walk_world\.h|unit/test\.h)'
}

rm -rf "$out/objects" "$out/all.a"
mkdir -p "$out/objects"
for source in src/base/*.c src/unwind/*.c src/python/*.c src/heap/table*.c \
	$(sed -n "s#^heap_walk_sources = files(\(.*\))#\1#p" src/heap/preload/meson.build | tr -d "'," | sed "s#[^ ][^ ]*#src/heap/preload/&#g"); do
	if ! $cc $flags -c -o "$out/objects/$(echo "$source" | tr / -).o" "$source"; then
		echo "FAIL $source: it does not compile"
		exit 1
	fi
done
aarch64-linux-gnu-ar rcs "$out/all.a" "$out"/objects/*.o
status=0
for test in tests/unit/test_*.c; do
	portable "$test" || continue
	name=$(basename "$test" .c)
	wrap=
	grep -q alloc_fail.h "$test" && wrap=-Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc
	if ! $cc $flags $wrap -o "$out/$name" "$test" "$out/all.a" -lm -pthread; then
		echo "FAIL ${name#test_}: it does not compile"
		status=1
		continue
	fi
	$emulator "$out/$name" >"$out/$name.log" 2>&1
	code=$?
	sed -E "s#^(ok|FAIL|skip) #\1 ${name#test_}/#" "$out/$name.log"
	if [ $code != 0 ]; then
		grep -q ^FAIL "$out/$name.log" || echo "FAIL ${name#test_}: exit status $code"
		status=1
	fi
done
exit $status
