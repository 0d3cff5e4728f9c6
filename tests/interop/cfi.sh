#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Our reading of call frame information against libdw's, over the libraries of this machine.
verify=${SONDE_BUILD:-build}/bench/cfi_verify
log=$(mktemp)
if "$verify" --self >"$log" 2>&1; then
	tail -n 3 "$log"
	echo "ok rows-agree-with-libdw"
	rm -f "$log"
	exit 0
fi
tail -n 40 "$log"
echo "FAIL rows-agree-with-libdw"
rm -f "$log"
exit 1
