# SPDX-License-Identifier: BSD-2-Clause
"""A CPU-bound program whose profile is known: heavy() has 70 % of the time and light() 30 %.

    python python_split.py SECONDS [threads|fork|spawn]

heavy() spends two thirds of its time in one line and one third in another: lines HEAVY_MORE and HEAVY_LESS, which
it prints as "lines MORE LESS" after "ready". With `threads` both are on threads of their own name; with `fork` and
`spawn` they are in processes of multiprocessing. Time is each thread's own CPU time.
"""
import sys
import threading
import time


def spin(ms):
    end = time.thread_time() + ms / 1000
    while time.thread_time() < end:
        for i in range(50):
            i * i


def heavy():
    spin(2.8)
    spin(1.4)


HEAVY_MORE = heavy.__code__.co_firstlineno + 1
HEAVY_LESS = HEAVY_MORE + 1


def light():
    for i in (0.9, 0.9):
        spin(i)


class Work:
    def both(self):
        heavy()
        light()

    def last(self, seconds):
        end = time.thread_time() + seconds
        while time.thread_time() < end:
            self.both()


def work(seconds):
    Work().last(seconds)


def main(seconds, how):
    print("ready\nlines %d %d" % (HEAVY_MORE, HEAVY_LESS), flush=True)
    if how == "threads":
        several = [threading.Thread(target=work, args=(seconds / 3,)) for _ in range(3)]
    elif how:
        import multiprocessing
        context = multiprocessing.get_context(how)
        several = [context.Process(target=work, args=(seconds / 2,)) for _ in range(2)]
    else:
        return work(seconds)
    for one in several:
        one.start()
    for one in several:
        one.join()


if __name__ == "__main__":
    main(float(sys.argv[1]), sys.argv[2] if sys.argv[2:] else "")
