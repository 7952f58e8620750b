# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
"""Is the NumPy reference right? Against the document bit for bit, and against oracles that share no formula."""
import os
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest

from ms_ropegrad import reference
from oracle import any_float16, document, forward64, numeric_gradient, random_case, same_bits

LENGTHS = [[2, 1, 4, 4], [1], [7], [1, 1, 1], [3, 9, 1, 5]]
OPS = [("RopeGrad", "atb"), ("RopeGradExact", "exact"), ("RopeForward", None)]


def run(name, *args, **kw):
    return reference.rope(*args, **kw) if name is None else reference.rope_grad(*args, formula=name, **kw)


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("heads", [(2, 1), (3, 2), (1, 4)])
def test_atb_equals_the_document_bit_for_bit(lengths, heads):
    rng = np.random.default_rng(0)
    rows, n = max(lengths) + 3, sum(lengths)
    with np.errstate(all="ignore"):
        for head in (128, 64):
            case = [any_float16(rng, n, heads[0] * head), any_float16(rng, n, heads[1] * head),
                    any_float16(rng, rows, head), any_float16(rng, rows, head)]
            for got, want in zip(reference.rope_grad(*case, lengths), document(*case, lengths)):
                same_bits(got, want)


def test_the_documents_own_case():
    rng = np.random.default_rng(3)
    case = [rng.standard_normal(s).astype(np.float16) for s in ((11, 128), (11, 128), (64, 128), (64, 128))]
    for got, want in zip(reference.rope_grad(*case, [2, 1, 4, 4]), document(*case, [2, 1, 4, 4])):
        same_bits(got, want)


def test_more_sequences_than_the_vendor_takes():
    rng, lengths = np.random.default_rng(3), [1, 3, 2] * 50
    case = random_case(rng, lengths, heads=(2, 3), dtype=np.float16)
    for got, want in zip(reference.rope_grad(*case, lengths), document(*case, lengths)):
        same_bits(got, want)


