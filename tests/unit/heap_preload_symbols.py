#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""libsonde-heap.so needs nothing that could allocate, lock or be replaced: what it takes from others and what it gives
them, by its symbol table. heap_preload_symbols.py LIBRARY"""
import subprocess
import sys

# Functions that only compute or that are system calls; those that are looked for when the program starts (dlsym), and
# two of threads, which allocate nothing for a process's first keys.
TAKEN = {"__errno_location", "clock_gettime", "getauxval", "environ", "dlsym", "pthread_key_create",
         "pthread_self", "pthread_setspecific", "memcpy", "memset",
         # A variable.
         "__libc_single_threaded",
         # Once at the start, and while it is attached; and when the program itself calls the loader.
         "dl_iterate_phdr"}
GIVEN = {"malloc", "free", "calloc", "realloc", "reallocarray", "memalign", "posix_memalign", "aligned_alloc", "valloc",
         "pvalloc", "cfree", "free_sized", "free_aligned_sized", "malloc_usable_size", "dlopen", "dlmopen", "dlclose",
         "mlockall", "mmap", "mmap64", "munmap", "mremap", "brk", "sbrk",
         "setrlimit", "setrlimit64", "prlimit", "prlimit64", "prctl", "syscall",
         # For whoever attaches; what dlsym finds by being resolved.
         "sonde_heap_share", "sonde_heap_attach", "sonde_heap_detach", "sonde_heap_abandoned",
         "sonde_heap_locked"}


def symbols(which):
    out = subprocess.run(["nm", "-D", "-P", which, sys.argv[1]], capture_output=True, text=True, check=True).stdout
    return {line.split()[0].split("@")[0] for line in out.splitlines()}


def main():
    bad = False

    def report(name, lines):
        nonlocal bad
        bad = bad or bool(lines)
        for line in lines:
            print(line)
        print(("FAIL " if lines else "ok ") + name)

    report("takes-only-what-is-allowed", sorted(symbols("--undefined-only") - TAKEN))
    report("gives-what-is-hooked", sorted(symbols("--defined-only") ^ GIVEN))
    dynamic = subprocess.run(["readelf", "-dlW", sys.argv[1]], capture_output=True, text=True, check=True).stdout
    report("links-nothing", [line for line in dynamic.splitlines() if "(NEEDED)" in line or "TEXTREL" in line])
    report("keeps-loaded-and-binds-at-once", [flag for flag in ("NODELETE", "STATIC_TLS", "NOW") if flag not in dynamic])
    tls = [int(line.split()[5], 16) for line in dynamic.splitlines() if line.split()[:1] == ["TLS"]]
    report("little-thread-memory", ["%s bytes of it" % tls] if len(tls) != 1 or tls[0] > 256 else [])
    sys.exit(bad)


main()
