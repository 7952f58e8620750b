# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
"""Which forms of lengths? All of them to and from cumulative ends, the form used inside.

=================  ===========================================================  ==================
form               example (sequences of 2, 1 and 4 tokens)                      used by
=================  ===========================================================  ==================
q_seq_len          [2, 1, 4]                                                     ATB
seq_ends           [2, 3, 7]; repeats are empty sequences, so padding            mindformers' actual_seq_len
cu_seqlens         [0, 2, 3, 7]                                                  flash-attention
position_ids       [0, 1, 0, 0, 1, 2, 3]                                         Hugging Face
dense [B, S]       B rows of S tokens                                            padded batches
=================  ===========================================================  ==================

Arrays and lists give int32 ndarrays, Tensors give int32 Tensors. Tensors work in GRAPH_MODE too (position_ids apart), where
their values are not checked (the operator checks seq_ends on CPU).
"""
import numpy as np
from mindspore import Tensor, ops
from mindspore import dtype as mstype
from mindspore.ops import constexpr

from . import checks, spec
from .custom import eager


def cumulative(q_seq_len):
    """Lengths Tensor -> ends Tensor in int64, in which int32 lengths cannot overflow."""
    return ops.cumsum(ops.cast(q_seq_len, mstype.int64), 0)


def to_int32(ends):
    """Ends Tensor as int32; values that int32 cannot hold stay out of range instead of wrapping round."""
    if ends.dtype == mstype.int32:
        return ends
    return ops.cast(ops.clamp(ends, -1, spec.MAX_END), mstype.int32)


def ends_from_lengths(q_seq_len):
    """
    Lengths of the sequences to cumulative ends.

    Args:
        q_seq_len (Union[list[int], tuple[int], numpy.ndarray, Tensor]): Lengths, shape (batch,).

    Returns:
        numpy.ndarray or Tensor, int32, shape (batch,).

    Raises:
        TypeError: If the values are not of an integer type.
        ValueError: If a length is negative, or the total does not fit int32.

    Supported Platforms:
        ``Ascend`` ``CPU``

    Examples:
        >>> from ms_ropegrad import lengths
        >>> print(lengths.ends_from_lengths([2, 1, 4]))
        [2 3 7]
    """
    if isinstance(q_seq_len, Tensor):
        _check_tensor("q_seq_len", q_seq_len)
        return to_int32(cumulative(q_seq_len))
    return _numpy(_sum("q_seq_len", _values("q_seq_len", q_seq_len)))


def lengths_from_ends(seq_ends):
    """
    Cumulative ends (no leading 0) to lengths; a repeat becomes a length of 0.

    Args:
        seq_ends (Union[list[int], tuple[int], numpy.ndarray, Tensor]): Ends, shape (batch,).

    Returns:
        numpy.ndarray or Tensor, int32, shape (batch,).

    Raises:
        TypeError: If the values are not of an integer type.
        ValueError: If the ends are negative or decrease.

    Supported Platforms:
        ``Ascend`` ``CPU``

    Examples:
        >>> from ms_ropegrad import lengths
        >>> print(lengths.lengths_from_ends([2, 3, 7, 7]))
        [2 1 4 0]
    """
    if isinstance(seq_ends, Tensor):
        _check_tensor("seq_ends", seq_ends)
        ends = to_int32(seq_ends)
        return ops.cat((ends[:1], ends[1:] - ends[:-1]))
    return _numpy(np.diff(_sum("seq_ends", _values("seq_ends", seq_ends)), prepend=0))


def ends_from_cu_seqlens(cu_seqlens):
    """
    Cumulative ends with a leading 0 to ends without.

    Args:
        cu_seqlens (Union[list[int], tuple[int], numpy.ndarray, Tensor]): Shape (batch + 1,), the first element 0.

    Returns:
        numpy.ndarray or Tensor, int32, shape (batch,).

    Raises:
        TypeError: If the values are not of an integer type.
        ValueError: If the first element is not 0, there is no second, or the ends decrease.

    Supported Platforms:
        ``Ascend`` ``CPU``

    Examples:
        >>> from ms_ropegrad import lengths
        >>> print(lengths.ends_from_cu_seqlens([0, 2, 3, 7]))
        [2 3 7]
    """
    if isinstance(cu_seqlens, Tensor):
        _check_tensor("cu_seqlens", cu_seqlens)
        return to_int32(cu_seqlens)[1:]
    return _numpy(_sum("cu_seqlens", _values("cu_seqlens", cu_seqlens)))


