# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
"""What a user calls: the Cells RopeGrad and Rope, and the functions of the same names."""
from mindspore import Tensor, nn

from ms_ropegrad import checks, custom, lengths, packed  # absolute: MindSpore imports this file under another name for amp O1


class _Packed(nn.Cell):
    """What RopeGrad and Rope share: lengths fixed at construction, or given in the call."""

    def __init__(self, op, formula_op, q_seq_len, seq_ends, backend):
        super().__init__()
        self._backend = checks.backend("backend", backend)
        self._op = op
        self._formula_op = formula_op
        self._own = None
        self._own_name = ""
        if q_seq_len is not None or seq_ends is not None:
            checks.one_lengths(op, q_seq_len is not None, seq_ends is not None)
            self._own_name = "q_seq_len" if seq_ends is None else "seq_ends"
            values = q_seq_len if seq_ends is None else seq_ends
            checks.ends_of_list(op, self._own_name, values)
            self._own = checks.int_list(op, self._own_name, values)

    def __call__(self, *args, **kwargs):
        try:
            return super().__call__(*args, **kwargs)
        except RuntimeError as e:
            checks.reraise(e)

    @property
    def q_seq_len(self):
        """The lengths given at construction, or None."""
        return self._own if self._own_name == "q_seq_len" else None

    @property
    def seq_ends(self):
        """The cumulative ends given at construction, or None."""
        return self._own if self._own_name == "seq_ends" else None

    def __setattr__(self, name, value):
        if name in ("q_seq_len", "seq_ends"):  # a compiled graph would silently keep the old ones
            raise AttributeError(f"For '{type(self).__name__}', '{name}' is fixed at construction: pass changing lengths in the call, "
                                 "as an int32 or int64 Tensor.")
        super().__setattr__(name, value)

    def extend_repr(self):
        return f"{self._own_name}={checks.show(self._own)}" if self._own_name else ""


class RopeGrad(_Packed):
    r"""
    Gradient of rotary position embedding with respect to q and k on packed, unpadded sequences.

    Positions restart at 0 in every sequence. With p a token's position, 1 and 2 the first and second half of a head:

    .. math::
        \text{atb: } d_1 = g_1 (cos_{p,1} + sin_{p,2}), \quad d_2 = g_2 (cos_{p,2} - sin_{p,1})

        \text{exact: } d_1 = g_1 cos_{p,1} + g_2 sin_{p,2}, \quad d_2 = g_2 cos_{p,2} - g_1 sin_{p,1}

    .. warning::
        "atb", the default here, is the vendor's document (ATB `RopeGradOperation`) bit for bit in float16. It is not the adjoint
        of RoPE: it lacks the swap of the halves. Train with "exact", as :class:`Rope` does by default.

    Rounding: "atb" with gradients and tables all float16 rounds after the addition and after the product; everything else
    is float32 arithmetic and one rounding to nearest even.

    Args:
        q_seq_len (Union[list[int], tuple[int]], optional): Length of every sequence, each at least 1. Give it here when it
            never changes, else in the call. Default: ``None`` .
        formula (str, optional): ``"atb"`` or ``"exact"`` . Default: ``"atb"`` .
        seq_ends (Union[list[int], tuple[int]], optional): Cumulative ends (no leading 0, repeats allowed) instead of
            `q_seq_len` . Default: ``None`` .
        backend (str, optional): What computes on CPU: ``"native"`` (the C++ library), ``"numpy"`` , or ``"auto"`` : the
            environment variable MS_ROPEGRAD_BACKEND if set, else native if it is there, else numpy. Both give the same
            bits; only native takes dynamic shapes. Default: ``"auto"`` .

    Inputs:
        - **rope_q_grad** (Tensor) - Gradient of the rotated q, shape (n_tokens, q_hidden_size), dtype float16, bfloat16
          or float32. q_hidden_size is a multiple of head_size.
        - **rope_k_grad** (Tensor) - Gradient of the rotated k, shape (n_tokens, k_hidden_size), same dtype.
          k_hidden_size is a multiple of head_size, and may differ from q_hidden_size.
        - **cos** (Tensor) - Shape (max_seq_len, head_size), same dtype or float32. head_size is even; the Ascend kernel
          takes 64, 96, 128, 192 and 256.
        - **sin** (Tensor) - Same shape and dtype as `cos` .
        - **q_seq_len** (Union[list[int], tuple[int], Tensor], optional) - Lengths, when not given at construction. As an int32
          or int64 Tensor of shape (batch,) they can change without a new compilation, and may hold zeros, to pad to
          a fixed batch. They sum to n_tokens and none exceeds max_seq_len.
        - **seq_ends** (Union[list[int], tuple[int], Tensor], optional) - Cumulative ends instead of `q_seq_len` .

    Outputs:
        Tuple of 2 Tensors, **q_grad** and **k_grad**, with the shapes and dtype of `rope_q_grad` and `rope_k_grad` .

    Raises:
        TypeError: If an input is not a Tensor, a dtype is not supported or does not fit the others, or a list of lengths
            holds anything but int.
        ValueError: If shapes do not fit, `formula` is unknown, the lengths do not sum to n_tokens, one is longer than the
            tables, or they are given twice or not at all. Values of a lengths Tensor are checked at once in PYNATIVE_MODE and
            inside the operator in GRAPH_MODE on CPU; on Ascend they are not (see :func:`check_lengths` ), and tokens
            without a valid position get zero.

    Supported Platforms:
        ``Ascend`` ``CPU``

    Examples:
        >>> import numpy as np
        >>> import mindspore as ms
        >>> from ms_ropegrad import RopeGrad, rope_tables
        >>> cos, sin = rope_tables(64)
        >>> g = ms.Tensor(np.ones((11, 128)), ms.float16)
        >>> q_grad, k_grad = RopeGrad([2, 1, 4, 4])(g, g, cos, sin)
        >>> print(q_grad.shape, q_grad[2, 0], q_grad[1, 0])
        (11, 128) 1.0 1.382
    """

    def __init__(self, q_seq_len=None, formula="atb", seq_ends=None, backend="auto"):
        super().__init__("RopeGrad", checks.formula_op(formula, "formula"), q_seq_len, seq_ends, backend)

    def construct(self, rope_q_grad, rope_k_grad, cos, sin, q_seq_len=None, seq_ends=None):
        op = self._formula_op
        return packed.run(op, packed.adjoint(op), self._backend, self._own_name, self._own, rope_q_grad, rope_k_grad, cos, sin, q_seq_len, seq_ends)


