#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""What `sonde heap` costs real programs, and whether they notice it.

Each workload is a shell script in which "$@" stands before the program in question, so servers are watched and those who ask
them are not. It runs bare, sampled and exact in turn, ROUNDS times; what it prints and its exit status have to be the same.
CPU is user and system time of the program and all that it has started, without sonde's own, which is the column after it.
`bench/heap_programs.py NAME...` runs only those workloads, `-v` shows what differs and what sonde says."""
import difflib
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from bench import *

ROUNDS = int(os.environ.get("ROUNDS", 3)) # for a first look, 1
LIMIT_S = 240
MODES = {"bare": None, "sampled": [], "exact": ["--exact"]}
VERBOSE = "-v" in sys.argv
HERE = scratch("work")

# Of the program and its children, in the end; sh says "0m0.12s".
TIMED = """"$@"; status=$?; times >"$TIMES"; exit $status"""

PYTHON_TESTS = """test_array test_atexit test_bytes test_call test_contextlib test_context test_ctypes test_dict test_exceptions test_faulthandler test_fork1 test_gc
test_generators test_io test_json test_list test_mmap test_os test_pickle test_posix test_queue test_re test_resource test_signal
test_sqlite3 test_ssl test_struct test_subprocess test_sys test_thread test_threading test_weakref test_xml_etree test_zlib
test_multiprocessing_main_handling"""


def python_with_tests():
    """The installed one often comes without its tests."""
    for path in ["/usr/bin/python3"] + sorted(glob.glob("/root/.pyenv/versions/3.1[12]*/bin/python3")):
        if have(path) and measured([path, "-c", "import test.test_gc"]).status == 0:
            return path
    return None


class Workload:
    """script: run by sh in a folder of its own. needs: programs. before: a script that is run once. same: what of the
    output has to be the same, as a function of the text."""

    def __init__(self, script, needs=(), before="", same=lambda text: text, user=None, why=None):
        self.script, self.needs, self.before, self.same, self.user, self.why = script, needs, before, same, user, why


def lines_with(pattern):
    return lambda text: "\n".join(sorted(set(re.findall(pattern, text, re.M))))


def postgres():
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin"))
    folder = found[-1] if found else ""
    return Workload(
        "rm -rf data; \"$@\" sh -c '%(p)s/initdb -D data >init.log 2>&1 && exec %(p)s/postgres -D data -k $PWD "
        "-c listen_addresses= -c fsync=off >server.log 2>&1' & "
        "for i in $(seq 300); do %(p)s/pg_isready -q -h $PWD && break; sleep 0.1; done;"
        "%(p)s/pgbench -h $PWD -i -s 3 -q postgres 2>/dev/null; %(p)s/pgbench -h $PWD -c 4 -t 400 postgres 2>&1;"
        "%(p)s/psql -h $PWD -Atc 'select count(*) from pgbench_history' postgres; %(p)s/pg_ctl -D data -s -m fast stop; wait $!"
        % {"p": folder}, needs=(folder + "/initdb", "runuser"), user="postgres",
        same=lines_with(r"^number of transactions.*|^number of failed.*|^\d+$"))


NGINX = """daemon off; pid pid; error_log stderr crit; worker_processes 2; events {} http { access_log off;
client_body_temp_path t1; proxy_temp_path t2; fastcgi_temp_path t3; uwsgi_temp_path t4; scgi_temp_path t5;
keepalive_requests 1000000; gzip on; gzip_min_length 1; gzip_types text/plain; server { listen unix:nginx.sock; root .; } }"""

# Pages over four connections that stay; their sum is what is compared.
NGINX_CLIENT = """
import os, socket, threading
def ask(sums):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect("nginx.sock")
        f = s.makefile("rb")
        for i in range(3000):
            s.sendall(b"GET /page.txt HTTP/1.1\\r\\nHost: x\\r\\nAccept-Encoding: %s\\r\\n\\r\\n" % (b"gzip" if i % 2 else b"no"))
            chunked, length = False, 0
            for line in iter(f.readline, b"\\r\\n"):
                chunked |= line.lower().startswith(b"transfer-encoding")
                if line.lower().startswith(b"content-length"):
                    length = int(line.split()[1])
            while chunked:
                n = int(f.readline(), 16)
                length += len(f.read(n))
                f.readline()
                if not n:
                    break
            else:
                f.read(length)
            sums.append(length)
