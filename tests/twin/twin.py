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
from concurrent.futures import ThreadPoolExecutor
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


TRACE_DTYPE = np.dtype({
    "names": ["bytes", "gm", "seq", "repeats", "bursts", "ub_lo", "ub_hi", "src0_lo", "src0_hi", "src1_lo", "src1_hi", "line",
              "link", "core", "arg", "event", "event_id", "op", "pipe", "type", "file", "conflicts"],
    "formats": ["u8", "u8"] + ["u4"] * 9 + ["i4", "i4", "u2", "i2", "i1", "i1", "u1", "u1", "u1", "u1", "u4"],
    "offsets": [0, 8] + list(range(16, 60, 4)) + [60, 62, 64, 65, 66, 67, 68, 69, 72],
    "itemsize": 80,
})
_COUNTERS = ("dma_in", "dma_out", "bytes_in", "bytes_out", "bursts_in", "bursts_out", "barriers", "flags", "scalar_gm",
             "ub_high")


class _Run(ctypes.Structure):
    _fields_ = [
        ("entry", ctypes.c_void_p), ("args", ctypes.c_int32), ("data", ctypes.POINTER(ctypes.c_void_p)),
        ("sizes", ctypes.POINTER(ctypes.c_uint64)), ("writable", ctypes.POINTER(ctypes.c_uint8)), ("tiling", ctypes.c_char_p),
        ("tiling_size", ctypes.c_uint64), ("tiling_key", ctypes.c_uint64), ("blocks", ctypes.c_uint32),
        ("ub_size", ctypes.c_uint32), ("check", ctypes.c_int32), ("trace", ctypes.c_int32), ("saturate", ctypes.c_int32),
        ("fused", ctypes.c_int32), ("plain", ctypes.c_int32), ("dry", ctypes.c_int32), ("seed", ctypes.c_int64),
    ]


def _hash(paths, words):
    digest = hashlib.sha256("\0".join(words).encode())
    for path in paths:
        digest.update(f"\0{path.name}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:20]


def _compile(command, target):
    """Runs g++ into a temporary name and moves it in place, so that two processes may build the same thing."""
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        built = Path(scratch) / target.name
        done = subprocess.run([*command, "-o", str(built)], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"g++ refused {target.name}:\n{done.stderr}")
        os.replace(built, target)
    return target


def _runtime(out_dir):
    """The twin's own objects, compiled once a cache directory."""
    headers = sorted((HERE / "include").rglob("*.h")) + sorted((HERE / "runtime").glob("*.h"))

    def compiled(source):
        flags = [*FLAGS, *WARNINGS, "-O3" if source.stem == "execute" else "-O2", "-march=native", "-fwrapv"]
        target = out_dir / f"{source.stem}-{_hash([source, *headers], flags)}.o"
        return target if target.exists() else _compile(["g++", *flags, "-c", f"-I{HERE / 'include'}", str(source)], target)
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(compiled, sorted((HERE / "runtime").glob("*.cpp"))))


def build(sources, entry, defines=None, include_dirs=(), out_dir=None):
    """Compiles the kernel `entry` of `sources` (one or more .cpp) and returns a Kernel.

    defines: macro -> value, e.g. {"DTYPE_ROPE_Q_GRAD": "half"}. The object is cached in out_dir by a hash of everything
    that goes into it (sources, headers of include_dirs, flags), not by the entry: one file may hold many kernels. RuntimeError
    holds what g++ said.
    """
    sources = [Path(source).resolve() for source in sources]
    out_dir = Path(out_dir or Path(tempfile.gettempdir()) / f"ascendc-twin-{os.getuid()}")
    out_dir.mkdir(parents=True, exist_ok=True)
    roots = {*(Path(d).resolve() for d in include_dirs), *(source.parent for source in sources), HERE / "include"}
    headers = sorted({path for root in roots for path in root.rglob("*.h")})
    macros = [f"-D{name}={value}" for name, value in sorted((defines or {}).items())]
    flags = [*FLAGS, *WARNINGS, "-O2", *macros]
    objects = _runtime(out_dir)
    target = out_dir / f"{sources[0].stem}-{_hash([*sources, *headers, *objects], flags)}.so"
    if not target.exists():
        includes = [f"-I{HERE / 'include'}", *(f"-I{Path(d).resolve()}" for d in include_dirs)]
        _compile(["g++", *flags, "-shared", *includes, *map(str, sources), *map(str, objects)], target)
    return Kernel(target, entry)


