# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
"""Does training work in every way MindSpore trains, and equal built-in ops? How many compilations does each change cost?"""
import copy

import numpy as np
import pytest
import mindspore as ms
from mindspore import Tensor, nn, ops
from mindspore.ops import constexpr

from ms_ropegrad import Rope, rope_tables

pytestmark = pytest.mark.usefixtures("backend")

compilations = []


@constexpr(reuse_result=False)
def count_compilation():
    compilations.append(1)


def rotate_by_builtin_ops(x, cos, sin):
    """Autodiff of this is the oracle: reshape, split, concatenate, multiply."""
    y = x.reshape(x.shape[0], -1, cos.shape[1])
    h = cos.shape[1] // 2
    turned = ops.cat((-y[:, :, h:], y[:, :, :h]), axis=2)
    return (y * cos.expand_dims(1) + turned * sin.expand_dims(1)).reshape(x.shape)


class Attention(nn.Cell):
    """Causal attention inside each sequence; q 2 heads, k 1 head of 16."""

    def __init__(self, builtin=False, formula="exact"):
        super().__init__()
        self.wq, self.wk, self.wv = nn.Dense(32, 32), nn.Dense(32, 16), nn.Dense(32, 16)
        self.rope, self.builtin = Rope(grad_formula=formula), builtin
        self.cos, self.sin = rope_tables(64, head_size=16, dtype=ms.float32)

    def construct(self, x, ends):
        count_compilation()
        q, k, v = self.wq(x), self.wk(x), self.wv(x)
        n = x.shape[0]
        here = ops.arange(n).astype(ms.int32)
        before = (ends.expand_dims(0) <= here.expand_dims(1)).astype(ms.int32)
        sequence = before.sum(axis=1)
        if self.builtin:
            start = (before * ends.expand_dims(0)).max(axis=1)
            c, s = ops.gather(self.cos, here - start, 0).astype(q.dtype), ops.gather(self.sin, here - start, 0).astype(q.dtype)
            q, k = rotate_by_builtin_ops(q, c, s), rotate_by_builtin_ops(k, c, s)
        else:
            q, k = self.rope(q, k, self.cos, self.sin, seq_ends=ends)
        seen = ops.logical_and(here.expand_dims(1) >= here.expand_dims(0), sequence.expand_dims(1) == sequence.expand_dims(0))
        score = ops.matmul(q.reshape(n, 2, 16).transpose(1, 0, 2).astype(ms.float32), k.T.astype(ms.float32)) / 4
        score = ops.select(seen.expand_dims(0).broadcast_to(score.shape), score, ops.zeros_like(score) - 1e9)
        return ops.matmul(ops.softmax(score, -1), v.astype(ms.float32)).transpose(1, 0, 2).reshape(n, 32)


class WithLoss(nn.Cell):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def construct(self, x, ends, y):
        return ((self.net(x, ends).astype(ms.float32) - y) ** 2).mean()


def batch(i, n=24, sequences=4, pad=6):
    rng = np.random.default_rng(i)
    cuts = np.sort(rng.choice(np.arange(1, n), sequences - 1, replace=False))
    ends = np.append(cuts, [n] * (pad - sequences + 1)).astype(np.int32)
    return Tensor(rng.standard_normal((n, 32)).astype(np.float32)), Tensor(ends), Tensor(rng.standard_normal((n, 32)).astype(np.float32))


def make(builtin=False, formula="exact"):
    ms.set_seed(1)
    np.random.seed(1)
    return WithLoss(Attention(builtin, formula))


def weights_of(net):
    return [p.asnumpy().copy() for p in net.trainable_params()]


def adam(net):
    return nn.Adam(net.trainable_params(), 1e-2)


def train_with_one_step_cell(net, steps):
    step = nn.TrainOneStepCell(net, adam(net))
    step.set_train()
    return [float(step(*batch(i)).asnumpy()) for i in range(steps)]


def train_with_value_and_grad(net, steps):
    opt = adam(net)
    f = ms.value_and_grad(net, None, opt.parameters)
    losses = []
    for i in range(steps):
        loss, grads = f(*batch(i))
        opt(grads)
        losses.append(float(loss.asnumpy()))
    return losses


class Losses(ms.Callback):
    def __init__(self):
        self.seen = []

    def on_train_step_end(self, run_context):
        self.seen.append(float(run_context.original_args().net_outputs.asnumpy()))


def train_with_model(net, steps, level="O0", **kw):
    data = ms.dataset.GeneratorDataset(lambda: (tuple(t.asnumpy() for t in batch(i)) for i in range(steps)), ["x", "ends", "y"], shuffle=False)
    model, losses = ms.Model(net, optimizer=adam(net), amp_level=level, **kw), Losses()
    model.train(1, data, callbacks=[losses], dataset_sink_mode=False)
    return losses.seen


def train_with_accumulation(net, steps):
    opt = adam(net)
    f = ms.value_and_grad(net, None, opt.parameters)
    losses, total = [], None
    for i in range(steps):
        loss, grads = f(*batch(i))
        losses.append(float(loss.asnumpy()))
        total = grads if total is None else [a + b for a, b in zip(total, grads)]
        if i % 4 == 3:
            opt(tuple(g / 4 for g in total))
            total = None
    return losses


