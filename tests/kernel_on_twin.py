# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
"""The project's kernel on the CPU twin: tiled by the host's own arithmetic, built per operator and dtypes, outputs poisoned."""
import ctypes
import functools
import os
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import twin

from ms_ropegrad import reference, spec

REPO = Path(__file__).resolve().parent.parent
CACHE = Path(tempfile.gettempdir()) / f"ascendc-twin-{os.getuid()}"
CTYPES = {"float16": "half", "bfloat16": "bfloat16_t", "float32": "float"}
COMBOS = [(op, x, t) for op in spec.OPS for x, t in spec.DTYPE_PAIRS]
UB = twin.twin.UB_SIZE


class Problem(ctypes.Structure):
    """RopeProblem of rope_tiling.h."""
    _fields_ = [(n, ctypes.c_int64) for n in ("nTokens", "qHidden", "kHidden", "maxSeqLen", "headSize", "batch")] + [
        ("xBytes", ctypes.c_uint32), ("tableBytes", ctypes.c_uint32), ("native16", ctypes.c_bool), ("cores", ctypes.c_uint32),
        ("ubBytes", ctypes.c_uint64)]


class TilingData(ctypes.Structure):
    """RopeTilingData of rope_tiling_data.h."""
    _fields_ = [(n, ctypes.c_int64) for n in ("nTokens", "maxSeqLen", "batch", "unitsPerCore", "unitsRest")] + [
        (n, ctypes.c_uint32) for n in ("qHeads", "kHeads", "headSize", "splitHeads", "tileTokens", "tileHeads", "tableTokens",
                                       "reserved")]


class Tiling(ctypes.Structure):
    _fields_ = [("data", TilingData), ("blockDim", ctypes.c_uint32)]


_DRIVER = r"""
#include <cstdio>
#include <vector>
#include "rope_tiling.h"
#include "../op_kernel/rope_tiles.h"
using namespace ms_ropegrad;
extern "C" const char* compute(const RopeProblem* p, RopeTiling* t) { return ComputeTiling(*p, t); }
extern "C" uint64_t ub_bytes(const RopeProblem* p, const RopeTilingData* d) { return UbBytes(*p, *d); }
extern "C" uint64_t sizes(int i) { return i == 0 ? sizeof(RopeProblem) : i == 1 ? sizeof(RopeTilingData) : sizeof(RopeTiling); }

// Walks every core's tiles as the kernel does. Counts how often each (token, head) of the `tokens` from `first` on is covered and
// returns what is wrong, or nullptr; cores of no interest are skipped. shares: (token, head) of every core.
extern "C" const char* walk(const RopeTilingData* d, int64_t cores, int64_t fromCore, uint8_t* covered, int64_t first,
                            int64_t* shares) {
  static char why[200];
  const int64_t heads = int64_t(d->qHeads) + d->kHeads;
  for (int64_t core = fromCore; core < cores; ++core) {
    RopeTiles tiles(*d, core);
    RopeTile t = RopeTile();
    int64_t run = -1, rows = 0;
    for (bool more = tiles.First(t); more; more = tiles.Next(t)) {
      if (t.opensTable) { run = t.token; rows = t.tableRows; }
      const bool fits = t.rows >= 1 && t.rows <= d->tileTokens && t.heads >= 1 && t.heads <= d->tileHeads &&
                        t.tableRow + t.rows <= rows && rows <= d->tableTokens && rows <= kRopeMaxTableTokens &&
                        t.token == run + t.tableRow;
      if (!fits || t.token < first || t.token + t.rows > d->nTokens || t.head + t.heads > heads) {
        std::snprintf(why, sizeof(why), "core %lld: tile of %u tokens from %lld, %u heads from %u, row %u of %u",
                      (long long)core, t.rows, (long long)t.token, t.heads, t.head, t.tableRow, t.tableRows);
        return why;
      }
      shares[core - fromCore] += int64_t(t.rows) * t.heads;
      for (uint32_t r = 0; r < t.rows; ++r) {
        uint8_t* row = covered + (t.token - first + r) * heads + t.head;
        for (uint32_t h = 0; h < t.heads; ++h) row[h] = uint8_t(row[h] + 1);
      }
    }
  }
  return nullptr;
}
"""


@functools.lru_cache(None)
def _driver():
    with tempfile.TemporaryDirectory() as d:
        source, library = Path(d) / "driver.cpp", Path(d) / "driver.so"
        source.write_text(_DRIVER)
        subprocess.run(["g++", "-std=c++11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC",
                        f"-I{REPO / 'op_impl/op_host'}", str(source), "-o", str(library)], check=True)
        lib = ctypes.CDLL(str(library))
    lib.compute.restype = lib.walk.restype = ctypes.c_char_p
    lib.ub_bytes.restype = lib.sizes.restype = ctypes.c_uint64
    assert [lib.sizes(i) for i in range(3)] == [ctypes.sizeof(c) for c in (Problem, TilingData, Tiling)]
    return lib