class Kernel:
    """A compiled kernel."""

    def __init__(self, path, entry):
        self.path, self.entry = path, entry
        self._lib = ctypes.CDLL(str(path))
        self._entry = ctypes.cast(getattr(self._lib, entry), ctypes.c_void_p)
        for name, result in (("twin_error", ctypes.c_char_p), ("twin_counters", ctypes.POINTER(ctypes.c_uint64)),
                             ("twin_args", ctypes.POINTER(ctypes.c_uint64)), ("twin_records", ctypes.c_void_p),
                             ("twin_file", ctypes.c_char_p), ("twin_name", ctypes.c_char_p)):
            getattr(self._lib, name).restype = result
        self.ops, self.types, self.pipes, self.events = (self._names(table) for table in range(4))

    def _names(self, table):
        names = []
        while (name := self._lib.twin_name(table, len(names))) is not None:
            names.append(name.decode())
        return names

    def run(self, args, tiling=b"", blocks=1, *, ub_size=UB_SIZE, check=True, seed=None, trace=False, saturate=False,
            fused_mla=False, tiling_key=0, plain=False, dry=False, errors="raise"):
        """Runs the kernel on `blocks` cores and returns a Report; outputs are written in place.

        args: one C-contiguous ndarray (or None) for every GM_ADDR of the kernel except the last; tiling: its bytes.
        A read-only array (flags.writeable False) may not be written by the kernel.
        check: the hazard model. seed: execute the pipes out of program order where no edge forbids it (implies check).
        trace: keep Report.trace. saturate: CTRL[48]=0 (inf -> largest finite, NaN -> 0) instead of INF/NAN mode.
        plain: program order, and no rule of queues, flags and lifetimes either: what a simulator that only computes would see.
        dry: count and trace, but carry out only copies from GM (the kernel may read what they bring); outputs stay as they were.
        fused_mla: MulAddDst rounds once (undocumented on the device) instead of twice. errors: "raise" or "return".
        """
        n = len(args)
        for array in args:
            if array is not None and not array.flags.c_contiguous:
                raise ValueError("the twin takes C-contiguous arrays")
        present = [array is not None for array in args]
        run = _Run(
            self._entry, n, (ctypes.c_void_p * n)(*(a.ctypes.data if ok else None for a, ok in zip(args, present))),
            (ctypes.c_uint64 * n)(*(a.nbytes if ok else 0 for a, ok in zip(args, present))),
            (ctypes.c_uint8 * n)(*(int(ok and a.flags.writeable) for a, ok in zip(args, present))),
            bytes(tiling), len(tiling), tiling_key, blocks, ub_size, check and not plain, trace, saturate, fused_mla, plain, dry,
            -1 if seed is None else seed)
        count = self._lib.twin_run(ctypes.byref(run))
        report = Report(self, count, n, blocks, trace)
        if report.errors and errors == "raise":
            raise TwinError(report)
        return report


class Report:
    """What a run did.

    errors  list of two-line texts, empty when the kernel kept all rules; detectors: the first words of each
    cores   list (one per core) of dicts: dma_in, dma_out (numbers), bytes_in, bytes_out, bursts_in, bursts_out, barriers,
            flags, scalar_gm (GetValue/SetValue on GM), ub_high, and vec: {"Mul.f32": (instructions, repeats), ...}
    args    list (one per argument) of dicts: bytes_in, bytes_out, dma_in, dma_out over all cores
    trace   structured ndarray of TRACE_DTYPE in issue order, core by core (when asked); ops, types, pipes, events and files
            name its small integers. link: the record of the SetFlag a WaitFlag takes. PIPE_ALL is a barrier of S.
            conflicts: repeats whose two sources read one bank group of UB.
    """

    def __init__(self, kernel, errors, n_args, blocks, trace):
        lib = kernel._lib
        self.errors = [lib.twin_error(i).decode() for i in range(errors)]
        self.detectors = {error.split(":")[0] for error in self.errors}
        self.ops, self.types, self.pipes, self.events = kernel.ops, kernel.types, kernel.pipes, kernel.events
        n_ops, n_types, n_counters = len(self.ops), len(self.types), len(_COUNTERS)
        size = n_counters + n_ops * n_types * 2
        counters = np.ctypeslib.as_array(lib.twin_counters(), (blocks, size)).copy()
        self.cores = []
        for row in counters:
            vec = row[n_counters:].reshape(n_ops, n_types, 2)
            core = dict(zip(_COUNTERS, row[:n_counters].tolist()))
            core["vec"] = {f"{self.ops[o]}.{self.types[t]}": tuple(vec[o, t].tolist()) for o, t in zip(*vec[..., 0].nonzero())}
            self.cores.append(core)
        per_arg = np.ctypeslib.as_array(lib.twin_args(), (n_args, 4)) if n_args else []
        self.args = [dict(zip(("bytes_in", "bytes_out", "dma_in", "dma_out"), row.tolist())) for row in per_arg]
        self.trace, self.files = None, []
        if trace:
            count = ctypes.c_uint64()
            data = lib.twin_records(ctypes.byref(count))
            self.trace = np.frombuffer(ctypes.string_at(data, count.value * TRACE_DTYPE.itemsize), TRACE_DTYPE)
            while (name := lib.twin_file(len(self.files))) is not None:
                self.files.append(name.decode())

    def total(self, name):
        """The sum over cores of one of the counters."""
        return sum(core[name] for core in self.cores)
