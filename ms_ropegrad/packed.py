# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
"""What happens between a call and the operator: in GRAPH_MODE all of this is compiled into the graph."""
from functools import lru_cache

import numpy as np
from mindspore import Tensor
from mindspore.ops import constexpr

from . import checks, custom, lengths, spec


def run(op, grad_op, backend, own_name, own, x_q, x_k, cos, sin, q_seq_len, seq_ends):
    """Check, bring the lengths (``own``: from the constructor) to seq_ends, call the op whose backward is grad_op."""
    def kind(x):  # a nested function also keeps MindSpore's rewrite (amp O1) from taking this one apart
        return "Tensor" if isinstance(x, Tensor) else type_name(x)

    if custom.eager() and custom.device() == "CPU":
        return custom.call(op, grad_op, backend, x_q, x_k, cos, sin, _checked(op, own_name, own, x_q, x_k, cos, sin, q_seq_len, seq_ends))
    check_kinds(op, kind(x_q), kind(x_k), kind(cos), kind(sin))
    _check_arrays(op, backend, x_q.shape, x_k.shape, cos.shape, sin.shape, x_q.dtype, x_k.dtype, cos.dtype, sin.dtype)
    _check_one(op, q_seq_len is not None, seq_ends is not None, own is not None)
    if own is not None:
        ends = list_ends(op, own_name, own, x_q.shape, cos.shape)
    else:
        ends = ends_of_call(op, backend, q_seq_len, seq_ends, x_q.shape, cos.shape)
    return custom.call(op, grad_op, backend, x_q, x_k, cos, sin, ends)


def ends_of_call(op, backend, q_seq_len, seq_ends, q, cos):
    """The lengths, of which one form is given, as seq_ends. ``q``, ``cos``: shapes."""
    if q_seq_len is not None:
        return _ends(op, backend, "q_seq_len", q_seq_len, q, cos)
    return _ends(op, backend, "seq_ends", seq_ends, q, cos)


def _ends(op, backend, name, values, q, cos):
    if isinstance(values, Tensor):
        _check_length_tensor(op, backend, name, values.shape, values.dtype)
        if custom.eager() and custom.device() == "CPU":  # on Ascend it would take a synchronisation
            checks.ends_of_values(op, name, values.asnumpy(), q[0], cos[0])
        if name == "q_seq_len":
            values = lengths.cumulative(values)
        return lengths.to_int32(values)
    return list_ends(op, name, values, q, cos)


# PYNATIVE_MODE on CPU, as plain Python: a call like an earlier one costs a look-up.

def _checked(op, own_name, own, x_q, x_k, cos, sin, q_seq_len, seq_ends):
    """Every check; the seq_ends."""
    if not (isinstance(x_q, Tensor) and isinstance(x_k, Tensor) and isinstance(cos, Tensor) and isinstance(sin, Tensor)):
        checks.tensor_kinds(op, ["Tensor" if isinstance(x, Tensor) else type(x).__name__ for x in (x_q, x_k, cos, sin)])
    given = q_seq_len is not None, seq_ends is not None, own is not None
    args = (op, x_q.shape, x_k.shape, cos.shape, sin.shape, x_q.dtype, x_k.dtype, cos.dtype, sin.dtype, given)
    if own is not None:
        return _ends_of(*args, own_name, own)
    name, values = ("q_seq_len", q_seq_len) if q_seq_len is not None else ("seq_ends", seq_ends)
    if not isinstance(values, Tensor):
        return _ends_of.__wrapped__(*args, name, values)  # a list has no hash, and True would be found as 1
    if values.has_init:
        values.init_data()
    ends = _ends_of(*args, name, values.get_bytes(), values.shape, values.dtype)
    return values if ends is None else ends


@lru_cache(64)
def _ends_of(op, q, k, cos, sin, q_dtype, k_dtype, cos_dtype, sin_dtype, given, name, values, shape=None, dtype=None):
    """The seq_ends, None if they are the Tensor of that name. ``values``: of a Tensor the bytes."""
    checks.arrays(op, (q, k, cos, sin), [_dtype_name(d) for d in (q_dtype, k_dtype, cos_dtype, sin_dtype)])
    checks.one_lengths(op, *given)
    if dtype is None:
        ends = checks.ends_of_list(op, name, values, q[0], cos[0])
    else:
        dtype = _dtype_name(dtype)
        checks.length_tensor(op, name, shape, dtype)
        ends = checks.ends_of_values(op, name, np.frombuffer(values, dtype), q[0], cos[0])
    return None if (name, dtype) == ("seq_ends", "int32") else Tensor(ends.astype(spec.SEQ_ENDS_DTYPE))


# Functions of constants: called at compilation in GRAPH_MODE and at once in PYNATIVE_MODE, so that both refuse alike.

@constexpr(check=False)
def type_name(x):
    return type(x).__name__


@constexpr
def check_kinds(op, *kinds):
    checks.tensor_kinds(op, kinds)


@constexpr(reuse_result=False)
def _check_arrays(op, backend, q, k, cos, sin, *dtypes):
    checks.arrays(op, (q, k, cos, sin), [_dtype_name(d) for d in dtypes], custom.target(backend) == "native")


@constexpr
def _check_one(op, has_lengths, has_ends, has_own):
    checks.one_lengths(op, has_lengths, has_ends, has_own)


@constexpr(reuse_result=False)
def _check_length_tensor(op, backend, name, shape, dtype):
    checks.length_tensor(op, name, shape, _dtype_name(dtype), custom.target(backend) == "native")


@constexpr(check=False)
def list_ends(op, name, values, q, cos):
    n_tokens, max_seq_len = (shape[0] if shape else None for shape in (q, cos))  # None: unknown until the call
    return Tensor(checks.ends_of_list(op, name, values, n_tokens, max_seq_len).astype(spec.SEQ_ENDS_DTYPE))


@constexpr
def formula_op(formula, arg):
    return checks.formula_op(formula, arg)


@constexpr
def adjoint(op):
    return spec.ADJOINT[op]


def _dtype_name(dtype):
    return str(dtype).lower()
