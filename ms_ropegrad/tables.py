# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
"""cos and sin."""
import math
import numbers

import numpy as np
import mindspore
from mindspore import Tensor

from . import checks, reference, spec


def rope_tables(max_seq_len, head_size=128, base=10000.0, dtype=mindspore.float16):
    r"""
    The tables cos and sin of rotary position embedding, computed in float64 and rounded once, halves duplicated.

    .. math::
        angle_{p,i} = p \cdot base^{-2i / head\_size}, \quad i < head\_size / 2

    Args:
        max_seq_len (int): Number of positions (rows).
        head_size (int, optional): Columns, even. Default: ``128`` .
        base (float, optional): Base of the frequencies. Default: ``10000.0`` .
        dtype (mindspore.dtype, optional): float16, bfloat16 or float32. float16 and bfloat16 round the
            tables; float32 tables go with activations of any dtype. Default: ``mindspore.float16`` .

    Returns:
        Tuple of 2 Tensors, cos and sin, shape (max_seq_len, head_size).

    Raises:
        TypeError: If `max_seq_len` or `head_size` is not an int, `base` not a number, or `dtype` none of the three.
        ValueError: If `max_seq_len` is less than 1, `head_size` is odd or less than 2, one of them is beyond int32, or `base` is
            not positive and finite.

    Supported Platforms:
        ``Ascend`` ``CPU``

    Examples:
        >>> import mindspore as ms
        >>> from ms_ropegrad import rope_tables
        >>> cos, sin = rope_tables(3, head_size=4, dtype=ms.float32)
        >>> print(sin[1])
        [0.84147096 0.00999983 0.84147096 0.00999983]
    """
    def must(what, need, got):
        return f"For 'rope_tables', the {what} must be {need}, but got {checks.short(got) if isinstance(got, numbers.Real) else got}."

    max_seq_len = checks.count("rope_tables", "max_seq_len", max_seq_len, 1)
    head_size = checks.count("rope_tables", "head_size", head_size, 2)
    if head_size % 2:
        raise ValueError(must("'head_size'", "even", head_size))
    if isinstance(base, bool) or not isinstance(base, numbers.Real):
        raise TypeError(must("type of 'base'", "float", type(base).__name__))
    try:
        value = float(base)
    except OverflowError:
        value = math.inf
    if not 1e-290 <= value < math.inf:  # below, angles are not finite
        raise ValueError(must("'base'", "positive (at least 1e-290) and finite", base))
    name = str(dtype).lower()
    if not isinstance(dtype, mindspore.Type) or name not in spec.DTYPES:
        raise TypeError(must("'dtype'", "mindspore.float16, mindspore.bfloat16 or mindspore.float32", f"{dtype} of type {type(dtype).__name__}"))
    frequency = value ** (-np.arange(0, head_size, 2, dtype=np.float64) / head_size)
    held = "float32" if name == "bfloat16" else name
    tables = [np.empty((max_seq_len, head_size), held) for _ in range(2)]
    for start in range(0, max_seq_len, 4096):  # in blocks: float64 of a whole table is many times its size
        rows = slice(start, min(start + 4096, max_seq_len))
        angle = np.outer(np.arange(rows.start, rows.stop, dtype=np.float64), frequency)
        for table, f in zip(tables, (np.cos, np.sin)):
            half = f(angle).astype(held)
            table[rows] = np.concatenate((half, half), axis=1)
    return tuple(Tensor(reference.round_bfloat16(t)).astype(dtype) if name == "bfloat16" else Tensor(t) for t in tables)
