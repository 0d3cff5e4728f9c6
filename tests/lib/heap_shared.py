# SPDX-License-Identifier: BSD-2-Clause
"""A collector in a few lines: takes the memory that watched programs share (src/heap/share.h) and reads what they write.

    with Collector("exact") as collector:
        run(["program"], env=collector.environment())
        for target in collector.targets():
            for event in target.events(): ...

Events of a target are in the order of their rings, one ring after the other; `target.rings()` has them apart. Chunks
are not given back while the target runs, so `events()` may be asked for again and again.
"""
import array
import collections
import mmap
import os
import secrets
import socket
import struct

PAGE = 4096
FILTER_SLOTS = 1 << 16
RINGS = 4096
INDEX_SLOTS = ((1 << (2 * 5)) - 1) // 3 << 14
NODES = 1 << 22
CHUNK_BYTES = 16384
CHUNKS = 32768
FILTER_AT = PAGE
RINGS_AT = FILTER_AT + FILTER_SLOTS
INDEX_AT = RINGS_AT + RINGS * 64
NODES_AT = INDEX_AT + INDEX_SLOTS * 4
CHUNKS_AT = NODES_AT + NODES * 16
TABLES_AT = CHUNKS_AT + CHUNKS * CHUNK_BYTES
BYTES = TABLES_AT + (1 << 30)

MODES = {"exact": 1, "sampled": 2, "every": 3}
LARGE = 0xffffffff
UNSAMPLED = 0xffffffff
LOST = ("chunk", "node", "ring", "reentered", "early")
TYPES = {1: "alloc", 2: "free", 3: "free_stack", 4: "realloc", 5: "realloc_done", 6: "call", 7: "rate", 8: "thread",
         9: "modules", 10: "raw", 11: "map", 12: "unmap", 13: "end", 14: "free_last", 15: "free_stack_last",
         16: "unmap_failed", 17: "usable"}
FREES = ("free", "free_stack", "free_last", "free_stack_last")

Event = collections.namedtuple("Event", "time type address size node extra tid ring")

# Fields of the header: offset, format.
FIELDS = {"version": (8, "I"), "mode": (12, "I"), "clock": (16, "I"), "ready": (20, "I"), "pid": (24, "I"),
          "ring_count": (64, "I"), "chunk_count": (68, "I"), "node_count": (72, "I"), "modules_wanted": (76, "I"),
          "modules_gone": (120, "I"), "free_chunks": (128, "Q"), "rate": (192, "Q"), "modules_done": (208, "I"),
          "gave_up": (124, "I"), "stop": (212, "I"), "chunk_limit": (216, "I")}


class Target:
    """One process that said hello."""

    def __init__(self, fd, pid):
        self.pid = pid
        self.fd = fd
        size = os.fstat(fd).st_size
        if size != BYTES:
            raise ValueError("the memory has %d bytes, not %d" % (size, BYTES))
        self.memory = mmap.mmap(fd, BYTES, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)

    def close(self):
        self.memory.close()
        os.close(self.fd)

    def get(self, name):
        at, kind = FIELDS[name]
        return struct.unpack_from(kind, self.memory, at)[0]

    def set(self, name, value):
        at, kind = FIELDS[name]
        struct.pack_into(kind, self.memory, at, value)

    def lost(self):
        return dict(zip(LOST, struct.unpack_from("5Q", self.memory, 80)))

    def ring_states(self):
        return [struct.unpack_from("I", self.memory, RINGS_AT + 64 * i)[0] for i in range(self.get("ring_count"))]

    def stack(self, node):
        """Return addresses, innermost first, and whether they reach the bottom."""
        frames = []
        while node > 2:
            pc, node = struct.unpack_from("QI", self.memory, NODES_AT + 16 * node)
            frames.append(pc)
        return frames, node == 1

    def _chunks(self, ring):
        index = struct.unpack_from("I", self.memory, RINGS_AT + 64 * ring + 8)[0]
        seen = 0
        while index:
            if index > self.get("chunk_count") or seen > CHUNKS:
                raise ValueError("ring %d has chunk %d" % (ring, index))
            at = CHUNKS_AT + index * CHUNK_BYTES
            used, after = struct.unpack_from("II", self.memory, at)
            yield self.memory[at + 64:at + 64 + used]
            index = after
            seen += 1

    def ring(self, number):
        events = []
        tid = 0
        for data in self._chunks(number):
            at = 0
            while at < len(data):
                event, length = _decode(data, at, tid, number)
                if event.type == "thread":
                    tid = event.address
                    event = event._replace(tid=tid)
                events.append(event)
                at += length
        return events

    def rings(self):
        return [self.ring(i) for i in range(self.get("ring_count"))]

    def events(self):
        return [event for ring in self.rings() for event in ring]


