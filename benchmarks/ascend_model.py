#!/usr/bin/env python3
# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
"""Speed on Atlas A2, modelled from the trace of the real kernel source. No NPU was used: every time printed here is modelled.

    python benchmarks/ascend_model.py             # every operator, dtypes and shape: minutes; needs g++ and NumPy
    python benchmarks/ascend_model.py --write     # the same into docs/performance.md, with the figure (needs matplotlib)

Exact, from the trace: bytes, copies, vector instructions, and the order in which they may run. Modelled: how long each takes.
"""
import argparse
import re
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

REPO = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPO / "benchmarks"), str(REPO), str(REPO / "tests")]

import ascend_published as p  # noqa: E402
import kernel_on_twin as twin  # noqa: E402
from ascend_pipes import ALL, SET, WAIT, WORK, held_out_error, predictions, simulate, vector_cycles  # noqa: E402

SIZE = {"float16": 2, "bfloat16": 2, "float32": 4}
ERROR = held_out_error()


class Shape(NamedTuple):
    name: str
    ends: tuple       # cumulative
    q_heads: int
    k_heads: int
    head_size: int = 128
    table_rows: int = 0  # 0: the longest sequence

    @property
    def tokens(self):
        return self.ends[-1]

    @property
    def rows(self):
        return self.table_rows or int(max(np.diff((0, *self.ends))))