@pytest.mark.parametrize("train", [train_with_model, train_with_accumulation,
                                   *(pytest.param(t, marks=pytest.mark.slow) for t in (train_with_one_step_cell, train_with_value_and_grad))])
def test_twenty_steps_equal_builtin_ops(mode, train):
    ours, builtin = make(), make(builtin=True)
    start = weights_of(ours)
    np.testing.assert_allclose(train(ours, 20), train(builtin, 20), rtol=1e-4)
    for a, b, s in zip(weights_of(ours), weights_of(builtin), start):
        np.testing.assert_allclose(a, b, atol=2e-3)
        assert np.abs(a - s).max() > 1e-2


def test_the_vendors_formula_trains_differently():
    assert np.abs(np.subtract(train_with_value_and_grad(make(formula="atb"), 8), train_with_value_and_grad(make(), 8))).max() > 1e-4


@pytest.mark.parametrize("level", ["O0", "O1", pytest.param("O2", marks=pytest.mark.slow), "O3"])
def test_amp_levels(mode, level):
    kw = dict(loss_scale_manager=None) if level in ("O2", "O3") else {}
    exact = train_with_model(make(), 6)
    got, builtin = train_with_model(make(), 6, level, **kw), train_with_model(make(builtin=True), 6, level, **kw)
    np.testing.assert_allclose(got, builtin, rtol=2e-2)
    np.testing.assert_allclose(got, exact, rtol=5e-2)


def test_bfloat16_activations(mode):
    class Casting(Attention):
        def construct(self, x, ends):
            q, k = self.wq(x).astype(ms.bfloat16), self.wk(x).astype(ms.bfloat16)
            q, k = self.rope(q, k, self.cos, self.sin, seq_ends=ends)
            return q.astype(ms.float32) * ops.tile(k.astype(ms.float32), (1, 2))

    ms.set_seed(1)
    net = WithLoss(Casting())
    start = weights_of(net)
    losses = train_with_one_step_cell(net, 6)
    assert np.isfinite(losses).all() and all(np.abs(a - b).max() > 0 for a, b in zip(weights_of(net)[:3:2], start[:3:2]))


@pytest.mark.parametrize("where", ["function", "cell", "parent"])
def test_recompute(mode, where):
    """Right gradients over several steps, and afterwards."""
    class Recomputing(nn.Cell):
        def __init__(self, net):
            super().__init__()
            self.net = net

        def construct(self, x, ends, y):
            out = ms.recompute(self.net, x, ends) if where == "function" else self.net(x, ends)
            return ((out - y) ** 2).mean()

    plain = train_with_value_and_grad(make(), 5)
    net = make()
    if where == "cell":
        net.net.rope.recompute()
    elif where == "parent":
        net.net.recompute()
    net = Recomputing(net.net)
    np.testing.assert_allclose(train_with_value_and_grad(net, 5), plain, rtol=1e-5)
    np.testing.assert_allclose(train_with_value_and_grad(make(), 5), plain, rtol=1e-5)  # nothing is left behind


def count(net, calls):
    compilations.clear()
    for c in calls:
        net(*c)[0].asnumpy()
    return len(compilations)


def test_compilations():
    """Documented in the README: lengths in a tensor cost none, a new n_tokens or number of sequences one each, a new tuple one each."""
    ms.set_context(mode=ms.GRAPH_MODE)
    try:
        net = make()
        step = ms.value_and_grad(net, None, net.trainable_params())
        assert count(step, [batch(i) for i in range(10)]) == 1
        assert count(step, [batch(i) for i in range(10, 20)]) == 0
        assert count(step, [batch(0, n=30)]) == 1
        assert count(step, [batch(i, sequences=3, pad=5) for i in range(3)]) == 1
        assert count(step, [batch(i) for i in range(3)]) == 0

        class Lists(nn.Cell):
            def __init__(self):
                super().__init__()
                self.rope = Rope()
                self.cos, self.sin = rope_tables(64, head_size=16, dtype=ms.float32)

            def construct(self, q, lens):
                count_compilation()
                return self.rope(q, q, self.cos, self.sin, lens)

        net, q = Lists(), Tensor(np.ones((9, 16), np.float32))
        assert count(net, [(q, (i, 9 - i)) for i in range(1, 5)]) == 4
        assert count(net, [(q, (1, 8))]) == 0
        assert 1 <= count(net, [(q, [1, 8])] * 3) <= 3  # MindSpore knows lists by identity
    finally:
        ms.set_context(mode=ms.PYNATIVE_MODE)


def test_deepcopy_and_checkpoint(mode, tmp_path):
    net = make()
    train_with_one_step_cell(net, 2)
    x, ends, _ = batch(9)
    want = net.net(x, ends).asnumpy()
    np.testing.assert_array_equal(copy.deepcopy(net.net)(x, ends).asnumpy(), want)
    ms.save_checkpoint(net.net, str(tmp_path / "model.ckpt"))
    fresh = Attention()
    assert (fresh(x, ends).asnumpy() != want).any()
    assert not ms.load_param_into_net(fresh, ms.load_checkpoint(str(tmp_path / "model.ckpt")))[0]
    np.testing.assert_array_equal(fresh(x, ends).asnumpy(), want)
