# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
"""Builds Ascend C kernels against the twin's headers and runs them.

    kernel = build(["kernel.cpp"], entry="add", defines={"DTYPE_X": "half"}, include_dirs=["inc"], out_dir=cache)
    report = kernel.run([x, y, z, None], tiling=b"...", blocks=40)
"""

import ctypes
import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
UB_SIZE = 192 * 1024 - 256
WARNINGS = ("-Wall", "-Wextra", "-Werror", "-Werror=narrowing", "-Wconversion")
# No contraction: a * b + c must round twice unless an instruction says otherwise.
FLAGS = ("-std=c++17", "-fPIC", "-ffp-contract=off", "-fvisibility=hidden", "-fno-gnu-unique")


class TwinError(AssertionError):
    """The kernel broke a rule of the device. `errors` holds one two-line text per fault, `report` the run."""

    def __init__(self, report):
        super().__init__("\n".join(report.errors))
        self.report = report
        self.errors = report.errors


def build(sources, entry, defines=None, include_dirs=(), out_dir=None):
    """Compiles the kernel `entry` of `sources` (one or more .cpp) and returns a Kernel.

    defines: macro -> value, e.g. {"DTYPE_ROPE_Q_GRAD": "half"}. The object is cached in out_dir by a hash of everything
    that goes into it, so building the same kernel twice costs nothing.
    """
    raise NotImplementedError


class Kernel:
    """A compiled kernel."""

    def run(self, args, tiling=b"", blocks=1, *, ub_size=UB_SIZE, check=True, seed=None, trace=False, saturate=False,
            fused_mla=False, tiling_key=0, errors="raise"):
        """Runs the kernel on `blocks` cores and returns a Report; outputs are written in place.

        args: one C-contiguous ndarray (or None) for every GM_ADDR of the kernel except the last; tiling: its bytes.
        check: the hazard model. seed: execute the pipes out of program order where no edge forbids it (implies check).
        trace: keep Report.trace. saturate: CTRL[48]=0 (inf -> largest finite, NaN -> 0) instead of INF/NAN mode.
        fused_mla: MulAddDst rounds once (undocumented on the device) instead of twice. errors: "raise" or "return".
        """
        raise NotImplementedError


class Report:
    """What a run did.

    errors  list of two-line texts, empty when the kernel kept all rules
    cores   list (one per core) of dicts: dma_in, dma_out (numbers), bytes_in, bytes_out, bursts_in, bursts_out, barriers,
            flags, scalar_gm (GetValue/SetValue on GM), ub_high, and vec: {"Mul.f32": (instructions, repeats), ...}
    args    list (one per argument) of dicts: bytes_in, bytes_out, dma_in, dma_out over all cores
    trace   structured ndarray in issue order, core by core (when asked): see TRACE_DTYPE
    """

    def total(self, name):
        """The sum over cores of one of the counters."""
        return sum(core[name] for core in self.cores)
