#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""What `sonde`, `sonde report` and `sonde convert` print and return, apart from the numbers."""
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from harness import *  # noqa: E402,F403

_made = []


def made():
    """A recording of 300 ms, made once; every test gets a copy of its own."""
    if not _made:
        got = recording(["-F", "400", "--", program("split"), "100000000", "300"])
        with open(got.path, "rb") as f:
            _made.append(f.read())
    path = work("in.sonde")
    with open(path, "wb") as f:
        f.write(_made[0])
    return path


def out(*arguments, status=0, **options):
    done = sonde(*arguments, **options)
    expect(done, status)
    return done.stdout.decode()


@test
def help_of_everything():
    general = out("--help")
    check(out("help") == general and out("-h") == general, "three ways, three texts")
    table = general.split("Commands:\n")[1].split("\n\n")[0]
    commands = re.findall(r"^  ([a-z]+) ", table, re.M)
    check(set(commands) >= {"record", "report", "convert", "doctor"}, commands)
    for command in commands:
        text = out(command, "--help")
        check(text == out("help", command), command + ": two help texts")
        check(text.startswith("Usage: sonde %s " % command), text)
        examples = text.split("\nExamples:\n")
        # A command may be two, each with a text of its own.
        check(len(examples) == 1 + text.count("Usage: sonde ") and
              all(e.count("  sonde ") >= 2 for e in examples[1:]), command + " has no two examples")
        check(max(map(len, text.splitlines())) <= 100, command + ": a line is too long")


@test
def version():
    check(re.fullmatch(r"sonde \d+\.\d+\.\d+\n", out("--version")), out("--version"))


@test
def wrong_usage_is_status_2():
    for arguments, words in (
            ([], "usage"),
            (["nonsense"], "unknown command 'nonsense'"),
            (["help", "nonsense"], "unknown command"),
            (["report", "--nonsense"], "unknown option --nonsense"),
            (["report", "a", "b"], "one argument too many"),
            (["report", "--top", "0"], "not between"),
            (["report", "--json", "--svg"], "only one of"),
            (["report", "--folded", "--inverted"], "inverted"),
            (["convert", "a"], "must both be named"),
            (["convert", "a", "b.nonsense"], "tells no format"),
            (["convert", "a", "b", "--to", "nonsense"], "unknown format")):
        done = sonde(*arguments)
        expect(done, 2, words)
        check(not done.stdout, "usage errors say nothing on stdout")


@test
def summary_in_a_file():
    text = out("report", made())
    lines = text.splitlines()
    check(" samples at 400 Hz" in lines[0], lines[0])
    check(lines[1].startswith("Stacks: "), lines[1])
    for words in ("  self   total  function", " total  hottest paths", "Threads: "):
        check(words in text, "no %r in\n%s" % (words, text))
    check("\x1b" not in text, "colours in a file")


def on_a_terminal(command):
    """What a command prints on a terminal of 80 x 24."""
    need("script")
    env = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS", "LINES")}
    env.update(TERM="xterm-256color", LC_ALL="C.UTF-8")
    done = run(["script", "-qec", "stty rows 24 cols 80; " + command, "/dev/null"], env=env)
    if b"failed to create pseudo-terminal" in done.stderr + done.stdout:
        skip("there are no pseudo-terminals here")
    return done.stdout.decode().replace("\r\n", "\n")


@test
def summary_on_a_terminal():
    path = made()
    text = on_a_terminal("%s report %s" % (SONDE, path))
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    check("\x1b[" in text, "no colours")
    check("\x1b" not in plain, "other escapes than colours")
    check(len(plain.splitlines()) < 24, "%d lines" % len(plain.splitlines()))
    wide = [line for line in plain.splitlines() if len(line) > 80]
    check(not wide, wide)
    for setting in ("NO_COLOR=1", "TERM=dumb"):
        text = on_a_terminal("env %s %s report %s" % (setting, SONDE, path))
        check("\x1b" not in text, "colours in spite of " + setting)


