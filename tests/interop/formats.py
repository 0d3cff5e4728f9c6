#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Programs that are not ours read what sonde writes, and their totals agree with ours."""
import gzip
import json
import os
import re
import sys
import xml.etree.ElementTree

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from harness import *  # noqa: E402,F403

HERE = os.path.dirname(os.path.realpath(__file__))
BUILD = os.environ.get("SONDE_BUILD", os.path.join(ROOT, "build"))
NPM = os.path.join(BUILD, "npm")
SOURCE = os.path.join(HERE, "inlined.c")


def npm(*packages):
    """A folder with these packages in it, installed once; skips where that cannot be done."""
    need("node")
    need("npm")
    missing = [p for p in packages if not os.path.isdir(os.path.join(NPM, "node_modules", p))]
    if missing:
        os.makedirs(NPM, exist_ok=True)
        try:
            done = run(["npm", "install", "--no-fund", "--no-audit", "--fetch-retries=0", "--prefix", NPM]
                       + missing, timeout=100)
        except Failure:
            skip("npm install %s does not end: is there a network?" % " ".join(missing))
        if done.returncode:
            skip("npm install %s: %s" % (" ".join(missing),
                                         done.stderr.decode(errors="replace").strip()[-200:]))
    return NPM


def inlined():
    """A recording of a program whose hot function is inlined into another."""
    return recording(["-F", "500", "--", program("inlined", "gcc-O2", SOURCE), "600"])


def waiting(*options):
    """A recording on and off the CPU of a program that computes, sleeps and waits for a lock."""
    done = sonde("record", "--wall", "-o", work("probe.sonde"), "--", "true")
    if done.returncode:
        skip(done.stderr.decode(errors="replace").partition("\n")[0])
    return recording(["--wall", *options, "--", program("phases"), "10"])


def convert(recording_, name, *more):
    out = work(name)
    done = sonde("convert", recording_.path, out, *more)
    expect(done, 0, "cannot hold")
    return out


@test
def folded_sums_to_the_samples():
    got = inlined()
    with open(convert(got, "out.folded")) as lines:
        counts = [int(re.fullmatch(r"[^;].* (\d+)", line.rstrip("\n")).group(1)) for line in lines]
    check(sum(counts) == got.samples, "%d in lines, %d samples" % (sum(counts), got.samples))
    check(got.share("hot_inlined") > 50, "hot_inlined has %s" % got.share("hot_inlined"))


@test
def pprof_reads_it():
    need("go")
    got = inlined()
    path = convert(got, "out.pb.gz")
    # Newer Go builds its pprof at first use.
    done = run(["go", "tool", "pprof", "-sample_index=samples", "-raw", path], timeout=240)
    expect(done, 0)
    raw = done.stdout.decode()
    total = sum(int(n) for n in re.findall(r"^ +(\d+) +\d+: ", raw, re.M))
    check(total == got.samples, "pprof counts %d, sonde %d" % (total, got.samples))
    check("samples/count cpu/nanoseconds" in raw, raw[:400])

    done = run(["go", "tool", "pprof", "-sample_index=samples", "-nodecount=500", "-top", path])
    expect(done, 0)
    top = done.stdout.decode()
    line = re.search(r"^ *(\d+) .* hot_inlined \(inline\)$", top, re.M)
    check(line, "no inlined hot_inlined in\n" + top)
    ours = [f["self"] for f in got.json["functions"] if f["name"] == "hot_inlined"]
    check([int(line.group(1))] == ours, "hot_inlined: pprof %s, sonde %s" % (line.group(1), ours))


@test
def pprof_shows_labels_and_quality():
    need("go")
    got = inlined()
    path = convert(got, "out.pb.gz")
    tags = run(["go", "tool", "pprof", "-tags", path]).stdout.decode()
    for label in ("thread:", "process:", "tid:", "pid:"):
        check(label in tags, "no %s in\n%s" % (label, tags))
    comments = run(["go", "tool", "pprof", "-comments", path]).stdout.decode()
    check("rooted" in comments, comments)


