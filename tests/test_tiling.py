# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
"""Core split and tile sizes over the grid of head sizes, heads, tokens, cores, dtypes and UB sizes: the host's own arithmetic
and the kernel's own walk, compiled for the CPU."""
import itertools

import pytest
from kernel_on_twin import UB, problem, tiling, ub_bytes, walk

from ms_ropegrad import spec

HEADS = ((1, 1), (2, 1), (31, 31), (32, 8), (40, 40), (64, 64), (80, 1), (146, 1), (147, 1), (233, 1), (234, 1), (256, 256))
TOKENS = (0, 1, 11, 39, 41, 255, 256, 257, 4096)
CORES = (1, 2, 40, 48)
UBS = (184 * 1024, UB, 192 * 1024)
BYTES = {"float16": 2, "bfloat16": 2, "float32": 4}


def check_limits(p, t):
    """UB within what the compiler leaves, and every field of an instruction within its type."""
    d = t.data
    assert ub_bytes(p, t) <= p.ubBytes - 8 * 1024
    assert 1 <= t.blockDim <= p.cores
    assert 1 <= d.tileTokens <= d.tableTokens <= 64 and d.tableTokens % d.tileTokens == 0
    assert 1 <= d.tileHeads <= d.qHeads + d.kHeads
    calc = 2 if p.native16 else 4
    assert d.headSize * calc // 32 <= 255, "repeat stride of a head"
    assert d.tileTokens <= 4095, "blockCount"
    assert d.tileHeads * d.headSize * p.xBytes // 32 <= 65535, "blockLen, and the gap between rows in UB"
    assert d.tileTokens == 1 or d.tileHeads == d.qHeads + d.kHeads, "rows are whole: there is no gap in GM"
    assert d.tableTokens * d.headSize * p.tableBytes // 32 <= 65535


@pytest.mark.parametrize("head_size", spec.HEAD_SIZES)
def test_grid(head_size):
    pairs = [("RopeGrad", "float16", "float16")] + [("RopeForward", x, t) for x, t in spec.DTYPE_PAIRS]
    for (q, k), n, cores, (op, x, table), ub in itertools.product(HEADS, TOKENS, CORES, pairs, UBS):
        p = problem(op, x, table, n, q * head_size, k * head_size, 64, head_size, 4, cores, ub)
        t = tiling(p)
        check_limits(p, t)
        if n == 4096 and (q + k > 100 or ub != UB):
            continue  # the walk of the largest products is test_large
        covered, shares = walk(t)
        assert (covered == 1).all(), (q, k, n, cores, op, x, table, ub)
        if n * (q + k) * head_size * BYTES[x] * 2 >= 2 << 20:  # from 2 MB in and out up
            assert t.blockDim == cores
            assert shares.max() <= 1.05 * shares.mean() and shares.min() >= 0.95 * shares.mean(), (q, k, n, cores)


@pytest.mark.slow
@pytest.mark.parametrize("head_size", spec.HEAD_SIZES)
def test_large(head_size):
    for (q, k), cores, ub in itertools.product(HEADS, CORES, UBS):
        for x, table in spec.DTYPE_PAIRS:
            t = tiling(problem("RopeGrad", x, table, 4096, q * head_size, k * head_size, 64, head_size, 4, cores, ub))
            assert (walk(t)[0] == 1).all()


@pytest.mark.parametrize("n_tokens", [2**31 - 1, 2**33 + 5])
@pytest.mark.parametrize("cores", CORES)
def test_int64(n_tokens, cores):
    """Beyond 2^31 tokens, let alone elements: each core's first token, and the whole walk of many small shares at the end."""
    p = problem("RopeGradExact", "bfloat16", "float32", n_tokens, 4096, 1024, 64, 128, 4, cores)
    t = tiling(p)
    check_limits(p, t)
    d = t.data
    assert d.splitHeads == 0 and d.unitsPerCore * t.blockDim + d.unitsRest == n_tokens and d.unitsRest < t.blockDim
    many = tiling(problem("RopeGradExact", "bfloat16", "float32", n_tokens, 4096, 1024, 64, 128, 4, 2**26))
    last = many.blockDim - 50
    first = last * many.data.unitsPerCore + min(last, many.data.unitsRest)
    covered, _ = walk(many, last, first)
    assert (covered == 1).all() and len(covered) == n_tokens - first


@pytest.mark.parametrize("hidden", [2**20 * 128, 2**24 * 256])
def test_wide_rows(hidden):
    """Rows of more than 65535 blocks: no gap of 16 bits may be needed."""
    p = problem("RopeGrad", "float16", "float16", 3, hidden, 256, 64, 256, 4, 48)
    t = tiling(p)
    check_limits(p, t)
    assert (walk(t)[0] == 1).all()


def test_small_problems_take_few_cores():
    assert tiling(problem("RopeGrad", "float16", "float16", 11, 128, 128, 64, 128, 4, 48)).blockDim == 1
    assert tiling(problem("RopeGrad", "float16", "float16", 0, 128, 128, 64, 128, 4, 48)).blockDim == 1
    assert tiling(problem("RopeGrad", "float16", "float16", 1, 4096, 4096, 64, 128, 4, 48)).blockDim == 2


@pytest.mark.parametrize("change, why", [
    (dict(cores=0), "no vector core"),
    (dict(ub=16 * 1024), "UB cannot hold one head"),
    (dict(n_tokens=-1), "n_tokens"),
    (dict(n_tokens=2**60), "n_tokens"),
    (dict(q_hidden=2**40), "heads"),
])
def test_refused_with_the_reason(change, why):
    args = dict(op="RopeGradExact", x="float32", table="float32", n_tokens=11, q_hidden=256, k_hidden=256, max_seq_len=64,
                head_size=256, batch=4, cores=40, ub=UB)
    tiling(problem(**args))
    with pytest.raises(ValueError, match=why):
        tiling(problem(**{**args, **change}))


@pytest.mark.parametrize("ub", range(24, 193, 8))
def test_any_ub(ub):
    """Whatever UB the platform reports, what is planned fits; refused only when one head does not."""
    for heads, head_size in itertools.product((2, 30, 200), spec.HEAD_SIZES):
        p = problem("RopeGradExact", "float16", "float32", 4096, (heads - 1) * head_size, head_size, 64, head_size, 4, 48,
                    ub * 1024)
        try:
            check_limits(p, tiling(p))
        except ValueError:
            # the compiler's reserve, the window of the ends and the stagger; a row of tables and a head
            assert ub * 1024 < 12 * 1024 + 256 + 32 * head_size
