# SPDX-License-Identifier: BSD-2-Clause
"""Programs that several benches look at while they run."""
from bench import *

PYTHON = """
import json, re, random
def parse(n):
    return [json.loads(json.dumps({"a": list(range(n)), "b": "x" * n})) for _ in range(40)]
def search(n):
    return sum(len(re.findall(r"(\\d+)-(\\w+)", "12-ab " * n)) for _ in range(20))
while True:
    parse(60); search(200); sorted(random.random() for _ in range(5000))
"""
NODE = """
function fib(n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
function words(n) { const m = new Map(); for (let i = 0; i < n; i++) {
  const k = 'k' + (i * 7919 % 1009); m.set(k, (m.get(k) || 0) + 1); } return m.size; }
const end = Date.now() + 20000;
while (Date.now() < end) { fib(24); words(20000); JSON.parse(JSON.stringify([...Array(2000).keys()])); }
"""


def written(name, text):
    path = scratch(name)
    with open(path, "w") as f:
        f.write(text)
    return path


def background(command, wait_s=0.7, **options):
    child = start(command, start_new_session=True, **options)
    time.sleep(wait_s)
    return child


def stop_group(child):
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    child.wait()


def postgres_server():
    """(its socket's folder, server) in the scratch folder, as the user postgres, since it refuses to run as root."""
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/postgres"))
    folder = scratch("postgres")
    subprocess.run(["install", "-d", "-o", "postgres", folder], check=True)
    os.chmod(scratch(""), 0o711)
    run = ["runuser", "-u", "postgres", "--"]
    subprocess.run(run + [os.path.join(os.path.dirname(found[-1]), "initdb"), "-D", folder + "/data", "-A", "trust"],
                   check=True, stdout=subprocess.DEVNULL, cwd="/")
    server = background(run + [found[-1], "-D", folder + "/data", "-k", folder, "-h", ""], 2, cwd="/")
    return folder, server


def postgres_backend(folder, sql):
    """(client, process of the server that does its work) with the statements over and over."""
    client = background(["sh", "-c", "yes \"$1\" | psql -q -h '%s' -U postgres postgres" % folder, "sh", sql], 1)
    done = subprocess.run(["psql", "-h", folder, "-U", "postgres", "-Atc",
                           "SELECT pid FROM pg_stat_activity WHERE state = 'active' AND pid <> pg_backend_pid()",
                           "postgres"], stdout=subprocess.PIPE, check=True)
    return client, int(done.stdout.split()[0])
