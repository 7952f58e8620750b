# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
"""The AscendC kernel on the CPU twin against the NumPy reference, bit for bit, outputs poisoned with NaN first."""
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import twin
from hypothesis import given, settings, strategies as st
from kernel_on_twin import CACHE, COMBOS, CTYPES, REPO, UB, Case, built, problem, same_bits, stored, tiling, values

from ms_ropegrad import reference, spec

MIXED = [("RopeGrad", "float16", "float16"), ("RopeGradExact", "bfloat16", "float32"), ("RopeForward", "float32", "float32")]
every_combo = pytest.mark.parametrize("op, x, table", COMBOS)
some_combos = pytest.mark.parametrize("op, x, table", MIXED)


@pytest.fixture(scope="module", autouse=True)
def _kernels():
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda combo: built(*combo), COMBOS))


def random_ends(rng, lengths, n):
    """Cumulative ends of sequences of random lengths that sum to n; the last is cut."""
    ends = np.cumsum(rng.integers(*lengths, size=n + 1))
    return np.append(ends[ends < n], n)


@every_combo
def test_document_case(op, x, table):
    case = Case(op, x, table, np.cumsum([2, 1, 4, 4]), 11, 1, 1, 128, 64)
    case.check()
    assert not np.isnan(case.run()[0]).any()


@every_combo
def test_packed_batches(op, x, table):
    """Lengths below and above a tile, on few and many cores, with tokens no sequence covers and positions past the table."""
    rng = np.random.default_rng(1)
    for i, cores in enumerate((1, 3, 40)):
        n = int(rng.integers(100, 400))
        Case(op, x, table, random_ends(rng, (1, 90), n), n, 3, 2, 128, 90, i).check(cores, seed=i)
        Case(op, x, table, random_ends(rng, (1, 90), n) - 9, n, 2, 1, 64, 40, i).check(cores)


@every_combo
def test_one_sequence(op, x, table):
    Case(op, x, table, [700], 700, 2, 1, 128, 700).check(7)


