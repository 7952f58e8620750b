# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
"""Are the gradients right, however they are taken? Random g1 != g2 and unequal sin halves everywhere."""
import numpy as np
import pytest
import mindspore as ms
from mindspore import Tensor, nn, ops

from ms_ropegrad import Rope, RopeGrad, reference, rope, spec
from oracle import numeric_gradient, same_bits
from test_cells import LENGTHS, case, to_numpy, to_tensor


pytestmark = pytest.mark.usefixtures("backend")


class Weighted(nn.Cell):
    """<w, op(q, k)>: its gradient with respect to the op's outputs is w. ``use``: which outputs."""

    def __init__(self, op, weights, use="both"):
        super().__init__()
        self.op, self.w_q, self.w_k, self.use = op, *weights, use

    def construct(self, q, k, cos, sin, seq_ends):
        y_q, y_k = self.op(q, k, cos, sin, seq_ends=seq_ends)
        loss = 0.0
        if self.use in ("both", "q"):
            loss = loss + (y_q.astype(ms.float32) * self.w_q.astype(ms.float32)).sum()
        if self.use in ("both", "k"):
            loss = loss + (y_k.astype(ms.float32) * self.w_k.astype(ms.float32)).sum()
        return loss


def setup(pair, seed=1, **kw):
    tensors, arrays, dtype = case(pair, seed, **kw)
    rng = np.random.default_rng(seed + 100)
    weights = [to_tensor(rng.standard_normal(a.shape), pair[0]) for a in arrays[:2]]
    return tensors, arrays, dtype, weights, [to_numpy(w) for w in weights]


ENDS = np.cumsum(LENGTHS)
OPS = {
    "Rope": (lambda: Rope(), lambda w, c, s, d: reference.rope_grad(*w, c, s, LENGTHS, "exact", dtype=d)),
    "Rope atb": (lambda: Rope(grad_formula="atb"), lambda w, c, s, d: reference.rope_grad(*w, c, s, LENGTHS, "atb", dtype=d)),
    "RopeGrad exact": (lambda: RopeGrad(formula="exact"), lambda w, c, s, d: reference.rope(*w, c, s, LENGTHS, dtype=d)),
    "RopeGrad atb": (lambda: RopeGrad(), lambda w, c, s, d: reference.rope_grad(*w, c, s, LENGTHS, dtype=d)),
}


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("pair", spec.DTYPE_PAIRS, ids="/".join)
def test_backward_is_the_documented_operator(mode, op, pair):
    tensors, arrays, dtype, weights, held = setup(pair)
    make, backward = OPS[op]
    want = backward(held, arrays[2], arrays[3], dtype)
    got = ms.grad(Weighted(make(), weights), (0, 1, 2, 3, 4))(*tensors, Tensor(ENDS, ms.int32))
    for g, w in zip(got, want):
        assert g.dtype == tensors[0].dtype
        same_bits(to_numpy(g), w)
    for g, like in zip(got[2:], (*tensors[2:], Tensor(ENDS, ms.int32))):
        assert g.shape == like.shape and not to_numpy(g).any()


def test_backward_by_a_numeric_jacobian(mode):
    tensors, arrays, _, weights, held = setup(("float32", "float32"), head=4, heads=(2, 1))
    got = ms.grad(Weighted(Rope(), weights), (0, 1))(*tensors, Tensor(ENDS, ms.int32))
    for g, w in zip(got, held):
        np.testing.assert_allclose(g.asnumpy(), numeric_gradient(w, arrays[2], arrays[3], LENGTHS), rtol=1e-6, atol=4e-6)


@pytest.mark.parametrize("use", ["q", "k"])
def test_one_output_used(mode, use):
    tensors, arrays, _, weights, held = setup(("float32", "float32"))
    want = reference.rope_grad(*held, arrays[2], arrays[3], LENGTHS, "exact")
    got = ms.grad(Weighted(Rope(), weights, use), (0, 1))(*tensors, Tensor(ENDS, ms.int32))
    i = "qk".index(use)
    same_bits(got[i].asnumpy(), want[i])
    assert not got[1 - i].asnumpy().any()


