# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
"""cos and sin."""
import math
import numbers

import numpy as np
import mindspore
from mindspore import Tensor

from . import reference, spec


def rope_tables(max_seq_len, head_size=128, base=10000.0, dtype=mindspore.float16):
    r"""
    The tables cos and sin of rotary position embedding, computed in float64 and rounded once, halves duplicated.

    .. math::
        angle_{p,i} = p \cdot base^{-2i / head\_size}, \quad i < head\_size / 2

    Args:
        max_seq_len (int): Number of positions (rows).
        head_size (int, optional): Columns, even. Default: ``128`` .
        base (float, optional): Base of the frequencies. Default: ``10000.0`` .
        dtype (mindspore.dtype, optional): float16, bfloat16 or float32. float16 and bfloat16 lose precision at large
            positions; float32 tables go with activations of any dtype. Default: ``mindspore.float16`` .

    Returns:
        Tuple of 2 Tensors, cos and sin, shape (max_seq_len, head_size).

    Raises:
        TypeError: If `max_seq_len` or `head_size` is not an int, `base` not a number, or `dtype` none of the three.
        ValueError: If `max_seq_len` is less than 1, `head_size` is odd or less than 2, or `base` is not positive and finite.

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
        return f"For 'rope_tables', the {what} must be {need}, but got {got}."

    for name, value, low in (("max_seq_len", max_seq_len, 1), ("head_size", head_size, 2)):
        if isinstance(value, bool) or not isinstance(value, numbers.Integral):
            raise TypeError(must(f"type of '{name}'", "int", type(value).__name__))
        if value < low or (name == "head_size" and value % 2):
            raise ValueError(must(f"'{name}'", f"at least {low}" + (" and even" if low == 2 else ""), value))
    if isinstance(base, bool) or not isinstance(base, numbers.Real):
        raise TypeError(must("type of 'base'", "float", type(base).__name__))
    if not 0 < base < math.inf:
        raise ValueError(must("'base'", "positive and finite", base))
    name = str(dtype).lower()
    if not isinstance(dtype, mindspore.Type) or name not in spec.DTYPES:
        raise TypeError(must("'dtype'", f"one of {list(spec.DTYPES)}", dtype))
    frequency = float(base) ** (-np.arange(0, head_size, 2, dtype=np.float64) / head_size)
    angle = np.outer(np.arange(max_seq_len, dtype=np.float64), frequency)
    angle = np.concatenate((angle, angle), axis=1)
    if name == "bfloat16":
        return tuple(Tensor(reference.round_bfloat16(f(angle))).astype(dtype) for f in (np.cos, np.sin))
    return tuple(Tensor(f(angle).astype(name)) for f in (np.cos, np.sin))
