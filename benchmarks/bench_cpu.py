# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
"""CPU speed: all contenders in turn, several rounds, medians and their ratios to the NumPy implementation.

    python benchmarks/bench_cpu.py [--rounds N] [--json FILE]
"""
import argparse
import json
import os
import platform
import time

os.environ.setdefault("GLOG_v", "3")

import numpy as np
import mindspore as ms
from mindspore import Tensor, ops

from ms_ropegrad import RopeGrad, reference


def document(g_q, g_k, cos, sin, q_seq_len):
    """The vendor document's listing, literally (with all heads of k)."""
    cos = np.concatenate([cos[:x] for x in q_seq_len])
    sin = np.concatenate([sin[:x] for x in q_seq_len])
    half = cos.shape[1] // 2
    turned = np.concatenate((sin[:, half:], -sin[:, :half]), axis=-1)
    outs = []
    for g in (g_q, g_k):
        out = np.zeros_like(g)
        for i in range(0, g.shape[1], 2 * half):
            out[:, i:i + 2 * half] = g[:, i:i + 2 * half] * (cos + turned)
        outs.append(out)
    return outs


@ms.jit
def jit_atb(g_q, g_k, cos, sin, rows):
    half = cos.shape[1] // 2
    cos, sin = ops.gather(cos, rows, 0), ops.gather(sin, rows, 0)
    coef = (cos + ops.cat((sin[:, half:], -sin[:, :half]), 1)).expand_dims(1)
    return tuple((g.reshape(g.shape[0], -1, 2 * half) * coef).reshape(g.shape) for g in (g_q, g_k))


def lengths_of(name, n):
    if name == "one":
        return np.array([n])
    lens = np.random.default_rng(1).integers(1, 9, 10000)
    return lens


CASES = [("2048 x 1280", 2048, 1280, 1280, "one"), ("4096 x 4096", 4096, 4096, 4096, "one"),
         ("10,000 sequences of 1..8, hidden 128", None, 128, 128, "short"), ("one sequence of the same tokens", None, 128, 128, "same")]


def contenders(n, q_hidden, k_hidden, kind, formula):
    rng = np.random.default_rng(0)
    lens = lengths_of("one" if kind == "one" else "short", n)
    n = int(lens.sum())
    if kind == "same":
        lens = np.array([n])
    rows = n if kind != "short" else 8
    g = [rng.standard_normal((n, h)).astype(np.float16) for h in (q_hidden, k_hidden)]
    tables = [rng.standard_normal((rows, 128)).astype(np.float16) for _ in range(2)]
    out = [np.empty_like(a) for a in g]
    ends = Tensor(np.cumsum(lens), ms.int32)
    tensors = [Tensor(a) for a in (*g, *tables)]
    positions = Tensor(reference.positions(np.cumsum(lens), n, rows)[0], ms.int32)
    cell = RopeGrad(formula=formula)

    def through(mode):
        def run():
            ms.set_context(mode=mode)
            cell(*tensors, seq_ends=ends)[1].asnumpy()
        return run

    def builtin():
        jit_atb(*tensors, positions)[1].asnumpy()

    result = {"NumPy implementation": lambda: reference.rope_grad(*g, *tables, lens, formula),
              "copy of the same bytes": lambda: [np.copyto(o, a) for o, a in zip(out, g)]}
    if kind == "one":
        result["through PYNATIVE_MODE"] = through(ms.PYNATIVE_MODE)
        result["through GRAPH_MODE"] = through(ms.GRAPH_MODE)
        if formula == "atb":
            result["literal transcription of the document"] = lambda: document(*g, *tables, lens)
            result["MindSpore operators under ms.jit"] = builtin
    return result


def measure(runs, rounds):
    times = {name: [] for name in runs}
    for _ in range(rounds + 1):  # the first warms up
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
    return {name: np.array(t[1:]) for name, t in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    report = {"machine": platform.processor() or platform.machine(), "cores": len(os.sched_getaffinity(0)), "numpy": np.__version__,
              "mindspore": ms.__version__, "rows": []}
    print(f"{report['cores']} cores, NumPy {np.__version__}, MindSpore {ms.__version__}, float16; medians of {args.rounds} alternating rounds")
    for title, n, q_hidden, k_hidden, kind in CASES:
        for formula in ("atb", "exact"):
            times = measure(contenders(n, q_hidden, k_hidden, kind, formula), args.rounds)
            base = times["NumPy implementation"]
            print(f"\n{title}, {formula}")
            for name, t in times.items():
                ratio = float(np.median(t / base))
                print(f"  {name:40s} {np.median(t) * 1e3:9.2f} ms   {ratio:6.2f} x the NumPy implementation")
                report["rows"].append(dict(shape=title, formula=formula, contender=name, ms=float(np.median(t) * 1e3), ratio=ratio))
    if args.json:
        with open(args.json, "w") as f:
            json.dump(report, f, indent=1)


if __name__ == "__main__":
    main()
