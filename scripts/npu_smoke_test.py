#!/usr/bin/env python3
# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
"""First run on an NPU: every operator, dtype and head size against the NumPy reference, and a report to send back.

    python scripts/npu_smoke_test.py                       # on a machine with an Atlas A2 or A3, a few minutes
    python scripts/npu_smoke_test.py --device CPU          # the same on the CPU implementations: does this script work?

Exit code: 0 every result equals the reference in every bit, 1 not so, 2 nothing could run.
"""
import argparse
import json
import os
import platform
import sys
import time
import traceback
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent))  # a clone that is not installed
os.environ.setdefault("GLOG_v", "3")  # errors only

import numpy as np  # noqa: E402
import mindspore as ms  # noqa: E402
from mindspore import Tensor, nn, ops  # noqa: E402

from ms_ropegrad import Rope, RopeGrad, __version__, custom, opp, reference, spec  # noqa: E402

FORMULA = {op: formula for formula, op in spec.FORMULAS.items()}
# name: (cumulative ends, heads of q, heads of k, rows of cos and sin beyond the longest sequence)
SHAPES = {
    "document": ([2, 3, 7, 11], 1, 1, 57),
    "one token": ([1], 1, 1, 0),
    "grouped heads, empty sequences": ([0, 5, 5, 133, 200, 200], 4, 1, 3),
    "long": ([2047, 2048, 4099], 8, 2, 0),
}


def cases(small=False):
    """(op, dtype of q and k, dtype of cos and sin, head size, shape): all dtypes on the head size 128, all head sizes on one dtype."""
    for op in spec.OPS:
        for x, table in spec.DTYPE_PAIRS:
            for shape in SHAPES:
                if not small or shape != "long":
                    yield op, x, table, 128, shape
        for head in spec.HEAD_SIZES:
            if head != 128:
                yield op, "float16", "float32", head, "grouped heads, empty sequences"


def inputs(x, table, head, shape, seed=0):
    """Arrays that hold values of the dtypes (bfloat16 in float32), with tables that are no rotation and unequal halves."""
    ends, q_heads, k_heads, more = SHAPES[shape]
    rows = int(np.max(np.diff([0, *ends]))) + more
    rng = np.random.default_rng([seed, head, len(shape)])
    draw = lambda dtype, *size: _as(dtype, rng.standard_normal(size, np.float32))
    return [draw(x, ends[-1], q_heads * head), draw(x, ends[-1], k_heads * head), draw(table, rows, head), draw(table, rows, head)], ends


def _as(dtype, array):
    return reference.round_bfloat16(array) if dtype == "bfloat16" else array.astype(dtype)


def expected(op, arrays, ends, x):
    held = {"dtype": "bfloat16"} if x == "bfloat16" else {}
    if op == "RopeForward":
        return reference.rope(*arrays, seq_ends=ends, **held)
    return reference.rope_grad(*arrays, formula=FORMULA[op], seq_ends=ends, **held)


class _Grad(nn.Cell):
    """Gradient of Rope through automatic differentiation."""

    def __init__(self):
        super().__init__()
        self.rope, self.grad = Rope(), ops.GradOperation(get_all=True, sens_param=True)

    def construct(self, q, k, cos, sin, ends, g_q, g_k):
        f = lambda q, k: self.rope(q, k, cos, sin, seq_ends=ends)
        return self.grad(f)(q, k, (g_q, g_k))


def computed(op, arrays, ends, x, table):
    """(the operator called directly; the same as the gradient of Rope or None), as arrays like those of expected()."""
    tensors = [Tensor(a).astype(getattr(ms, d)) for a, d in zip(arrays, (x, x, table, table))]
    seq_ends = Tensor(ends, ms.int32)
    to_array = lambda pair: [(t.astype(ms.float32) if x == "bfloat16" else t).asnumpy() for t in pair]
    cell = Rope() if op == "RopeForward" else RopeGrad(formula=FORMULA[op])
    direct = to_array(cell(*tensors, seq_ends=seq_ends))
    if op != "RopeGradExact":
        return direct, None
    q, k, cos, sin = tensors
    zeros = [Tensor(np.zeros(t.shape), ms.float32).astype(t.dtype) for t in (q, k)]
    return direct, to_array(_Grad()(*zeros, cos, sin, seq_ends, q, k))


def compare(got, want, dtype):
    """(elements that differ, the largest distance in units in the last place of dtype); any NaN equals any NaN."""
    different, worst = 0, 0
    for g, w in zip(got, want):
        if g.shape != w.shape or g.dtype != w.dtype:
            raise ValueError(f"got {g.dtype} {g.shape}, but expected {w.dtype} {w.shape}")
        order = []
        for a in (g, w):
            bits = np.ascontiguousarray(a).view(f"i{a.itemsize}").astype(np.int64)
            low = np.int64(-(2 ** (8 * a.itemsize - 1)))
            order.append(np.where(bits < 0, low - bits, bits) >> (16 if dtype == "bfloat16" else 0))
        nan = np.isnan(g) & np.isnan(w)
        distance = np.where(nan, 0, np.abs(order[0] - order[1]))
        differ = (np.signbit(g) != np.signbit(w)) | (g != w)
        differ &= ~nan
        different, worst = different + int(differ.sum()), max(worst, int(distance.max(initial=0)))
    return different, worst


