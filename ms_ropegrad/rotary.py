# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
"""RoPE as a model's layer: its own tables, the layouts of attention code, part of a head, scaled frequencies."""
import math

import mindspore
from mindspore import Parameter, Tensor, ops
from mindspore.ops import constexpr

from ms_ropegrad import checks, custom, lengths, packed, tables  # absolute: as in cells.py
from ms_ropegrad.cells import _Packed


class RotaryEmbedding(_Packed):
    r"""
    Rotary position embedding (rotate-half) as a layer of a model, with its own tables and its gradient.

    :class:`ms_ropegrad.Rope` with the tables inside, which are computed in float64 and rounded once, for q and k in the
    layouts of attention code. The tables never train and no optimizer sees them; `to_float` and mixed precision cast q and k,
    not the tables.

    Args:
        head_size (int): Size of a head, even.
        max_seq_len (int): Rows of the tables: the longest sequence.
        base (float, optional): Base of the frequencies, ``rope_theta`` of a config. Default: ``10000.0`` .
        rotary_dim (int, optional): The first `rotary_dim` elements of each head are rotated, the rest passes through; even.
            On Ascend 64, 96, 128, 192 or 256. Default: ``None`` , `head_size` .
        scaling (dict, optional): ``rope_scaling`` of a Hugging Face config, as it is: ``"rope_type"`` (or ``"type"`` ) is one of
            ``"default"`` , ``"linear"`` , ``"ntk"`` , ``"llama3"`` , ``"yarn"`` , with the keys of that type. YaRN also multiplies the
            tables by `attention_factor` , or `0.1 ln(factor) + 1` , or, with DeepSeek's `mscale` and `mscale_all_dim` , by the quotient of
            theirs. ``"dynamic"`` is refused: it changes the frequencies with the length. Default: ``None`` .
        table_dtype (mindspore.dtype, optional): float32, or the dtype of q and k. Default: ``mindspore.float32`` .
        layout (str, optional): Of q and k: ``"TH"`` (n_tokens, heads * head_size), ``"TND"`` , ``"BSND"`` , ``"BNSD"`` or
            ``"SBND"`` . Default: ``"TH"`` .
        grad_formula (str, optional): As in :class:`ms_ropegrad.Rope` . Default: ``"exact"`` .
        save_tables (bool, optional): Whether the tables are Parameters (that need no gradient), ``cos`` and ``sin`` in checkpoints.
            Otherwise they are in none, and made anew by the constructor. Default: ``False`` .
        backend (str, optional): As in :class:`ms_ropegrad.Rope` . Default: ``"auto"`` .

    Inputs:
        - **q** (Tensor) - In the layout, dtype float16, bfloat16 or float32.
        - **k** (Tensor) - Same dtype, B, S (or n_tokens) and head_size; its number of heads may differ.
        - **q_seq_len** (Union[list[int], tuple[int], Tensor], optional) - Lengths of the sequences, as in :class:`ms_ropegrad.Rope` ,
          over all tokens: in layouts with B and S over B * S tokens, row after row. Without lengths each row is one
          sequence; "TH" and "TND" need them.
        - **seq_ends** (Union[list[int], tuple[int], Tensor], optional) - Cumulative ends instead of `q_seq_len` .

    Outputs:
        Tuple of 2 Tensors, **rope_q** and **rope_k**, with the layouts, shapes and dtype of `q` and `k` .

    Raises:
        TypeError: If an argument or input has a wrong type or dtype.
        ValueError: If an argument, a shape or lengths do not fit; values of a lengths Tensor as in :class:`ms_ropegrad.Rope` .

    Supported Platforms:
        ``Ascend`` ``CPU``

    Examples:
        >>> import numpy as np
        >>> import mindspore as ms
        >>> from ms_ropegrad import RotaryEmbedding
        >>> yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}
        >>> rotary = RotaryEmbedding(64, 16384, scaling=yarn, layout="BSND")
        >>> q, k = ms.Tensor(np.ones((2, 5, 8, 64)), ms.float16), ms.Tensor(np.ones((2, 5, 2, 64)), ms.float16)
        >>> rope_q, rope_k = rotary(q, k)                                                  # 2 sequences of 5 tokens
        >>> rope_q, rope_k = rotary(q, k, seq_ends=ms.Tensor([3, 5, 10, 10], ms.int32))    # 3, 2 and 5 tokens
        >>> print(rope_q.shape, rope_k.shape, rope_k[0, 3, 0, 0])
        (2, 5, 8, 64) (2, 5, 2, 64) 1.139
    """

    def __init__(self, head_size, max_seq_len, base=10000.0, rotary_dim=None, scaling=None, table_dtype=mindspore.float32, layout="TH",
                 grad_formula="exact", save_tables=False, backend="auto"):
        op = "RotaryEmbedding"
        super().__init__(op, checks.formula_op(grad_formula, "grad_formula", op), None, None, backend)
        self._head_size = checks.even(op, "head_size", head_size)
        self._rotary_dim = self._head_size if rotary_dim is None else checks.even(op, "rotary_dim", rotary_dim, self._head_size)
        self._max_seq_len = checks.count(op, "max_seq_len", max_seq_len, 1)
        self._layout = checks.layout(op, layout)
        self._table_dtype = table_dtype
        cos, sin = tables.build(op, self._max_seq_len, self._rotary_dim, base, scaling, "table_dtype", table_dtype)
        if save_tables:
            cos, sin = Parameter(cos, name="cos", requires_grad=False), Parameter(sin, name="sin", requires_grad=False)
        self.cos, self.sin = cos, sin

    def extend_repr(self):
        return f"head_size={self._head_size}, max_seq_len={self._max_seq_len}, rotary_dim={self._rotary_dim}, layout='{self._layout}'"

    def construct(self, q, k, q_seq_len=None, seq_ends=None):
        def kind(x):  # nested: as in packed.run
            return "Tensor" if isinstance(x, Tensor) else packed.type_name(x)

        packed.check_kinds("RotaryEmbedding", kind(q), kind(k))
        dense = q_seq_len is None and seq_ends is None
        head, part = self._head_size, self._rotary_dim
        plan = _plan(self._backend, self._layout, head, part, self._max_seq_len, q_seq_len is not None, seq_ends is not None,
                     q.shape, k.shape, q.dtype, k.dtype, self._table_dtype)
        perm, q_width, k_width, counted, length = plan
        x_q, rest_q = _rows(q, perm, q_width, head, part)
        x_k, rest_k = _rows(k, perm, k_width, head, part)
        if dense:
            ends = _dense_ends(q.shape, counted, length)
            if ends is None:  # of dynamic shapes
                ends = _count_up(q.shape, counted) * q.shape[length]
        else:
            ends = packed.ends_of_call("RotaryEmbedding", self._backend, q_seq_len, seq_ends, x_q.shape, self.cos.shape)
        y_q, y_k = custom.call("RopeForward", self._formula_op, self._backend, x_q, x_k, self.cos, self.sin, ends)
        return _back(y_q, rest_q, q, perm, head, part), _back(y_k, rest_k, k, perm, head, part)


