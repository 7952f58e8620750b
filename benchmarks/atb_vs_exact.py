# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
"""How far the vendor's formula is from the gradient: the numbers of the README. Needs NumPy only."""
import numpy as np

from ms_ropegrad import reference

rows, head = 2048, 128
angle = np.outer(np.arange(rows), 10000.0 ** (-np.arange(0, head, 2) / head))
angle = np.concatenate((angle, angle), axis=1)
cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
g = np.random.default_rng(0).standard_normal((rows, head)).astype(np.float32)
exact, atb = (reference.rope_grad(g, g, cos, sin, [rows], formula)[0].astype(float).ravel() for formula in ("exact", "atb"))
norm = np.linalg.norm
print(f"relative L2 error {norm(atb - exact) / norm(exact):.2f}, cosine {atb @ exact / norm(atb) / norm(exact):.2f}, "
      f"ratio of the norms {norm(atb) / norm(exact):.4f}")
