# SPDX-License-Identifier: BSD-2-Clause
"""Signal-triggered stack samples with gdb, for systems where sonde does not run.

    gdb -ex 'source /path/to/sonde.py' -ex run --args ./prog ARGS...
    kill -USR2 PID            # from elsewhere, as often as samples are wanted

Each time the program gets the signal, the stacks of all its threads are appended to a file of folded stacks,
the signal is swallowed, and the program goes on. The file can be drawn at any time.

    set sonde-signal SIGUSR1      another signal (SIGUSR2)
    set sonde-output FILE         another file (sonde.folded); a new file, an older one is replaced
    sonde-sample                  a sample now, of a program that stands stopped

Only what gdb itself offers is used, so this works wherever gdb with Python does. README.md has the rest.
"""
import os
import stat

import gdb

FRAME_LIMIT = 16384


# ---- names ----

def clean(name):
    """One frame of a folded stack has no ';' and no control characters."""
    return "".join(":" if c == ";" else " " if c < " " or c == "\x7f" else c for c in name)


class Modules(object):
    """Which file an address lies in, and where that would be in the file's own numbering."""

    def __init__(self):
        self.ranges = []  # (start, end, path)
        self.biases = {}

    def read(self):
        """The loaded sections, relocated: "0x1000 - 0x2000 is .text in /lib/libc.so"."""
        self.ranges = []
        self.biases = {}
        main = gdb.current_progspace().filename or "?"
        for line in gdb.execute("info files", to_string=True).splitlines():
            words = line.split()
            if len(words) < 5 or words[1] != "-" or words[3] != "is":
                continue
            path = line.split(" in ", 1)[1] if " in " in line else main
            self.ranges.append((int(words[0], 16), int(words[2], 16), path.strip()))

    def path_of(self, pc):
        for start, end, path in self.ranges:
            if start <= pc < end:
                return path
        return None

    def bias_of(self, path):
        """What to take off an address. Of files that stand where they were linked to: nothing. The
        first section lies in the page of the ELF header, whose e_type says which kind it is."""
        if path not in self.biases:
            first = min(start for start, _, p in self.ranges if p == path) & ~0xfff
            self.biases[path] = first
            try:
                header = bytes(gdb.selected_inferior().read_memory(first, 18))
                if header[:4] == b"\x7fELF" and bytearray(header)[16] == 2:  # ET_EXEC
                    self.biases[path] = 0
            except gdb.error:
                pass
        return self.biases[path]

    def name(self, pc):
        path = self.path_of(pc)
        if path is None:  # perhaps loaded since
            self.read()
            path = self.path_of(pc)
        if path is None:
            return "[unmapped]+0x%x" % pc
        return "%s+0x%x" % (os.path.basename(path), pc - self.bias_of(path))


modules = Modules()


# ---- stacks ----

def frame_name(frame):
    """Inlined functions are frames of their own in gdb."""
    name = frame.name()
    if name:
        return name
    if frame.type() == gdb.SIGTRAMP_FRAME:
        return "[signal]"
    return modules.name(frame.pc())


def is_whole(frame):
    return frame.unwind_stop_reason() in (gdb.FRAME_UNWIND_NO_REASON, gdb.FRAME_UNWIND_OUTERMOST)


def stack_of_selected():
    """Names from the outermost in, and whether the outermost is where a stack begins."""
    names = []
    whole = False
    try:
        frame = gdb.newest_frame()
        while frame is not None and len(names) < FRAME_LIMIT:
            names.append(frame_name(frame))
            older = frame.older()
            if older is None:
                whole = is_whole(frame)
            frame = older
    except gdb.error:
        pass  # memory that cannot be read: the stack ends here
    names.reverse()
    return names, whole


def thread_name(thread):
    if thread.name:
        return thread.name
    path = gdb.current_progspace().filename
    return os.path.basename(path) if path else "thread %d" % thread.num


def line_of(thread):
    thread.switch()
    names, whole = stack_of_selected()
    if not whole:
        names.insert(0, "[truncated]")
    return ";".join(clean(n) for n in [thread_name(thread)] + names) + " 1\n"


class past_main(object):
    """The frames before main() are part of the stack."""
    names = ("backtrace past-main", "backtrace past-entry")

    def __enter__(self):
        self.before = [gdb.parameter(n) for n in self.names]
        for n in self.names:
            gdb.execute("set %s on" % n, to_string=True)

    def __exit__(self, *unused):
        for n, value in zip(self.names, self.before):
            gdb.execute("set %s %s" % (n, "on" if value else "off"), to_string=True)


def all_lines():
    """One line a thread that stands stopped, which in gdb's default mode all do."""
    selected = gdb.selected_thread()
    lines = []
    try:
        with past_main():
            for thread in sorted(gdb.selected_inferior().threads(), key=lambda t: t.num):
                if thread.is_valid() and thread.is_stopped():
                    lines.append(line_of(thread))
    finally:
        if selected is not None and selected.is_valid():
            selected.switch()
    return lines


# ---- the file ----