def pprof_total(path, index, *options):
    """Nanoseconds that pprof counts of one kind of value."""
    done = run(["go", "tool", "pprof", "-sample_index=" + index, "-unit=ns", *options, "-top", path],
               timeout=240)
    expect(done, 0)
    top = done.stdout.decode()
    line = re.search(r" of (\d+)ns total", top)
    check(line, top)
    return int(line.group(1)), top


@test
def pprof_reads_time_off_the_cpu():
    need("go")
    got = waiting()
    path = convert(got, "out.pb.gz")
    want = {"cpu": got.json["cpu_ns"], "off_cpu": got.json["off_cpu_ns"],
            "wall": got.json["cpu_ns"] + got.json["off_cpu_ns"]}
    for index, ns in want.items():
        total, top = pprof_total(path, index)
        # pprof's numbers are of nine digits at most.
        check(abs(total - ns) <= ns / 1e6, "%s: pprof counts %d, sonde %d" % (index, total, ns))
        check("Type: " + index in top, top)
    _, top = pprof_total(path, "off_cpu", "-nodecount=500")
    check("[futex]" in top and "[syscall " in top, top)
    tags = run(["go", "tool", "pprof", "-unit=ns", "-tags", path]).stdout.decode()
    futex = sum(t["states"]["futex"] for t in got.threads)
    line = re.search(r"(\d+)ns \([ \d.]+%\): futex$", tags, re.M)
    check(line and abs(int(line.group(1)) - futex) < futex / 20, "%s ns in futex:\n%s" % (futex, tags))


@test
def folded_sums_to_the_time():
    got = waiting()
    with open(convert(got, "out.folded")) as lines:
        counts = [int(line.rsplit(" ", 1)[1]) for line in lines]
    check(sum(counts) == got.json["cpu_ns"] + got.json["off_cpu_ns"], "%d ns" % sum(counts))
    with open(convert(got, "on.folded", "--state", "on-cpu")) as lines:
        counts = [int(line.rsplit(" ", 1)[1]) for line in lines]
    check(sum(counts) == got.json["cpu_ns"], "%d ns on the CPU" % sum(counts))


@test
def speedscope_time_lines():
    got = waiting()
    path = convert(got, "out.speedscope.json")
    done = run(["node", "-e", SCHEMA_CHECK, path], cwd=npm("ajv", "speedscope"))
    check(done.returncode == 0, done.stdout.decode() + done.stderr.decode())
    with open(path) as f:
        scope = json.load(f)
    names = [f["name"] for f in scope["shared"]["frames"]]
    for t in got.threads:
        lines = [p for p in scope["profiles"][1:] if p["name"] == "%s (tid %d)" % (t["name"], t["tid"])]
        if not t["samples"]:
            continue
        check(len(lines) == 1, "%d time lines of %s" % (len(lines), t))
        check(lines[0]["endValue"] == t["cpu_ns"] + t["off_cpu_ns"], "%s: %s ns" % (t, lines[0]["endValue"]))
        leaves = {names[s[-1]] for s in lines[0]["samples"] if s}
        check(any(leaf.startswith("[") for leaf in leaves), "%s never waited: %s" % (t["name"], leaves))


@test
def svg_of_time_off_the_cpu():
    got = waiting()
    out = work("out.svg")
    expect(sonde("report", got.path, "--svg", "-o", out), 0)
    root = xml.etree.ElementTree.parse(out).getroot()
    boxes = [e for e in root.iter("{http://www.w3.org/2000/svg}svg") if e.get("class") == "f"]
    fills = {}
    for box in boxes:
        title = box.find("{http://www.w3.org/2000/svg}title").text.split("\n")[0]
        fills[title] = box.find("{http://www.w3.org/2000/svg}rect").get("fill")
    check("[futex]" in fills and fills["[futex]"] != fills["all"], fills)
    # The widths of what is below the root fill it.
    top = [float(b.get("width").rstrip("%")) for b in boxes if b.get("y") == boxes[1].get("y")]
    check(99 < sum(top) <= 100.01, "the boxes below the root are %s %% wide" % sum(top))


@test
def pprof_is_gzip():
    with gzip.open(convert(inlined(), "x.any", "--to", "pprof")) as f:
        check(f.read(1) == b"\x0a", "does not begin with a sample type")