def cu_seqlens_from_ends(seq_ends):
    """
    Cumulative ends to ends with a leading 0.

    Args:
        seq_ends (Union[list[int], tuple[int], numpy.ndarray, Tensor]): Ends, shape (batch,).

    Returns:
        numpy.ndarray or Tensor, int32, shape (batch + 1,).

    Raises:
        TypeError: If the values are not of an integer type.
        ValueError: If the ends are negative or decrease.

    Supported Platforms:
        ``Ascend`` ``CPU``

    Examples:
        >>> from ms_ropegrad import lengths
        >>> print(lengths.cu_seqlens_from_ends([2, 3, 7]))
        [0 2 3 7]
    """
    if isinstance(seq_ends, Tensor):
        _check_tensor("seq_ends", seq_ends)
        ends = to_int32(seq_ends)
        return ops.cat((ops.zeros_like(ends[:1]), ends))
    return _numpy(np.concatenate(([0], _sum("seq_ends", _values("seq_ends", seq_ends)))))


def ends_from_position_ids(position_ids):
    """
    Position ids to cumulative ends: every 0 starts a sequence. Gaps and offsets are refused.

    Args:
        position_ids (Union[list[int], tuple[int], numpy.ndarray, Tensor]): Shape (n_tokens,), or (B, S) in batch-major order.

    Returns:
        numpy.ndarray or Tensor, int32, shape (number of sequences,). Since that number depends on the values, a Tensor is
        read on the host and refused inside a graph.

    Raises:
        TypeError: If the values are not of an integer type.
        ValueError: If positions do not start at 0 or do not count up by 1 between restarts.

    Supported Platforms:
        ``Ascend`` ``CPU``

    Examples:
        >>> from ms_ropegrad import lengths
        >>> print(lengths.ends_from_position_ids([0, 1, 0, 0, 1, 2, 3]))
        [2 3 7]
    """
    if isinstance(position_ids, Tensor):
        if eager():
            _check_static("position_ids", position_ids.reshape(-1).shape, position_ids.dtype)
            return Tensor(ends_from_position_ids(position_ids.asnumpy()))
        not_in_graph("'position_ids'", "converted outside the graph (the number of sequences depends on the values)")
    ids = _values("position_ids", position_ids)
    expected = np.where(ids == 0, 0, np.append(0, ids[:-1] + 1))
    if (ids != expected).any():
        at = int((ids != expected).argmax())
        checks.refuse("lengths", f"'position_ids[{at}]'", f"{expected[at]} or 0 (no gaps, no offset)" if at else "0 (no offset)",
                      int(ids[at]))
    return _numpy(np.append(np.flatnonzero(ids == 0)[1:], ids.size))


def position_ids_from_ends(seq_ends, n_tokens=None):
    """
    Cumulative ends to the position of every token in its own sequence.

    Args:
        seq_ends (Union[list[int], tuple[int], numpy.ndarray, Tensor]): Ends, shape (batch,).
        n_tokens (int, optional): Number of tokens; needed for a Tensor in GRAPH_MODE. Default: ``None`` , the last end.

    Returns:
        numpy.ndarray or Tensor, int32, shape (n_tokens,).

    Raises:
        TypeError: If the values are not of an integer type.
        ValueError: If the ends are negative or decrease, or the last is not n_tokens.

    Supported Platforms:
        ``Ascend`` ``CPU``

    Examples:
        >>> from ms_ropegrad import lengths
        >>> print(lengths.position_ids_from_ends([2, 3, 7]))
        [0 1 0 0 1 2 3]
    """
    if n_tokens is not None:
        n_tokens = _count("n_tokens", n_tokens)
    if isinstance(seq_ends, Tensor):
        _check_tensor("seq_ends", seq_ends, n_tokens)
        ends = to_int32(seq_ends)
        if n_tokens is None:
            if not eager():
                not_in_graph("'n_tokens'", "given")
            n_tokens = int(ends[-1])
        here = ops.cast(ops.arange(n_tokens), mstype.int32)
        starts = ops.cat((ops.zeros_like(ends[:1]), ends))
        return here - ops.gather(starts, ops.searchsorted(ends, here, right=True), 0)
    ends = _sum("seq_ends", _values("seq_ends", seq_ends), n_tokens)
    lengths = np.diff(ends, prepend=0)
    return _numpy(np.arange(ends[-1]) - np.repeat(ends - lengths, lengths))


