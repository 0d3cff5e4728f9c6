# SPDX-License-Identifier: BSD-2-Clause
"""Packages of other Debian suites and architectures, without touching what is installed here.

    apt = Apt("/some/folder", "sid")
    apt.unpack(apt.closure(["python3.14"]), "/some/folder/root")

Everything is kept in the folder: a second Apt of the same folder downloads its lists no more. Refused is
raised, with the reason, when a package cannot be had.
"""
import glob
import os
import re
import shutil
import subprocess

MIRROR = "http://deb.debian.org/debian"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


class Refused(Exception):
    pass


def need_tools():
    for command in ("apt-get", "dpkg-deb"):
        if not shutil.which(command):
            raise Refused("%s is not installed" % command)
    if not os.path.exists(KEYRING):
        raise Refused("Debian's keys are not installed (debian-archive-keyring)")


def environment(folder, architecture, suite, sources=False):
    """For an apt that looks at this architecture and suite alone."""
    for name in ("lists/partial", "cache/archives/partial"):
        os.makedirs(os.path.join(folder, name), exist_ok=True)
    kinds = ["deb", "deb-src"] if sources else ["deb"]
    lines = ["%s [signed-by=%s] %s %s main\n" % (kind, KEYRING, MIRROR, suite) for kind in kinds]
    for name, text in (("status", ""), ("sources.list", "".join(lines))):
        with open(os.path.join(folder, name), "w") as f:
            f.write(text)
    settings = {
        "APT::Architecture": architecture, "APT::Architectures": architecture,
        "Dir::State::Lists": folder + "/lists", "Dir::State::status": folder + "/status",
        "Dir::Cache": folder + "/cache", "Dir::Etc::sourcelist": folder + "/sources.list",
        "Dir::Etc::sourceparts": "-", "Acquire::Languages": "none",
        "APT::Sandbox::User": "root",
    }
    path = os.path.join(folder, "apt.conf")
    with open(path, "w") as f:
        f.writelines('%s "%s";\n' % item for item in settings.items())
    return dict(os.environ, APT_CONFIG=path)


class Apt:
    def __init__(self, folder, suite, architecture="amd64", sources=False):
        need_tools()
        self.folder = folder
        self.environment = environment(folder, architecture, suite, sources)
        if not glob.glob(folder + "/lists/*_Packages*"):
            self._run(["apt-get", "update", "-q"], folder)

    def _run(self, command, cwd):
        done = subprocess.run(command, env=self.environment, cwd=cwd, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL)
        if done.returncode:
            raise Refused("%s: %s" % (" ".join(command[:2]), done.stderr.strip()[-200:]))
        return done.stdout

    def closure(self, names):
        """The packages with all they depend on."""
        plan = self._run(["apt-get", "install", "-s", "-q", "--no-install-recommends"] + names, self.folder)
        return re.findall(r"^Inst (\S+)", plan, re.M)

    def unpack(self, names, root):
        """Downloads these packages and unpacks them, without running anything of theirs."""
        debs = os.path.join(self.folder, "debs")
        shutil.rmtree(debs, ignore_errors=True)
        os.makedirs(debs)
        self._run(["apt-get", "download", "-q"] + names, debs)
        for package in glob.glob(debs + "/*.deb"):
            subprocess.run(["dpkg-deb", "-x", package, root], check=True)
        shutil.rmtree(debs)

    def source(self, name, folder):
        """Downloads and unpacks what the authors published, without Debian's changes."""
        os.makedirs(folder, exist_ok=True)
        self._run(["apt-get", "source", "-q", "--download-only", "--tar-only", name], folder)
        archives = glob.glob(folder + "/*.orig.tar.*")
        if len(archives) != 1:
            raise Refused("no source of %s" % name)
        subprocess.run(["tar", "xf", archives[0], "-C", folder, "--strip-components=1"], check=True)
        os.unlink(archives[0])