def problem(op, x, table, n_tokens, q_hidden, k_hidden, max_seq_len, head_size, batch, cores=40, ub=UB):
    native = op == "RopeGrad" and x == table == "float16"
    size = {"float16": 2, "bfloat16": 2, "float32": 4}
    return Problem(n_tokens, q_hidden, k_hidden, max_seq_len, head_size, batch, size[x], size[table], native, cores, ub)


def tiling(p):
    """Tiling of a Problem; ValueError with the reason when there is none."""
    out = Tiling()
    why = _driver().compute(ctypes.byref(p), ctypes.byref(out))
    if why:
        raise ValueError(why.decode())
    return out


def ub_bytes(p, t):
    return _driver().ub_bytes(ctypes.byref(p), ctypes.byref(t.data))


def walk(t, from_core=0, first=0):
    """(covered [tokens from `first`, heads]: how often, shares: (token, head) pairs of the cores from `from_core`)."""
    d = t.data
    covered = np.zeros((d.nTokens - first, d.qHeads + d.kHeads), np.uint8)
    shares = np.zeros(t.blockDim - from_core, np.int64)
    pointer = lambda a: a.ctypes.data_as(ctypes.c_void_p)
    why = _driver().walk(ctypes.byref(d), ctypes.c_int64(t.blockDim), ctypes.c_int64(from_core), pointer(covered),
                         ctypes.c_int64(first), pointer(shares))
    assert why is None, why.decode()
    return covered, shares


def build(op, x, table, source_dir=None, out_dir=CACHE):
    """twin.Kernel of one operator and its dtypes, from op_impl/op_kernel or a changed copy of it."""
    source_dir = Path(source_dir or REPO / "op_impl/op_kernel")
    entry = spec.op_file(op)
    defines = {f"DTYPE_{spec.OPS[op][0][0].upper()}": CTYPES[x], "DTYPE_COS": CTYPES[table]}
    return twin.build([source_dir / f"{entry}.cpp"], entry, defines, [source_dir], out_dir)


built = functools.lru_cache(None)(build)


def stored(array, dtype):
    """The array as the kernel sees it: bfloat16 as uint16."""
    if dtype != "bfloat16":
        return np.ascontiguousarray(array, dtype)
    return np.ascontiguousarray((np.ascontiguousarray(array, np.float32).view(np.uint32) >> 16).astype(np.uint16))


def loaded(array, dtype):
    return (array.astype(np.uint32) << 16).view(np.float32) if dtype == "bfloat16" else array


def values(rng, shape, dtype):
    """Normal values of the dtype; bfloat16 in float32."""
    array = rng.standard_normal(shape, np.float32)
    return reference.round_bfloat16(array) if dtype == "bfloat16" else array.astype(dtype)


class Case:
    """Inputs of one call, and what the reference says."""

    def __init__(self, op, x, table, ends, n_tokens, q_heads, k_heads, head_size, max_seq_len, seed=0):
        rng = np.random.default_rng(seed)
        self.op, self.x, self.table = op, x, table
        self.q, self.k = (values(rng, (n_tokens, heads * head_size), x) for heads in (q_heads, k_heads))
        self.cos, self.sin = (values(rng, (max_seq_len, head_size), table) for _ in range(2))
        self.ends = np.asarray(ends, np.int32)

    def tiling(self, cores=40, ub=UB):
        return tiling(problem(self.op, self.x, self.table, len(self.q), self.q.shape[1], self.k.shape[1], *self.cos.shape,
                              len(self.ends), cores, ub))

    def run(self, cores=40, ub=UB, kernel=None, **options):
        """(q out, k out, Report); bfloat16 comes back in float32."""
        t = self.tiling(cores, ub)
        kernel = kernel or built(self.op, self.x, self.table)
        inputs = [*(stored(a, self.x) for a in (self.q, self.k)), *(stored(a, self.table) for a in (self.cos, self.sin)), self.ends]
        for array in inputs:
            array.flags.writeable = False
        outputs = [np.frombuffer(bytearray(b"\xff") * a.nbytes, a.dtype).reshape(a.shape) for a in inputs[:2]]  # NaN
        report = kernel.run([*inputs, *outputs, None], bytes(t.data), t.blockDim, **{"ub_size": ub, **options})
        return (*(loaded(a, self.x) for a in outputs), report)

    def expected(self):
        held = "bfloat16" if self.x == "bfloat16" else None
        return reference.apply(self.op, self.q, self.k, self.cos, self.sin, self.ends, held)

    def check(self, cores=40, ub=UB, **options):
        """Bit equality with the reference, signs of zero and positions of NaN included."""
        *got, report = self.run(cores, ub, **options)
        for name, a, b in zip("qk", got, self.expected()):
            same_bits(name, a, b)
        return report


def same_bits(name, got, want):
    """NaN equals NaN whatever its payload."""
    assert got.dtype == want.dtype and got.shape == want.shape
    bits = np.uint16 if got.dtype.itemsize == 2 else np.uint32
    same = (got.view(bits) == want.view(bits)) | (np.isnan(got) & np.isnan(want))
    if not same.all():
        at = tuple(np.argwhere(~same)[0])
        raise AssertionError(f"{name}: {(~same).sum()} of {same.size} differ, first at {at}: got {got[at]!r}, want {want[at]!r}")
