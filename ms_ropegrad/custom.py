# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
"""How an operator reaches a device. The only file that knows ops.Custom: one op per (target, op type, gradient op type).

The target is Ascend; or native, the CPU library; or numpy: there graphs call NumPy through a pyfunc, and PYNATIVE_MODE calls it
directly, since MindSpore reports a pyfunc's errors late and reuses its buffers for other shapes after a recompute ("The
output info size is: 4 and 2").
"""
import os
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

from mindspore import Tensor, context, ops
from mindspore import dtype as mstype
from mindspore.common._grad_function import _Function
from mindspore.ops import CustomRegOp, DataType, constexpr

from . import checks, native, opp, reference, spec

_built = {}  # Custom objects are never freed by MindSpore, so they are built once and kept
_DATA_TYPE = {"float16": DataType.F16_Default, "bfloat16": DataType.BF16_Default, "float32": DataType.F32_Default,
              "int32": DataType.I32_Default}


def device():
    """The device target of now, not of the import."""
    return context._context().get_param(context.ms_ctx_param.device_target)  # get_context takes 20 us


def choose(backend="auto"):
    """(CPU backend, why): ``backend`` if it names one, else MS_ROPEGRAD_BACKEND, else native if it is there, else numpy."""
    if backend == "auto":
        backend = checks.backend("MS_ROPEGRAD_BACKEND", os.environ.get("MS_ROPEGRAD_BACKEND") or "auto")
    if backend == "numpy":
        return backend, "asked for by backend= or MS_ROPEGRAD_BACKEND"
    library, status = native.status()
    if library is not None and not _loadable(native.path(), os.environ.get("MS_CUSTOM_AOT_WHITE_LIST")):
        library, status = None, f"MindSpore cannot load {native.path()}: a colon in the path, or outside MS_CUSTOM_AOT_WHITE_LIST"
    if library is not None:
        return "native", status
    if backend == "native":
        raise RuntimeError(f"The backend 'native' cannot be used: {status}.")
    return "numpy", status


@lru_cache(maxsize=None)
def _loadable(path, white_list):
    path, white_list = os.path.realpath(path), white_list and os.path.realpath(white_list)
    return ":" not in path and (white_list is None or os.path.commonpath([path, white_list]) == white_list)


@constexpr(reuse_result=False)
def target(backend):
    """Ascend, native or numpy; or a device that neither can serve."""
    return choose(backend)[0] if device() == "CPU" else device()


def call(op, grad_op, backend, x_q, x_k, cos, sin, seq_ends):
    """Run op on checked tensors; compiled into the graph in GRAPH_MODE. ``grad_op`` computes the backward."""
    if eager() and device() == "CPU":
        return _call_now(op, grad_op, backend, x_q, x_k, cos, sin, seq_ends)
    where = target(backend)
    if where == "native":
        return primitive(op, grad_op, backend)(x_q, x_k, cos, sin, seq_ends)
    if x_q.shape[0] == 0:  # an empty tensor cannot cross into a pyfunc
        return x_q, x_k
    if where == "numpy" and x_q.dtype == mstype.bfloat16:  # cannot cross into a pyfunc
        # The op then computes in float32 and the cast is its one rounding.
        y_q, y_k = primitive(op, grad_op, backend)(ops.cast(x_q, mstype.float32), ops.cast(x_k, mstype.float32),
                                                   ops.cast(cos, mstype.float32), ops.cast(sin, mstype.float32), seq_ends)
        return ops.cast(y_q, mstype.bfloat16), ops.cast(y_k, mstype.bfloat16)
    return primitive(op, grad_op, backend)(x_q, x_k, cos, sin, seq_ends)


def _call_now(op, grad_op, backend, *tensors):
    """In PYNATIVE_MODE on CPU, where each look into the environment counts."""
    native_op = _native(op, grad_op, backend, backend == "auto" and os.environ.get("MS_ROPEGRAD_BACKEND"), native.path())
    if native_op is not None:
        return native_op(*tensors)
    if tensors[0].shape[0] == 0:
        return tensors[:2]
    _unflushed()
    return _Numpy.apply(op, grad_op, *tensors)


@lru_cache(64)
def _native(op, grad_op, backend, variable, file):
    """The primitive, or None for NumPy. All arguments count."""
    return primitive(op, grad_op, backend) if target(backend) == "native" else None


class _Eager(ops.PrimitiveWithInfer):
    """True when called at once, False while a graph is compiled: there a Tensor's value is a placeholder of zeros."""

    def __init__(self):
        super().__init__("eager")
        self.set_const_prim(True)
        self.add_prim_attr("constexpr_prim", True)

    def __infer__(self):
        return {"dtype": None, "shape": None, "value": False}

    def __call__(self):
        return True


