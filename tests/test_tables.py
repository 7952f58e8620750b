# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
"""Are the tables right, at position 1857 and at 131,071 too?"""
import math
import tracemalloc

import numpy as np
import pytest
import mindspore as ms

from ms_ropegrad import rope_tables


@pytest.mark.parametrize("base", [10000.0, 500000])
@pytest.mark.parametrize("dtype,bits", [("float32", 24), ("float16", 11), ("bfloat16", 8)])
def test_one_rounding_of_the_exact_values(base, dtype, bits):
    cos, sin = rope_tables(131072, head_size=64, base=base, dtype=getattr(ms, dtype))
    assert cos.shape == sin.shape == (131072, 64) and cos.dtype == getattr(ms, dtype)
    for table, f in ((cos, math.cos), (sin, math.sin)):
        rows = table.astype(ms.float32).asnumpy()
        assert (rows[:, :32] == rows[:, 32:]).all()
        for p in (0, 1, 1857, 131071):
            for i in range(32):
                want = f(p * base ** (-2 * i / 64))
                # half a unit in the last place, and float64's own error of the angle; subnormals of float16 below 2^-14
                unit = 2.0 ** (max(math.frexp(want)[1], -13 if dtype == "float16" else -120) - bits)
                assert abs(rows[p, i] - want) <= 0.51 * unit + 2e-11


def test_defaults():
    cos, sin = rope_tables(np.int64(5))
    assert cos.shape == (5, 128) and cos.dtype == sin.dtype == ms.float16
    assert (cos[0].asnumpy() == 1).all() and not sin[0].asnumpy().any()


def test_memory():
    tracemalloc.start()
    cos, sin = rope_tables(50000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2.6 * (cos.nbytes + sin.nbytes)  # each once more for its Tensor, and one float64 block


def test_the_smallest_bases_have_finite_angles():
    for table in rope_tables(1000, base=1e-290, dtype=ms.float32):
        assert np.isfinite(table.asnumpy()).all()
