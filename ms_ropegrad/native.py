# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
"""The native CPU library (op_impl/cpu/rope_native.cpp, built by setup.py): where it is, whether it is sound, ndarrays through it.

Imports no mindspore. A library that is missing, broken or of other sources is never used: :func:`status` says why.
"""
import ctypes
import os
import zlib
from functools import lru_cache
from pathlib import Path

import numpy as np

from . import __version__, checks, reference, spec

_HERE = Path(__file__).resolve().parent
_SOURCE = _HERE.parent / "op_impl/cpu/rope_native.cpp"  # there in a checkout, also after pip install -e
_BUILT = str(_HERE / "librope_native.so")
_OP = {op: i for i, op in enumerate(spec.OPS)}


def path():
    """MS_ROPEGRAD_LIBRARY, or the library that setup.py put beside this file."""
    return os.environ.get("MS_ROPEGRAD_LIBRARY") or _BUILT


def status():
    """(the library or None, one line that says what it is or why there is none)."""
    return _open(path())


@lru_cache(maxsize=None)
def _open(file):
    if not os.path.exists(file):
        return None, f"{file} is not there (installed without a C++ compiler, or not built: pip install -e . builds it)"
    # MindSpore gives the process an OMP_NUM_THREADS (1 on two CPUs) that Python does not see: only the user's shall count, and
    # as in OpenMP when it starts.
    os.environ.setdefault("MS_ROPEGRAD_THREADS", os.environ.get("OMP_NUM_THREADS") or "0")
    try:
        _whole(file)
        library = ctypes.CDLL(file)
        library.ms_ropegrad_stamp.restype = library.ms_ropegrad_isa.restype = ctypes.c_char_p
        stamp = library.ms_ropegrad_stamp().decode()
        isa = library.ms_ropegrad_isa().decode()
        library.ms_ropegrad_threads.restype = ctypes.c_int64
        library.ms_ropegrad_apply.argtypes = [ctypes.c_int] * 3 + [ctypes.c_void_p] * 3 + [ctypes.c_int64, ctypes.c_int]
    except (OSError, AttributeError, UnicodeDecodeError) as e:
        return None, f"{file} cannot be loaded: {e}"
    need = __version__ + " "
    if _SOURCE.exists():
        need += f"{zlib.crc32(_SOURCE.read_bytes()):08x}"
    if not stamp.startswith(need):
        return None, f"{file} is stale: built from '{stamp}', but this is '{need.strip()}'"
    return library, f"{file} ({isa})"


def _whole(file):
    """Loading a truncated library would kill the process: its section headers stand at the end."""
    with open(file, "rb") as f:
        head = f.read(64)
    field = lambda at, size: int.from_bytes(head[at:at + size], "little")
    if field(40, 8) + field(58, 2) * field(60, 2) > os.path.getsize(file):
        raise OSError("truncated")


def rope_grad(rope_q_grad, rope_k_grad, cos, sin, q_seq_len=None, formula="atb", *, seq_ends=None, dtype=None):
    """As :func:`ms_ropegrad.reference.rope_grad`, by the native library; RuntimeError when there is none."""
    op = checks.formula_op(formula, "formula")
    return reference.checked(op, (rope_q_grad, rope_k_grad, cos, sin), q_seq_len, seq_ends, dtype, apply)


def rope(q, k, cos, sin, q_seq_len=None, *, seq_ends=None, dtype=None):
    """As :func:`ms_ropegrad.reference.rope`, by the native library; RuntimeError when there is none."""
    return reference.checked("RopeForward", (q, k, cos, sin), q_seq_len, seq_ends, dtype, apply)


def apply(op, x_q, x_k, cos, sin, seq_ends, dtype=None, *, threads=0, flags=0):
    """As :func:`ms_ropegrad.reference.apply`. ``threads``: 0 is OMP_NUM_THREADS, or else all; ``flags``: see the source."""
    library, why = status()
    if library is None:
        raise RuntimeError(f"The native library cannot be used: {why}.")
    held = dtype == "bfloat16" and x_q.dtype == np.float32
    dtypes = [a.dtype.name for a in (x_q, x_k, cos, sin)]
    checks.arrays(op, [a.shape for a in (x_q, x_k, cos, sin)], ["bfloat16"] * 2 + dtypes[2:] if held else dtypes)
    n_tokens = x_q.shape[0]
    ends = np.clip(np.asarray(seq_ends, np.int64), 0, n_tokens).astype(np.int32)
    inputs = [np.ascontiguousarray(a) for a in (x_q, x_k, cos, sin, ends)]
    outputs = [np.empty(a.shape, a.dtype) for a in (x_q, x_k)]
    shape = (ctypes.c_int64 * 6)(n_tokens, x_q.shape[1], x_k.shape[1], *cos.shape, len(ends))
    x_type, table_type = (spec.DTYPES.index(dtypes[i]) for i in (0, 2))
    if library.ms_ropegrad_apply(_OP[op], x_type, table_type, _pointers(inputs), _pointers(outputs), shape, threads, flags):
        raise MemoryError("the native library found no memory for its threads")
    return tuple(reference.round_bfloat16(y) if held else y for y in outputs)


def threads():
    """Threads of a large call: MS_ROPEGRAD_THREADS, else OMP_NUM_THREADS, else one for each CPU of the process."""
    return status()[0].ms_ropegrad_threads()


def _pointers(arrays):
    return (ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays))
