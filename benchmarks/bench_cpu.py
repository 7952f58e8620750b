# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
"""CPU speed: all contenders in turn, several rounds; medians, and medians of their ratios to a one-thread copy of the same bytes.

    python benchmarks/bench_cpu.py [--only TEXT ...] [--rounds N] [--fast] [--json FILE]

The copy and the raw native calls write into outputs that exist already; all others allocate theirs. torch is timed when it
is installed (pip install -e .[bench]).
"""
import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("GLOG_v", "3")

import numpy as np
import mindspore as ms
from mindspore import Tensor, ops

from ms_ropegrad import RopeGrad, custom, native, reference, spec

try:
    import torch
except ImportError:
    torch = None

MODES = {"PYNATIVE": ms.PYNATIVE_MODE, "GRAPH": ms.GRAPH_MODE}
SHAPES = {  # n_tokens, hidden_size of q and of k; None: 10,000 sequences of 1..8 tokens
    "11 x 128": (11, 128, 128), "2048 x 1280": (2048, 1280, 1280), "4096 x 4096": (4096, 4096, 4096),
    "8192 x 4096/1024": (8192, 4096, 1024), "10,000 short x 128": (None, 128, 128)}


def document(g_q, g_k, cos, sin, q_seq_len, lib=np):
    """The vendor document's listing, literally (with all heads of k); ``lib``: numpy or torch."""
    cos = lib.concatenate([cos[:x] for x in q_seq_len])
    sin = lib.concatenate([sin[:x] for x in q_seq_len])
    half = cos.shape[1] // 2
    turned = lib.concatenate((sin[:, half:], -sin[:, :half]), axis=1)
    outs = []
    for g in (g_q, g_k):
        out = lib.zeros_like(g)
        for i in range(0, g.shape[1], 2 * half):
            out[:, i:i + 2 * half] = g[:, i:i + 2 * half] * (cos + turned)
        outs.append(out)
    return outs


def rotated(x, cos, sin, formula, cat):
    """One gradient as few large operators, for MindSpore and torch; cos and sin have a row for every token."""
    half = cos.shape[1] // 2
    turned = cat((sin[:, half:], -sin[:, :half]), 1)
    x = x.reshape(x.shape[0], -1, 2 * half)
    if formula == "atb":
        return (x * (cos + turned)[:, None]).reshape(x.shape[0], -1)
    return (x * cos[:, None] + cat((x[:, :, half:], x[:, :, :half]), 2) * turned[:, None]).reshape(x.shape[0], -1)


def builtin(g_q, g_k, cos, sin, rows, formula):
    cos, sin = ops.gather(cos, rows, 0), ops.gather(sin, rows, 0)
    return rotated(g_q, cos, sin, formula, ops.cat), rotated(g_k, cos, sin, formula, ops.cat)


def composite(q, k, cos, sin, rows, g_q, g_k):
    """<g, forward(x)> by MindSpore's own operators: what autodiff of it costs is the price of the exact gradient without this package."""
    def forward(x):
        half = cos.shape[1] // 2
        c, s = ops.gather(cos, rows, 0)[:, None], ops.gather(sin, rows, 0)[:, None]
        y = x.reshape(x.shape[0], -1, 2 * half)
        return (y * c + ops.cat((-y[:, :, half:], y[:, :, :half]), 2) * s).reshape(x.shape)

    return (forward(q) * g_q).sum() + (forward(k) * g_k).sum()


