# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
"""The twin against the API documents: what each instruction does, with numbers worked out by hand or by the documented rule
in plain NumPy, and each limit of the device as a small kernel that must be refused."""
import ctypes
from pathlib import Path

import numpy as np
import pytest

import twin

CASES = Path(twin.__file__).parent / "cases"
BYTES = 8192


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.getbasetemp() / "twin"


@pytest.fixture(scope="module")
def run(cache):
    """run(case, x, y, z) fills the three 8 KB arrays, runs the case and returns z."""
    def call(case, x=(), y=(), z=(), dtype=np.float16, out=None, blocks=1, **options):
        arrays = []
        for values, kind in ((x, dtype), (y, dtype), (z, out or dtype)):
            array = np.zeros(BYTES // np.dtype(kind).itemsize, kind)
            array[:len(values)] = values
            arrays.append(array)
        twin.build([CASES / "semantics.cpp"], case, out_dir=cache).run(arrays, blocks=blocks, **options)
        return arrays[2]
    return call


def ramp(n, dtype=np.float16):
    return np.arange(1, n + 1, dtype=dtype)


# ---- masks, repeats, strides ----

def test_count_form_touches_exactly_count_elements(run):
    z = run("add_count", ramp(512), 1000 + ramp(512), np.full(512, -1))
    assert (z[:200] == 2 * ramp(200) + 1000).all() and (z[200:512] == -1).all()


def test_mask_is_per_repeat_and_counts_from_the_left(run):
    z = run("add_prefix", ramp(512), ramp(512), np.full(512, -1))
    for start in (0, 128, 256):  # a repeat of half is 128 elements, 100 of them taken
        assert (z[start:start + 100] == 2 * (start + ramp(100))).all() and (z[start + 100:start + 128] == -1).all()
    assert (z[384:512] == -1).all()


def test_mask_bits_low_word_first(run):
    z = run("add_bits", ramp(512), ramp(512), np.full(512, -1))
    taken = [*range(0, 64, 2), 64, 68, 69, 70, 71]  # 0x5555... then 0xF1
    taken = taken + [128 + i for i in taken]
    assert (z[taken] == 2 * (np.array(taken) + 1)).all()
    assert (np.delete(z[:512], taken) == -1).all()


def test_block_and_repeat_strides_run_from_start_to_start(run):
    """float: 8 elements a block. dst blocks 2 apart, src0 dense, src1 one block for all (stride 0); repeats 20, 8, 1 blocks on."""
    x, y, expected = ramp(512, np.float32), 1000 * ramp(512, np.float32), np.full(2048, -1, np.float32)
    for repeat in range(3):
        for block in range(8):
            at = (repeat * 20 + block * 2) * 8
            expected[at:at + 8] = x[(repeat * 8 + block) * 8:][:8] + y[repeat * 8:][:8]
    assert (run("add_strides", x, y, np.full(2048, -1), dtype=np.float32) == expected).all()


def test_repeat_stride_zero_broadcasts_a_row(run):
    x, row = np.arange(640) % 60, np.arange(128) % 7
    z = run("mul_broadcast_row", x, row)
    assert (z[:640].reshape(5, 128) == x.reshape(5, 128) * row).all() and not z[640:].any()


def test_exact_alias_is_in_place(run):
    z0, row = ramp(384), ramp(96) % 5
    z = run("in_place", [], row, z0)
    assert (z[:384].reshape(4, 96) == (z0.reshape(4, 96) * row)).all()


def test_destination_and_second_source_may_accumulate(run):
    """The documented exception to the overlap rule: repeat strides of 0 on dst and src1."""
    x = ramp(256, np.float32)
    z = run("accumulate", x, [], np.full(64, 0.5), dtype=np.float32)
    assert (z[:64] == x.reshape(4, 64).sum(0) + 0.5).all()


# ---- arithmetic ----

HALF = [  # a, b, a + b rounded to nearest even by hand
    (2048, 1, 2048), (2050, 1, 2052), (2049 - 1, 3, 2052), (65504, 16, np.inf), (65504, 15, 65504), (-65504, -16, -np.inf),
    (2.0**-24, 2.0**-24, 2.0**-23), (2.0**-14, -(2.0**-24), 2.0**-14 - 2.0**-24), (np.inf, -np.inf, np.nan), (1, 2.0**-11, 1),
    (1, 3 * 2.0**-11, 1 + 2.0**-9), (-0.0, -0.0, -0.0), (1, -1, 0.0),
]


def test_half_rounds_to_nearest_even_and_keeps_subnormals(run):
    a, b, expected = (np.array(column, np.float16) for column in zip(*HALF))
    z = run("add_half", a, b)[:len(HALF)]
    assert np.array_equal(z, expected, equal_nan=True) and np.array_equal(np.signbit(z),
        np.signbit(expected) & ~np.isnan(z) | np.signbit(z) & np.isnan(z))


def test_saturation_mode_turns_inf_to_largest_and_nan_to_zero(run):
    a, b, expected = (np.array(column, np.float16) for column in zip(*HALF))
    expected[np.isnan(expected)] = 0
    expected = np.clip(expected, -65504, 65504)
    assert (run("add_half", a, b, saturate=True)[:len(HALF)] == expected).all()


@pytest.mark.parametrize("case, op", [("sub_half", np.subtract), ("mul_half", np.multiply)])
def test_half_over_random_bits(run, case, op):
    rng = np.random.default_rng(1)
    a, b = (rng.integers(0, 1 << 16, 4096, dtype=np.uint16).view(np.float16) for _ in range(2))
    with np.errstate(all="ignore"):
        assert np.array_equal(run(case, a, b), op(a, b), equal_nan=True)


def test_other_arithmetic(run):
    rng = np.random.default_rng(2)
    f, g = (rng.standard_normal(2048).astype(np.float32) for _ in range(2))
    i, j = (rng.integers(-2**31, 2**31, 2048).astype(np.int32) for _ in range(2))
    s, t = (rng.integers(-2**15, 2**15, 4096).astype(np.int16) for _ in range(2))
    h, k = (rng.standard_normal(4096).astype(np.float16) for _ in range(2))
    assert (run("div_float", f, g, dtype=np.float32) == f / g).all()
    assert (run("max_int", i, j, dtype=np.int32) == np.maximum(i, j)).all()
    assert (run("min_half", h, k) == np.minimum(h, k)).all()
    assert (run("mul_int16", s, t, dtype=np.int16) == s * t).all()  # wraps
    assert (run("or_uint16", s.view(np.uint16), t.view(np.uint16), dtype=np.uint16) == (s | t).view(np.uint16)).all()
    assert (run("muls_half", h) == h * np.float16(-3)).all()
    z = run("adds_float", f, dtype=np.float32)
    assert (z[:128] == np.concatenate([f[:64], f[128:192]]) + np.float32(0.1)).all() and not z[128:].any()
    z = run("abs_relu_not", h)
    assert (z[:128] == abs(h[:128])).all() and (z[128:256] == np.maximum(h[:128], 0)).all()
    assert (z[256:384].view(np.uint16) == ~h[:128].view(np.uint16)).all()


def test_mul_add_dst_rounds_twice_or_once(run):
    """1 + 2^-10 squared is 1 + 2^-9 + 2^-20: half drops the last term unless the addition of -1 comes first."""
    a, c = np.float16(1 + 2.0**-10), np.float16(-1)
    assert run("mla_half", [a], [a], [c])[0] == np.float16(2.0**-9)
    assert run("mla_half", [a], [a], [c], fused_mla=True)[0] == np.float16(2.0**-9 + 2.0**-20)
    a, c = np.float32(1 + 2.0**-23), np.float32(-1)
    assert run("mla_float", [a], [a], [c], dtype=np.float32)[0] == np.float32(2.0**-22)
    assert run("mla_float", [a], [a], [c], dtype=np.float32, fused_mla=True)[0] == np.float32(2.0**-22 + 2.0**-46)
    assert run("axpy_float", [3], [], [1], dtype=np.float32)[0] == 2.5


def test_mul_add_dst_of_half_into_float(run):
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal(128).astype(np.float16) for _ in range(2))
    c = rng.standard_normal(128).astype(np.float32)
    expected = c + a.astype(np.float32) * b.astype(np.float32)  # the product of two halves is exact in float
    assert (run("mla_mixed", a, b, c, out=np.float32)[:128] == expected).all()