class Rope(_Packed):
    r"""
    Rotary position embedding (rotate-half) of q and k on packed, unpadded sequences, with its gradient.

    .. math::
        y_1 = x_1 cos_{p,1} - x_2 sin_{p,1}, \quad y_2 = x_2 cos_{p,2} + x_1 sin_{p,2}

    in float32 arithmetic and one rounding to nearest even. The tables and the lengths get zero gradients.

    Args:
        q_seq_len (Union[list[int], tuple[int]], optional): As in :class:`RopeGrad` . Default: ``None`` .
        grad_formula (str, optional): ``"exact"`` , the adjoint; or ``"atb"`` , which reproduces the vendor's training:
            its backward is not the gradient of this forward (see :class:`RopeGrad` ). Default: ``"exact"`` .
        seq_ends (Union[list[int], tuple[int]], optional): As in :class:`RopeGrad` . Default: ``None`` .
        backend (str, optional): As in :class:`RopeGrad` . Default: ``"auto"`` .

    Inputs:
        - **q** (Tensor) - Shape (n_tokens, q_hidden_size), dtype float16, bfloat16 or float32.
        - **k** (Tensor) - Shape (n_tokens, k_hidden_size), same dtype.
        - **cos** (Tensor), **sin** (Tensor), **q_seq_len**, **seq_ends** - As in :class:`RopeGrad` .

    Outputs:
        Tuple of 2 Tensors, **rope_q** and **rope_k**, with the shapes and dtype of `q` and `k` .

    Raises:
        TypeError: As in :class:`RopeGrad` .
        ValueError: As in :class:`RopeGrad` .

    Supported Platforms:
        ``Ascend`` ``CPU``

    Examples:
        >>> import numpy as np
        >>> import mindspore as ms
        >>> from ms_ropegrad import Rope, rope_tables
        >>> cos, sin = rope_tables(64, dtype=ms.float32)
        >>> q, k = ms.Tensor(np.ones((11, 256)), ms.float32), ms.Tensor(np.ones((11, 128)), ms.float32)
        >>> rope = Rope()
        >>> rope_q, rope_k = rope(q, k, cos, sin, q_seq_len=ms.Tensor([2, 1, 4, 4], ms.int32))
        >>> print(rope_q.shape, rope_k.shape, rope_q[3, 0])
        (11, 256) (11, 128) 1.0
    """

    def __init__(self, q_seq_len=None, grad_formula="exact", seq_ends=None, backend="auto"):
        super().__init__("RopeForward", checks.formula_op(grad_formula, "grad_formula"), q_seq_len, seq_ends, backend)

    def construct(self, q, k, cos, sin, q_seq_len=None, seq_ends=None):
        return packed.run("RopeForward", self._formula_op, self._backend, self._own_name, self._own, q, k, cos, sin, q_seq_len, seq_ends)