class Case:
    def __init__(self, shape, dtype, formula):
        n, q_hidden, k_hidden = SHAPES[shape]
        rng = np.random.default_rng(0)
        self.lens = np.array([n]) if n else rng.integers(1, 9, 10000)
        self.n, self.rows, self.dtype, self.formula = int(self.lens.sum()), int(self.lens.max()), dtype, formula
        shapes = [(self.n, q_hidden), (self.n, k_hidden), (self.rows, 128), (self.rows, 128)]
        self.tensors = [Tensor(rng.standard_normal(s, np.float32)).astype(getattr(ms, dtype)) for s in shapes]
        self.arrays = [t.asnumpy() for t in self.tensors]
        self.out = [np.zeros_like(a) for a in self.arrays[:2]]
        self.ends = np.cumsum(self.lens).astype(np.int32)

    def raw(self, threads):
        library = native.status()[0]
        d, op = spec.DTYPES.index(self.dtype), list(spec.OPS).index(spec.FORMULAS[self.formula])
        inputs, outputs = native._pointers([*self.arrays, self.ends]), native._pointers(self.out)
        shape = (native.ctypes.c_int64 * 6)(self.n, *(a.shape[1] for a in self.arrays[:2]), self.rows, 128, len(self.ends))
        return lambda: library.ms_ropegrad_apply(op, d, d, inputs, outputs, shape, threads, 0)

    def cell(self, backend, mode):
        cell, ends = RopeGrad(formula=self.formula, backend=backend), Tensor(self.ends)

        def run():
            ms.set_context(mode=MODES[mode])
            cell(*self.tensors, seq_ends=ends)[1].asnumpy()
        return run

    def operators(self, mode):
        formula, rows = self.formula, Tensor(reference.positions(self.ends, self.n, self.rows)[0], ms.int32)

        def forms(*args):
            return builtin(*args, formula)
        call = ms.jit(forms) if mode == "GRAPH" else forms

        def run():
            ms.set_context(mode=ms.PYNATIVE_MODE)
            call(*self.tensors, rows)[1].asnumpy()
        return run

    def autodiff(self, mode):
        rows = Tensor(reference.positions(self.ends, self.n, self.rows)[0], ms.int32)
        grad = ms.grad(composite, (0, 1))
        call = ms.jit(grad) if mode == "GRAPH" else grad

        def run():
            ms.set_context(mode=ms.PYNATIVE_MODE)
            call(*self.tensors, rows, *self.tensors[:2])[1].asnumpy()
        return run

    def contenders(self, fast, empty):
        runs = {"copy": lambda: [np.copyto(o, a) for o, a in zip(self.out, self.arrays)]}
        if native.status()[0] is not None:
            runs.update({"native raw, 1 thread": self.raw(1), f"native raw, {native.threads()} threads": self.raw(0)})
            runs.update({f"native, {mode}": self.cell("native", mode) for mode in MODES})
        if self.n == 11 and empty:
            runs.update({f"empty aot Custom, {mode}": empty(self, mode) for mode in MODES})
        if fast:
            return runs
        runs["numpy raw"] = lambda: reference.apply(spec.FORMULAS[self.formula], *self.arrays, self.ends)
        runs.update({f"numpy, {mode}": self.cell("numpy", mode) for mode in MODES})
        if self.dtype != "bfloat16" and self.formula == "atb":  # nor NumPy bfloat16 arithmetic
            runs["NumPy, the document literally"] = lambda: document(*self.arrays, self.lens)
        if self.dtype != "bfloat16":  # MindSpore has no bfloat16 gather on CPU
            runs.update({f"MindSpore operators, {mode}": self.operators(mode) for mode in MODES})
        if self.dtype != "bfloat16" and self.formula == "exact":
            runs.update({f"MindSpore autodiff, {mode}": self.autodiff(mode) for mode in MODES})
        if torch:
            args = [torch.from_numpy(t.astype(ms.float32).asnumpy()).to(getattr(torch, self.dtype)) for t in self.tensors]
            rows = torch.from_numpy(reference.positions(self.ends, self.n, self.rows)[0])
            if self.formula == "atb":
                runs["torch, the document literally"] = lambda: document(*args, self.lens.tolist(), torch)
            runs["torch, few operators"] = lambda: [rotated(g, args[2][rows], args[3][rows], self.formula, torch.cat) for g in args[:2]]
        return runs


def empty_custom(directory):
    """What MindSpore itself costs: an operator of the same inputs and outputs that does nothing."""
    source, library = Path(directory, "empty.cpp"), Path(directory, "empty.so")
    source.write_text('extern "C" int RopeGrad(int, void **, int *, long **, const char **, void *, void *) { return 0; }\n')
    try:
        subprocess.run(["g++", "-O2", "-shared", "-fPIC", source, "-o", library], check=True)
    except OSError:
        return None

    def contender(case, mode):
        same = custom._same_as_inputs
        op = ops.Custom(f"{library}:RopeGrad", same, same, func_type="aot", reg_info=custom.reg_info("RopeGrad", "CPU"))
        ends = Tensor(case.ends)

        class Net(ms.nn.Cell):
            def construct(self, rope_q_grad, rope_k_grad, cos, sin, q_seq_len=None, seq_ends=None):
                return op(rope_q_grad, rope_k_grad, cos, sin, seq_ends)

        net = Net()

        def run():
            ms.set_context(mode=MODES[mode])
            net(*case.tensors, seq_ends=ends)[1].asnumpy()
        return run

    return contender


def measure(runs, rounds, small):
    times = {name: [] for name in runs}
    for i in range(rounds + 2):  # the first two warm up
        for name, run in runs.items():
            start = time.perf_counter()
            for _ in range(small):
                run()
            times[name].append((time.perf_counter() - start) / small)
    return {name: np.array(t[2:]) for name, t in times.items()}


def cpu():
    names = [line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")]
    return names[0] if names else platform.machine()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[""], metavar="TEXT", help='cases whose name holds one of these, such as "4096 x 4096, float16"')
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--fast", action="store_true", help="the native backend and the copy only")
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    backend, why = custom.choose()
    report = {"machine": cpu(), "cpus": len(os.sched_getaffinity(0)), "numpy": np.__version__, "mindspore": ms.__version__,
              "torch": torch.__version__ if torch else None, "backend": f"{backend}: {why}", "rounds": args.rounds, "rows": []}
    print("; ".join(f"{k} {v}" for k, v in report.items() if k != "rows"))
    with tempfile.TemporaryDirectory() as directory:
        empty = empty_custom(directory)
        for shape in SHAPES:
            for dtype in spec.DTYPES:
                for formula in spec.FORMULAS:
                    title = f"{shape}, {dtype}, {formula}"
                    if not any(text in title for text in args.only):
                        continue
                    times = measure(Case(shape, dtype, formula).contenders(args.fast, empty), args.rounds, 20 if shape.startswith("11 ") else 1)
                    print(f"\n{title}")
                    for name, t in times.items():
                        row = dict(shape=shape, dtype=dtype, formula=formula, contender=name, ms=float(np.median(t) * 1e3),
                                   ratio=float(np.median(t / times["copy"])))
                        report["rows"].append(row)
                        print(f"  {name:34s} {row['ms']:10.3f} ms {row['ratio']:9.2f} x the copy", flush=True)
    if args.json:
        with open(args.json, "w") as f:
            json.dump(report, f, indent=1)


if __name__ == "__main__":
    sys.exit(main())
