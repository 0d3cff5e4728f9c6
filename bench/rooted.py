#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""How many stacks reach their root, program by program, and what stops the rest."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from bench import *
from workloads import *

HZ, SECONDS = 999, 5
PROGRAMS = os.path.join(ROOT, "tests", "live", "programs")

SQL = """
CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT, c REAL);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 400000)
INSERT INTO t SELECT i, hex(i * 7919 % 100003), i * 0.37 FROM n;
CREATE INDEX tb ON t(b);
SELECT count(*), sum(c), max(b) FROM t WHERE b LIKE '3%' GROUP BY substr(b, 1, 4) ORDER BY 2;
SELECT count(*) FROM t x JOIN t y ON x.b = y.b;
SELECT group_concat(b) FROM (SELECT b FROM t ORDER BY c DESC LIMIT 200000);
"""
PAGE = """<!doctype html><body><div id=r></div><script>
const r = document.getElementById('r');
function build(n) { r.innerHTML = ''; for (let i = 0; i < n; i++) { const d = document.createElement('div');
  d.style.width = (i % 90 + 5) + '%'; d.textContent = 'row ' + i; r.appendChild(d); } }
function layout(n) { let s = 0; for (let i = 0; i < n; i++) { r.style.width = (300 + i % 200) + 'px';
  s += r.offsetHeight; } return s; }
const end = performance.now() + 15000;
(function go() { build(300); layout(40); if (performance.now() < end) setTimeout(go, 0); })();
</script>"""
RUST = """
use std::collections::HashMap;
#[inline(never)] fn words(n: u64) -> usize { let mut m: HashMap<String, u64> = HashMap::new();
  for i in 0..n { *m.entry(format!("k{}", i * 7919 % 1009)).or_insert(0) += i; } m.len() }
#[inline(never)] fn sorted(n: u64) -> u64 { let mut v: Vec<u64> = (0..n).map(|i| i * 7919 % 100003).collect();
  v.sort_by(|a, b| b.cmp(a)); v[0] }
fn main() { let mut s = 0; loop { s += words(20000) as u64 + sorted(50000); if s == 1 { break; } } }
"""
GO = """
package main
import ("fmt"; "sort"; "strings")
//go:noinline
func words(n int) int { m := map[string]int{}; for i := 0; i < n; i++ { m[fmt.Sprintf("k%d", i*7919%1009)]++ }; return len(m) }
//go:noinline
func sorted(n int) int { v := make([]int, n); for i := range v { v[i] = i * 7919 % 100003 }; sort.Ints(v); return v[0] }
func main() { s := 0; for { s += words(20000) + sorted(50000) + len(strings.Repeat("ab", 1000)); if s == 1 { break } } }
"""


def record_pid(pid):
    measured(sonde_record(HZ, scratch("r"), "--stack-size", "65528", "-p", pid, "-d", SECONDS))


def record_running(command, wait_s=0.7, **options):
    child = background(command, wait_s, **options)
    record_pid(child.pid)
    stop_group(child)


def clang():
    measured(sonde_record(HZ, scratch("r"), "--stack-size", "65528", "--", *clang_compile()))


def sqlite():
    script = written("load.sql", SQL + "DROP TABLE t;\n")
    feed = background(["sh", "-c", "while cat '%s'; do :; done" % script], 0,
                      stdout=subprocess.PIPE)
    record_running(["sqlite3", ":memory:"], stdin=feed.stdout)
    stop_group(feed)


def redis():
    port = "47391"
    server = background(["redis-server", "--port", port, "--save", "", "--appendonly", "no"])
    load = background(["redis-benchmark", "-p", port, "-q", "-n", "100000000", "-c", "20", "-t",
                       "set,get,lpush,lrange_100,zadd"], 0.3)
    record_pid(server.pid)
    stop_group(load)
    stop_group(server)


def chromium():
    page = written("page.html", PAGE)
    browser = background(["chromium", "--headless", "--no-sandbox", "--disable-gpu",
                          "--user-data-dir=" + scratch("chromium"), "--remote-debugging-port=0",
                          "file://" + page], 3)
    renderer = busiest_renderer()
    if renderer:
        record_pid(renderer)
    stop_group(browser)


def busiest_renderer():
    best = (0, None)
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/cmdline" % pid, "rb") as f:
                if b"--type=renderer" not in f.read():
                    continue
            with open("/proc/%s/stat" % pid) as f:
                ticks = int(f.read().rpartition(")")[2].split()[11])
        except OSError:
            continue
        best = max(best, (ticks, pid), key=lambda b: b[0])
    return best[1]


def rust():
    out = scratch("rust-spin")
    subprocess.run(["rustc", "-O", "-o", out, written("spin.rs", RUST)], check=True,
                   stderr=subprocess.DEVNULL)
    record_running([out])


def go():
    out = scratch("go-spin")
    env = dict(os.environ, GOCACHE=scratch("gocache"), GO111MODULE="off")
    subprocess.run(["go", "build", "-o", out, written("spin.go", GO)], check=True, env=env)
    record_running([out])


