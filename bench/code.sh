#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Frames by what code does to the stack, against call frame information: docs/heuristics/prologue.md.
cd "$(dirname "$0")/.." || exit 1
build=${SONDE_BUILD:-build}
ninja -C "$build" bench/code_verify >/dev/null || exit 1

# verify EVERY FILE...: those that are there
verify() {
	every=$1
	shift
	for file in "$@"; do
		[ -f "$file" ] && "$build/bench/code_verify" -n "$every" "$file"
	done
}

verify 7 /lib/*-linux-gnu/libc.so.6 /usr/aarch64-linux-gnu/lib/libc.so.6
verify 11 /usr/bin/python3.??
verify 31 /usr/lib/*-linux-gnu/libcrypto.so.3
verify 57 /usr/bin/node
verify 97 /usr/lib/*-linux-gnu/libLLVM-*.so.1