@test
def views_agree():
    path = made()
    got = Recording(path)
    selves = sum(f["self"] for f in got.json["functions"])
    check(selves == got.samples, "self of all functions: %d of %d" % (selves, got.samples))
    check(sum(t["samples"] for t in got.threads) == got.samples, "threads do not add up")
    check(sum(n for _, n in got.stacks) == got.samples, "folded does not add up")
    order = [f["self"] for f in got.json["functions"]]
    check(order == sorted(order, reverse=True), "functions are not by self")
    for f in got.json["functions"][:3]:
        check(f["name"] in out("report", path, "--text"), f["name"])
    samples = re.findall(r"^sample ", got.dump(), re.M)
    check(len(samples) == got.samples, "%d in the dump" % len(samples))
    tree = json.loads(out("report", path, "--json", "--tree"))["tree"]
    check(tree["total"] == got.samples, "tree: %d" % tree["total"])


@test
def top_and_output():
    path = made()
    got = json.loads(out("report", path, "--json", "--top", "1"))
    check(len(got["functions"]) == 1, "%d functions" % len(got["functions"]))
    check(out("report", path, "--json", "-o", work("x.json")) == "", "stdout in spite of -o")
    with open(work("x.json")) as f:
        check(json.load(f)["samples"] == got["samples"], "another recording")


@test
def filters():
    path = made()
    name = Recording(path).threads[0]["name"]
    everything = json.loads(out("report", path, "--json"))["samples"]
    for options, samples in ((["-t", "^%s$" % re.escape(name)], everything), (["--main"], everything),
                             (["-t", "no such thread"], 0), (["--tid", "1"], 0)):
        got = json.loads(out("report", path, "--json", *options))
        check(got["samples"] == samples, "%s: %d" % (options, got["samples"]))
    check("No samples" in out("report", path, "--tid", "1"), "nothing said about nothing")
    for command in (["report", path], ["convert", path, work("x.folded")]):
        expect(sonde(*command, "-t", "("), 2, "pattern '('")


@test
def default_file():
    os.mkdir(work("empty"))
    expect(sonde("report", cwd=work("empty")), 1, "no profile.sonde here", "sonde record")
    os.rename(made(), work("profile.sonde"))
    expect(sonde("report", cwd=work()), 0)


@test
def recordings_are_not_overwritten():
    path = made()
    before = open(path, "rb").read()
    expect(sonde("report", path, "--text", "-o", path), 1, "is a recording")
    expect(sonde("convert", path, path, "--to", "folded"), 1, "is a recording")
    check(open(path, "rb").read() == before, "it was overwritten")


@test
def a_reader_that_leaves():
    path = made()
    for view in ("--text", "--dump", "--folded", "--json"):
        child = subprocess.Popen([SONDE, "report", path, view], stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE)
        child.stdout.close()
        err = child.stderr.read()
        child.stderr.close()
        check(child.wait() == 0 and not err, "%s: %d %r" % (view, child.returncode, err))


@test
def a_full_disk():
    path = made()
    with open("/dev/full", "wb") as full:
        for view in ([], ["--text"], ["--dump"], ["--folded"]):
            done = subprocess.run([SONDE, "report", path] + view, stdout=full,
                                  stderr=subprocess.PIPE)
            check(done.returncode == 1 and b"No space left" in done.stderr,
                  "%s: %d %r" % (view, done.returncode, done.stderr))
    expect(sonde("convert", path, "/dev/full", "--to", "folded"), 1, "no space left")


@test
def convert_tells_what_is_lost():
    path = made()
    for ext, name in (("folded", "folded"), ("pb.gz", "pprof"), ("speedscope.json", "speedscope")):
        expect(sonde("convert", path, work("out." + ext)), 0, name + " cannot hold: ")
        check(os.path.getsize(work("out." + ext)) > 100, ext)
    done = sonde("convert", path, "-", "--to", "folded", "--quiet")
    expect(done, 0)
    check(not done.stderr, done.stderr)
    check(done.stdout == sonde("report", path, "--folded").stdout, "not what report prints")


main()