class Output(object):
    def __init__(self):
        self.path = None
        self.fd = -1
        self.samples = 0

    def open(self, path):
        """A new file: nothing that another user may have put there is written into."""
        if os.path.lexists(path):
            found = os.lstat(path)
            if not stat.S_ISREG(found.st_mode):
                raise gdb.GdbError("%s is not a regular file" % path)
            if found.st_uid != os.geteuid():
                raise gdb.GdbError("%s belongs to somebody else" % path)
            os.unlink(path)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
        self.close()
        self.fd = os.open(path, flags, 0o600)
        self.path = path

    def close(self):
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1

    def add(self, lines):
        """All lines of a sample with one call, so that who reads the file finds whole lines."""
        wanted = gdb.parameter("sonde-output") or "sonde.folded"
        if self.fd < 0 or wanted != self.path:
            self.open(wanted)
        os.write(self.fd, "".join(lines).encode("utf-8", "replace"))
        self.samples += 1


output = Output()


def sample():
    modules.read()
    output.add(all_lines())


# ---- settings ----

class SondeOutput(gdb.Parameter):
    """Where samples go: a file of folded stacks."""
    set_doc = "Set the file that samples are appended to."
    show_doc = "Show the file that samples are appended to."

    def __init__(self):
        super(SondeOutput, self).__init__("sonde-output", gdb.COMMAND_DATA, gdb.PARAM_FILENAME)
        self.value = "sonde.folded"

    def get_set_string(self):
        return ""

    def get_show_string(self, value):
        return "Samples are appended to %s." % value


class SondeSignal(gdb.Parameter):
    """The signal that takes a sample and is swallowed."""
    set_doc = "Set the signal that takes a sample."
    show_doc = "Show the signal that takes a sample."

    def __init__(self):
        super(SondeSignal, self).__init__("sonde-signal", gdb.COMMAND_DATA, gdb.PARAM_STRING)
        self.value = self.handled = "SIGUSR2"
        self.handle(self.value)

    @staticmethod
    def handle(name):
        gdb.execute("handle %s stop print nopass" % name, to_string=True)

    def get_set_string(self):
        name = self.value.strip().upper()
        name = name if name.startswith("SIG") else "SIG" + name
        try:
            self.handle(name)
        except gdb.error:
            self.value = self.handled
            raise gdb.GdbError("there is no signal %s" % name)
        if self.handled != name:
            gdb.execute("handle %s stop print pass" % self.handled, to_string=True)
        self.value = self.handled = name
        return ""

    def get_show_string(self, value):
        return "%s takes a sample." % value


class SondeSample(gdb.Command):
    """Append the stacks of all threads of the stopped program to the file of samples."""

    def __init__(self):
        super(SondeSample, self).__init__("sonde-sample", gdb.COMMAND_STACK)

    def invoke(self, argument, from_tty):
        if gdb.selected_thread() is None:
            raise gdb.GdbError("The program is not being run.")
        sample()


SondeOutput()
SondeSignal()
SondeSample()


# ---- stopping and going on ----

class Runner(object):
    """After a sample the program goes on. That cannot be done where gdb tells of the stop, since it is not yet
    done with it: commands given with -ex are followed by a hook, and whatever was typed by gdb's event
    loop."""

    def __init__(self):
        self.pending = False
        self.running = False
        self.unprompted = False  # goes on although gdb awaits a command
        self.farewell = ""

    def on_stop(self, event):
        if (not isinstance(event, gdb.SignalEvent) or
                event.stop_signal != gdb.parameter("sonde-signal")):
            gdb.post_event(self.prompt)
            return
        try:
            sample()
        except (gdb.error, gdb.GdbError, OSError) as why:
            gdb.write("sonde: no sample: %s\n" % why, gdb.STDERR)
        self.pending = True
        gdb.post_event(self.go_on_from_prompt)

    def go_on_from_prompt(self):
        if self.pending and not self.running:
            self.unprompted = True
            self.go_on()

    def prompt(self):
        """gdb shows its prompt when a command is done, and what we made to go on was none."""
        if self.unprompted:
            gdb.write(gdb.parameter("prompt"))
            gdb.flush()
        self.unprompted = False

    def go_on(self):
        if self.running:
            return
        self.running = True
        try:
            while self.pending:
                self.pending = False
                gdb.execute("continue", to_string=True)
        finally:
            self.running = False
            self.say_farewell()

    def on_exit(self, event):
        self.pending = False
        if output.samples:
            self.farewell = "sonde: %d samples in %s\n" % (output.samples, output.path)
        output.samples = 0
        output.close()
        if not self.running:  # else it would go to the string that `continue` makes
            self.say_farewell()
        gdb.post_event(self.prompt)

    def say_farewell(self):
        gdb.write(self.farewell)
        self.farewell = ""


# Each stop prints some lines, and a full screen of them would wait for a key.
gdb.execute("set pagination off")
runner = Runner()
gdb.events.stop.connect(runner.on_stop)
gdb.events.exited.connect(runner.on_exit)
for command in ("run", "start", "continue", "attach"):
    gdb.execute("define hookpost-%s\npython runner.go_on()\nend" % command)
