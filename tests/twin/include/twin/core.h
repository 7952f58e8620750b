// Copyright 2026 The ms_ropegrad Authors
// SPDX-License-Identifier: Apache-2.0
// What the API headers tell the runtime: one Instr per device instruction, flags, barriers and buffers. Nothing here is
// a template over the kernel's types, so that a kernel compiles in a second and the runtime is compiled once.
#ifndef TWIN_CORE_H
#define TWIN_CORE_H

#include "types.h"

namespace twin {

// The call site in the kernel: the last, defaulted parameter of every API function.
struct Where {
  const char* file;
  int line;
  static constexpr Where Here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) { return {file, line}; }
};

enum class Type : uint8_t { kF16, kBf16, kF32, kI8, kU8, kI16, kU16, kI32, kU32, kI64, kU64 };
constexpr uint32_t kSizes[] = {2, 2, 4, 1, 1, 2, 2, 4, 4, 8, 8};
constexpr uint32_t SizeOf(Type type) { return kSizes[static_cast<int>(type)]; }

template <typename T> constexpr Type TypeOf() {
  if constexpr (std::is_same<T, half>::value) return Type::kF16;
  else if constexpr (std::is_same<T, bfloat16_t>::value) return Type::kBf16;
  else if constexpr (std::is_same<T, float>::value) return Type::kF32;
  else {
    static_assert(std::is_integral<T>::value, "the twin has no such element type");
    constexpr bool s = std::is_signed<T>::value;
    return sizeof(T) == 1 ? (s ? Type::kI8 : Type::kU8) : sizeof(T) == 2 ? (s ? Type::kI16 : Type::kU16)
         : sizeof(T) == 4 ? (s ? Type::kI32 : Type::kU32) : (s ? Type::kI64 : Type::kU64);
  }
}

// Everything in a trace. The first group are DMA, the second vector instructions, the third synchronisation.
enum class Op : uint8_t {
  kCopyIn, kCopyOut,
  kCopyUb, kCopy, kDuplicate, kAdd, kSub, kMul, kDiv, kMax, kMin, kAnd, kOr, kAdds, kMuls, kMaxs, kMins, kMulAddDst, kAxpy,
  kAbs, kRelu, kNot, kCast,
  kSetFlag, kWaitFlag, kBarrier, kScalarRead, kScalarWrite, kPoison, kCount
};

// A place in UB and the buffer (of InitBuffer) it was taken from; gen tells a freed tensor from its successor.
struct UbRef {
  uint32_t addr = 0;
  uint32_t gen = 0;
  int16_t buffer = -1;
};

// An operand of a vector instruction: strides in 32 B blocks, start to start.
struct Operand {
  UbRef at;
  Type type = Type::kF16;
  uint32_t block = 1;
  uint32_t repeat = 8;
};

enum class Masking : uint8_t { kCount, kPrefix, kBits, kRegister };  // level 2, level 0 with a number, with bits, isSetMask=false

struct Instr {
  Op op = Op::kCount;
  Where where{};
  // vector
  Operand dst, src[2];
  uint8_t sources = 0;
  Masking masking = Masking::kCount;
  AscendC::RoundMode round = AscendC::RoundMode::CAST_NONE;
  uint64_t mask[2] = {0, 0};  // kPrefix: mask[0] elements; kBits: two words
  int64_t count = 0;          // kCount: elements
  uint32_t repeats = 1;
  uint64_t scalar = 0;        // the bits of the scalar operand, in dst's type (src's for Axpy)
  // DMA; strides in bytes, start to start; dst.at is the UB side
  const void* gm = nullptr;
  uint32_t bursts = 0, length = 0;
  uint64_t gmStride = 0, ubStride = 0;
  bool padded = false, fill = false;  // DataCopyPad; fill: pad with `scalar`
  uint32_t left = 0, right = 0;       // padding in bytes
};

void Issue(Instr& instr);
void AccessUb(UbRef at, void* value, uint32_t size, bool write, Where where);  // scalar
void AccessGm(const void* address, void* value, uint32_t size, bool write, Where where);
void SetFlag(AscendC::HardEvent event, int32_t id, Where where);
void WaitFlag(AscendC::HardEvent event, int32_t id, Where where);
void Barrier(pipe_t pipe, Where where);
void SetMask(uint64_t high, uint64_t low);
void SetMaskMode(AscendC::MaskMode mode);
int64_t BlockIdx();
int64_t BlockNum();
bool TilingKeyIs(uint64_t key);
void LoadTiling(void* data, uint64_t size, const void* argument, Where where);
void Refuse(const char* detector, Where where, const char* what);  // reports and stops the core

}  // namespace twin

namespace AscendC {

using twin::Where;

template <HardEvent event> inline void SetFlag(int32_t eventID, Where where = Where::Here()) {
  twin::SetFlag(event, eventID, where);
}
template <HardEvent event> inline void WaitFlag(int32_t eventID, Where where = Where::Here()) {
  twin::WaitFlag(event, eventID, where);
}
template <pipe_t pipe> inline void PipeBarrier(Where where = Where::Here()) {
  static_assert(pipe != PIPE_S, "PipeBarrier does not take PIPE_S");
  twin::Barrier(pipe, where);
}
inline int64_t GetBlockIdx() { return twin::BlockIdx(); }
inline int64_t GetBlockNum() { return twin::BlockNum(); }
inline int64_t GetSubBlockIdx() { return 0; }
template <typename T, MaskMode mode = MaskMode::NORMAL> inline void SetVectorMask(uint64_t high, uint64_t low) {
  twin::SetMask(high, low);
}
template <typename T, MaskMode mode = MaskMode::NORMAL> inline void SetVectorMask(int32_t len) {
  const auto ones = [](int32_t n) { return n >= 64 ? ~0ULL : n <= 0 ? 0ULL : (1ULL << n) - 1; };
  if (mode == MaskMode::COUNTER) twin::SetMask(0, static_cast<uint64_t>(len));
  else twin::SetMask(ones(len - 64), ones(len));
}
constexpr uint64_t MASK_PLACEHOLDER = 0;
inline void SetMaskNorm() { twin::SetMaskMode(MaskMode::NORMAL); }
inline void SetMaskCount() { twin::SetMaskMode(MaskMode::COUNTER); }
inline void ResetMask() { twin::SetMask(~0ULL, ~0ULL); }
inline void SetAtomicNone() {}

}  // namespace AscendC

enum { KERNEL_TYPE_AIV_ONLY };
#define KERNEL_TASK_TYPE_DEFAULT(type) static_assert((type) == KERNEL_TYPE_AIV_ONLY, "the twin runs AIV only")
#define KERNEL_TASK_TYPE(key, type) KERNEL_TASK_TYPE_DEFAULT(type)
#define REGISTER_TILING_DEFAULT(type) using TwinTiling [[maybe_unused]] = type
#define REGISTER_TILING_FOR_TILINGKEY(expression, type) static_assert(sizeof(type) > 0, "")
#define GET_TILING_DATA_WITH_STRUCT(type, name, argument) \
  type name;                                              \
  twin::LoadTiling(&name, sizeof(type), argument, twin::Where::Here())
#define GET_TILING_DATA(name, argument) GET_TILING_DATA_WITH_STRUCT(TwinTiling, name, argument)
#define TILING_KEY_IS(key) twin::TilingKeyIs(key)
#define ASCEND_IS_AIV constexpr(true)
#define ASCEND_IS_AIC constexpr(false)

#endif