def _decode(data, at, tid, ring):
    time, word = struct.unpack_from("QQ", data, at)
    kind, address = TYPES[word >> 56], word & (1 << 56) - 1
    size = node = 0
    extra = None
    length = 16
    if kind in ("alloc", "realloc_done", "call"):
        both = struct.unpack_from("Q", data, at + 16)[0]
        node, size = both >> 32, both & 0xffffffff
        length = 24
        if size == LARGE:
            size = struct.unpack_from("Q", data, at + 24)[0]
            length = 32
        if kind == "call":
            extra = struct.unpack_from("QQ", data, at + length)
            length += 16
    elif kind in ("free_stack", "free_stack_last"):
        node = struct.unpack_from("Q", data, at + 16)[0]
        length = 24
    elif kind == "rate":
        extra = struct.unpack_from("Q", data, at + 16)[0]
        length = 24
    elif kind == "thread":
        extra = data[at + 16:at + 32].rstrip(b"\0").decode(errors="replace")
        length = 32
    elif kind == "raw":
        length = struct.unpack_from("Q", data, at + 16)[0]
        start, count = struct.unpack_from("QQ", data, at + 24)
        regs = struct.unpack_from("33Q", data, at + 40)
        known = struct.unpack_from("Q", data, at + 40 + 33 * 8)[0]
        body = at + 40 + 34 * 8
        extra = (regs, known, start, data[body:body + count])
    elif kind in ("map", "unmap"):
        size = struct.unpack_from("Q", data, at + 16)[0]
        length = 32 if kind == "map" else 24
    elif kind == "usable":
        size = struct.unpack_from("Q", data, at + 16)[0]
        length = 24
    if length < 16:
        raise ValueError("an event of %d bytes" % length)
    return Event(time, kind, address, size, node, extra, tid, ring), length


def own_filters():
    """How many filters of system calls this process has, as a collector tells it to programs."""
    with open("/proc/self/status") as f:
        for line in f:
            if line.startswith("Seccomp_filters:"):
                return int(line.split()[1])
    return 0


class Collector:
    def __init__(self, mode, rate=0, options=0, clock=0, token=None, answer=True, chunks=None):
        self.name = "sonde-test-" + secrets.token_hex(8)
        self.token = token or secrets.token_hex(16)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.bind("\0" + self.name)
        self.socket.listen(64)
        self.socket.setblocking(False)
        self.answer = answer
        self.chunks = chunks
        self.value = "1:%d:%d:%d:%d:%s:%s" % (MODES[mode], clock, rate, options | own_filters() << 8, self.token, self.name)
        self.found = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()
        for target in self.found:
            target.close()
        self.found = []

    def environment(self, library, base=None):
        env = dict(os.environ if base is None else base)
        env["SONDE_HEAP"] = self.value
        old = env.get("LD_PRELOAD")
        env["LD_PRELOAD"] = library + (":" + old if old else "")
        return env

    def fileno(self):
        return self.socket.fileno()

    def accept(self):
        """Takes those who wait. A target waits for tables that will not come: it is told that they are there."""
        while True:
            try:
                peer, _ = self.socket.accept()
            except BlockingIOError:
                return
            with peer:
                message, control, _, _ = peer.recvmsg(64, socket.CMSG_SPACE(4))
            if not message:
                continue
            magic, version, pid, token = struct.unpack("8sII32s", message)
            fds = array.array("i", control[0][2])
            if magic != b"SONDSHM\n" or version != 1 or token.decode() != self.token:
                raise ValueError("a wrong hello: %r" % message)
            target = Target(fds[0], pid)
            if self.chunks is not None:
                target.set("chunk_limit", self.chunks)
            if self.answer:
                target.set("modules_done", 1 << 30)
            self.found.append(target)

    def targets(self):
        self.accept()
        return self.found
