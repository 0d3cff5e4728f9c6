#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""What calls of libsonde-capture take: while nobody records, and while somebody does."""
import os
import subprocess
import tempfile

BUILD = os.environ.get("SONDE_BUILD", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "build"))
PROGRAM = os.path.join(BUILD, "bench", "capture_calls")

subprocess.run(["ninja", "-C", BUILD, "bench/capture_calls"], check=True, stdout=subprocess.DEVNULL)
subprocess.run([PROGRAM], check=True)
with tempfile.TemporaryDirectory() as where:
    subprocess.run([os.path.join(BUILD, "sonde"), "heap", "-o", os.path.join(where, "out.sonde"), "--", PROGRAM],
                   check=True, stderr=subprocess.DEVNULL)
