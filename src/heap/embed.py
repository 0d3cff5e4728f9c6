#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Turns a file into a C header that defines its bytes: embed.py FILE NAME >HEADER."""
import sys

path, name = sys.argv[1:]
data = open(path, "rb").read()
print("/* Made by embed.py from %s. */" % path.rsplit("/", 1)[-1])
print("static const unsigned char %s[] = {" % name)
for at in range(0, len(data), 24):
    print("\t%s," % ",".join("%d" % byte for byte in data[at:at + 24]))
print("};")
