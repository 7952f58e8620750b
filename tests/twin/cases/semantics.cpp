// Copyright 2026 The ms_ropegrad Authors
// SPDX-License-Identifier: Apache-2.0
// One instruction each; tests/test_twin_semantics.py holds what the documents say comes out.
#include "bench.h"

CASE(add_count) { Bench<half> t(x, y, z); Add(t.c, t.a, t.b, 200); t.Done(); }
CASE(add_prefix) { Bench<half> t(x, y, z); Add(t.c, t.a, t.b, 100, 3, {1, 1, 1, 8, 8, 8}); t.Done(); }
CASE(add_bits) {
  Bench<half> t(x, y, z);
  uint64_t mask[2] = {0x5555555555555555ULL, 0x00000000000000F1ULL};
  Add(t.c, t.a, t.b, mask, 2, {1, 1, 1, 8, 8, 8});
  t.Done();
}
CASE(add_strides) { Bench<float> t(x, y, z); Add(t.c, t.a, t.b, 64, 3, {2, 1, 0, 20, 8, 1}); t.Done(); }
CASE(mul_broadcast_row) { Bench<half> t(x, y, z); Mul(t.c, t.a, t.b, 128, 5, {1, 1, 1, 8, 8, 0}); t.Done(); }
CASE(in_place) { Bench<half> t(x, y, z); Mul(t.c, t.c, t.b, 96, 4, {1, 1, 1, 6, 6, 0}); t.Done(); }
CASE(accumulate) { Bench<float> t(x, y, z); Add(t.c, t.a, t.c, 64, 4, {1, 1, 1, 0, 8, 0}); t.Done(); }
CASE(add_half) { Bench<half> t(x, y, z); Add(t.c, t.a, t.b, 128, 1, {1, 1, 1, 8, 8, 8}); t.Done(); }
CASE(sub_half) { Bench<half> t(x, y, z); Sub(t.c, t.a, t.b, 4096); t.Done(); }
CASE(mul_half) { Bench<half> t(x, y, z); Mul(t.c, t.a, t.b, 4096); t.Done(); }
CASE(div_float) { Bench<float> t(x, y, z); Div(t.c, t.a, t.b, 2048); t.Done(); }
CASE(max_int) { Bench<int32_t> t(x, y, z); Max(t.c, t.a, t.b, 2048); t.Done(); }
CASE(min_half) { Bench<half> t(x, y, z); Min(t.c, t.a, t.b, 4096); t.Done(); }
CASE(mul_int16) { Bench<int16_t> t(x, y, z); Mul(t.c, t.a, t.b, 4096); t.Done(); }
CASE(or_uint16) { Bench<uint16_t> t(x, y, z); Or(t.c, t.a, t.b, 4096); t.Done(); }
CASE(muls_half) { Bench<half> t(x, y, z); Muls(t.c, t.a, half(-3), 4096); t.Done(); }
CASE(adds_float) { Bench<float> t(x, y, z); Adds(t.c, t.a, 0.1f, 64, 2, {1, 1, 8, 16}); t.Done(); }
CASE(mla_half) { Bench<half> t(x, y, z); MulAddDst(t.c, t.a, t.b, 128, 1, {1, 1, 1, 8, 8, 8}); t.Done(); }
CASE(mla_float) { Bench<float> t(x, y, z); MulAddDst(t.c, t.a, t.b, 64); t.Done(); }
CASE(mla_mixed) { Bench<half, half, float> t(x, y, z); MulAddDst(t.c, t.a, t.b, 64, 2, {1, 1, 1, 8, 4, 4}); t.Done(); }
CASE(axpy_float) { Bench<float> t(x, y, z); Axpy(t.c, t.a, 0.5f, 64); t.Done(); }
CASE(abs_relu_not) {
  Bench<half> t(x, y, z);
  Abs(t.c, t.a, 128);
  Relu(t.c[128], t.a, 128);
  Not(t.c[256].ReinterpretCast<uint16_t>(), t.a.ReinterpretCast<uint16_t>(), 128);
  t.Done();
}
CASE(duplicate_strided) { Bench<bfloat16_t> t(x, y, z); Duplicate(t.c, ToBfloat16(1.5f), 40, 2, 2, 9); t.Done(); }
CASE(copy_strides) { Bench<half> t(x, y, z); Copy(t.c, t.a, 48, 3, {2, 1, 10, 4}); t.Done(); }
CASE(copy_ub_gaps) { Bench<half> t(x, y, z); DataCopy(t.c, t.a, DataCopyParams(3, 2, 1, 3)); t.Done(); }

