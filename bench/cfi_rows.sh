#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Call frame information of everything in /usr/bin and /usr/lib, row by row against libdw.
cd "$(dirname "$0")/.." || exit 1
build=${SONDE_BUILD:-build}
ninja -C "$build" bench/cfi_verify >/dev/null && exec "$build/bench/cfi_verify" /usr/bin /usr/lib