def rope_grad(rope_q_grad, rope_k_grad, cos, sin, q_seq_len=None, formula="atb", seq_ends=None):
    """
    Gradient of rotary position embedding as a function: see :class:`RopeGrad` for shapes, dtypes and errors.

    Args:
        rope_q_grad (Tensor): Gradient of the rotated q, shape (n_tokens, q_hidden_size).
        rope_k_grad (Tensor): Gradient of the rotated k, shape (n_tokens, k_hidden_size).
        cos (Tensor): Shape (max_seq_len, head_size).
        sin (Tensor): Shape (max_seq_len, head_size).
        q_seq_len (Union[list[int], tuple[int], Tensor], optional): Lengths of the sequences. Default: ``None`` .
        formula (str, optional): ``"atb"`` (the vendor's document) or ``"exact"`` (the adjoint). Default: ``"atb"`` .
        seq_ends (Union[list[int], tuple[int], Tensor], optional): Cumulative ends instead. Default: ``None`` .

    Returns:
        Tuple of 2 Tensors, q_grad and k_grad.

    Raises:
        TypeError: As in :class:`RopeGrad` .
        ValueError: As in :class:`RopeGrad` .

    Supported Platforms:
        ``Ascend`` ``CPU``

    Examples:
        >>> import numpy as np
        >>> import mindspore as ms
        >>> from ms_ropegrad import rope_grad, rope_tables
        >>> cos, sin = rope_tables(8, head_size=64)
        >>> g = ms.Tensor(np.ones((3, 64)), ms.float16)
        >>> q_grad, k_grad = rope_grad(g, g, cos, sin, [2, 1], formula="exact")
        >>> print(k_grad.shape)
        (3, 64)
    """
    op = packed.formula_op(formula, "formula")
    return packed.run(op, packed.adjoint(op), "auto", "", None, rope_q_grad, rope_k_grad, cos, sin, q_seq_len, seq_ends)


def rope(q, k, cos, sin, q_seq_len=None, grad_formula="exact", seq_ends=None):
    """
    Rotary position embedding of q and k as a function: see :class:`Rope` for shapes, dtypes and errors.

    Args:
        q (Tensor): Shape (n_tokens, q_hidden_size).
        k (Tensor): Shape (n_tokens, k_hidden_size).
        cos (Tensor): Shape (max_seq_len, head_size).
        sin (Tensor): Shape (max_seq_len, head_size).
        q_seq_len (Union[list[int], tuple[int], Tensor], optional): Lengths of the sequences. Default: ``None`` .
        grad_formula (str, optional): ``"exact"`` or ``"atb"`` (the vendor's training). Default: ``"exact"`` .
        seq_ends (Union[list[int], tuple[int], Tensor], optional): Cumulative ends instead. Default: ``None`` .

    Returns:
        Tuple of 2 Tensors, rope_q and rope_k.

    Raises:
        TypeError: As in :class:`RopeGrad` .
        ValueError: As in :class:`RopeGrad` .

    Supported Platforms:
        ``Ascend`` ``CPU``

    Examples:
        >>> import numpy as np
        >>> import mindspore as ms
        >>> from ms_ropegrad import rope, rope_tables
        >>> cos, sin = rope_tables(8, head_size=64, dtype=ms.float32)
        >>> x = ms.Tensor(np.ones((3, 64)), ms.float32)
        >>> rope_q, rope_k = rope(x, x, cos, sin, seq_ends=[2, 3])
        >>> print(rope_k[2, 0])
        1.0
    """
    return packed.run("RopeForward", packed.formula_op(grad_formula, "grad_formula"), "auto", "", None, q, k, cos, sin, q_seq_len, seq_ends)


def check_lengths(n_tokens, max_seq_len, q_seq_len=None, seq_ends=None):
    """
    Check the values of lengths on the host, for those who want to pay for a synchronisation on Ascend.

    Args:
        n_tokens (int): Number of tokens they must cover.
        max_seq_len (int): Rows of the tables.
        q_seq_len (Union[list[int], tuple[int], Tensor], optional): Lengths. Default: ``None`` .
        seq_ends (Union[list[int], tuple[int], Tensor], optional): Cumulative ends instead. Default: ``None`` .

    Raises:
        TypeError: If they are not int, or not an int32 or int64 Tensor.
        ValueError: If they do not cover n_tokens exactly, or one is longer than max_seq_len.

    Supported Platforms:
        ``Ascend`` ``CPU``

    Examples:
        >>> import mindspore as ms
        >>> from ms_ropegrad import check_lengths
        >>> check_lengths(7, 4, q_seq_len=ms.Tensor([3, 4, 0], ms.int32))
    """
    if not custom.eager():
        lengths.not_in_graph("call of 'check_lengths'", "outside the graph")
    n_tokens, max_seq_len = checks.count("check_lengths", "n_tokens", n_tokens), checks.count("check_lengths", "max_seq_len", max_seq_len, 1)
    if isinstance(q_seq_len, Tensor):
        q_seq_len = q_seq_len.asnumpy()
    if isinstance(seq_ends, Tensor):
        seq_ends = seq_ends.asnumpy()
    checks.ends("check_lengths", q_seq_len, seq_ends, n_tokens, max_seq_len)