def test_duplicate_strides(run):
    """bfloat16 1.5 = 0x3FC0; 40 elements = 2 blocks and a half, blocks 2 apart, repeats 9 blocks apart."""
    z = run("duplicate_strided", dtype=np.uint16)
    expected = np.zeros(4096, np.uint16)
    for repeat in range(2):
        for element in range(40):
            expected[repeat * 144 + element // 16 * 32 + element % 16] = 0x3FC0
    assert (z == expected).all()


def test_copy_counts_strides_and_datacopy_counts_gaps(run):
    x = ramp(512)
    expected = np.zeros(4096, np.float16)
    for repeat in range(3):
        for block in range(3):  # Copy: stride 2 between block starts, 10 and 4 between repeat starts
            expected[(repeat * 10 + block * 2) * 16:][:16] = x[(repeat * 4 + block) * 16:][:16]
    assert (run("copy_strides", x) == expected).all()
    expected[:] = 0
    for burst in range(3):  # DataCopy: 2 blocks, then a gap of 1 in the source and of 3 in the destination
        expected[burst * 5 * 16:][:32] = x[burst * 3 * 16:][:32]
    assert (run("copy_ub_gaps", x) == expected).all()


# ---- Cast ----

TIE = 2.0**-11  # half an ulp of half at 1
CASTS = {
    "float_to_half": (np.float32, np.float16, {
        1 + TIE: dict(none=1, rint=1, floor=1, ceil=1 + 2 * TIE, round=1 + 2 * TIE, trunc=1, odd=1 + 2 * TIE),
        -1 - TIE: dict(none=-1, rint=-1, floor=-1 - 2 * TIE, ceil=-1, round=-1 - 2 * TIE, trunc=-1, odd=-1 - 2 * TIE),
        1 + 3 * TIE: dict(none=1 + 4 * TIE, rint=1 + 4 * TIE, floor=1 + 2 * TIE, ceil=1 + 4 * TIE, round=1 + 4 * TIE,
            trunc=1 + 2 * TIE, odd=1 + 2 * TIE),
        65519.0: dict(none=65504, rint=65504, floor=65504, round=65504, trunc=65504, odd=65504),
        65520.0: dict(none=np.inf, rint=np.inf, round=np.inf, trunc=65504),
        2.0**-25: dict(none=0, rint=0, floor=0, ceil=2.0**-24, round=2.0**-24, trunc=0, odd=2.0**-24),
        1.5: dict(none=1.5, rint=1.5, floor=1.5, ceil=1.5, round=1.5, trunc=1.5, odd=1.5),
    }),
    "float_to_bfloat": (np.float32, np.uint16, {
        1 + 2.0**-8: dict(rint=0x3F80, floor=0x3F80, ceil=0x3F81, round=0x3F81, trunc=0x3F80),
        1 + 3 * 2.0**-8: dict(rint=0x3F82, floor=0x3F81, ceil=0x3F82, round=0x3F82, trunc=0x3F81),
        -1 - 2.0**-8: dict(rint=0xBF80, floor=0xBF81, ceil=0xBF80, round=0xBF81, trunc=0xBF80),
        3.4e38: dict(rint=0x7F80, trunc=0x7F7F),
    }),
    "float_to_float": (np.float32, np.float32, {
        2.5: dict(rint=2, floor=2, ceil=3, round=3, trunc=2), -2.5: dict(rint=-2, floor=-3, ceil=-2, round=-3, trunc=-2),
        -0.25: dict(rint=-0.0, floor=-1, ceil=-0.0, round=-0.0, trunc=-0.0)}),
    "float_to_int": (np.float32, np.int32, {
        2.5: dict(rint=2, floor=2, ceil=3, round=3, trunc=2), -2.5: dict(rint=-2, floor=-3, ceil=-2, round=-3, trunc=-2),
        3e9: dict(rint=2**31 - 1), -3e9: dict(trunc=-2**31)}),
    "int_to_float": (np.int32, np.float32, {
        2**24 + 1: dict(none=2**24, rint=2**24, floor=2**24, ceil=2**24 + 2, round=2**24 + 2, trunc=2**24)}),
    "half_to_float": (np.float16, np.float32, {2.0**-24: dict(none=2.0**-24), 65504: dict(none=65504),
        np.inf: dict(none=np.inf)}),
    "bfloat_to_float": (np.uint16, np.float32, {0x3FC0: dict(none=1.5), 0x0001: dict(none=2.0**-133),
        0xFF80: dict(none=-np.inf)}),
}
MODES = ("none", "rint", "floor", "ceil", "round", "trunc", "odd")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("pair", CASTS)
def test_cast_rounds_as_the_table_says(run, pair, mode):
    source, target, table = CASTS[pair]
    wanted = {value: results[mode] for value, results in table.items() if mode in results}
    if not wanted:  # the pair has no such mode
        with pytest.raises(twin.TwinError, match="^limit: no Cast"):
            run(f"{pair}_{mode}", list(table), dtype=source, out=target)
        return
    z = run(f"{pair}_{mode}", list(wanted), dtype=source, out=target)
    expected = np.array(list(wanted.values()), target)
    assert np.array_equal(z[:len(wanted)], expected) and np.array_equal(np.signbit(z[:len(wanted)].astype(float)),
        np.signbit(expected.astype(float)))


def test_cast_mask_and_strides_follow_the_wider_type(run):
    x = ramp(256)
    assert (run("cast_widen_repeats", x, out=np.float32)[:192] == x[:192]).all()
    f = ramp(2048, np.float32)
    z = run("cast_narrow_repeats", f, dtype=np.float32, out=np.float16)
    expected = np.zeros(4096)
    for repeat in range(3):
        for element in range(48):  # blocks of 8 floats, 2 apart; blocks of 16 halves, dense, 6 a repeat
            expected[repeat * 96 + element] = f[repeat * 128 + element // 8 * 16 + element % 8]
    assert (z == expected).all()


def test_half_conversion_is_the_same_with_and_without_f16c(cache):
    lib = twin.build([CASES / "semantics.cpp"], "add_count", out_dir=cache)._lib
    every = np.arange(1 << 16, dtype=np.uint16)
    random = np.random.default_rng(4).integers(0, 1 << 32, 1 << 20, dtype=np.uint32)
    near = every.view(np.float16).astype(np.float32).view(np.uint32)
    for source, target, to_half in ((every, np.float32, 0), (np.concatenate([random, near, near + 4096, near - 4096,
        near + 1]), np.uint16, 1)):
        results = [np.zeros(source.size, target) for _ in range(2)]
        for portable, result in enumerate(results):
            lib.twin_convert(ctypes.c_void_p(source.ctypes.data), ctypes.c_void_p(result.ctypes.data), source.size,
                to_half, portable)
        assert (results[0].view(np.uint8) == results[1].view(np.uint8)).all()
        with np.errstate(all="ignore"):
            numpy = source.view(np.float32).astype(np.float16) if to_half else source.view(np.float16).astype(np.float32)
        assert np.array_equal(results[0].view(numpy.dtype), numpy, equal_nan=True)


# ---- copies ----

def test_datacopy_gaps_are_blocks_between_end_and_start(run):
    x, expected = ramp(1024), np.zeros(4096, np.float16)
    for burst in range(3):
        expected[burst * 3 * 16:][:32] = x[16 + burst * 7 * 16:][:32]
    assert (run("copy_in_gaps", x) == expected).all()
    expected[:] = 0
    for burst in range(3):
        expected[16 + burst * 7 * 16:][:32] = x[burst * 3 * 16:][:32]
    assert (run("copy_out_gaps", x) == expected).all()
    assert not run("copy_zero_blocks", x).any()


def test_datacopypad_in(run):
    """20 bytes a burst, 6 bytes between them in GM; 2 + 10 + 3 elements make one padded block, then a gap of one block."""
    x, expected = ramp(100), np.zeros(4096, np.float16)
    for burst in range(3):
        expected[burst * 32:][:16] = [9, 9, *x[1 + burst * 13:][:10], 9, 9, 9, 9]
    assert (run("pad_in", x) == expected).all()
    expected[:] = 0
    for burst in range(3):
        expected[burst * 64:][:32] = x[1 + burst * 33:][:32]
    assert (run("pad_in_aligned", ramp(128)) == np.where(expected, expected, 0)).all()


def test_datacopypad_out(run):
    x, expected = ramp(100), np.zeros(4096, np.float16)
    for burst in range(3):  # 20 bytes fill one block of UB, a gap of one block; 6 bytes apart in GM
        expected[1 + burst * 13:][:10] = x[burst * 32:][:10]
    assert (run("pad_out", x) == expected).all()


def test_filler_is_undefined(run):
    with pytest.raises(twin.TwinError, match="DataCopyPad filler"):
        run("pad_filler_is_poison", ramp(10))
    z = run("pad_filler_is_poison", ramp(10), check=False)
    assert (z[:10] == ramp(10)).all() and np.isnan(z[10:16]).all() and not z[16:].any()


# ---- mask register, scalars, blocks ----

def test_mask_register_and_counter_mode(run):
    z = run("mask_register", ramp(512), ramp(512))
    assert (z[:10] == 2 * ramp(10)).all() and (z[128:138] == 2 * (128 + ramp(10))).all()
    assert not z[10:128].any() and not z[138:].any()
    z = run("counter_mode", ramp(512), ramp(512))
    assert (z[:300] == 2 * ramp(300)).all() and not z[300:].any()
    z = run("count_form_resets", ramp(512), ramp(512))  # a count form leaves a full mask in normal mode: one repeat
    assert (z[:128] == 2 * ramp(128)).all() and not z[128:].any()


def test_scalar_access(run):
    z = run("scalars", [10, 20, 30], [1, 2, 3, 4], dtype=np.int32)
    assert z[0] == 23 and z[5] == 4 and z[10] == 7


def test_blocks_know_themselves(run):
    z = run("blocks", dtype=np.int32, blocks=5)
    assert (z[:40:8] == [500, 501, 502, 503, 504]).all()


# ---- limits ----

LIMITS = {
    "count_not_32": ("limit", "Bench<half> t(x, y, z); DataCopy(t.c, t.xg, 17);"),
    "block_count_4096": ("limit", "Bench<half> t(x, y, z); DataCopy(t.c, t.xg, DataCopyParams(4096, 1, 0, 0));"),
    "pad_count_4096": ("limit", "Bench<half> t(x, y, z); DataCopyPad(t.xg, t.c, {4096, 2, 0, 0, 0});"),
    "pad_len": ("limit", "Bench<half> t(x, y, z); DataCopyPad(t.xg, t.c, {1, 2097152, 0, 0, 0});"),
    "pad_odd_bytes": ("limit", "Bench<half> t(x, y, z); DataCopyPad(t.xg, t.c, {1, 3, 0, 0, 0});"),
    "pad_too_wide": ("limit", "Bench<half> t(x, y, z); DataCopyPad(t.c, t.xg, {1, 32, 0, 0, 0}, "
        "DataCopyPadExtParams<half>(true, 17, 0, half(0)));"),
    "repeat_256": ("limit", "Bench<half> t(x, y, z); Add(t.c, t.a, t.b, 128, static_cast<uint8_t>(256), {1, 1, 1, 8, 8, 8});"),
    "mask_129": ("limit", "Bench<half> t(x, y, z); Add(t.c, t.a, t.b, 129, 1, {1, 1, 1, 8, 8, 8});"),
    "mask_65": ("limit", "Bench<float> t(x, y, z); Add(t.c, t.a, t.b, 65, 1, {1, 1, 1, 8, 8, 8});"),
    "mask_high_word": ("limit", "Bench<float> t(x, y, z); uint64_t m[2] = {1, 1}; Add(t.c, t.a, t.b, m, 1, {1, 1, 1, 8, "
        "8, 8});"),
    "count_0": ("limit", "Bench<half> t(x, y, z); Add(t.c, t.a, t.b, 0);"),
    "block_stride_0": ("limit", "Bench<half> t(x, y, z); Add(t.c, t.a, t.b, 128, 1, {0, 1, 1, 8, 8, 8});"),
    "no_bfloat_to_half": ("limit", "Bench<bfloat16_t, half, half> t(x, y, z); Cast(t.c, t.a, RoundMode::CAST_NONE, 64);"),
    "barrier_of_m": ("limit", "Bench<half> t(x, y, z); PipeBarrier<PIPE_M>();"),
    "buffers_65": ("limit", "TPipe p; TQue<TPosition::VECIN, 1> q; p.InitBuffer(q, 65, 32);"),
    "copy_misaligned": ("alignment", "Bench<half> t(x, y, z); DataCopy(t.c[1], t.xg, 16);"),
    "vector_misaligned": ("alignment", "Bench<half> t(x, y, z); Add(t.c[8], t.a, t.b, 16);"),
    "gm_odd": ("alignment", "GlobalTensor<half> g; g.SetGlobalBuffer((__gm__ half*)(x + 1)); Bench<half> t(x, y, z); "
        "DataCopy(t.c, g, 16);"),
    "gm_read_past": ("gm-bounds", "Bench<half> t(x, y, z); DataCopy(t.c, t.xg[4081], 16);"),
    "gm_read_before": ("gm-bounds", "Bench<half> t(x, y, z); GlobalTensor<half> g; g.SetGlobalBuffer(t.xg.GetPhyAddr(0) "
        "- 16); DataCopy(t.c, g, 16);"),
    "gm_write_past": ("gm-bounds", "Bench<half> t(x, y, z); DataCopyPad(t.zg[1], t.c, {2, 32, 0, 8192, 0});"),
    "gm_scalar_past": ("gm-bounds", "Bench<half> t(x, y, z); t.zg.SetValue(4096, half(0));"),
    "gm_null": ("gm-bounds", "Bench<half> t(x, y, z); GlobalTensor<half> g; g.SetGlobalBuffer(nullptr); DataCopy(t.c, "
        "g, 16);"),
    "gm_read_only": ("gm-bounds", "Bench<half> t(x, y, z); DataCopy(t.xg, t.c, 16);"),
    "tensor_overrun": ("ub-bounds", "Bench<half> t(x, y, z); Add(t.a, t.b, t.c[4080], 32);"),
    "repeat_overrun": ("ub-bounds", "Bench<half> t(x, y, z); Add(t.c, t.a, t.b, 128, 33, {1, 1, 1, 8, 8, 8});"),
    "copy_overrun": ("ub-bounds", "Bench<half> t(x, y, z); DataCopyPad(t.c[4080], t.xg, {2, 2, 0, 0, 0}, "
        "DataCopyPadExtParams<half>());"),
    "ub_overflow": ("ub-overflow", "TPipe p; TBuf<TPosition::VECCALC> b, c; p.InitBuffer(b, 196352); p.InitBuffer(c, 1);"),
    "partial_overlap": ("overlap", "Bench<half> t(x, y, z); Add(t.a[16], t.a, t.b, 128, 1, {1, 1, 1, 8, 8, 8});"),
    "shift_in_place": ("overlap", "Bench<half> t(x, y, z); Add(t.a[128], t.a, t.b, 128, 4, {1, 1, 1, 8, 8, 8});"),
    "copy_shift": ("overlap", "Bench<half> t(x, y, z); Copy(t.a[64], t.a, 64, 3, {1, 1, 4, 4});"),
    "mixed_alias": ("overlap", "Bench<half> t(x, y, z); Cast(t.a.ReinterpretCast<float>(), t.a, RoundMode::CAST_NONE, 64);"),
    "tiling_size": ("tiling", "GET_TILING_DATA_WITH_STRUCT(int64_t, n, tiling); (void)n;"),
}


@pytest.fixture(scope="module")
def limits(cache, tmp_path_factory):
    """All of LIMITS in one source, so that they cost one compilation."""
    source = tmp_path_factory.mktemp("limits") / "limits.cpp"
    source.write_text('#include "bench.h"\n' + "\n".join(f"CASE({name}) {{ {body} }}" for name, (_, body) in LIMITS.items()))
    return lambda name: twin.build([source], name, include_dirs=[CASES], out_dir=cache)


@pytest.mark.parametrize("name", LIMITS)
def test_limit_is_refused(limits, name):
    detector, _ = LIMITS[name]
    arrays = [np.zeros(BYTES, np.uint8) for _ in range(3)]
    arrays[0].flags.writeable = name.startswith("pad_")
    with pytest.raises(twin.TwinError) as caught:
        limits(name).run(arrays, tiling=b"1234")
    (error,) = caught.value.errors
    first, second = error.split("\n")
    assert first.startswith(f"{detector}: ") and first.endswith(", core 0")
    assert "limits.cpp:" in second or "bench.h:" in second, error


@pytest.mark.parametrize("body, message", [
    ("Bench<bfloat16_t> t(x, y, z); Add(t.c, t.a, t.b, 16);", "Add has no such type"),
    ("Bench<half> t(x, y, z); const int n = 256; Add(t.c, t.a, t.b, 128, n + t.a.GetSize(), {1, 1, 1, 8, 8, 8});",
        "-Werror=conversion"),
    ("Bench<half> t(x, y, z); const uint32_t n = t.a.GetSize(); DataCopyParams p{1, n, 0, 0}; DataCopy(t.c, t.xg, p);",
        "-Werror=narrowing"),
])
def test_the_compiler_refuses(cache, tmp_path, body, message):
    source = tmp_path / "refused.cpp"
    source.write_text(f'#include "bench.h"\nCASE(refused) {{ {body} }}')
    with pytest.raises(RuntimeError, match=message):
        twin.build([source], "refused", include_dirs=[CASES], out_dir=cache)


def test_report_counts(cache):
    x, y, z = (np.ones(BYTES // 2, np.float16) for _ in range(3))
    report = twin.build([CASES / "semantics.cpp"], "add_prefix", out_dir=cache).run([x, y, z], blocks=1, trace=True)
    (core,) = report.cores
    assert core == dict(dma_in=3, dma_out=1, bytes_in=3 * BYTES, bytes_out=BYTES, bursts_in=3, bursts_out=1,
        barriers=2, flags=0,
                        scalar_gm=0, ub_high=3 * BYTES, vec={"Add.f16": (1, 3)})
    assert [arg["bytes_in"] for arg in report.args] == [BYTES] * 3 and [arg["bytes_out"] for arg in report.args] == [0,
        0, BYTES]
    names = [report.ops[op] for op in report.trace["op"]]
    assert names == ["DataCopy GM->UB"] * 3 + ["PipeBarrier", "Add", "PipeBarrier", "DataCopy UB->GM", "PipeBarrier"]
    add = report.trace[4]
    assert (add["repeats"], add["ub_lo"], add["ub_hi"], add["src0_lo"], add["src1_hi"]) == (3, 16384, 16384 + 712, 0,
        8192 + 712)
