#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Turns a text file into a C header that defines it as a string: embed.py FILE NAME >HEADER."""
import json
import sys

path, name = sys.argv[1:]
print("/* Made by embed.py from %s. */" % path.rsplit("/", 1)[-1])
print("static const char %s[] =" % name)
with open(path, encoding="ascii") as lines:
    for line in lines:
        print("\t%s" % json.dumps(line))
print(";")