eager = _Eager()


@constexpr(reuse_result=False)
def primitive(op, grad_op, backend="auto"):
    """The ops.Custom of an op type where it runs now, built when first asked for."""
    where = target(backend)
    file = native.path() if where == "native" else ""
    key = (where, op, grad_op, file)
    if key not in _built:
        _built[key] = _build(where, op, grad_op, file)
    return _built[key]


def _build(where, op, grad_op, file):
    same = _same_as_inputs
    if where == "numpy":
        return ops.Custom(_numpy_function(op), same, same, func_type="pyfunc", bprop=_bprop(grad_op, where))
    if where == "native":  # shapes and dtypes by the library, which also knows unknown ones
        return ops.Custom(f"{file}:{op}", None, None, func_type="aot", bprop=_bprop(grad_op, where), reg_info=reg_info(op, "CPU"))
    if where == "Ascend":
        opp.require(op)  # MindSpore itself would only warn, and fail later with EZ3003
        return ops.Custom(op, same, same, func_type="aot", bprop=_bprop(grad_op), reg_info=reg_info(op))
    raise RuntimeError(f"For '{op}', the device target must be Ascend or CPU, but got {where}.")


def reg_info(op, device_target="Ascend"):
    """MindSpore's registration of the operator, from the operator table."""
    inputs, outputs = spec.OPS[op]
    reg = CustomRegOp(op)
    for i, name in enumerate(inputs):
        reg = reg.input(i, name, "required")
    for i, name in enumerate(outputs):
        reg = reg.output(i, name, "required")
    for x, table in spec.DTYPE_PAIRS:
        row = (x, x, table, table, spec.SEQ_ENDS_DTYPE, x, x)
        reg = reg.dtype_format(*(_DATA_TYPE[d] for d in row))
    return reg.target(device_target).get_op_info()


def _same_as_inputs(x_q, x_k, cos, sin, seq_ends):
    """Shapes and dtypes of the outputs."""
    return x_q, x_k


def _bprop(grad_op, backend="auto"):
    # Its own gradient differentiates by the adjoint of grad_op, so second order works.
    second = spec.ADJOINT[grad_op]

    def bprop(x_q, x_k, cos, sin, seq_ends, out, dout):
        g_q, g_k = primitive(grad_op, second, backend)(ops.cast(dout[0], x_q.dtype), ops.cast(dout[1], x_k.dtype), cos, sin, seq_ends)
        return g_q, g_k, _zeros(cos), _zeros(sin), ops.zeros_like(seq_ends)

    return bprop


def _zeros(table):
    """The gradient of a table: MindSpore 2.7 has no zeros of bfloat16 on CPU."""
    if table.dtype == mstype.bfloat16:
        return ops.cast(ops.zeros_like(ops.cast(table, mstype.float32)), mstype.bfloat16)
    return ops.zeros_like(table)


# MindSpore runs pyfuncs and backwards in threads that flush subnormals to zero; a thread started by Python code does not.
@lru_cache(maxsize=None)
def _unflushed():
    worker = ThreadPoolExecutor(1, "ms_ropegrad")
    worker.submit(reference.pool).result()
    return worker


os.register_at_fork(after_in_child=_unflushed.cache_clear)  # a child has none of its parent's threads and would wait forever


def _numpy_function(op):
    _unflushed()

    def run(x_q, x_k, cos, sin, seq_ends):
        ends = checks.ends_of_values(op, "seq_ends", seq_ends, x_q.shape[0], cos.shape[0])
        return _unflushed().submit(reference.apply, op, x_q, x_k, cos, sin, ends).result()

    return run


class _Numpy(_Function):
    """The operator on NumPy with its gradient, in PYNATIVE_MODE."""

    @staticmethod
    def forward(ctx, op, grad_op, x_q, x_k, cos, sin, seq_ends):
        ctx.grad_op, ctx.dtype = grad_op, x_q.dtype
        ctx.save_for_backward(cos, sin, seq_ends)
        arrays = [t.asnumpy() for t in (x_q, x_k, cos, sin, seq_ends)]
        y_q, y_k = _unflushed().submit(reference.apply, op, *arrays).result()
        return Tensor(y_q), Tensor(y_k)

    @staticmethod
    def backward(ctx, g_q, g_k):
        cos, sin, seq_ends = ctx.saved_tensors
        grads = _Numpy.apply(ctx.grad_op, spec.ADJOINT[ctx.grad_op], g_q.astype(ctx.dtype), g_k.astype(ctx.dtype), cos, sin, seq_ends)
        return None, None, *grads, _zeros(cos), _zeros(sin), ops.zeros_like(seq_ends)