template <typename D, typename S> void Casts(GM_ADDR x, GM_ADDR y, GM_ADDR z, RoundMode mode, int32_t count) {
  Bench<S, S, D> t(x, y, z);
  Cast(t.c, t.a, mode, static_cast<uint32_t>(count));
  t.Done();
}
#define CASTS(NAME, D, S)                                                                                \
  CASE(NAME##_none) { Casts<D, S>(x, y, z, RoundMode::CAST_NONE, 64); }                                  \
  CASE(NAME##_rint) { Casts<D, S>(x, y, z, RoundMode::CAST_RINT, 64); }                                  \
  CASE(NAME##_floor) { Casts<D, S>(x, y, z, RoundMode::CAST_FLOOR, 64); }                                \
  CASE(NAME##_ceil) { Casts<D, S>(x, y, z, RoundMode::CAST_CEIL, 64); }                                  \
  CASE(NAME##_round) { Casts<D, S>(x, y, z, RoundMode::CAST_ROUND, 64); }                                \
  CASE(NAME##_trunc) { Casts<D, S>(x, y, z, RoundMode::CAST_TRUNC, 64); }                                \
  CASE(NAME##_odd) { Casts<D, S>(x, y, z, RoundMode::CAST_ODD, 64); }
CASTS(float_to_half, half, float)
CASTS(float_to_bfloat, bfloat16_t, float)
CASTS(float_to_float, float, float)
CASTS(float_to_int, int32_t, float)
CASTS(int_to_float, float, int32_t)
CASTS(half_to_float, float, half)
CASTS(bfloat_to_float, float, bfloat16_t)
CASE(cast_widen_repeats) { Bench<half, half, float> t(x, y, z); Cast(t.c, t.a, RoundMode::CAST_NONE, 64, 3, {1, 1, 8, 4}); t.Done(); }
CASE(cast_narrow_repeats) { Bench<float, float, half> t(x, y, z); Cast(t.c, t.a, RoundMode::CAST_RINT, 48, 3, {1, 2, 6, 16}); t.Done(); }

CASE(copy_in_gaps) {
  Bench<half> t(x, y, z);
  DataCopy(t.c, t.xg[16], DataCopyParams(3, 2, 5, 1));
  t.Done();
}
CASE(copy_out_gaps) {
  Bench<half> t(x, y, z);
  DataCopy(t.zg[16], t.a, DataCopyParams(3, 2, 1, 5));
}
CASE(copy_zero_blocks) {
  Bench<half> t(x, y, z);
  DataCopy(t.c, t.xg, DataCopyParams(0, 2, 0, 0));
  DataCopy(t.c, t.xg, DataCopyParams(2, 0, 0, 0));
  t.Done();
}
CASE(pad_in) {
  Bench<half> t(x, y, z);
  DataCopyPad(t.c, t.xg[1], {3, 20, 6, 1, 0}, DataCopyPadExtParams<half>(true, 2, 3, half(9)));
  t.Done();
}
CASE(pad_in_aligned) {
  Bench<half> t(x, y, z);
  DataCopyPad(t.c, t.xg[1], {3, 64, 2, 2, 0}, DataCopyPadExtParams<half>());
  t.Done();
}
CASE(pad_out) {
  Bench<half> t(x, y, z);
  DataCopyPad(t.zg[1], t.a, {3, 20, 1, 6, 0});
}
CASE(pad_filler_is_poison) {
  Bench<half> t(x, y, z);
  DataCopyPad(t.c, t.xg, {1, 20, 0, 0, 0}, DataCopyPadExtParams<half>());
  t.Done();
}
CASE(mask_register) {
  Bench<half> t(x, y, z);
  SetVectorMask<half>(0, 0x3FF);
  Add<half, false>(t.c, t.a, t.b, MASK_PLACEHOLDER, 2, {1, 1, 1, 8, 8, 8});
  t.Done();
}
CASE(counter_mode) {
  Bench<half> t(x, y, z);
  SetMaskCount();
  SetVectorMask<half, MaskMode::COUNTER>(0, 300);
  Add<half, false>(t.c, t.a, t.b, MASK_PLACEHOLDER, 1, {1, 1, 1, 8, 8, 8});
  t.Done();
}
CASE(count_form_resets) {
  Bench<half> t(x, y, z);
  SetMaskCount();
  SetVectorMask<half, MaskMode::COUNTER>(0, 300);
  Muls(t.a, t.a, half(1), 4096);
  PipeBarrier<PIPE_V>();
  Add<half, false>(t.c, t.a, t.b, MASK_PLACEHOLDER, 1, {1, 1, 1, 8, 8, 8});
  t.Done();
}
CASE(scalars) {
  Bench<int32_t> t(x, y, z);
  t.c.SetValue(0, t.a.GetValue(1) + t.yg.GetValue(2));
  t.c[4].SetValue(1, t.b[3].GetValue(0));
  t.c.ReinterpretCast<uint16_t>().SetValue(20, 7);
  t.Done();
}
CASE(blocks) {
  GlobalTensor<int32_t> out;
  out.SetGlobalBuffer((__gm__ int32_t*)z);
  out.SetValue(static_cast<uint64_t>(GetBlockIdx()) * 8, static_cast<int32_t>(GetBlockNum() * 100 + GetBlockIdx()));
}
