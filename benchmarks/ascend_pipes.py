# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
"""The time of one core's program when every pipe runs as early as queues, flags and barriers allow.

A program is a list of (pipe, kind, amount, link) in issue order: pipe S, V, I (GM to UB) or O (UB to GM); kind WORK (amount: cycles on V,
bytes on I and O), SET, WAIT (link: the index of its SET), or ALL (a barrier of all pipes, of S). S issues in order; each pipe runs in order.
Copies of I and O that are under way share the core's part of the bandwidth.
"""
from typing import NamedTuple

import ascend_published as p

WORK, SET, WAIT, ALL = range(4)
PIPES = "VIO"


class Timing(NamedTuple):
    total: float      # ns
    copies: float     # ns that the bytes take at full rate
    vector: float     # ns that V works
    bubbles: float    # ns without a byte under way

    @property
    def exposed(self):
        """What neither bandwidth nor a busy copy explains, as a part of the copies' time."""
        return (self.total - self.copies) / self.copies if self.copies else 0.0


def vector_cycles(repeats, conflicts):
    return p.VECTOR_START + p.REPEAT * repeats + p.CONFLICT * conflicts


def simulate(program, device, cores, hbm=None, table_rate=None):
    """Timing of one of `cores` cores that run at once, each with its part of the bandwidth.

    table_rate: bytes/ns of copies whose link is "table", when they come from L2 and not from HBM.
    """
    share = min((hbm or device.hbm) * 1000 / cores, 2 * p.CORE_RATE)
    queue, head, active, free_since = {x: [] for x in PIPES}, dict.fromkeys(PIPES, 0), {}, dict.fromkeys(PIPES, float("-inf"))
    done, now, at, issue_at, n = {}, 0.0, 0, 0.0, len(program)
    busy = bubbles = 0.0
    moved = {"I": 0.0, "O": 0.0}
    table_time = 0.0
    while True:
        progress = True
        while progress:
            progress = False
            while at < n and issue_at <= now:
                pipe, kind, amount, link = program[at]
                if pipe != "S":
                    queue[pipe].append(at)
                elif kind == SET:
                    done[at] = now
                elif (kind == WAIT and link not in done) or (kind == ALL and (active or any(head[x] < len(queue[x]) for x in PIPES))):
                    break
                at, issue_at, progress = at + 1, max(issue_at, now) + p.SCALAR, True
            for pipe in PIPES:
                while pipe not in active and head[pipe] < len(queue[pipe]):
                    index = queue[pipe][head[pipe]]
                    _, kind, amount, link = program[index]
                    if kind == WAIT and link not in done:
                        break
                    head[pipe] += 1
                    progress = True
                    if kind == SET:
                        done[index] = now
                    elif kind == WORK and pipe == "V":
                        active[pipe] = [now + amount / device.clock, 0.0, None]
                        busy += amount / device.clock
                    elif kind == WORK:
                        idle = now > free_since[pipe]
                        start = now + (p.COPY_START if idle else 0)
                        rate = table_rate if link == "table" else None
                        active[pipe] = [start + (0 if idle else p.COPY_FLOOR), float(amount), rate, start]
                        if rate:
                            table_time += amount / rate
                        else:
                            moved[pipe] += amount
        copies = [a for x, a in active.items() if x != "V" and a[1] > 0 and a[3] <= now]
        sharing = sum(a[2] is None for a in copies)
        rates = [a[2] or min(share / sharing, p.CORE_RATE) for a in copies]
        events = [issue_at] if at < n and issue_at > now else []
        for pipe, a in active.items():
            if pipe == "V" or a[1] <= 0:
                events.append(a[0])
            elif a[3] > now:
                events.append(a[3])
        events += [now + a[1] / rate for a, rate in zip(copies, rates)]
        if not events:
            break
        later = min(events)
        if not any(x != "V" and a[3] <= now for x, a in active.items()):
            bubbles += later - now
        for a, rate in zip(copies, rates):
            a[1] -= (later - now) * rate
            if a[1] < 1e-6:
                a[1] = 0.0
        now = later
        for pipe in [x for x, a in active.items() if a[1] <= 0 and a[0] <= now]:
            del active[pipe]
            free_since[pipe] = now
    if at < n or any(head[x] < len(queue[x]) for x in PIPES):
        raise ValueError("the program waits for a flag that nothing sets")
    copies = max(sum(moved.values()) / share, max(moved.values()) / p.CORE_RATE, table_time)
    return Timing(now, copies, busy, bubbles)


def loop_of_add(copies, elements, conflicts=True, double=False):
    """The program of the Add sample: `copies` rounds of two loads, an Add of `elements` half numbers, a store."""
    repeats = elements * 2 // 256
    work = vector_cycles(repeats, repeats if conflicts else 0)
    program, to_load, to_add = [], {}, {}
    put = lambda *item: program.append(item) or len(program) - 1
    for i in range(copies):
        slot = i % 2 if double else 0
        if slot in to_load:
            put("I", WAIT, 0, to_load[slot])
        put("I", WORK, elements * 2, None)
        put("I", WORK, elements * 2, None)
        put("V", WAIT, 0, put("I", SET, 0, None))
        if slot in to_add:
            put("V", WAIT, 0, to_add[slot])
        put("V", WORK, work, None)
        to_load[slot] = put("V", SET, 0, None)
        put("O", WAIT, 0, put("V", SET, 0, None))
        put("O", WORK, elements * 2, None)
        to_add[slot] = put("O", SET, 0, None)
    return program


def predictions():
    """Name of a published row -> what the model says of it."""
    device = p.DEVICES[0]
    us = {}
    for name, cores, elements, double in (("A1", 1, 4096, 0), ("A2", 48, 4096, 0), ("A3", 48, 16384, 0), ("A4", 48, 16384, 1)):
        rounds = p.ADD_ELEMENTS / elements / cores
        part = min(200, int(rounds))
        us[f"{name}.aiv"] = simulate(loop_of_add(part, elements, double=double), device, cores).total / 1000 * rounds / part
    for name, size in (("C1", 128), ("C2", 8192), ("C3", 131072)):
        copies = p.COPY_BYTES / size / p.CORES
        part = min(500, int(copies))
        us[f"{name}.mte2"] = simulate([("I", WORK, size, None)] * part, device, p.CORES).total / 1000 * copies / part
    us["C5.aiv"] = 4 * us["C3.mte2"]
    us["C6.aiv"] = us["C3.mte2"] + 3 * p.COPY_BYTES / p.L2 / 1e6
    us["C7.mte2"] = 6144 * 512 * 2 * p.CORES / p.SAME_ROWS / 1e6
    counter = lambda conflicts: 1000 * vector_cycles(64, conflicts) / p.CLOCK * p.COUNTER
    us.update(B1=counter(0), B2=counter(64), B3=counter(64), B4=counter(0), B7=counter(32), B8=counter(0))
    for name, adds, repeats, conflicts in (("A1", 16384, 32, 32), ("A3", 8192 * 8192 / 48 / 16384, 128, 128),
                                           ("A6", 8192 * 8192 / 48 / 16256, 127, 0)):
        us[f"{name}.vec"] = adds * vector_cycles(repeats, conflicts) / p.CLOCK / 1000
    us.update({f"A{case}.launch": p.LAUNCH + cores * p.LAUNCH_CORE for case, cores in ((1, 1), (3, 48), (4, 48), (6, 48))})
    return us


def held_out_error():
    """The largest relative error on the rows that calibrate nothing."""
    us = predictions()
    return max(abs(us[row.name] / row.value - 1) for row in p.ROWS if row.use == "test")