def equal(tokens, sequences):
    return tuple(int(e) for e in np.arange(1, sequences + 1) * tokens // sequences)


def uneven(tokens, sequences, seed=0):
    cuts = np.sort(np.random.default_rng(seed).choice(np.arange(1, tokens), sequences - 1, replace=False))
    return (*map(int, cuts), tokens)


SHAPES = [
    Shape("11 tokens, 1 + 1 heads", (2, 3, 7, 11), 1, 1, table_rows=64),
    Shape("2048 tokens, 10 + 10 heads", equal(2048, 4), 10, 10),
    Shape("4096 tokens, 32 + 32 heads", equal(4096, 8), 32, 32),
    Shape("65536 tokens, 1 + 1 heads", equal(65536, 8), 1, 1),
    Shape("8192 tokens, 40 + 40 heads", equal(8192, 8), 40, 40),
    Shape("18434 tokens in 512 sequences, 32 + 32 heads", uneven(18434, 512), 32, 32),
    Shape("32768 tokens, 32 + 8 heads", equal(32768, 8), 32, 8),
]


# ---- what the kernel does -------------------------------------------------------------------------------------------


class Trace(NamedTuple):
    """What the kernel does, exactly."""
    cores: int
    moved: int             # bytes read and written
    unique: int            # the least: q, k and the results once, a row of cos and sin once for each core that needs it, the ends once
    copies: int
    bursts: int
    shares: np.ndarray     # of each core, bytes
    cores_copies: list     # of each core: bytes of its copies, those of its table rows
    programs: list         # of the cores that may end last: (program, the same with every repeat in conflict, without vector work)


def distinct_rows(shape, first, last):
    """Positions that the tokens [first, last) have in their sequences."""
    starts, ends = np.array((0, *shape.ends[:-1])), np.array(shape.ends)
    low, high = np.maximum(first - starts, 0), np.minimum(last, ends) - starts
    some = (ends > first) & (starts < last) & (high > low)
    covered, reach = 0, 0
    for a, b in sorted(zip(low[some].tolist(), high[some].tolist())):
        covered += max(0, b - max(a, reach))
        reach = max(reach, b)
    return covered


def token_ranges(tiling):
    d, first = tiling.data, 0
    per_token = d.qHeads + d.kHeads if d.splitHeads else 1
    for core in range(tiling.blockDim):
        last = first + d.unitsPerCore + (core < d.unitsRest)
        yield first // per_token, -(-last // per_token)
        first = last


def programs_of(report, base, records):
    """One core's part of the trace as programs of ascend_pipes."""
    letters = [{"V": "V", "MTE2": "I", "MTE3": "O"}.get(x, "S") for x in report.pipes]
    usual, conflicts_all, copies_only, new = [], [], [], {}
    columns = zip(*(records[c].tolist() for c in ("op", "pipe", "bytes", "repeats", "conflicts", "link", "event_id")))
    for at, (op, pipe, size, repeats, conflicts, link, extra) in enumerate(columns):
        name, pipe = report.ops[op], letters[pipe]
        if name == "AllocTensor" or name == "PipeBarrier" and not extra:
            continue  # V is in order, and its start-up covers a barrier
        new[at] = len(usual)
        worst = least = None
        if name == "SetFlag":
            item = (pipe, SET, 0, None)
        elif name == "WaitFlag":
            item = (pipe, WAIT, 0, new[link - base])
        elif name == "PipeBarrier":
            item = ("S", ALL, 0, None)
        elif pipe == "V":
            item, worst, least = (("V", WORK, cycles, None) for cycles in (
                vector_cycles(repeats, conflicts), vector_cycles(repeats, repeats), 0))
        else:
            item = (pipe, WORK, size, None)
        usual.append(item)
        conflicts_all.append(worst or item)
        copies_only.append(least or item)
    return usual, conflicts_all, copies_only


def trace(op, x, table, shape, cores):
    """Runs the kernel on the twin without computing."""
    q, k = ((shape.tokens, heads * shape.head_size) for heads in (shape.q_heads, shape.k_heads))
    t = twin.tiling(twin.problem(op, x, table, shape.tokens, q[1], k[1], shape.rows, shape.head_size, len(shape.ends), cores))
    zeros = lambda size, dtype: np.zeros(size, f"u{SIZE[dtype]}")
    tables = [zeros((shape.rows, shape.head_size), table) for _ in range(2)]
    report = twin.built(op, x, table).run(
        [zeros(q, x), zeros(k, x), *tables, np.array(shape.ends, np.int32), zeros(q, x), zeros(k, x), None], bytes(t.data), t.blockDim,
        check=False, trace=True, dry=True)
    shares = np.array([c["bytes_in"] + c["bytes_out"] for c in report.cores])
    in_order = report.trace["core"]
    begins = np.searchsorted(in_order, np.arange(t.blockDim + 1))
    rows = sum(distinct_rows(shape, *tokens) for tokens in token_ranges(t))
    unique = 2 * (np.prod(q) + np.prod(k)) * SIZE[x] + 2 * rows * shape.head_size * SIZE[table] + 4 * len(shape.ends)
    late = {int(shares.argmax()), int(np.diff(begins).argmax())}
    return Trace(t.blockDim, int(shares.sum()), int(unique), report.total("dma_in") + report.total("dma_out"),
                 report.total("bursts_in") + report.total("bursts_out"), shares, [c["vec"] for c in report.cores],
                 [programs_of(report, begins[c], report.trace[begins[c]:begins[c + 1]]) for c in sorted(late)])


class Result(NamedTuple):
    """One line of the table. Times in us, all modelled."""
    trace: Trace
    vector: float          # cycles of the core that ends last
    critical: float        # that core's path
    exposed_vector: float  # parts of the time of its copies
    exposed_copies: float  # starts and waits of copies
    bound: str
    time: float
    low: float
    high: float

    @property
    def exposed(self):
        return self.exposed_vector + self.exposed_copies


def launch(cores):
    return p.LAUNCH + p.LAUNCH_CORE * cores


def model(op, x, table, shape, device):
    t = trace(op, x, table, shape, device.cores)
    timings = [simulate(usual, device, t.cores) for usual, _, _ in t.programs]
    last = max(range(len(timings)), key=lambda i: timings[i].total)
    timing, (usual, worst, copies_only) = timings[last], t.programs[last]
    bare = simulate(copies_only, device, t.cores).total
    fastest = simulate(usual, device, t.cores, hbm=device.hbm_best).total
    slowest = simulate(worst, device, t.cores).total
    start = launch(t.cores)
    bound = "launch" if start * 1000 > timing.total else "HBM" if timing.copies >= timing.vector else "vector"
    return Result(t, timing.vector * device.clock, timing.total / 1000, (timing.total - bare) / timing.copies,
                  (bare - timing.copies) / timing.copies, bound, start + timing.total / 1000,
                  (start + fastest / 1000) * (1 - ERROR), (start + slowest / 1000) * (1 + ERROR))


# ---- what else could be used, from the same constants -----------------------------------------------------------------


def vendor_program(shape, heads, table_rows=96):
    """ATB's RopeGrad on one core: a column of `heads` heads after one another, tiles of 96 rows, one buffer a queue, everything done
    before the next sequence. Every operand starts on the same bank group."""
    program, rows_before = [], 0
    put = lambda *item: program.append(item) or len(program) - 1
    row = shape.head_size * 2
    work = lambda n, conflicts: put("V", WORK, vector_cycles(n, conflicts), None)
    for head in heads:
        loaded = [n for n in (shape.q_heads, shape.k_heads) if head < n]
        start = 0
        for end in shape.ends:
            to_load = to_add = None
            for first in range(start, end, table_rows):
                n = min(table_rows, end - first)
                if to_load is not None:
                    put("I", WAIT, 0, to_load)
                for _ in loaded:
                    put("I", WORK, n * row, None)
                for _ in ("cos", "sin"):
                    put("I", WORK, n * row, "table")
                put("V", WAIT, 0, put("I", SET, 0, None))
                work(n, 0)  # half of sin to its place
                work(n, 0)  # the other half, negated
                work(n, n)  # the coefficient
                if to_add is not None:
                    put("V", WAIT, 0, to_add)
                for _ in loaded:
                    work(n, n)
                to_load = put("V", SET, 0, None)
                put("O", WAIT, 0, put("V", SET, 0, None))
                for _ in loaded:
                    put("O", WORK, n * row, None)
                to_add = put("O", SET, 0, None)
            put("S", ALL, 0, None)
            start = end
    return program


class Vendor(NamedTuple):
    moved: int
    low: float        # us of one core's path, tables from L2 at full rate
    high: float       # all cores reading the same rows in the same order
    cores: int


def vendor(shape, device):
    """ATB's RopeGrad in float16; where it has no result (more heads than cores, k of other heads than q), its design carried on."""
    heads = max(shape.q_heads, shape.k_heads)
    cores = min(heads, device.cores)
    program = vendor_program(shape, range(0, heads, cores))
    q_and_k = 2 * (shape.q_heads + shape.k_heads) * shape.tokens * shape.head_size * 2
    same_rows = min(p.SAME_ROWS * 1000 / cores, p.CORE_RATE)
    low, high = (simulate(program, device, cores, table_rate=rate).total / 1000 for rate in (p.CORE_RATE, same_rows))
    return Vendor(q_and_k + heads * shape.tokens * 2 * shape.head_size * 2, low, high, cores)


def whole_operators(sizes, device):
    """us of operators one after another that each move so many bytes at the full rate: the best that is possible."""
    return sum(launch(device.cores) + size / device.hbm / 1e6 for size in sizes)


def rivals(formula, x, table, shape, device):
    """us: CANN's RotaryPositionEmbeddingGrad for q and for k after two gathers, composite operators, the lower bound."""
    q, k = (shape.tokens * heads * shape.head_size * SIZE[x] for heads in (shape.q_heads, shape.k_heads))
    gathered = shape.tokens * shape.head_size * SIZE[table]
    gathers = [2 * gathered] * 2  # cos and sin of every token: read, write
    cann = whole_operators([*gathers, 2 * q + 2 * gathered, 2 * k + 2 * gathered], device)
    if formula == "atb":  # halves of sin swapped and negated, added to cos, then one product each
        composite = [*gathers, gathered, gathered, 2 * gathered, 3 * gathered, *(2 * n + gathered for n in (q, k))]
    else:  # each of q and k: two products, two halves taken, one negated, both joined, one sum
        composite = [*gathers, *(size for n in (q, k) for size in (
            2 * n + gathered, 2 * n + gathered, n, n, n, 2 * n, 3 * n))]
    once = 2 * (q + k) + 2 * min(shape.rows, shape.tokens) * shape.head_size * SIZE[table] + 4 * len(shape.ends)
    return (cann if formula == "exact" else None), whole_operators(composite, device), once / device.nominal / 1e6


# ---- the tables -------------------------------------------------------------------------------------------------------


def line(*cells):
    return "| " + " | ".join(map(str, cells)) + " |"


def us(value):
    return f"{value:.1f}" if value < 99.95 else f"{value:.0f}"


HEAD = ("operator", "q, k; cos, sin", "MB moved", "/ unique", "copies", "KB a burst", "vector kcycles", "critical path",
        "exposed vector", "exposed copies", "bound", *(f"{d.name}, modelled us" for d in p.DEVICES))


def kernel_row(op, x, table, shape):
    first, second = (model(op, x, table, shape, device) for device in p.DEVICES)
    t = first.trace
    times = (f"{us(r.time)} ({us(r.low)} to {us(r.high)})" for r in (first, second))
    return line(op, f"{x}; {table}", f"{t.moved / 1e6:.3g}", f"{t.moved / t.unique:.3f}", t.copies, f"{t.moved / t.bursts / 1024:.3g}",
                f"{first.vector / 1000:.1f}", us(first.critical), f"{first.exposed_vector:.1%}", f"{first.exposed_copies:.1%}", first.bound,
                *times)


def kernel_table(shape, combos=twin.COMBOS):
    """Lines of the table of one shape; its times are of the core that ends last."""
    return [f"#### {shape.name}", "", line(*HEAD), line(*["---"] * len(HEAD)), *(kernel_row(*combo, shape) for combo in combos), ""]


def compared(shape):
    """(what, {label: (low, high)} in us on the first device, MB, lower bound) for atb in float16 and exact in bfloat16."""
    device = p.DEVICES[0]
    for formula, op, x in (("atb", "RopeGrad", "float16"), ("exact", "RopeGradExact", "bfloat16")):
        own = model(op, x, x, shape, device)
        cann, composite, least = rivals(formula, x, x, shape, device)
        v = vendor(shape, device) if formula == "atb" else None
        start = launch(v.cores) if v else 0
        supported = v and shape.q_heads == shape.k_heads <= device.cores
        yield f"{op}, {x}", {
            "this kernel": (own.time, own.time), "vendor's design": (v.low + start, v.high + start) if supported else None,
            "CANN's exact gradient twice": (cann, cann) if cann else None, "composite operators": (composite, composite),
        }, own.trace.moved / 1e6, least


RIVALS = ("this kernel", "vendor's design", "CANN's exact gradient twice", "composite operators")


def comparison(points):
    span = lambda pair: "-" if pair is None else us(pair[0]) if us(pair[0]) == us(pair[1]) else f"{us(pair[0])} to {us(pair[1])}"
    head = ("tokens, heads of q + k", "what", "MB moved", "lower bound", *RIVALS)
    yield line(*head)
    yield line(*["---"] * len(head))
    for shape, what, times, megabytes, least in points:
        yield line(shape, what, f"{megabytes:.3g}", us(least) if least >= 0.05 else f"{least:.2f}", *(span(times[r]) for r in RIVALS))


def constants():
    yield line("constant", "value", "unit", "computed from")
    yield line(*["---"] * 4)
    for c in p.CONSTANTS:
        yield line(c.name, f"{c.value:.4g}", c.unit, c.source)
    for d in p.DEVICES:
        yield line(f"{d.name}", f"{d.cores} cores, {d.clock} GHz, {d.hbm:.3g}", "TB/s", d.source)
    yield ""
    yield line("row", "what", "published", "model", "error", "use", "where")
    yield line(*["---"] * 7)
    says = predictions()
    for r in p.ROWS:
        yield line(r.name, r.what, f"{r.value:.6g}", f"{says[r.name]:.6g}", f"{says[r.name] / r.value - 1:+.1%}", r.use, r.where)
    yield ""
    yield f"Largest error on the {sum(r.use == 'test' for r in p.ROWS)} rows that calibrate nothing: {ERROR:.1%}."


def compared_points():
    return [(shape.name, *point) for shape in SHAPES for point in compared(shape)]


def section(points):
    yield "### Modelled: this kernel beside the alternatives, us on 910B1"
    yield ""
    yield from comparison(points)
    yield ""
    yield "![modelled time over the lower bound against bytes](ascend_model.svg)"
    yield ""
    yield "### Modelled: every operator and pair of dtypes"
    yield ""
    for shape in SHAPES:
        yield from kernel_table(shape)
    yield "### Constants, and the published rows they come from"
    yield ""
    yield from constants()


MARKS = "<!-- ascend model -->", "<!-- end of ascend model -->"


def replaced(text, lines):
    """The document with the part between the marks replaced."""
    pattern = re.compile(f"(?<={re.escape(MARKS[0])}\n).*(?={re.escape(MARKS[1])})", re.S)
    if len(pattern.findall(text)) != 1:
        raise SystemExit(f"docs/performance.md must hold {MARKS[0]} and {MARKS[1]} once")
    return pattern.sub(lambda _: "\n" + "\n".join(lines) + "\n\n", text)


def figure(points, path):
    import matplotlib
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "ms_ropegrad"
    from matplotlib import pyplot
    plot, axes = pyplot.subplots(figsize=(7, 4))
    for label, marker in zip(RIVALS, "os^x"):
        found = [(mb, times[label][0] / least, times[label][1] / least) for _, _, times, mb, least in points if times[label] and mb > 1]
        mb, low, high = map(np.array, zip(*found))
        middle = (low + high) / 2
        axes.errorbar(mb, middle, (high - low) / 2, fmt=marker, label=label, capsize=3, markersize=5)
    axes.set(xscale="log", yscale="log", xlabel="MB moved by this kernel", ylabel="time over lower bound, both modelled",
             title="910B1, modelled: nothing here was measured on an NPU")
    axes.set_yticks([1, 2, 5, 10, 20], ["1", "2", "5", "10", "20"])
    axes.minorticks_off()
    axes.axhline(1, color="grey", linewidth=0.8)
    axes.legend(fontsize=8)
    plot.tight_layout()
    plot.savefig(path, metadata={"Date": None})


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="into docs/performance.md and docs/ascend_model.svg")
    args = parser.parse_args(argv)
    points = compared_points()
    lines = list(section(points))
    if args.write:
        path = REPO / "docs/performance.md"
        figure(points, REPO / "docs/ascend_model.svg")
        path.write_text(replaced(path.read_text(encoding="utf-8"), lines), encoding="utf-8")
    else:
        print("\n".join(lines))


if __name__ == "__main__":
    main()
