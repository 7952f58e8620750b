# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
"""The maths of every operator in NumPy; imports no mindspore. The other implementations are tested against this one.

    y1 = x1*c1 - x2*s1 ; y2 = x2*c2 + x1*s2      the rotation; its transpose, with the halves' own tables, is the gradient:
    d1 = g1*c1 + g2*s2 ; d2 = g2*c2 - g1*s1      (forward with -s only if both halves of s are equal)
    atb: d1 = g1*(c1 + s2) ; d2 = g2*(c2 - s1)   the vendor document: no half swap, not the transpose

Rounding: atb on float16 with float16 tables rounds after the add and after the product; everything else is float32
arithmetic (mul, mul, then add or sub, never fused) and one rounding to nearest even.

NumPy has no bfloat16: pass float32 arrays that hold bfloat16 values and ``dtype="bfloat16"``, and get the same back.
Arrays of MindSpore's (or ml_dtypes') NumPy bfloat16 are taken as they are and answered in kind.
"""
import math
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from . import checks

_BLOCK_BYTES = 2**20  # one float32 block of q or k: small in memory, large enough that threads seldom wait for the interpreter
_FLOAT16 = np.arange(2**16, dtype=np.uint16).view(np.float16).astype(np.float32)  # bits -> value
_SERIAL = 128 * 1024  # elements below which threads cost more than they give


def rope_grad(rope_q_grad, rope_k_grad, cos, sin, q_seq_len=None, formula="atb", *, seq_ends=None, dtype=None):
    """Gradient of RoPE with respect to q and k, on ndarrays.

    Args:
        rope_q_grad, rope_k_grad (ndarray): gradients of the rotated q and k, [n_tokens, hidden_size], each any multiple
            of head_size wide; float16, float32 or bfloat16 (see the module).
        cos, sin (ndarray): tables [max_seq_len, head_size] of the gradients' dtype or float32; the halves may differ.
        q_seq_len (Sequence[int], ndarray): length of every sequence; they sum to n_tokens.
        formula (str): "atb", the vendor document; "exact", the adjoint of :func:`rope`.
        seq_ends (Sequence[int], ndarray): cumulative ends instead of q_seq_len.
        dtype (str): "bfloat16" when float32 arrays hold bfloat16 values.

    Returns:
        tuple of ndarray, q_grad and k_grad.

    Raises:
        TypeError, ValueError: as ``ms_ropegrad.RopeGrad``.

    Examples:
        >>> import numpy as np
        >>> from ms_ropegrad import reference
        >>> g = np.ones((3, 4), np.float32)
        >>> cos, sin = np.full((2, 2), 0.5, np.float32), np.zeros((2, 2), np.float32)
        >>> q_grad, k_grad = reference.rope_grad(g, g[:, :2], cos, sin, [2, 1])
        >>> print(k_grad[0])
        [0.5 0.5]
    """
    op = checks.formula_op(formula, "formula")
    return checked(op, (rope_q_grad, rope_k_grad, cos, sin), q_seq_len, seq_ends, dtype)


def rope(q, k, cos, sin, q_seq_len=None, *, seq_ends=None, dtype=None):
    """RoPE forward on ndarrays; arguments as :func:`rope_grad`.

    Examples:
        >>> import numpy as np
        >>> from ms_ropegrad import reference
        >>> x = np.array([[1, 0]], np.float32)
        >>> zero, one = np.zeros((1, 2), np.float32), np.ones((1, 2), np.float32)
        >>> print(reference.rope(x, x, zero, one, [1])[0])
        [[0. 1.]]
    """
    return checked("RopeForward", (q, k, cos, sin), q_seq_len, seq_ends, dtype)


def checked(op, arrays, q_seq_len, seq_ends, dtype, run=None):
    """Every check, then ``run`` (:func:`apply` unless given) with the lengths as ends."""
    checks.ndarrays(op, arrays)
    # Below there is neither a matrix nor a foreign byte order.
    arrays = [np.asarray(a if a.dtype.isnative else a.astype(a.dtype.newbyteorder())) for a in arrays]
    dtypes = [a.dtype.name for a in arrays]
    if dtype is not None:
        checks.held_dtype(op, dtypes, dtype)
        if dtype == "bfloat16":
            dtypes = ["bfloat16", "bfloat16", *dtypes[2:]]
    checks.arrays(op, [a.shape for a in arrays], dtypes)
    ends = checks.ends(op, q_seq_len, seq_ends, arrays[0].shape[0], arrays[2].shape[0])
    return (run or apply)(op, *arrays, ends, dtype)


def positions(seq_ends, n_tokens, max_seq_len):
    """Row of the tables for every token, and a mask of the tokens that have one.

    Ends are clamped to [0, n_tokens]. Tokens that no sequence covers, or that lie past the table, are not valid; their
    row is 0.
    """
    ends = np.clip(np.asarray(seq_ends, np.int64), 0, n_tokens)
    counts = np.maximum(np.diff(ends, prepend=0), 0)  # a decreasing list is refused above; here it must only be safe
    covered = min(int(counts.sum()), n_tokens)
    pos = np.zeros(n_tokens, np.int64)
    pos[:covered] = (np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts))[:covered]
    valid = np.arange(n_tokens) < covered
    valid &= pos < max_seq_len
    pos[~valid] = 0
    return pos, valid