def _rows(x, perm, width, head, part):
    """x as the operator takes it, [n_tokens, heads * rotary_dim], and the part of every head that passes through."""
    if perm:
        x = ops.transpose(x, perm)
    if part == head:
        return x.reshape(-1, width), None
    x = x.reshape(-1, head)
    return x[:, :part].reshape(-1, width // head * part), x[:, part:]


def _back(y, rest, x, perm, head, part):
    """Rows to the shape of x; the permutations are their own inverses."""
    if rest is not None:
        y = ops.cat((y.reshape(-1, part), rest), axis=1)
    if not perm:
        return y.reshape(x.shape)
    a, b, c, d = x.shape
    return ops.transpose(y.reshape((a, c, b, d) if perm[1] == 2 else (b, a, c, d)), perm)


def _count_up(shape, counted):
    n = 1
    for axis in counted:
        n = n * shape[axis]
    return ops.cast(ops.arange(1, n + 1), mindspore.int32)


@constexpr(reuse_result=False)
def _plan(backend, layout, head, part, max_seq_len, has_lengths, has_ends, q, k, *dtypes):
    """Every check, then (permutation or (), width of the rows of q, of k; for dense batches the axes that number the sequences, and
    the axis of their length)."""
    op, dense = "RotaryEmbedding", not (has_lengths or has_ends)
    target = custom.target(backend)
    if not dense:
        checks.one_lengths(op, has_lengths, has_ends)
    checks.rotary(op, layout, head, part, max_seq_len, dense, (q, k), [str(d).lower() for d in dtypes], target)
    if layout == "TH":
        return (), q[1], k[1], (), 0
    heads = layout.index("N")
    q_width, k_width = q[heads] * head, k[heads] * head
    if layout in ("TND", "BSND"):
        return (), q_width, k_width, (0,), 1
    batch = q[layout.index("B")]
    if layout == "SBND":
        if batch == 1 or dense and batch:  # one token of every row side by side, like heads: all of them at the same position
            return (), q_width * batch, k_width * batch, (), 0
        return (1, 0, 2, 3), q_width, k_width, (1,), 0
    # BNSD. With every head of every row a sequence of its own nothing moves. The tables are then read for each head: for float32
    # tables and 2-byte data 2 x the traffic of the operator, where transposing there and back makes it 3 x.
    if dense and q[1] == k[1] or q[1] == k[1] == 1:
        return (), head, head, (0, 1), 2
    return (0, 2, 1, 3), q_width, k_width, (0,), 2


@constexpr
def _dense_ends(shape, counted, length):
    sizes = [shape[i] for i in (*counted, length)]
    if None in sizes or min(sizes) < 0:
        return None
    return Tensor(lengths.ends_from_dense(math.prod(sizes[:-1]), sizes[-1]))