JAVA = """
import java.util.*;
public class Load {
  static int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
  static int words(int n) { HashMap<String, Integer> m = new HashMap<>();
    for (int i = 0; i < n; i++) m.merge("k" + (i * 7919 % 1009), 1, Integer::sum); return m.size(); }
  static int sorted(int n) { List<Integer> v = new ArrayList<>();
    for (int i = 0; i < n; i++) v.add(i * 7919 % 100003); v.sort((a, b) -> b - a); return v.get(0); }
  static long deep(int d) { return d == 0 ? words(300) + sorted(300) : deep(d - 1) + 1; }
  public static void main(String[] a) {
    for (long s = 0; s >= 0;) s += fib(20) + words(2000) + sorted(5000) + deep(30); }
}
"""


def java(*options):
    def record():
        subprocess.run(["javac", "-d", scratch(""), written("Load.java", JAVA)], check=True)
        record_running(["java", *options, "-cp", scratch(""), "Load"], 3)
    return record


def callbacks(flags, compiler="gcc"):
    def record():
        record_running([compile_c("callbacks", tuple(flags), compiler, "tests/live/programs")])
    return record


BARE = ["-O2", "-static", "-fomit-frame-pointer", "-fno-asynchronous-unwind-tables",
        "-fno-unwind-tables"]


def garbage(*link):
    def record():
        out = scratch("go-garbage")
        env = dict(os.environ, GOCACHE=scratch("gocache"), GO111MODULE="off")
        subprocess.run(["go", "build", "-o", out, *link, os.path.join(PROGRAMS, "garbage.go")],
                       check=True, env=env)
        record_running([out], 1)
    return record


def own(flags, compiler="gcc"):
    return lambda: record_running([compile_c("work", tuple(flags), compiler), "0"])


ROWS = [
    ("clang++ -O2 regex.cc", ["clang++"], clang),
    ("python3", ["python3"], lambda: record_running(["python3", "-c", PYTHON])),
    ("sqlite3", ["sqlite3"], sqlite),
    ("redis-server under load", ["redis-server", "redis-benchmark"], redis),
    ("node, JIT", ["node"], lambda: record_running(["node", written("load.js", NODE)])),
    ("chromium renderer", ["chromium"], chromium),
    ("Rust, -O", ["rustc"], rust),
    ("Go", ["go"], go),
    ("Go, collecting garbage", ["go"], garbage()),
    ("Go, collecting garbage, stripped", ["go"], garbage("-ldflags=-s -w")),
    ("C, -O2, no frame pointer", ["gcc"], own(["-O2", "-fomit-frame-pointer"])),
    ("C, -O0", ["gcc"], own(["-O0"])),
    ("C, stripped", ["gcc"], own(["-O2", "-s"])),
    ("C, static", ["gcc"], own(["-O2", "-static"])),
    ("C, static musl", ["musl-gcc"], own(["-O2", "-static"], "musl-gcc")),
    ("C, musl", ["musl-gcc"], own(["-O2"], "musl-gcc")),
    ("callbacks, static musl", ["musl-gcc"], callbacks(["-O2", "-static"], "musl-gcc")),
    ("callbacks, musl", ["musl-gcc"], callbacks(["-O2"], "musl-gcc")),
    ("callbacks, static, no unwind tables", ["gcc"], callbacks(BARE)),
    ("Java", ["javac", "java"], java()),
    ("Java, frame pointers", ["javac", "java"], java("-XX:+PreserveFramePointer")),
    ("C, clang -O2", ["clang"], own(["-O2"], "clang")),
]


def row(name, commands, record):
    missing = [c for c in commands if not have(c)]
    if missing:
        return [name, "-", "", "", "", "", "", "%s is not installed" % missing[0]]
    if os.path.exists(scratch("r")):
        os.unlink(scratch("r"))
    record()
    if not os.path.exists(scratch("r")):
        return [name, "-", "", "", "", "", "", "nothing was recorded"]
    got = report_json(scratch("r"))
    q = got["quality"]
    frames = folded_depth()
    return [name, got["samples"], "%.2f" % q["rooted_pct"], "%.2f" % q["truncated_pct"],
            "%.2f" % q["guessed_frames_pct"], "%.2f" % q["prologue_frames_pct"],
            "%.2f" % q["unresolved_frames_pct"], "%.1f" % frames]


def folded_depth():
    done = subprocess.run([SONDE, "report", scratch("r"), "--folded", "--no-inline"],
                          stdout=subprocess.PIPE, check=True)
    frames = samples = 0
    for line in done.stdout.decode(errors="replace").splitlines():
        stack, _, n = line.rpartition(" ")
        frames += (stack.count(";") + 1) * int(n)
        samples += int(n)
    return frames / max(1, samples)


def main():
    wanted = sys.argv[1:]
    rows = [row(*r) for r in ROWS if not wanted or any(w in r[0] for w in wanted)]
    table("Stacks that reach their root, %d Hz" % HZ,
          ["", "samples", "rooted %", "cut %", "guessed frames %", "by the code %", "unnamed frames %", "frames"], rows)


main()
