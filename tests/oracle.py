# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
"""Oracles that share no code with the package: a literal transcription of the vendor document, the definition of the forward
token by token in float64, and its numeric Jacobian."""
import numpy as np


def document(rope_q_grad, rope_k_grad, cos, sin, q_seq_len):
    """The vendor document's listing, for any head size and all heads of k (its own `return` stands inside the k loop)."""
    head = cos.shape[1]
    cos = np.concatenate([cos[:x, :] for x in q_seq_len], axis=0)
    sin = np.concatenate([sin[:x, :] for x in q_seq_len], axis=0)
    sin1, sin2 = sin[:, :head // 2], sin[:, head // 2:]
    rohqgsin = np.concatenate((sin2, -sin1), axis=-1)
    grads = []
    for g in (rope_q_grad, rope_k_grad):
        out = np.zeros_like(g)
        for i in range(g.shape[1] // head):
            out[:, i * head:(i + 1) * head] = g[:, i * head:(i + 1) * head] * (cos + rohqgsin)
        grads.append(out)
    return grads


def forward64(x, cos, sin, q_seq_len):
    """y1 = x1 cos1 - x2 sin1, y2 = x2 cos2 + x1 sin2, by loops, float64."""
    head, y, t = cos.shape[1], np.zeros(x.shape), 0
    for length in q_seq_len:
        for p in range(length):
            for h in range(0, x.shape[1], head):
                for i in range(head // 2):
                    a, b = h + i, h + i + head // 2
                    y[t, a] = float(x[t, a]) * float(cos[p, i]) - float(x[t, b]) * float(sin[p, i])
                    y[t, b] = float(x[t, b]) * float(cos[p, i + head // 2]) + float(x[t, a]) * float(sin[p, i + head // 2])
            t += 1
    return y


def numeric_gradient(g, cos, sin, q_seq_len):
    """d <g, forward(x)> / dx by central differences in float64 (the forward is linear: no truncation error)."""
    x = np.random.default_rng(1).standard_normal(g.shape)
    grad = np.zeros(g.shape)
    step = 0.5
    for at in np.ndindex(*g.shape):
        up, down = x.copy(), x.copy()
        up[at] += step
        down[at] -= step
        row = slice(at[0], at[0] + 1)  # a token's output depends on that token only: checked by test_tokens_are_independent
        grad[at] = ((forward64(up, cos, sin, q_seq_len)[row] - forward64(down, cos, sin, q_seq_len)[row]) / (2 * step) * g[row]).sum()
    return grad


def random_case(rng, q_seq_len, head=128, heads=(2, 1), rows=None, dtype=np.float32):
    """Gradients or activations, and tables that are no rotation and have unequal halves."""
    n, rows = sum(q_seq_len), rows or max(q_seq_len) + 3
    draw = lambda *shape: rng.standard_normal(shape).astype(dtype)
    return draw(n, heads[0] * head), draw(n, heads[1] * head), draw(rows, head), draw(rows, head)


def any_float16(rng, *shape):
    """Every bit pattern of float16: subnormals, inf and nan among them."""
    return rng.integers(0, 2**16, shape).astype(np.uint16).view(np.float16)


def same_bits(got, want):
    """Equal in every bit, where any NaN equals any NaN."""
    assert got.dtype == want.dtype and got.shape == want.shape
    bits = f"u{got.dtype.itemsize}"
    same = (np.ascontiguousarray(got).view(bits) == np.ascontiguousarray(want).view(bits)) | (np.isnan(got) & np.isnan(want))
    assert same.all(), f"{(~same).sum()} of {same.size} differ, first at {np.argwhere(~same)[0]}"