def test_every_float16_gradient_value():
    g = np.arange(2**16, dtype=np.uint16).view(np.float16).reshape(-1, 128)
    cos, sin = any_float16(np.random.default_rng(4), 2, 512, 128)
    with np.errstate(all="ignore"):
        same_bits(reference.rope_grad(g, g, cos, sin, [512])[1], document(g, g, cos, sin, [512])[1])


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("lengths", LENGTHS)
def test_exact_is_the_adjoint_by_a_numeric_jacobian(dtype, lengths):
    g_q, g_k, cos, sin = random_case(np.random.default_rng(5), lengths, head=4, heads=(2, 1), dtype=dtype)
    tolerance = 1e-6 if dtype == np.float32 else 2e-3
    for got, g in zip(reference.rope_grad(g_q, g_k, cos, sin, lengths, "exact"), (g_q, g_k)):
        np.testing.assert_allclose(got, numeric_gradient(g, cos, sin, lengths), rtol=tolerance, atol=4 * tolerance)


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("head", [2, 64, 80, 96, 128, 192, 256])
def test_forward_by_its_definition(lengths, head):
    q, k, cos, sin = random_case(np.random.default_rng(6), lengths, head)
    for got, x in zip(reference.rope(q, k, cos, sin, lengths), (q, k)):
        np.testing.assert_allclose(got, forward64(x, cos, sin, lengths), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("lengths", LENGTHS)
def test_forward_and_backward_inner_products(lengths):
    rng = np.random.default_rng(7)
    q, k, cos, sin = random_case(rng, lengths, heads=(3, 2))
    g = [rng.standard_normal(x.shape).astype(np.float32) for x in (q, k)]
    y, d = reference.rope(q, k, cos, sin, lengths), reference.rope_grad(*g, cos, sin, lengths, "exact")
    for x, g1, y1, d1 in zip((q, k), g, y, d):
        left, right = (y1.astype(float) * g1).sum(), (x.astype(float) * d1).sum()
        assert abs(left - right) < 1e-5 * np.abs(y1.astype(float) * g1).sum()


def test_tokens_are_independent():
    q, k, cos, sin = random_case(np.random.default_rng(8), [3, 2])
    y = reference.rope(q, k, cos, sin, [3, 2])[0]
    q[3] += 1
    changed = (reference.rope(q, k, cos, sin, [3, 2])[0] != y).any(axis=1)
    assert changed.tolist() == [False, False, False, True, False]


def bfloat16(x):
    """Round to nearest even by exact float64 arithmetic: 8 significant bits, subnormals to 2**-133."""
    x = x.astype(np.float64)
    _, e = np.frexp(x)
    ulp = np.exp2(np.maximum(e - 8, -133).astype(np.float64))
    y = np.where(np.isfinite(x) & (x != 0), np.rint(x / ulp) * ulp, x)
    return np.where(np.abs(y) > 3.3895313892515355e38, np.sign(y) * np.inf, y).astype(np.float32)


@pytest.mark.parametrize("op,formula", OPS)
@pytest.mark.parametrize("x_dtype,table", [("float32", "float32"), ("float16", "float32"), ("bfloat16", "float32"),
                                           ("bfloat16", "bfloat16"), ("float16", "float16")])
def test_float32_arithmetic_and_one_rounding(op, formula, x_dtype, table):
    """Every pair but atb in all float16 (tested against the document), literally: mul, mul, then add or sub, one rounding."""
    if (formula, x_dtype, table) == ("atb", "float16", "float16"):
        pytest.skip("two roundings: tested against the document")
    rng, lengths = np.random.default_rng(9), [5, 1, 6]
    hold = {"float16": lambda a: a.astype(np.float16), "float32": lambda a: a, "bfloat16": bfloat16}
    case = [a * np.exp2(rng.integers(-12, 12, a.shape)).astype(np.float32) for a in random_case(rng, lengths, heads=(2, 1))]
    case = [hold[d](a) for a, d in zip(case, (x_dtype, x_dtype, table, table))]
    got = run(formula, *case, lengths, dtype="bfloat16" if x_dtype == "bfloat16" else None)
    pos = np.concatenate([np.arange(n) for n in lengths])
    c, s = (t[pos].astype(np.float32) for t in case[2:])
    with np.errstate(all="ignore"):
        for x, y in zip(case[:2], got):
            for h in range(0, x.shape[1], 128):
                a, b = x[:, h:h + 64].astype(np.float32), x[:, h + 64:h + 128].astype(np.float32)
                c1, c2, s1, s2 = c[:, :64], c[:, 64:], s[:, :64], s[:, 64:]
                want = {"RopeForward": lambda: (a * c1 - b * s1, b * c2 + a * s2),
                        "RopeGradExact": lambda: (a * c1 + b * s2, b * c2 - a * s1),
                        "RopeGrad": lambda: (a * (c1 + s2), b * (c2 - s1))}[op]()
                same_bits(y[:, h:h + 128], hold[x_dtype](np.concatenate(want, axis=1)))


def test_bfloat16_rounding():
    bits = np.random.default_rng(10).integers(0, 2**32, 200000).astype(np.uint32)
    ties = (np.arange(2**16, dtype=np.uint32) << 16) | 0x8000
    x = np.concatenate((bits, ties, ties - 1, ties + 1)).view(np.float32)
    with np.errstate(all="ignore"):
        same_bits(reference.round_bfloat16(x), bfloat16(x))


def test_two_equal_documents_packed_give_equal_gradients():
    q, k, cos, sin = random_case(np.random.default_rng(11), [4, 4], rows=8)  # rows == n_tokens: no restart would go unseen
    q[4:], k[4:] = q[:4], k[:4]
    for formula in ("atb", "exact"):
        for d in reference.rope_grad(q, k, cos, sin, [4, 4], formula):
            same_bits(d[4:], d[:4])


@pytest.mark.parametrize("op,formula", OPS)
def test_layouts_of_memory(op, formula):
    """Zero strides, transposes, slices: the same as a contiguous copy."""
    rng = np.random.default_rng(12)
    big = rng.standard_normal((512, 40)).astype(np.float32)
    tables = rng.standard_normal((2, 7, 256)).astype(np.float32)[:, :, ::2]
    for x in (big.T[:, :256], big.T[::2, 128:384][:, ::-1], np.broadcast_to(np.float32(1.5), (12, 256)),
              np.broadcast_to(big[:256, 0], (9, 256))):
        lengths = [x.shape[0] // 6] * 6 + ([x.shape[0] % 6] if x.shape[0] % 6 else [])
        got = run(formula, x, x[:, :128], *tables, lengths)
        want = run(formula, x.copy(), x[:, :128].copy(), *tables.copy(), lengths)
        for g, w in zip(got, want):
            same_bits(g, w)


@pytest.mark.parametrize("op,formula", OPS)
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_kinds_of_arrays(op, formula, dtype):
    """Foreign byte order, read-only, Fortran order and subclasses give what plain arrays give; masks are refused, not ignored."""
    case = random_case(np.random.default_rng(15), [3, 4], dtype=dtype)
    want = run(formula, *case, [3, 4])

    def frozen(a):
        a = a.copy()
        a.setflags(write=False)
        return a

    for kind in (lambda a: a.astype(a.dtype.newbyteorder()), frozen, np.asfortranarray, lambda a: a.view(np.matrix), lambda a: a.view(np.recarray)):
        for got, w in zip(run(formula, *map(kind, case), [3, 4]), want):
            assert type(got) is np.ndarray
            same_bits(got, w)
    for i in range(4):
        masked = [np.ma.masked_array(a, False) if j == i else a for j, a in enumerate(case)]
        with pytest.raises(TypeError, match="must be numpy.ndarray, but got MaskedArray"):
            run(formula, *masked, [3, 4])
    for given in (np.ma.masked_array([3, 4], [False, True]), [np.array(3), 4]):
        with pytest.raises(TypeError, match="q_seq_len"):
            run(formula, *case, given)


@pytest.mark.parametrize("variable,threads", [("1", 1), ("1,2", 1), ("0", None), ("-1", None), ("many", None), ("1e3", None), ("99999", None)])
def test_number_of_threads(variable, threads, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", variable)
    monkeypatch.setattr(reference, "_pools", {})
    assert reference.pool()._max_workers == (threads or len(os.sched_getaffinity(0)))
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(reference, "_pools", {})
    assert reference.pool()._max_workers == (threads or os.cpu_count())


@pytest.mark.parametrize("ends", [[3, 7], [0, 3, 3, 7, 7, 12], [-5, 2, 30], [-1], [0], [2**31 - 1], [5, 12]])
def test_every_output_is_written_and_uncovered_tokens_are_zero(ends, monkeypatch):
    n, rows = 12, 6
    q, k, cos, sin = random_case(np.random.default_rng(13), [n], rows=rows)
    empty = np.empty
    monkeypatch.setattr(np, "empty", lambda *a, **kw: _poison(empty(*a, **kw)))
    got = reference.apply("RopeGradExact", q, k, cos, sin, ends)
    monkeypatch.undo()
    start, want = 0, np.zeros((n, 256))
    for end in ends:
        end = min(max(end, 0), n)
        for t in range(start, min(end, start + rows)):
            want[t] = reference.rope_grad(q[t:t + 1], k[t:t + 1], cos[t - start:], sin[t - start:], [1], "exact")[0]
        start = max(start, end)
    np.testing.assert_array_equal(got[0], want)
    assert not np.isnan(got[1]).any()


def _poison(a):
    if a.dtype.kind == "f":
        a.fill(np.nan)
    return a


def test_large_positions_keep_their_rows():
    rows = 70000
    cos = np.arange(rows, dtype=np.float32)[:, None].repeat(2, 1)
    x = np.ones((rows + 1, 2), np.float32)
    got = reference.rope_grad(x, x, cos, np.zeros_like(cos), [rows, 1])[0]
    np.testing.assert_array_equal(got[:, 0], np.append(np.arange(rows), 0))


def test_nan_stays_in_its_head():
    q, k, cos, sin = random_case(np.random.default_rng(14), [3, 5], heads=(2, 1))
    q[1, 5] = np.nan
    d_q, d_k = reference.rope_grad(q, k, cos, sin, [3, 5], "exact")
    assert np.argwhere(np.isnan(d_q)).tolist() == [[1, 5], [1, 69]] and not np.isnan(d_k).any()


def test_extra_memory_and_threads_agree(monkeypatch):
    rng = np.random.default_rng(15)
    g = rng.standard_normal((4096, 4096)).astype(np.float16)
    cos, sin = rng.standard_normal((2, 1024, 128)).astype(np.float16)
    for formula in ("atb", "exact"):
        reference.rope_grad(g[:64], g[:64], cos, sin, [64], formula)
        tracemalloc.start()
        got = reference.rope_grad(g, g, cos, sin, [1024] * 4, formula)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 1.25 * sum(a.nbytes for a in got)
        monkeypatch.setattr(reference, "_SERIAL", 2**40)
        same_bits(reference.rope_grad(g[:2048], g[:2048], cos, sin, [1024] * 2, formula)[0], got[0][:2048])
        monkeypatch.undo()


def test_works_without_mindspore():
    code = ("import sys; sys.modules['mindspore'] = None; import numpy as np; from ms_ropegrad import reference;"
            "x = np.ones((1, 2), np.float32); print(reference.rope_grad(x, x, x, x, [1])[0])")
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (out.returncode, out.stdout, out.stderr) == (0, "[[2. 0.]]\n", "")