sums = []
threads = [threading.Thread(target=ask, args=(sums,)) for _ in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
print(len(sums), sum(sums))
"""

NODE = """
const zlib = require('zlib'), crypto = require('crypto');
let rows = [];
for (let i = 0; i < 150000; i++) rows.push({ id: i, name: 'row ' + i, tags: ['a' + i % 7, 'b' + i % 11] });
const text = JSON.stringify(rows), back = JSON.parse(text);
let sum = 0;
for (let i = 0; i < 60; i++)
    sum += zlib.inflateSync(zlib.gzipSync(Buffer.from(text.slice(i * 1000, i * 1000 + 200000)), { level: 1 }).subarray(0)
        .length ? zlib.deflateSync(text.slice(0, 50000 + i)) : '').length;
console.log(back.length, text.length, sum, crypto.createHash('sha256').update(text).digest('hex'));
"""

PAGE = """<body><script>
for (let i = 0; i < 3000; i++) { const d = document.createElement('div'); d.textContent = 'line ' + i; d.style.width = i % 300 + 'px';
document.body.append(d); }
let s = 0; for (let i = 0; i < 300000; i++) s += JSON.stringify({ a: i }).length; document.title = 'sum ' + s;
</script></body>"""

JAVA = """import java.util.*; public class Main { public static void main(String[] a) { Map<String, List<Integer>> m = new TreeMap<>();
for (int i = 0; i < 400000; i++) m.computeIfAbsent("k" + i % 1000, k -> new ArrayList<>()).add(i);
long s = 0; for (List<Integer> l : m.values()) for (int i : l) s += i; System.out.println(m.size() + " " + s); } }"""

GO = """package main
import ("fmt"; "sort")
func main() { m := map[string][]int{}
for i := 0; i < 400000; i++ { k := fmt.Sprint("k", i%1000); m[k] = append(m[k], i) }
keys := []string{}; for k := range m { keys = append(keys, k) }; sort.Strings(keys)
s := 0; for _, k := range keys { for _, i := range m[k] { s += i } }; fmt.Println(len(keys), s) }"""


def workloads():
    python = python_with_tests()
    files = {"page.txt": "hello world " * 2000, "nginx.conf": NGINX, "ask.py": NGINX_CLIENT, "main.js": NODE, "page.html": PAGE,
             "Main.java": JAVA, "main.go": GO}
    return files, {
        "python3 -m test": Workload(
            "\"$@\" %s -m test --timeout 200 %s 2>&1" % (python, " ".join(PYTHON_TESTS.split())), needs=(python,),
            same=lines_with(r"^Result: .*|^ *test_\w+(?: test_\w+)*$|^[\w.]+ (?:failed|crashed|timed out).*")),
        "redis + redis-benchmark": Workload(
            "\"$@\" redis-server --port 0 --unixsocket $PWD/redis.sock --save '' >/dev/null & "
            "until redis-cli -s redis.sock ping >/dev/null 2>&1; do sleep 0.1; done;"
            "redis-benchmark -s redis.sock -q -n 100000 -r 50000 -d 200 -P 8 -t set,get,lpush,hset,zadd >/dev/null;"
            "redis-cli -s redis.sock llen mylist; redis-cli -s redis.sock shutdown nosave; wait $!",
            needs=("redis-server", "redis-benchmark")),
        "git log -p": Workload(
            "\"$@\" git -C tree log -p --stat | sha256sum", needs=("git",), before="git clone -q --bare '%s' tree" % ROOT),
        "git gc": Workload(
            "rm -rf gc && cp -r tree gc && \"$@\" git -C gc repack -adfq --window=20 && git -C gc count-objects -v | grep in-pack",
            needs=("git",), before="[ -d tree ] || git clone -q --bare '%s' tree" % ROOT),
        "clang++ -O2": Workload(
            "\"$@\" clang++ -O2 -std=c++17 -c -o regex.o '%s' && sha256sum regex.o" % REGEX_CC, needs=("clang++",)),
        "sqlite3, 200,000 rows": Workload(
            "\"$@\" sqlite3 :memory: \"create table t(a integer primary key, b, c); create index x on t(b);"
            "with recursive n(i) as (select 1 union all select i + 1 from n where i < 200000) "
            "insert into t select i, hex(i * 7919), 'text ' || i from n; select count(*), min(b), max(b), sum(length(c)) from t;"
            "update t set c = c || b where a % 3 = 0; delete from t where a % 5 = 0;"
            "select substr(b, 1, 2) p, count(*), group_concat(c) from t group by p order by p;\" | sha256sum",
            needs=("sqlite3",)),
        "postgres, initdb + pgbench": postgres(),
        "nginx, 12,000 pages": Workload(
            "\"$@\" nginx -p $PWD -c $PWD/nginx.conf & until [ -S nginx.sock ]; do sleep 0.1; done; python3 ask.py;"
            "kill -QUIT $(cat pid); wait $!; s=$?; rm -f nginx.sock; exit $s", needs=("nginx",)),
        "node": Workload("\"$@\" node main.js", needs=("node",)),
        "chromium --headless": Workload(
            "\"$@\" chromium --headless --no-sandbox --disable-gpu --user-data-dir=$PWD/chromium --dump-dom file://$PWD/page.html "
            "2>/dev/null | sha256sum; rm -rf chromium", needs=("chromium",)),
        "java": Workload("\"$@\" java -cp . Main", needs=("javac",), before="javac Main.java"),
        "gcc, whole build": Workload(
            "\"$@\" sh -c 'for f in \"%s\"/bench/programs/heap_pairs.c \"%s\"/bench/programs/work.c; do gcc -O2 -D_GNU_SOURCE -I\"%s\"/"
            "tests/live/programs -c -o x.o $f; done' && sha256sum x.o" % (ROOT, ROOT, ROOT), needs=("gcc",)),
        "go program": Workload("\"$@\" ./main", needs=("go",), before="go build -o main main.go",
                               why="a static program"),
    }


# ---- one run ----

class Round:
    def __init__(self, output, status, cpu_s, all_s, wall_s, said):
        self.output, self.status, self.cpu_s, self.all_s, self.wall_s, self.said = output, status, cpu_s, all_s, wall_s, said


def target_seconds():
    try:
        with open(os.path.join(HERE, "times")) as f:
            words = f.read().split()
    except OSError:
        return 0
    return sum(int(m) * 60 + float(s) for m, s in (re.match(r"(\d+)m([\d.]+)s", w).groups() for w in words))


def as_user(workload, command):
    return ["runuser", "-u", workload.user, "--"] + command if workload.user else command


def run(workload, mode):
    options = MODES[mode]
    prefix = [] if options is None else [SONDE, "heap", "-o", os.path.join(HERE, mode + ".sonde"), *options, "--"]
    for name in ("times", mode + ".sonde"):
        if os.path.exists(os.path.join(HERE, name)):
            os.unlink(os.path.join(HERE, name))
    environment = dict(os.environ, TIMES=os.path.join(HERE, "times"), GIT_CONFIG_COUNT="1",
                       GIT_CONFIG_KEY_0="safe.directory", GIT_CONFIG_VALUE_0="*")
    said = open(os.path.join(HERE, "stderr"), "wb+")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    child = start(as_user(workload, ["timeout", "-k", "5", str(LIMIT_S), "sh", "-c", workload.script, "sh", *prefix, "sh", "-c",
                                     TIMED, "sh"]), stdout=subprocess.PIPE, stderr=said, cwd=HERE, env=environment)
    output = child.stdout.read().decode(errors="replace")
    child.wait()
    wall_s = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    said.seek(0)
    return Round(output, child.returncode, target_seconds(),
                 after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall_s,
                 said.read().decode(errors="replace"))


def differences(workload, bare, seen):
    """Words about what is not the same; empty when all is."""
    if seen.status != bare.status:
        return "status %d, bare %d" % (seen.status, bare.status)
    a, b = workload.same(bare.output), workload.same(seen.output)
    if a == b:
        return ""
    if VERBOSE:
        print("\n".join(difflib.unified_diff(a.splitlines(), b.splitlines(), "bare", "seen", lineterm="", n=1)))
    return "another output"


# ---- a table ----

def lost_words(path):
    """What the recording says is missing."""
    done = subprocess.run([SONDE, "report", path, "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    if done.returncode:
        return "no recording", 0, 0
    report = json.loads(done.stdout)
    heap = report["heap"]
    lost = {k: v for k, v in report["quality"]["losses"].items() if v}
    return ", ".join("%s %d" % kv for kv in lost.items()) or "nothing", heap["total_count"], heap["peak_bytes"]


def median(rounds, name):
    return statistics.median(getattr(r, name) for r in rounds)


def rows_of(name, workload):
    rounds = {mode: [] for mode in MODES}
    notes = set()
    for _ in range(ROUNDS):
        for mode in MODES:
            rounds[mode].append(run(workload, mode))
            if mode == "bare":
                continue
            notes.add(differences(workload, rounds["bare"][-1], rounds[mode][-1]))
            if VERBOSE:
                print("%s, %s:\n%s" % (name, mode, rounds[mode][-1].said))
    out = []
    bare = rounds["bare"]
    for mode in list(MODES)[1:]:
        lost, calls, peak = lost_words(os.path.join(HERE, mode + ".sonde"))
        cpu, wall = median(rounds[mode], "cpu_s"), median(rounds[mode], "wall_s")
        own = median(rounds[mode], "all_s") - median(bare, "all_s") - (cpu - median(bare, "cpu_s"))
        out.append(["%s, %s" % (name, mode), "%.2f" % median(bare, "cpu_s"), ratio(cpu, median(bare, "cpu_s")),
                    "%.2f" % max(own, 0), "%.2f" % median(bare, "wall_s"), ratio(wall, median(bare, "wall_s")),
                    "%.0f" % calls, "%.1f" % (peak / 1e6), lost, ", ".join(sorted(notes - {""})) or "same"])
    return out


def possible(name, workload):
    missing = [n for n in workload.needs if not n or not have(n)]
    if missing:
        print("skipped %s: %s is not installed" % (name, ", ".join(map(str, missing))))
        return False
    if workload.user and os.getuid():
        print("skipped %s: only root may become %s" % (name, workload.user))
        return False
    return True


def prepare(files):
    os.mkdir(HERE)
    os.chmod(os.path.dirname(HERE), 0o755)
    os.chmod(HERE, 0o777)
    for name, text in files.items():
        with open(os.path.join(HERE, name), "w") as f:
            f.write(text)


def main():
    wanted = [a for a in sys.argv[1:] if a != "-v"]
    files, all_of_them = workloads()
    prepare(files)
    rows = []
    for name, workload in all_of_them.items():
        if wanted and not any(w in name for w in wanted) or not possible(name, workload):
            continue
        if workload.before:
            subprocess.run(["sh", "-c", workload.before], cwd=HERE, check=True, stderr=subprocess.DEVNULL)
        rows += rows_of(name, workload)
    table("real programs, median of %d rounds" % ROUNDS,
          ["", "CPU s", "x", "sonde's", "wall s", "x", "calls", "peak MB", "lost", "output"], rows)


main()
