// Copyright 2026 The ms_ropegrad Authors
// SPDX-License-Identifier: Apache-2.0
// Scalar types, enumerations and parameter structs of Ascend C, with the field widths of Atlas A2/A3.
#ifndef TWIN_TYPES_H
#define TWIN_TYPES_H

#include <cstdint>
#include <cstring>
#include <type_traits>

#define ASCENDC_TWIN 1
#ifndef __NPU_ARCH__
#define __NPU_ARCH__ 2201
#endif
#define __aicore__
#define __global__ __attribute__((visibility("default")))
#define __gm__
#define __ubuf__
#define GM_ADDR uint8_t*

// What ORIG_DTYPE_<INPUT> compares against.
#define DT_FLOAT 0
#define DT_FLOAT16 1
#define DT_INT32 3
#define DT_INT64 9
#define DT_BF16 27

namespace twin {
float HalfToFloat(uint16_t bits);
uint16_t FloatToHalf(float value);  // to nearest even
inline float BfloatToFloat(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}
uint16_t FloatToBfloat(float value);  // to nearest even
}  // namespace twin

// IEEE binary16; scalar code on the device computes in it through float.
struct half {
  half() = default;
  template <typename T, typename = std::enable_if_t<std::is_arithmetic<T>::value>>
  half(T value) : bits(twin::FloatToHalf(static_cast<float>(value))) {}
  operator float() const { return twin::HalfToFloat(bits); }
  uint16_t bits;
};

struct bfloat16_t {
  bfloat16_t() = default;
  explicit bfloat16_t(float value) : bits(twin::FloatToBfloat(value)) {}
  explicit operator float() const { return twin::BfloatToFloat(bits); }
  uint16_t bits;
};

enum pipe_t { PIPE_S = 0, PIPE_V, PIPE_M, PIPE_MTE1, PIPE_MTE2, PIPE_MTE3, PIPE_ALL };
enum event_t { EVENT_ID0 = 0, EVENT_ID1, EVENT_ID2, EVENT_ID3, EVENT_ID4, EVENT_ID5, EVENT_ID6, EVENT_ID7 };

namespace AscendC {

enum class TPosition : uint8_t { GM, A1, A2, B1, B2, C1, C2, CO1, CO2, VECIN, VECOUT, VECCALC, LCM };
using QuePosition = TPosition;
using TEventID = int8_t;

// The events between the pipes of a vector core.
enum class HardEvent : uint8_t {
  MTE2_V, V_MTE2, MTE3_V, V_MTE3, V_V, MTE3_MTE2, MTE2_MTE3, S_V, V_S, S_MTE2, MTE2_S, S_MTE3, MTE3_S, MAX
};

enum class RoundMode : uint8_t { CAST_NONE, CAST_RINT, CAST_FLOOR, CAST_CEIL, CAST_ROUND, CAST_TRUNC, CAST_ODD };
enum class MaskMode : uint8_t { NORMAL, COUNTER };
enum class CacheMode : uint8_t { CACHE_MODE_DISABLE = 0, CACHE_MODE_NORMAL = 1 };
enum class CacheRwMode : uint8_t { READ = 1, WRITE = 2, RW = 3 };

struct DataCopyParams {
  DataCopyParams() = default;
  DataCopyParams(uint16_t count, uint16_t len, uint16_t src, uint16_t dst)
      : blockCount(count), blockLen(len), srcGap(src), dstGap(dst) {}
  uint16_t blockCount = 1;
  uint16_t blockLen = 0;  // 32 B blocks, like the gaps
  union { uint16_t srcGap = 0; uint16_t srcStride; };
  union { uint16_t dstGap = 0; uint16_t dstStride; };
};

struct DataCopyExtParams {
  DataCopyExtParams() = default;
  DataCopyExtParams(uint16_t count, uint32_t len, uint32_t src, uint32_t dst, uint32_t reserved)
      : blockCount(count), blockLen(len), srcStride(src), dstStride(dst), rsv(reserved) {}
  uint16_t blockCount = 1;
  uint32_t blockLen = 0;   // bytes
  uint32_t srcStride = 0;  // a gap: bytes in GM, 32 B blocks in UB
  uint32_t dstStride = 0;
  uint32_t rsv = 0;
};

struct DataCopyPadParams {
  DataCopyPadParams() = default;
  DataCopyPadParams(bool pad, uint8_t left, uint8_t right, uint64_t value)
      : isPad(pad), leftPadding(left), rightPadding(right), paddingValue(value) {}
  bool isPad = false;
  uint8_t leftPadding = 0;
  uint8_t rightPadding = 0;
  uint64_t paddingValue = 0;
};

template <typename T>
struct DataCopyPadExtParams {
  DataCopyPadExtParams() = default;
  DataCopyPadExtParams(bool pad, uint8_t left, uint8_t right, T value)
      : isPad(pad), leftPadding(left), rightPadding(right), paddingValue(value) {}
  bool isPad = false;
  uint8_t leftPadding = 0;  // elements
  uint8_t rightPadding = 0;
  T paddingValue = T();
};

struct CopyRepeatParams {
  CopyRepeatParams() = default;
  CopyRepeatParams(uint16_t dst, uint16_t src, uint16_t dstRepeat, uint16_t srcRepeat)
      : dstStride(dst), srcStride(src), dstRepeatSize(dstRepeat), srcRepeatSize(srcRepeat) {}
  uint16_t dstStride = 0;
  uint16_t srcStride = 0;
  uint16_t dstRepeatSize = 8;
  uint16_t srcRepeatSize = 8;
};

struct UnaryRepeatParams {
  UnaryRepeatParams() = default;
  UnaryRepeatParams(uint16_t dstBlk, uint16_t srcBlk, uint8_t dstRep, uint8_t srcRep)
      : dstBlkStride(dstBlk), srcBlkStride(srcBlk), dstRepStride(dstRep), srcRepStride(srcRep) {}
  uint16_t dstBlkStride = 1;
  uint16_t srcBlkStride = 1;
  uint8_t dstRepStride = 8;
  uint8_t srcRepStride = 8;
};

struct BinaryRepeatParams {
  BinaryRepeatParams() = default;
  BinaryRepeatParams(uint8_t dstBlk, uint8_t src0Blk, uint8_t src1Blk, uint8_t dstRep, uint8_t src0Rep, uint8_t src1Rep)
      : dstBlkStride(dstBlk), src0BlkStride(src0Blk), src1BlkStride(src1Blk), dstRepStride(dstRep),
        src0RepStride(src0Rep), src1RepStride(src1Rep) {}
  uint8_t dstBlkStride = 1;
  uint8_t src0BlkStride = 1;
  uint8_t src1BlkStride = 1;
  uint8_t dstRepStride = 8;
  uint8_t src0RepStride = 8;
  uint8_t src1RepStride = 8;
};

inline float ToFloat(bfloat16_t value) { return static_cast<float>(value); }
inline bfloat16_t ToBfloat16(float value) { return bfloat16_t(value); }

}  // namespace AscendC

using AscendC::TPosition;

#endif