def run_case(case):
    """One line of the report."""
    op, x, table, head, shape = case
    arrays, ends = inputs(x, table, head, shape)
    row = {"op": op, "dtypes": f"{x}, {table}", "head_size": head, "shape": shape}
    try:
        want = expected(op, arrays, ends, x)
        for way, got in zip(("direct", "gradient"), computed(op, arrays, ends, x, table)):
            if got is not None:
                different, ulp = compare(got, want, x)
                row[way] = {"elements": sum(w.size for w in want), "different": different, "ulp": ulp}
    except Exception as e:  # the report shall name every case that fails, however it does
        row["error"] = f"{type(e).__name__}: {str(e).strip()[:500]}"
        row["where"] = traceback.format_exc().strip().splitlines()[-3:]
    return row


def passed(row):
    return "error" not in row and all(row[way]["different"] == 0 for way in ("direct", "gradient") if way in row)


def speed():
    """Median time of one call, with 4096 tokens of 32 + 8 heads of 128 in float16."""
    rng = np.random.default_rng(0)
    q, k = (Tensor(rng.standard_normal((4096, heads * 128)), ms.float16) for heads in (32, 8))
    cos, sin = (Tensor(rng.standard_normal((4096, 128)), ms.float16) for _ in range(2))
    cell, ends, times = RopeGrad(formula="exact"), Tensor([4096], ms.int32), []
    for _ in range(25):
        start = time.perf_counter()
        cell(q, k, cos, sin, seq_ends=ends)
        ms.hal.synchronize()
        times.append(time.perf_counter() - start)
    return sorted(times[5:])[10]


def environment(device):
    found = {"ms_ropegrad": __version__, "mindspore": ms.__version__, "numpy": np.__version__, "python": platform.python_version(),
             "machine": platform.machine(), "device": device, "vendor_package": opp.state(device)}
    for name in ("ASCEND_HOME_PATH", "ASCEND_OPP_PATH", "ASCEND_CUSTOM_OPP_PATH"):
        found[name] = os.environ.get(name)
    if device == "Ascend":
        found["soc"] = opp.soc()
    return found


def run(device, modes, small=False, say=print, save=lambda report: None):
    """The report, as it is written to the file: after each case, since the next may kill the process."""
    report = {"environment": environment(device), "modes": {}}
    for line in report["environment"].items():
        say("{}: {}".format(*line))
    for mode in modes:
        ms.set_context(mode=ms.GRAPH_MODE if mode == "graph" else ms.PYNATIVE_MODE)
        rows = report["modes"][mode] = []
        for case in cases(small):
            row = run_case(case)
            rows.append(row)
            save(report)
            ways = ", ".join(f"{way} {row[way]['different']} of {row[way]['elements']} differ, {row[way]['ulp']} ulp"
                             for way in ("direct", "gradient") if way in row)
            say(f"{'pass' if passed(row) else 'FAIL'} {mode}: {', '.join(map(str, case))}: {row.get('error', ways)}")
        if not small:
            try:
                report[f"seconds_{mode}"] = speed()
                say(f"{mode}: {report[f'seconds_{mode}'] * 1e6:.0f} us for RopeGradExact on 4096 tokens, 32 + 8 heads, float16")
            except Exception as e:  # as above
                report[f"seconds_{mode}"] = None
                say(f"{mode}: no time: {e}")
    rows = [row for rows in report["modes"].values() for row in rows]
    report["passed"], report["failed"] = sum(map(passed, rows)), sum(not passed(row) for row in rows)
    say(f"{report['passed']} passed, {report['failed']} failed")
    return report


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["Ascend", "CPU"], default="Ascend")
    parser.add_argument("--mode", choices=["pynative", "graph"], action="append", help="default: both")
    parser.add_argument("--small", action="store_true", help="without the long sequences and the time")
    parser.add_argument("--report", default="npu_smoke_report.json", metavar="FILE", help="default: npu_smoke_report.json")
    args = parser.parse_args(argv)
    try:
        ms.set_context(device_target=args.device)
        if args.device == "Ascend":
            for op in spec.OPS:
                opp.require(op)
    except Exception as e:  # no NPU, no driver, no package: MindSpore raises many kinds
        print(f"nothing can run on {args.device}: {e}", file=sys.stderr)
        return 2

    def save(report):
        Path(args.report).write_text(json.dumps(report, indent=1), encoding="utf-8")

    try:
        save({})
    except OSError as e:
        print(f"cannot write {args.report}: {e.strerror}", file=sys.stderr)
        return 2
    report = run(custom.device(), args.mode or ["pynative", "graph"], args.small, save=save)
    save(report)
    print(f"The report is {args.report}: please send it to the authors, whatever it says.")
    return int(bool(report["failed"]))


if __name__ == "__main__":
    sys.exit(main())
