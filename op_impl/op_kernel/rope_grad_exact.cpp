// Copyright 2026 The ms_ropegrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "rope_kernel.h"

extern "C" __global__ __aicore__ void rope_grad_exact(GM_ADDR rope_q_grad, GM_ADDR rope_k_grad, GM_ADDR cos, GM_ADDR sin,
                                                      GM_ADDR seq_ends, GM_ADDR q_grad, GM_ADDR k_grad,
                                                      [[maybe_unused]] GM_ADDR workspace, GM_ADDR tiling) {
  ROPE_KERNEL(kGradExact, rope_q_grad, rope_k_grad, cos, sin, seq_ends, q_grad, k_grad, tiling, DTYPE_ROPE_Q_GRAD, DTYPE_COS);
}
