#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Unwinding: ns a frame against libdwfl, and what the tables of large files cost.
cd "$(dirname "$0")/.." || exit 1
build=${SONDE_BUILD:-build}
ninja -C "$build" bench/unwind_walk bench/unwind_table >/dev/null || exit 1
"$build/bench/unwind_walk"
set --
for file in /usr/lib/*-linux-gnu/libLLVM-*.so.1 /usr/lib/*-linux-gnu/libclang-cpp.so.?? \
	/usr/lib/gcc/*/*/cc1 /usr/bin/python3 /lib/*-linux-gnu/libc.so.6; do
	[ -f "$file" ] && set -- "$@" "$file"
done
echo
"$build/bench/unwind_table" "$@"
