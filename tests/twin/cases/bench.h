// Copyright 2026 The ms_ropegrad Authors
// SPDX-License-Identifier: Apache-2.0
// What the small kernels of the twin's own tests share.
#ifndef TWIN_BENCH_H
#define TWIN_BENCH_H

#include "kernel_operator.h"
using namespace AscendC;

#define CASE(NAME)                                                                                          \
  extern "C" __global__ __aicore__ void NAME([[maybe_unused]] GM_ADDR x, [[maybe_unused]] GM_ADDR y,       \
                                             [[maybe_unused]] GM_ADDR z, [[maybe_unused]] GM_ADDR tiling)

constexpr uint32_t kBytes = 8192;

// x, y and z (8 KB each) in UB as a, b and c, everything ordered; Done stores c to z.
template <typename A, typename B = A, typename C = A>
struct Bench {
  Bench(GM_ADDR x, GM_ADDR y, GM_ADDR z) {
    xg.SetGlobalBuffer((__gm__ A*)x);
    yg.SetGlobalBuffer((__gm__ B*)y);
    zg.SetGlobalBuffer((__gm__ C*)z);
    for (auto& buffer : buffers) pipe.InitBuffer(buffer, kBytes);
    a = buffers[0].template Get<A>();
    b = buffers[1].template Get<B>();
    c = buffers[2].template Get<C>();
    DataCopy(a, xg, a.GetSize());
    DataCopy(b, yg, b.GetSize());
    DataCopy(c, zg, c.GetSize());
    Sync();
  }
  void Sync() { PipeBarrier<PIPE_ALL>(); }
  void Done() {
    Sync();
    DataCopy(zg, c, c.GetSize());
  }
  TPipe pipe;
  TBuf<TPosition::VECCALC> buffers[3];
  GlobalTensor<A> xg;
  GlobalTensor<B> yg;
  GlobalTensor<C> zg;
  LocalTensor<A> a;
  LocalTensor<B> b;
  LocalTensor<C> c;
};

#endif
