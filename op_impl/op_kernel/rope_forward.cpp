// Copyright 2026 The ms_ropegrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "rope_kernel.h"

extern "C" __global__ __aicore__ void rope_forward(GM_ADDR q, GM_ADDR k, GM_ADDR cos, GM_ADDR sin, GM_ADDR seq_ends,
                                                   GM_ADDR rope_q, GM_ADDR rope_k, [[maybe_unused]] GM_ADDR workspace,
                                                   GM_ADDR tiling) {
  ROPE_KERNEL(kForward, q, k, cos, sin, seq_ends, rope_q, rope_k, tiling, DTYPE_Q, DTYPE_COS);
}
