# SPDX-License-Identifier: BSD-2-Clause
"""A virtual machine with another kernel or another processor, for as long as a few commands take.

    root = packages("arm64", "bookworm", ["libc6", "libdw1", "busybox-static"])
    lines = boot("arm64", kernel(root), busybox, {"/bin/sonde": "build/sonde"}, ["sonde doctor"], work)

Everything comes from Debian's package registry and is kept under the build directory, so the second run
downloads nothing. The machine is emulated: no KVM is needed, no module is loaded, and nothing is
written outside its memory.
"""
import base64
import glob
import gzip
import os
import re
import shutil
import subprocess

import debian
from harness import CACHE, need, skip

STORE = os.path.join(os.path.dirname(CACHE), "guests")
BOOT_SECONDS = 1200

MACHINES = {
    # -cpu max signs return addresses; the cheap signature keeps emulation fast.
    "arm64": ["qemu-system-aarch64", "-M", "virt", "-cpu", "max,pauth-impdef=on"],
    # Kernels were seen to panic at an emulated cmpxchg16b; they do without it.
    "amd64": ["qemu-system-x86_64", "-cpu", "max,cx16=off"],
}
CONSOLES = {"arm64": "ttyAMA0", "amd64": "ttyS0"}


def packages(architecture, suite, names):
    """Downloads the packages and unpacks them; the directory they are in. `linux` stands for the
    newest kernel for virtual machines."""
    try:
        debian.need_tools()
    except debian.Refused as reason:
        skip(str(reason))
    folder = os.path.join(STORE, "%s-%s" % (suite, architecture))
    root = os.path.join(folder, "root")
    done = os.path.join(folder, "packages")
    if os.path.exists(done) and open(done).read().split() == names:
        return root
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder + "/debs")
    apt = debian.environment(folder, architecture, suite)
    if subprocess.run(["apt-get", "update", "-q"], env=apt, capture_output=True).returncode:
        skip("Debian's packages cannot be had from here (%s)" % debian.MIRROR)
    wanted = [name for name in names if name != "linux"]
    if "linux" in names:
        wanted += _kernel_packages(apt, architecture)
    got = subprocess.run(["apt-get", "download"] + wanted, env=apt, cwd=folder + "/debs",
                         capture_output=True, text=True)
    if got.returncode:
        skip("cannot download the packages: " + got.stderr.strip()[-200:])
    for package in glob.glob(folder + "/debs/*.deb"):
        subprocess.run(["dpkg-deb", "-x", package, root], check=True)
    shutil.rmtree(folder + "/debs")
    with open(done, "w") as f:
        f.write(" ".join(names))
    return root


def _kernel_packages(apt, architecture):
    """The newest kernel for virtual machines, and what it is in where that is another package."""
    def depends(package, pattern):
        text = subprocess.run(["apt-cache", "depends", package], env=apt, capture_output=True, text=True).stdout
        return re.findall("Depends: (%s)" % pattern, text)
    found = depends("linux-image-cloud-" + architecture, r"linux-image-\S+")[:1]
    if not found:
        skip("there is no kernel for " + architecture)
    return found + depends(found[0], r"linux-binary-\S+")[:1]


def kernel(root):
    return (glob.glob(root + "/boot/vmlinuz-*") + glob.glob(root + "/usr/lib/modules/*/vmlinuz"))[0]


def libraries(root, names):
    """path in the guest -> file, of the libraries of these names."""
    found = {}
    for name in names:
        for folder in ("lib", "usr/lib"):
            for path in glob.glob("%s/%s/**/%s" % (root, folder, name), recursive=True):
                found["/lib/" + os.path.basename(path)] = path
    return found


def _cpio(files, out):
    """An initramfs with these files: path in it -> (mode, bytes)."""
    with gzip.open(out, "wb", compresslevel=1) as f:
        entries = [(path.strip("/"), mode, data) for path, (mode, data) in files.items()]
        for number, (name, mode, data) in enumerate(entries + [("TRAILER!!!", 0, b"")]):
            raw = name.encode() + b"\0"
            fields = [number + 1, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(raw), 0]
            head = b"070701" + b"".join(b"%08X" % field for field in fields) + raw
            f.write(head + b"\0" * (-len(head) % 4) + data + b"\0" * (-len(data) % 4))


INIT = """#!/bin/sh
export PATH=/bin LD_LIBRARY_PATH=/lib
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t tracefs tracefs /sys/kernel/tracing 2>/dev/null
mount -t tmpfs tmpfs /tmp
dmesg -n 1
cd /tmp
echo guest-begin
%s
echo guest-end
poweroff -f
"""


def boot(architecture, image, busybox, files, commands, work):
    """Boots, runs the commands and returns what they printed, as lines. files: path -> local file."""
    machine = MACHINES[architecture]
    need(machine[0])
    content = {"/" + name: (0o40755, b"") for name in
               ("bin", "lib", "lib64", "proc", "sys", "tmp", "dev", "etc")}
    content["/init"] = (0o100755, (INIT % "\n".join(commands)).encode())
    for path, local in dict(files, **{"/bin/busybox": busybox}).items():
        parts = path.split("/")[1:-1]
        for depth in range(len(parts)):
            content.setdefault("/" + "/".join(parts[:depth + 1]), (0o40755, b""))
        with open(local, "rb") as f:
            content[path] = (0o100755, f.read())
    for applet in ("sh", "mount", "dmesg", "echo", "cat", "poweroff", "sleep", "kill",
                   "ls", "grep", "base64", "taskset"):
        content["/bin/" + applet] = (0o120777, b"busybox")
    _cpio(content, work + "/initramfs.gz")
    # One processor: with two, emulated kernels were seen to panic now and then.
    command = machine + ["-m", "1024", "-smp", "1", "-nographic", "-no-reboot", "-nic", "none",
                         "-kernel", image, "-initrd", work + "/initramfs.gz",
                         "-append", "console=%s panic=-1 quiet" % CONSOLES[architecture]]
    try:
        text = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True,
                              timeout=BOOT_SECONDS).stdout.decode("utf-8", "replace")
    except subprocess.TimeoutExpired as e:
        raise Exception("the guest did not end: " + (e.stdout or b"").decode()[-2000:])
    lines = [line.rstrip("\r") for line in text.split("\n")]
    # What the firmware has said last may stand before it in its line.
    begin = [i for i, line in enumerate(lines) if line.endswith("guest-begin")]
    if not begin or "guest-end" not in lines:
        raise Exception("the guest did not get to its end: " + text[-2000:])
    return lines[begin[0] + 1:lines.index("guest-end")]


def send(path):
    """The command that prints a file of the guest, for received()."""
    return "echo guest-file %s; base64 %s; echo guest-file-end" % (path, path)


def received(lines, folder):
    """Writes the files that were sent into the folder: name -> path. The other lines stay."""
    files, text, name = {}, [], None
    for line in lines:
        if line.startswith("guest-file "):
            name, text = line.split()[1], []
        elif line == "guest-file-end":
            files[name] = os.path.join(folder, os.path.basename(name))
            with open(files[name], "wb") as f:
                f.write(base64.b64decode("".join(text)))
            name = None
        elif name:
            text.append(line)
    return files
