#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Names of addresses: what one costs, against eu-addr2line and addr2line, on sonde's own debug info.
cd "$(dirname "$0")/.." || exit 1
build=${SONDE_BUILD:-build}
ninja -C "$build" bench/symbols >/dev/null && exec "$build/bench/symbols" "$build/sonde" 2000