def ends_from_dense(batch_size, seq_len):
    """
    A dense batch of B rows of S tokens, flattened batch-major, to cumulative ends.

    Args:
        batch_size (int): B.
        seq_len (int): S.

    Returns:
        numpy.ndarray, int32, shape (B,).

    Raises:
        TypeError: If they are not int.
        ValueError: If one is less than 1, or B * S does not fit int32.

    Supported Platforms:
        ``Ascend`` ``CPU``

    Examples:
        >>> from ms_ropegrad import lengths
        >>> print(lengths.ends_from_dense(3, 4))
        [ 4  8 12]
    """
    batch_size, seq_len = checks.int_list("lengths", "dense", (batch_size, seq_len))
    if batch_size < 1 or seq_len < 1 or batch_size * seq_len > spec.MAX_END:
        checks.refuse("lengths", "dense batch [B, S]", f"at least [1, 1] and at most {spec.MAX_END} tokens",
                      checks.show((batch_size, seq_len)))
    return (np.arange(batch_size, dtype=np.int32) + np.int32(1)) * np.int32(seq_len)


def dense_from_ends(seq_ends):
    """
    Cumulative ends to the (B, S) of a dense batch, when all sequences are equally long.

    Args:
        seq_ends (Union[list[int], tuple[int], numpy.ndarray, Tensor]): Ends, shape (batch,); a Tensor is read on the host.

    Returns:
        tuple of int, (B, S).

    Raises:
        TypeError: If the values are not of an integer type.
        ValueError: If the sequences are not equally long.

    Supported Platforms:
        ``Ascend`` ``CPU``

    Examples:
        >>> from ms_ropegrad import lengths
        >>> print(lengths.dense_from_ends([4, 8, 12]))
        (3, 4)
    """
    if isinstance(seq_ends, Tensor):
        if not eager():
            not_in_graph("'seq_ends'", "converted outside the graph (its values decide the shape)")
        _check_static("seq_ends", seq_ends.shape, seq_ends.dtype)
        seq_ends = seq_ends.asnumpy()
    lengths = np.diff(_sum("seq_ends", _values("seq_ends", seq_ends)), prepend=0)
    if lengths.min() != lengths.max() or lengths[0] < 1:
        checks.refuse("lengths", "sequences of a dense batch", "equally long", lengths.tolist()[:8])
    return len(lengths), int(lengths[0])


def _numpy(ends):
    return ends.astype(spec.SEQ_ENDS_DTYPE)


def _values(name, values):
    """A list, tuple or integer array as int64; position_ids may be [B, S]."""
    if isinstance(values, np.ndarray) and name == "position_ids":
        values = values.reshape(-1)
    ints = checks.int_list("lengths", name, values)
    for v in ints:
        if abs(v) > spec.MAX_END:
            checks.refuse("lengths", f"elements of '{name}'", f"at most {spec.MAX_END} in size", v)
    return np.array(ints, np.int64)


def _sum(name, values, n_tokens=None):
    """The ends of lengths, ends or cu_seqlens, whatever ``name`` says they are, refused when they decrease."""
    if name == "cu_seqlens":
        if len(values) < 2 or values[0] != 0:
            checks.refuse("lengths", "'cu_seqlens'", "0 followed by the end of every sequence", values.tolist()[:8])
        values = values[1:]
    ends = checks.ends_of_values("lengths", "q_seq_len" if name == "q_seq_len" else "seq_ends", values, n_tokens)
    if ends[-1] > spec.MAX_END:
        checks.refuse("lengths", f"total of '{name}'", f"at most {spec.MAX_END}", int(ends[-1]))
    return ends


def _check_tensor(name, values, n_tokens=None):
    """Shape and dtype in both modes, values where they are known."""
    _check_static(name, values.shape, values.dtype)
    if eager():
        _sum(name, _values(name, values.asnumpy()), n_tokens)


@constexpr
def _check_static(name, shape, dtype):
    known = shape is not None and all(d is not None and d >= 0 for d in shape)
    checks.length_tensor("lengths", name, shape if known else (1,), str(dtype).lower())


@constexpr(check=False)
def _count(name, value):
    return checks.count("lengths", name, value)


@constexpr
def not_in_graph(what, need):
    checks.refuse("lengths", what, need, "a Tensor in GRAPH_MODE")