SCHEMA_CHECK = """
const ajv = new (require("ajv").default)({strict: false, allErrors: true});
const fs = require("fs");
const check = ajv.compile(JSON.parse(fs.readFileSync(
    "node_modules/speedscope/dist/release/file-format-schema.json")));
if (!check(JSON.parse(fs.readFileSync(process.argv[1])))) {
    console.log(JSON.stringify(check.errors.slice(0, 5)));
    process.exit(1);
}
"""


@test
def speedscope_fits_its_schema():
    got = inlined()
    path = convert(got, "out.speedscope.json")
    done = run(["node", "-e", SCHEMA_CHECK, path], cwd=npm("ajv", "speedscope"))
    check(done.returncode == 0, done.stdout.decode() + done.stderr.decode())


@test
def speedscope_totals():
    got = inlined()
    with open(convert(got, "out.json")) as f:
        scope = json.load(f)
    everybody, threads = scope["profiles"][0], scope["profiles"][1:]
    check(everybody["endValue"] == got.json["cpu_ns"], "%s ns" % everybody["endValue"])
    check(sum(t["endValue"] for t in threads) == got.json["cpu_ns"], "threads do not add up")
    check(sum(len(t["samples"]) for t in threads) == got.samples, "samples are missing")
    for profile in scope["profiles"]:
        check(len(profile["samples"]) == len(profile["weights"]), "lengths differ")
        check(sum(profile["weights"]) == profile["endValue"], "weights do not add up")
    names = [f["name"] for f in scope["shared"]["frames"]]
    check("hot_inlined" in names, names)


@test
def svg_is_xml():
    got = inlined()
    out = work("out.svg")
    expect(sonde("report", got.path, "--svg", "-o", out), 0)
    root = xml.etree.ElementTree.parse(out).getroot()
    boxes = [e for e in root.iter("{http://www.w3.org/2000/svg}svg") if e.get("class") == "f"]
    titles = [b.find("{http://www.w3.org/2000/svg}title").text for b in boxes]
    check(any(t.startswith("hot_inlined (inlined)\n") for t in titles), titles)
    with open(out) as f:
        links = re.findall(r"(?:href|src)=|url\(", f.read())
    check(not links, "it refers to something outside: %s" % links)


@test
def flame_graph_in_a_browser():
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if not chromium:
        skip("chromium is not installed")
    got = inlined()
    svg = work("out.svg")
    expect(sonde("report", got.path, "--svg", "-o", svg), 0)
    done = run(["node", os.path.join(HERE, "flame.mjs"), chromium, svg, "cold"],
               env=dict(os.environ, NODE_HOME=npm("playwright-core"), HOME=work()))
    check(done.returncode == 0, done.stderr.decode(errors="replace"))
    saw = json.loads(done.stdout)
    check(not saw["errors"], saw["errors"])
    check(all(u.startswith("file://") for u in saw["requests"]), saw["requests"])

    start, zoomed = saw["start"], saw["zoomed"]
    check(start["shown"] == start["all"] and not start["resettable"], start)
    check(abs(start["drawn"] - start["page"] * start["width"] / 100) < 1, start)
    check("cold" in saw["hovered"]["details"] and "samples" in saw["hovered"]["details"],
          saw["hovered"])
    check(zoomed["width"] == 100 and zoomed["shown"] < start["all"] and zoomed["resettable"],
          zoomed)
    check(saw["reset"]["width"] == start["width"] and saw["reset"]["shown"] == start["all"],
          saw["reset"])
    check(saw["searched"]["hits"] >= 1, saw["searched"])
    matched = float(re.search(r"[\d.]+", saw["searched"]["matched"]).group())
    check(abs(matched - got.share("cold")) < 1, "%s, %s" % (matched, got.share("cold")))
    check(saw["wrong"], "a wrong expression is not marked")
    check(saw["escaped"]["hits"] == 0 and saw["escaped"]["matched"] == "", saw["escaped"])
    check(saw["ctrl_f"] == "q", "Ctrl-F does not search")
    check(saw["keyboard"]["focused"] and saw["keyboard"]["resettable"], saw["keyboard"])
    check(saw["narrow"]["page"] == 600, saw["narrow"])


main()
