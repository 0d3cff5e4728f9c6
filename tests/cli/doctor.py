#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""sonde doctor: facts that can be checked from outside, and the same in JSON."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from harness import *

STATES = {"yes", "partly", "no"}
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


def doctor(*arguments, status=0, prefix=()):
    done = run([*prefix, SONDE, "doctor", "--json", *map(str, arguments)])
    expect(done, status)
    return json.loads(done.stdout)


def by_id(rights):
    return {r["id"]: r for r in rights}


@test
def facts_about_the_machine():
    said = doctor()
    rights = by_id(said["machine"])
    check(said["works"] is True, "%s" % said)
    for right in said["machine"]:
        check(right["state"] in STATES and right["found"], "%s" % right)
        check(right["state"] == "yes" or right["cost"], "it does not say what this costs: %s" % right)
    with open("/proc/sys/kernel/perf_event_paranoid") as f:
        check(f.read().strip() in rights["perf_event_paranoid"]["found"], "%s" % rights)
    btf = os.path.exists("/sys/kernel/btf/vmlinux")
    check((rights["btf"]["state"] == "yes") == btf, "%s" % rights["btf"])


@test
def text_and_json_agree():
    text = sonde("doctor").stdout.decode()
    for right in doctor()["machine"]:
        check(right["id"] in text, "%s is missing in: %s" % (right["id"], text))
    check("works" in text.splitlines()[-1], text)


@test
def without_privileges_the_fixes_are_commands():
    need_root()
    need("setpriv")
    os.chmod(work(), 0o755)
    copy = work("sonde")
    shutil.copy(SONDE, copy)
    done = run(NOBODY + [copy, "doctor", "--json"])
    check(done.returncode in (0, 1), "%s" % done)
    rights = by_id(json.loads(done.stdout)["machine"])
    check(rights["whole_machine"]["state"] == "partly", "%s" % rights["whole_machine"])
    check(rights["bpf"]["state"] == "partly" and "cap_bpf" in rights["bpf"]["fix"], "%s" % rights["bpf"])
    check("setcap" in rights["capabilities"]["fix"] and copy in rights["capabilities"]["fix"],
          "%s" % rights["capabilities"])


@test
def a_process_and_its_files():
    child = start([program("split", "gcc-O2"), "10000000", "20000"])
    said = doctor(child.pid)
    files = {os.path.basename(f["path"]): f for f in said["files"]}
    check(said["works"] and said["pid"] == child.pid, "%s" % said)
    check(files["split"]["names"] == "debug info", "%s" % files)
    check(files["split"]["unwind_tables"], "%s" % files)


@test
def a_stripped_program():
    child = start([program("split", "stripped"), "10000000", "20000"])
    files = {os.path.basename(f["path"]): f for f in doctor(child.pid)["files"]}
    check(files["split"]["names"] == "exported names only", "%s" % files["split"])
    check(len(files["split"]["build_id"]) in (0, 40), "%s" % files["split"])


@test
def text_fits_the_terminal():
    """Lines end before column 80; the way to more names is said once for all files."""
    need("sleep")
    child = start(["sleep", "1000"], ready=False)
    text = run(["env", "COLUMNS=80", SONDE, "doctor", str(child.pid)]).stdout.decode()
    for line in text.splitlines():
        check(len(line) <= 80 or " " not in line.strip(), "too long: %s" % line)
    check(text.count("--debuginfod") <= 1 and "debuginfod-find" not in text, text)
    for right in doctor(child.pid)["machine"]:
        check(" ".join(right["cost"].split()) in " ".join(text.split()), "%s" % right)


@test
def processes_that_cannot_be_recorded():
    gone = start(["true"], ready=False)
    gone.wait()
    expect(sonde("doctor", gone.pid), 1, str(gone.pid))
    expect(sonde("doctor", "x"), 2)
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        said = doctor(pid, status=1)
        check(said["works"] is False, "%s" % said)
        check("ended" in by_id(said["process"])["process"]["cost"], "%s" % said["process"])
    finally:
        os.waitpid(pid, 0)


@test
def a_process_of_another_user():
    need_root()
    need("setpriv")
    child = start([program("split"), "10000000", "20000"])
    os.chmod(work(), 0o755)
    shutil.copy(SONDE, work("sonde"))
    done = run(NOBODY + [work("sonde"), "doctor", str(child.pid)])
    expect(done, 1)
    check(b"sudo" in done.stdout and b"does not work" in done.stdout, "%r" % done.stdout)


@test
def generated_code_without_a_map():
    """A page of executable memory and no perf map: doctor says that names will be missing."""
    source = work("jit.c")
    with open(source, "w") as f:
        f.write("#include <stdio.h>\n#include <sys/mman.h>\n#include <unistd.h>\n"
                "int main(void) { mmap(0, 65536, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS,"
                ' -1, 0); puts("ready"); fflush(stdout); pause(); return 0; }\n')
    subprocess.run(["gcc", "-o", work("jit"), source], check=True)
    child = start([work("jit")])
    right = by_id(doctor(child.pid)["process"])["generated_code"]
    check(right["state"] == "partly" and "perf-%d.map" % child.pid in right["found"], "%s" % right)


main()