@every_combo
@pytest.mark.parametrize("count", [5000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_many_short_sequences(op, x, table, count):
    ends = np.cumsum(np.random.default_rng(2).integers(1, 9, count))
    Case(op, x, table, ends, int(ends[-1]), 1, 1, 64, 8).check(48)


@every_combo
def test_empty_sequences(op, x, table):
    """Repeated ends: at the start, at the end, thousands in the middle (several windows of ends)."""
    ends = np.concatenate(([0] * 50, [3] * 3000, [4, 4, 90], [130] * 1500))
    for cores in (1, 7):
        Case(op, x, table, ends, 130, 2, 1, 96, 90).check(cores)


@every_combo
def test_sequences_cross_tiles_and_cores(op, x, table):
    """65 tokens a sequence, one more than the rows of tables in UB, and every core starts inside one."""
    report = Case(op, x, table, np.arange(1, 14) * 65, 13 * 65, 1, 1, 128, 65).check(11)
    assert len(report.cores) == 11
    assert all(core["dma_out"] > 4 for core in report.cores)


@every_combo
@pytest.mark.parametrize("n_tokens", [1, 2, 11, 39])
def test_fewer_tokens_than_cores(op, x, table, n_tokens):
    report = Case(op, x, table, [n_tokens], n_tokens, 63, 64, 128, 64).check(40)
    assert len(report.cores) > n_tokens


@some_combos
@pytest.mark.parametrize("q_heads", [41, 64])
def test_every_head_is_written(op, x, table, q_heads):
    """Hidden 128 x 41 and 128 x 64 on 40 cores: the vendor's kernel writes no head beyond the number of cores."""
    for n in (11, 100):
        Case(op, x, table, [n], n, q_heads, q_heads, 128, 128).check(40)


@some_combos
@pytest.mark.parametrize("k_heads", [8, 1])
def test_grouped_query(op, x, table, k_heads):
    """q_hidden 4096 with k_hidden 1024 and 128."""
    Case(op, x, table, [50, 170], 170, 32, k_heads, 128, 128).check(40)


@every_combo
def test_256_heads(op, x, table):
    """A row of q and k is longer than UB: columns are tiled."""
    case = Case(op, x, table, [2, 5], 5, 256, 256, 128, 8)
    assert case.tiling().data.tileHeads < 512
    case.check(3)
    case.check(40)


@every_combo
@pytest.mark.parametrize("head_size", spec.HEAD_SIZES)
def test_every_head_size(op, x, table, head_size):
    """Few heads (a repeat is a token) and more heads than tokens in a tile (a repeat is a head)."""
    Case(op, x, table, [33, 150], 150, 1, 1, head_size, 128).check(2)
    Case(op, x, table, [33, 40], 40, 19, 3, head_size, 128).check(3)


@every_combo
def test_more_than_255_repeats(op, x, table):
    """Only float16 arithmetic gets there in the UB of today; the others are given more."""
    case, ub = Case(op, x, table, [1, 3], 3, 300, 1, 64, 2), UB if (op, x, table) == MIXED[0] else 400 * 1024
    assert case.tiling(1, ub).data.tileHeads == 301
    case.check(1, ub)


@every_combo
def test_any_number_of_cores_gives_the_same_bits(op, x, table):
    case = Case(op, x, table, [100, 101, 333], 340, 5, 2, 128, 200)
    first = case.run(1)
    for cores in (2, 40, 48):
        q, k, _ = case.run(cores)
        same_bits("q", q, first[0])
        same_bits("k", k, first[1])


@every_combo
def test_no_tokens(op, x, table):
    report = Case(op, x, table, [0, 0], 0, 2, 1, 128, 8).check(40)
    assert report.total("dma_in") == report.total("dma_out") == 0


@every_combo
def test_every_float_of_16_bits(op, x, table):
    """All bit patterns as q, k and tables: subnormals, infinities and NaN; every rounding there is."""
    case = Case(op, x, table, [512], 512, 1, 1, 128, 512)
    rng = np.random.default_rng(3)

    def patterns(shape, dtype):
        bits = np.resize(rng.permutation(65536).astype(np.uint16), shape)
        if dtype == "float16":
            return bits.view(np.float16)
        wide = bits.astype(np.uint32) << 16
        return (wide | (rng.integers(0, 65536, shape, np.uint32) if dtype == "float32" else 0)).astype(np.uint32).view(np.float32)

    case.q, case.k = patterns(case.q.shape, x), patterns(case.k.shape, x)
    case.cos, case.sin = patterns(case.cos.shape, table), patterns(case.sin.shape, table)
    case.check(5)
    out = case.run(5)[0]
    assert np.isnan(out).any() and np.isinf(out).any()


@every_combo
def test_uncovered_tokens_are_zero_whatever_they_hold(op, x, table):
    case = Case(op, x, table, [-7, 5, 60], 100, 2, 1, 128, 20)
    case.q[...], case.k[...] = np.inf, np.nan
    q, k, _ = case.run(3)
    valid = np.r_[0:5, 5:25]
    for out in (q, k):
        assert (np.delete(out, valid, 0).view(np.uint16 if x == "float16" else np.uint32) == 0).all()
        assert np.isnan(out[valid]).any() or np.isinf(out[valid]).any()
    case.check(3)


HOSTILE = {
    "decreasing": np.arange(300, 0, -7), "all_over": [2**31 - 1, -2**31, 5, 2**31 - 1, 0, 300, -1], "negative": [-2**31, -1],
    "past_the_end": [10, 2**31 - 1], "short": [3], "sawtooth": np.tile([0, 299, 7, 150], 600),
}


@every_combo
@pytest.mark.parametrize("ends", HOSTILE)
def test_hostile_ends(op, x, table, ends):
    """No access out of bounds, no race (the twin), every byte written; bits too where the ends do not decrease."""
    case = Case(op, x, table, HOSTILE[ends], 300, 2, 1, 64, 50)
    for cores in (1, 7):
        q, k, _ = case.run(cores)
        assert not np.isnan(q).any() and not np.isnan(k).any()
        if (np.diff(case.ends.astype(np.int64)) >= 0).all():
            case.check(cores)


@some_combos
def test_pipes_out_of_order(op, x, table):
    """50 interleavings of the pipes, whatever the edges allow."""
    case = Case(op, x, table, [3, 3, 40, 97], 100, 3, 2, 64, 50)
    for seed in range(50):
        case.check(2, ub=64 * 1024, seed=seed)


@st.composite
def problems(draw):
    op, x, table = draw(st.sampled_from(COMBOS))
    n = draw(st.integers(0, 150))
    q_heads, k_heads = draw(st.sampled_from([(1, 1), (2, 1), (3, 5), (1, 4), (17, 2), (40, 3)]))
    head_size = draw(st.sampled_from(spec.HEAD_SIZES))
    any_end = st.one_of(st.integers(-3, n + 3), st.integers(-2**31, 2**31 - 1))
    ends = draw(st.lists(any_end, min_size=1, max_size=60))
    if draw(st.booleans()):
        ends = sorted(ends)
    ends = np.repeat(ends, draw(st.sampled_from([1, 1, 40])))  # 40: more ends than one window holds
    case = Case(op, x, table, ends, n, q_heads, k_heads, head_size, draw(st.sampled_from([1, 2, 9, 64, 200])),
                draw(st.integers(0, 99)))
    cores = draw(st.sampled_from([1, 2, 5, 40, 48]))
    ub = draw(st.sampled_from([UB, 184 * 1024, 96 * 1024, 48 * 1024]))
    return case, cores, ub, draw(st.one_of(st.none(), st.integers(0, 10**6)))


def check_property(arguments):
    case, cores, ub, seed = arguments
    if (np.diff(case.ends.astype(np.int64)) >= 0).all():
        case.check(cores, ub, seed=seed)
    else:
        q, k, _ = case.run(cores, ub, seed=seed)
        assert not np.isnan(q).any() and not np.isnan(k).any()


@settings(max_examples=300, deadline=None)
@given(problems())
def test_property(arguments):
    check_property(arguments)


@pytest.mark.slow
@settings(max_examples=5000, deadline=None)
@given(problems())
def test_property_long(arguments):
    check_property(arguments)


@every_combo
def test_bytes(op, x, table):
    check_bytes(op, x, table, 1024, 2)


@pytest.mark.slow
@some_combos
@pytest.mark.parametrize("batch", [1, 4])
def test_bytes_4096(op, x, table, batch):
    """4096 tokens of 4096 x 4096."""
    report, unique = check_bytes(op, x, table, 4096, 32, batch)
    if batch == 1:
        assert report.total("bytes_in") + report.total("bytes_out") <= 1.02 * unique


def check_bytes(op, x, table, n, heads, batch=1):
    """Each input byte once, each output byte once, cos and sin once per core that needs them."""
    cores, size, length = 48, {"float16": 2, "bfloat16": 2, "float32": 4}, n // batch
    report = Case(op, x, table, np.arange(1, batch + 1) * length, n, heads, heads, 128, length).check(cores)
    rows = n * heads * 128 * size[x]
    q, k, cos, sin, seq_ends, q_out, k_out, _ = report.args
    assert q["bytes_in"] == k["bytes_in"] == q_out["bytes_out"] == k_out["bytes_out"] == rows
    assert q["bytes_out"] == k["bytes_out"] == q_out["bytes_in"] == k_out["bytes_in"] == 0
    # Whole tokens, and no core has the same position of two sequences: one row for each token.
    assert cos["bytes_in"] == sin["bytes_in"] == n * 128 * size[table]
    assert seq_ends["bytes_in"] <= len(report.cores) * 4 * batch * 2
    assert report.total("scalar_gm") == 0
    return report, 4 * rows + 2 * length * 128 * size[table] + 4 * batch


@pytest.mark.parametrize("op, x, table", [c for c in COMBOS if c[0] == "RopeGradExact"])
def test_operands_in_different_banks(op, x, table):
    """Head size 128: the two sources of every float32 instruction start 256 B apart (mod 512), so that none takes two cycles."""
    trace = Case(op, x, table, [100], 100, 3, 2, 128, 100).check(2, trace=True)
    records = trace.trace[np.isin(trace.trace["op"], [trace.ops.index(name) for name in ("Mul", "Add", "Sub")])]
    assert len(records) and ((records["src0_lo"] ^ records["src1_lo"]) & 256).all()


@pytest.mark.parametrize("op, x, table", MIXED[:2])
def test_elements_beyond_2_31(op, x, table, tmp_path):
    """The last of 16384 shares of 2^31 + 3 x 4096 elements: arrays of 4 GB that are touched in the last rows only."""
    n, hidden, last = 2**19 + 3, 4096, 40
    p = problem(op, x, table, n, hidden, 128, 64, 128, 2, 2**14)
    t = tiling(p)
    share = tmp_path / "last.cpp"
    share.write_text(f"""
#include "kernel_operator.h"
namespace AscendC {{ inline int64_t LastBlock() {{ return {t.blockDim - 1}; }} }}
#define GetBlockIdx() LastBlock()
#include "{spec.op_file(op)}.cpp"
""")
    kernel = twin.build([share], spec.op_file(op), {f"DTYPE_{spec.OPS[op][0][0].upper()}": CTYPES[x], "DTYPE_COS": CTYPES[table]},
                        [REPO / "op_impl/op_kernel"], CACHE)
    rng = np.random.default_rng(4)
    q, q_out = np.zeros((n, hidden), np.uint16), np.zeros((n, hidden), np.uint16)
    k, k_out = np.zeros((n, 128), np.uint16), np.zeros((n, 128), np.uint16)
    tail_q, tail_k = values(rng, (last, hidden), x), values(rng, (last, 128), x)
    q[-last:], k[-last:] = stored(tail_q, x).view(np.uint16), stored(tail_k, x).view(np.uint16)
    cos, sin = values(rng, (64, 128), table), values(rng, (64, 128), table)
    ends = np.array([n - last, n], np.int32)
    q_out[-last:], k_out[-last:] = 0xFFFF, 0xFFFF
    kernel.run([q, k, stored(cos, table), stored(sin, table), ends, q_out, k_out, None], bytes(t.data), 1, check=False)
    want = reference.apply(op, tail_q, tail_k, cos, sin, [last], "bfloat16" if x == "bfloat16" else None)
    rows = t.data.unitsPerCore
    assert not t.data.splitHeads and 1 <= rows < last
    for name, got, expected in zip("qk", (q_out, k_out), want):
        same_bits(name, got[-rows:].view(np.float16), stored(expected[-rows:], x).view(np.float16))
        assert (got[-last:-rows] == 0xFFFF).all()