def apply(op, x_q, x_k, cos, sin, seq_ends, dtype=None):
    """The operator ``op`` of :data:`spec.OPS` without checks: any seq_ends, tokens without a valid position get +0."""
    n_tokens, head = x_q.shape[0], cos.shape[1]
    pos, valid = positions(seq_ends, n_tokens, cos.shape[0])
    half_way = op == "RopeGrad" and x_q.dtype == cos.dtype == np.float16  # two roundings
    used = int(pos.max()) + 1 if n_tokens and valid.any() else 0
    direct, swapped = _coefficients(op, _f32(cos[:used]), _f32(sin[:used]), half_way)
    all_valid = bool(valid.all())
    outs, jobs = [], []
    for x in (x_q, x_k):
        out = np.empty(x.shape, x.dtype)
        outs.append(out)
        rows = max(1, _BLOCK_BYTES // (4 * max(1, x.shape[1])))
        jobs += [(x, out, slice(a, a + rows)) for a in range(0, n_tokens, rows)]

    def block(job):
        x, out, part = job
        ok = valid[part]
        if not used or not ok.any():
            out[part] = 0
            return
        with np.errstate(all="ignore"):  # inf and nan are data here
            y = _f32(x[part], _scratch("y", x[part].shape)).reshape(len(ok), -1, head)
            _rotate(y, direct[pos[part]], swapped, pos[part])
            _store(y.reshape(len(ok), -1), out[part], dtype)
        if not all_valid:
            out[part][~ok] = 0

    if x_q.size + x_k.size < _SERIAL:
        for job in jobs:
            block(job)
    else:
        for _ in pool().map(block, jobs):
            pass
    return tuple(outs)


def _coefficients(op, cos, sin, half_way):
    """(direct, swapped), float32 rows: y = x * direct + swap_halves(x) * swapped. Negating a factor is exact."""
    h = cos.shape[1] // 2
    if op == "RopeForward":
        return cos, np.concatenate((-sin[:, :h], sin[:, h:]), axis=1)
    turned = np.concatenate((sin[:, h:], -sin[:, :h]), axis=1)
    if op == "RopeGradExact":
        return cos, turned
    with np.errstate(all="ignore"):
        coef = cos + turned
        # The float32 sum or product of two float16 values, rounded once to float16, equals the float16 operation.
        return (coef.astype(np.float16).astype(np.float32) if half_way else coef), None


def _rotate(x, direct, swapped, rows):
    """In place, with the coefficients of these rows of the tables."""
    if swapped is None:
        np.multiply(x, direct[:, None, :], out=x)
        return
    h = x.shape[2] // 2
    turned = swapped[rows][:, None, :]
    other = _scratch("other", x.shape)
    np.multiply(x[:, :, h:], turned[:, :, :h], out=other[:, :, :h])
    np.multiply(x[:, :, :h], turned[:, :, h:], out=other[:, :, h:])
    np.multiply(x, direct[:, None, :], out=x)
    np.add(x, other, out=x)


def _f32(x, out=None):
    """The values as float32, in ``out`` or a new array."""
    out = np.empty(x.shape, np.float32) if out is None else out
    if x.dtype.name == "bfloat16":
        np.left_shift(np.ascontiguousarray(x).view(np.uint16), 16, out=out.view(np.uint32), dtype=np.uint32)
    elif x.dtype == np.float16:  # looked up: NumPy's own conversion takes twice as long
        np.take(_FLOAT16, np.ascontiguousarray(x).view(np.uint16), mode="wrap", out=out)
    else:
        out[...] = x
    return out


_buffers = threading.local()


def _scratch(name, shape):
    """A thread's float32 array, kept from block to block: new ones would cost their page faults each time."""
    size = math.prod(shape)
    kept = getattr(_buffers, name, None)
    if kept is None or kept.size < size:
        kept = np.empty(size, np.float32)
        setattr(_buffers, name, kept)
    return kept[:size].reshape(shape)


def round_bfloat16(x):
    """float32 values rounded to the nearest bfloat16, ties to even, as float32."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    quiet = (bits | np.uint32(0x400000)) & np.uint32(0xFFFF0000)  # a NaN must not be carried into inf
    return np.where(np.isnan(x), quiet, rounded).view(np.float32)


def _store(y, out, dtype):
    if out.dtype.name == "bfloat16":
        out.view(np.uint16)[...] = (round_bfloat16(y).view(np.uint32) >> 16).astype(np.uint16)
    elif dtype == "bfloat16":
        out[...] = round_bfloat16(y)
    else:
        out[...] = y


_pools = {}


def pool():
    """The worker threads, one set per process, started by the first caller so that they share its rounding mode."""
    pid = os.getpid()
    if pid not in _pools:
        cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        asked = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()  # anything else is ignored, as OpenMP does
        n = min(int(asked), cpus) if asked.isdecimal() and int(asked) else cpus
        workers = ThreadPoolExecutor(n, "ms_ropegrad")
        list(workers.map(lambda _: os.getpid(), range(n)))
        _pools[pid] = workers
    return _pools[pid]
