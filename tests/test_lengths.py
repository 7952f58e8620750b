# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
"""Do all forms of lengths convert into each other, as arrays and as tensors, eagerly and in a graph?"""
import numpy as np
import pytest
import mindspore as ms
from mindspore import Tensor

from ms_ropegrad import lengths

CASES = [([2, 1, 4], [2, 3, 7], [0, 1, 0, 0, 1, 2, 3]), ([1], [1], [0]), ([3, 3], [3, 6], [0, 1, 2, 0, 1, 2])]


def position_ids_of_seven(seq_ends):
    return lengths.position_ids_from_ends(seq_ends, 7)


def conversions(lens, ends, ids):
    return [(lengths.ends_from_lengths, lens, ends), (lengths.lengths_from_ends, ends, lens),
            (lengths.ends_from_cu_seqlens, [0, *ends], ends), (lengths.cu_seqlens_from_ends, ends, [0, *ends]),
            (lengths.position_ids_from_ends, ends, ids), (lengths.ends_from_position_ids, ids, ends)]


@pytest.mark.parametrize("lens,ends,ids", CASES)
def test_every_conversion(lens, ends, ids):
    for convert, source, want in conversions(lens, ends, ids):
        for kind in (list, tuple, np.int32, np.int64):
            got = convert(np.array(source, kind) if kind not in (list, tuple) else kind(source))
            assert isinstance(got, np.ndarray) and got.dtype == np.int32 and got.tolist() == want
        for dtype in (ms.int32, ms.int64):
            got = convert(Tensor(source, dtype))
            assert isinstance(got, Tensor) and got.dtype == ms.int32 and got.asnumpy().tolist() == want


def test_in_a_graph():
    lens, ends, ids = CASES[0]
    for convert, source, want in conversions(lens, ends, ids)[:4] + [(position_ids_of_seven, ends, ids)]:
        for dtype in (ms.int32, ms.int64):
            got = ms.jit(convert)(Tensor(source, dtype))
            assert got.dtype == ms.int32 and got.asnumpy().tolist() == want
    for convert, text in ((lengths.ends_from_position_ids, "converted outside the graph"), (lengths.position_ids_from_ends, "'n_tokens' must be given")):
        with pytest.raises(ValueError, match=text):
            ms.jit(convert)(Tensor(ends, ms.int32))


def test_padding_and_dense():
    assert lengths.lengths_from_ends([2, 3, 7, 7, 7]).tolist() == [2, 1, 4, 0, 0]
    assert lengths.position_ids_from_ends([0, 2, 2, 3]).tolist() == [0, 1, 0]
    assert lengths.position_ids_from_ends(Tensor([0, 2, 2, 3], ms.int32)).asnumpy().tolist() == [0, 1, 0]
    assert lengths.ends_from_position_ids(np.array([[0, 1, 2], [0, 1, 0]])).tolist() == [3, 5, 6]
    assert lengths.ends_from_dense(2, 3).tolist() == [3, 6] and lengths.ends_from_dense(2, 3).dtype == np.int32
    assert lengths.dense_from_ends([3, 6]) == lengths.dense_from_ends(Tensor([3, 6], ms.int32)) == (2, 3)


def test_random_round_trips():
    rng = np.random.default_rng(0)
    for _ in range(50):
        lens = rng.integers(1, 9, rng.integers(1, 40))
        ends = lengths.ends_from_lengths(lens)
        assert (lengths.lengths_from_ends(ends) == lens).all()
        assert (lengths.ends_from_position_ids(lengths.position_ids_from_ends(ends)) == ends).all()
        assert (lengths.ends_from_cu_seqlens(lengths.cu_seqlens_from_ends(ends)) == ends).all()


@pytest.mark.parametrize("convert,values,text", [
    (lengths.ends_from_lengths, [2, -1], "non-negative"),
    (lengths.ends_from_lengths, [2**31 - 1, 1], "at most 2147483647"),
    (lengths.lengths_from_ends, [3, 2], "non-decreasing"),
    (lengths.ends_from_cu_seqlens, [2, 3, 7], "0 followed by the end"),
    (lengths.ends_from_cu_seqlens, [0], "0 followed by the end"),
    (lengths.cu_seqlens_from_ends, [-1, 2], "non-negative"),
    (lengths.ends_from_position_ids, [3, 4, 5], r"'position_ids\[0\]' must be 0 \(no offset\), but got 3"),
    (lengths.ends_from_position_ids, [0, 1, 3], r"'position_ids\[2\]' must be 2 or 0 \(no gaps, no offset\), but got 3"),
    (lengths.ends_from_position_ids, [0, 1, 1], "must be 2 or 0"),
    (lengths.ends_from_position_ids, [0, 1, -1], "must be 2 or 0"),
    (lengths.dense_from_ends, [3, 5], "equally long"),
])
def test_refusals(convert, values, text):
    for given in (values, np.array(values), Tensor(values, ms.int64)):
        with pytest.raises(ValueError, match=text):
            convert(given)


@pytest.mark.parametrize("convert", [lengths.ends_from_lengths, lengths.lengths_from_ends, lengths.ends_from_cu_seqlens, lengths.cu_seqlens_from_ends,
                                     lengths.ends_from_position_ids, lengths.position_ids_from_ends, lengths.dense_from_ends])
def test_values_beyond_int32_and_wrong_tensors(convert):
    for big in ([0, 2**31], [0, 2**63], [0, 10**5000], [0, -2**63], [0] + [2**62] * 4):
        forms = [big] if max(map(abs, big)) > 2**63 - 1 else [big, np.array(big), Tensor(np.array(big))]
        for given in forms:
            with pytest.raises(ValueError, match="^For 'lengths', the elements of '.*' must be at most 2147483647"):
                convert(given)
    with pytest.raises(TypeError):
        convert(np.ma.masked_array([0, 1], [False, True]))
    for bad, error in ((Tensor([0, 1], ms.uint8), TypeError), (Tensor([0.0, 1.0]), TypeError), (Tensor([False, True]), TypeError), (Tensor(0, ms.int32), ValueError)):
        for call in (convert, ms.jit(convert)):
            if convert is lengths.ends_from_position_ids and bad.shape == ():
                continue  # flattened
            with pytest.raises((error, ValueError), match="^For 'lengths', the "):
                call(bad)


def test_numbers_of_tokens():
    for ends in ([1, 3], Tensor([1, 3], ms.int32)):
        for bad, error in ((3.0, TypeError), (True, TypeError), ("3", TypeError), (-1, ValueError), (10**5000, ValueError)):
            with pytest.raises(error, match="^For 'lengths', the "):
                lengths.position_ids_from_ends(ends, bad)
        got = lengths.position_ids_from_ends(ends, np.int64(3))
        assert (got.asnumpy() if isinstance(got, Tensor) else got).tolist() == [0, 0, 1]


def test_wrong_types_and_totals():
    for convert in (lengths.ends_from_lengths, lengths.ends_from_position_ids, lengths.cu_seqlens_from_ends):
        for bad in ([1.0, 2.0], [True], np.array([1.5]), None, "12"):
            with pytest.raises(TypeError):
                convert(bad)
    with pytest.raises(ValueError, match="n_tokens 8"):
        lengths.position_ids_from_ends([2, 7], 8)
    for bad in ((0, 3), (2**20, 2**20), (10**5000, 1)):
        with pytest.raises(ValueError, match="dense batch"):
            lengths.ends_from_dense(*bad)
