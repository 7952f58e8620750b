# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
"""cos and sin."""
import numpy as np
import mindspore
from mindspore import Tensor

from . import checks, reference, spec
from .scaling import frequencies


def rope_tables(max_seq_len, head_size=128, base=10000.0, dtype=mindspore.float16, scaling=None):
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
        scaling (dict, optional): The ``rope_scaling`` of a Hugging Face config: see :class:`ms_ropegrad.RotaryEmbedding` .
            Default: ``None`` .

    Returns:
        Tuple of 2 Tensors, cos and sin, shape (max_seq_len, head_size).

    Raises:
        TypeError: If `max_seq_len` or `head_size` is not an int, `base` not a number, `dtype` none of the three, or `scaling` no
            dict of numbers.
        ValueError: If `max_seq_len` is less than 1, `head_size` is odd or less than 2, one of them is beyond int32, `base` is
            not positive and finite, or `scaling` has an unknown type, key or value.

    Supported Platforms:
        ``Ascend`` ``CPU``

    Examples:
        >>> import mindspore as ms
        >>> from ms_ropegrad import rope_tables
        >>> cos, sin = rope_tables(3, head_size=4, dtype=ms.float32)
        >>> print(sin[1])
        [0.84147096 0.00999983 0.84147096 0.00999983]
    """
    max_seq_len = checks.count("rope_tables", "max_seq_len", max_seq_len, 1)
    head_size = checks.even("rope_tables", "head_size", head_size)
    return build("rope_tables", max_seq_len, head_size, base, scaling, "dtype", dtype)


def build(op, max_seq_len, rotary_dim, base, scaling, dtype_arg, dtype):
    """cos and sin for the public name ``op``; the rest of its arguments is checked here, ``dtype_arg`` is its name of dtype."""
    name = str(dtype).lower()
    if not isinstance(dtype, mindspore.Type) or name not in spec.DTYPES:
        checks.refuse_type(op, f"'{dtype_arg}'", "mindspore.float16, mindspore.bfloat16 or mindspore.float32", f"{dtype} of type {type(dtype).__name__}")
    frequency, factor = frequencies(rotary_dim, checks.base(op, base), *checks.scaling(op, scaling, rotary_dim, base))
    held = "float32" if name == "bfloat16" else name
    tables = [np.empty((max_seq_len, rotary_dim), held) for _ in range(2)]
    for start in range(0, max_seq_len, 4096):  # in blocks: float64 of a whole table is many times its size
        rows = slice(start, min(start + 4096, max_seq_len))
        angle = np.outer(np.arange(rows.start, rows.stop, dtype=np.float64), frequency)
        for table, f in zip(tables, (np.cos, np.sin)):
            half = (f(angle) * factor).astype(held)
            table[rows] = np.concatenate((half, half), axis=1)
    return tuple(Tensor(reference.round_bfloat16(t)).astype(dtype) if name == "bfloat16" else Tensor(t) for t in tables)