def test_value_and_grad_and_second_order(mode):
    tensors, arrays, _, weights, _ = setup(("float32", "float32"))
    ends = Tensor(ENDS, ms.int32)
    cell = Rope()

    def loss(q):
        y_q, y_k = cell(q, tensors[1], tensors[2], tensors[3], seq_ends=ends)
        return (y_q ** 3).sum() + y_k.sum()

    def grad_norm(q):
        return (ms.grad(loss)(q) * weights[0]).sum()

    value, grad = ms.value_and_grad(loss)(tensors[0])
    y = reference.rope(*arrays, LENGTHS)
    np.testing.assert_allclose(value.asnumpy(), (y[0].astype(float) ** 3).sum() + y[1].astype(float).sum(), rtol=1e-3)
    adjoint = lambda g: reference.rope_grad(g.astype(np.float32), arrays[1], *arrays[2:], LENGTHS, "exact")[0]
    np.testing.assert_allclose(grad.asnumpy(), adjoint(3 * y[0] ** 2), rtol=1e-4, atol=1e-4)
    # d/dq <w, R^T (3 y^2)> = R^T (6 y * R w)
    want = adjoint(6 * y[0] * reference.rope(weights[0].asnumpy(), *arrays[1:], LENGTHS)[0])
    np.testing.assert_allclose(ms.grad(grad_norm)(tensors[0]).asnumpy(), want, rtol=1e-3, atol=1e-3)


class Loss(nn.Cell):
    """Gradients of odd memory layout reach the backward: y.sum() (zero strides), a transpose, a slice."""

    def __init__(self, kind):
        super().__init__()
        self.kind, self.rope = kind, Rope()

    def construct(self, q, k, cos, sin, ends, w):
        y, z = self.rope(q, k, cos, sin, seq_ends=ends)
        if self.kind == "sum":
            return y.sum() + 2.0 * z.sum()
        if self.kind == "transposed":
            return (y.T * w.T).sum() + z.sum()
        if self.kind == "sliced":
            return (y[1:, ::2] * w[1:, ::2]).sum() + z[:, 3].sum()
        return ops.matmul(y, w.T).sum() + z.sum()


@pytest.mark.parametrize("kind", ["sum", "transposed", "sliced", "matmul"])
def test_layouts_of_incoming_gradients(mode, kind):
    tensors, arrays, _, weights, held = setup(("float32", "float32"))
    got = ms.grad(Loss(kind), (0, 1))(*tensors, Tensor(ENDS, ms.int32), weights[0])
    g_q, g_k = np.ones_like(held[0]), np.ones_like(held[1])
    if kind == "sum":
        g_k *= 2
    elif kind == "transposed":
        g_q = held[0]
    elif kind == "sliced":
        g_q, g_k = np.zeros_like(g_q), np.zeros_like(g_k)
        g_q[1:, ::2], g_k[:, 3] = held[0][1:, ::2], 1
    else:
        g_q = np.broadcast_to(held[0].sum(axis=0), g_q.shape)
    for g, w in zip(got, reference.rope_grad(g_q, g_k, *arrays[2:], LENGTHS, "exact")):
        np.testing.assert_allclose(g.asnumpy(), w, rtol=1e-5, atol=1e-5)


def test_equal_documents_packed_give_equal_gradients(mode):
    tensors, _, _, weights, _ = setup(("float32", "float32"), lens=[5, 5], rows=10)
    twice = lambda t: ops.cat((t[:5], t[:5]))
    net = Weighted(Rope(), [twice(w) for w in weights])
    for g in ms.grad(net, (0, 1))(twice(tensors[0]), twice(tensors[1]), *tensors[2:], Tensor([5, 10], ms.int32)):
        same_bits(g[:5].asnumpy(), g[5:].asnumpy())
        assert g.asnumpy().any()


class Upstream(nn.Cell):
    def __init__(self):
        super().__init__()
        self.wq = nn.Dense(8, 256, has_bias=False)

    def construct(self, x, k, cos, sin, ends):
        return (rope(self.wq(x), k, cos, sin, seq_ends=ends)[0] ** 3).sum()


def test_an_upstream_parameter_gets_its_gradient(mode):
    tensors, arrays, _ = case(("float32", "float32"))
    x = np.random.default_rng(2).standard_normal((11, 8)).astype(np.float32)
    net = Upstream()
    got = ms.grad(net, None, net.trainable_params())(Tensor(x), *tensors[1:], Tensor(ENDS, ms.int32))[0].asnumpy()
    y = reference.rope(x @ net.wq.weight.asnumpy().T, *arrays[1:], LENGTHS)[0]
    want = reference.rope_grad(3 * y ** 2, arrays[1], *arrays[2:], LENGTHS, "exact")[0].T @ x
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4 * np.abs(want).max())
