// Copyright 2026 The ms_ropegrad Authors
// SPDX-License-Identifier: Apache-2.0
// Vector instructions: the count form (level 2), and the forms with a mask (a number or bits), repeats and strides (level 0).
// The static_asserts are the types Atlas A2/A3 has; bfloat16 arithmetic goes through float there.
#ifndef TWIN_VECTOR_H
#define TWIN_VECTOR_H

#include "tensor.h"

namespace twin {

template <typename T, typename... Us> constexpr bool IsOneOf() { return (std::is_same<T, Us>::value || ...); }

struct Masked {
  Masking how;
  uint64_t low, high;
  uint32_t repeats;
};
inline Masked Count(int64_t count) { return {Masking::kCount, static_cast<uint64_t>(count), 0, 1}; }
inline Masked Prefix(bool set, uint64_t mask, uint8_t repeats) {
  return {set ? Masking::kPrefix : Masking::kRegister, mask, 0, repeats};
}
inline Masked Bits(bool set, const uint64_t mask[], uint8_t repeats) {
  return {set ? Masking::kBits : Masking::kRegister, mask[0], mask[1], repeats};
}

inline Instr Vector(Op op, Where where, const Masked& masked, const Operand& dst) {
  Instr instr;
  instr.op = op;
  instr.where = where;
  instr.dst = dst;
  instr.masking = masked.how;
  instr.mask[0] = masked.low;
  instr.mask[1] = masked.high;
  instr.count = static_cast<int64_t>(masked.low);
  instr.repeats = masked.repeats;
  return instr;
}
inline Instr Vector(Op op, Where where, const Masked& masked, const Operand& dst, const Operand& src) {
  Instr instr = Vector(op, where, masked, dst);
  instr.src[0] = src;
  instr.sources = 1;
  return instr;
}
inline void Binary(Op op, Where where, const Masked& masked, const Operand& dst, const Operand& src0, const Operand& src1) {
  Instr instr = Vector(op, where, masked, dst, src0);
  instr.src[1] = src1;
  instr.sources = 2;
  Issue(instr);
}
inline void Unary(Op op, Where where, const Masked& masked, const Operand& dst, const Operand& src,
                  AscendC::RoundMode round = AscendC::RoundMode::CAST_NONE) {
  Instr instr = Vector(op, where, masked, dst, src);
  instr.round = round;
  Issue(instr);
}
template <typename T>
void Scalar(Op op, Where where, const Masked& masked, const Operand& dst, const Operand* src, const T& value) {
  Instr instr = src ? Vector(op, where, masked, dst, *src) : Vector(op, where, masked, dst);
  std::memcpy(&instr.scalar, &value, sizeof(T));
  Issue(instr);
}

}  // namespace twin

namespace AscendC {

#define TWIN_BINARY(NAME, U, CHECK)                                                                                     \
  CHECK void NAME(const LocalTensor<T>& dst, const LocalTensor<U>& src0, const LocalTensor<U>& src1, TWIN_BITS mask[],  \
                  const uint8_t repeatTime, const BinaryRepeatParams& p, Where where = Where::Here()) {                 \
    TWIN_TYPES_##NAME();                                                                                                \
    twin::Binary(twin::Op::k##NAME, where, twin::Bits(isSetMask, mask, repeatTime),                                     \
                 twin::At(dst, p.dstBlkStride, p.dstRepStride), twin::At(src0, p.src0BlkStride, p.src0RepStride),       \
                 twin::At(src1, p.src1BlkStride, p.src1RepStride));                                                     \
  }                                                                                                                     \
  CHECK void NAME(const LocalTensor<T>& dst, const LocalTensor<U>& src0, const LocalTensor<U>& src1, uint64_t mask,     \
                  const uint8_t repeatTime, const BinaryRepeatParams& p, Where where = Where::Here()) {                 \
    TWIN_TYPES_##NAME();                                                                                                \
    twin::Binary(twin::Op::k##NAME, where, twin::Prefix(isSetMask, mask, repeatTime),                                   \
                 twin::At(dst, p.dstBlkStride, p.dstRepStride), twin::At(src0, p.src0BlkStride, p.src0RepStride),       \
                 twin::At(src1, p.src1BlkStride, p.src1RepStride));                                                     \
  }

#define TWIN_BINARY_T(NAME)                                                                                             \
  TWIN_BINARY(NAME, T, TWIN_TEMPLATE_T)                                                                                 \
  template <typename T>                                                                                                 \
  void NAME(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, const int32_t& count,    \
            Where where = Where::Here()) {                                                                              \
    TWIN_TYPES_##NAME();                                                                                                \
    twin::Binary(twin::Op::k##NAME, where, twin::Count(count), twin::At(dst), twin::At(src0), twin::At(src1));          \
  }

#define TWIN_TEMPLATE_T template <typename T, bool isSetMask = true>
#define TWIN_TEMPLATE_TU template <typename T, typename U, bool isSetMask = true>
#define TWIN_ARITHMETIC(NAME, ...) static_assert(twin::IsOneOf<T, __VA_ARGS__>(), #NAME " has no such type on Atlas A2/A3")
#define TWIN_TYPES_Add() TWIN_ARITHMETIC(Add, half, float, int16_t, int32_t)
#define TWIN_TYPES_Sub() TWIN_ARITHMETIC(Sub, half, float, int16_t, int32_t)
#define TWIN_TYPES_Mul() TWIN_ARITHMETIC(Mul, half, float, int16_t, int32_t)
#define TWIN_TYPES_Div() TWIN_ARITHMETIC(Div, half, float)
#define TWIN_TYPES_Max() TWIN_ARITHMETIC(Max, half, float, int16_t, int32_t)
#define TWIN_TYPES_Min() TWIN_ARITHMETIC(Min, half, float, int16_t, int32_t)
#define TWIN_TYPES_And() TWIN_ARITHMETIC(And, int16_t, uint16_t)
#define TWIN_TYPES_Or() TWIN_ARITHMETIC(Or, int16_t, uint16_t)
#define TWIN_TYPES_MulAddDst()                                                                         \
  static_assert((std::is_same<T, U>::value && twin::IsOneOf<T, half, float>()) ||                      \
                    (std::is_same<T, float>::value && std::is_same<U, half>::value),                   \
                "MulAddDst: half, float, or float += half * half on Atlas A2/A3")

#define TWIN_BITS uint64_t
TWIN_BINARY_T(Add)
TWIN_BINARY_T(Sub)
TWIN_BINARY_T(Mul)
TWIN_BINARY_T(Div)
TWIN_BINARY_T(Max)
TWIN_BINARY_T(Min)
TWIN_BINARY_T(And)
TWIN_BINARY_T(Or)
#undef TWIN_BITS
#define TWIN_BITS const uint64_t
TWIN_BINARY(MulAddDst, U, TWIN_TEMPLATE_TU)
#undef TWIN_BITS

template <typename T, typename U>
void MulAddDst(const LocalTensor<T>& dst, const LocalTensor<U>& src0, const LocalTensor<U>& src1, const int32_t& count,
               Where where = Where::Here()) {
  TWIN_TYPES_MulAddDst();
  twin::Binary(twin::Op::kMulAddDst, where, twin::Count(count), twin::At(dst),
               twin::At(src0, 1, sizeof(T) == sizeof(U) ? 8 : 4), twin::At(src1, 1, sizeof(T) == sizeof(U) ? 8 : 4));
}

// dst = op(src), one type.
#define TWIN_UNARY(NAME)                                                                                                \
  template <typename T, bool isSetMask = true>                                                                          \
  void NAME(const LocalTensor<T>& dst, const LocalTensor<T>& src, uint64_t mask[], const uint8_t repeatTime,            \
            const UnaryRepeatParams& p, Where where = Where::Here()) {                                                  \
    TWIN_TYPES_##NAME();                                                                                                \
    twin::Unary(twin::Op::k##NAME, where, twin::Bits(isSetMask, mask, repeatTime),                                      \
                twin::At(dst, p.dstBlkStride, p.dstRepStride), twin::At(src, p.srcBlkStride, p.srcRepStride));          \
  }                                                                                                                     \
  template <typename T, bool isSetMask = true>                                                                          \
  void NAME(const LocalTensor<T>& dst, const LocalTensor<T>& src, uint64_t mask, const uint8_t repeatTime,              \
            const UnaryRepeatParams& p, Where where = Where::Here()) {                                                  \
    TWIN_TYPES_##NAME();                                                                                                \
    twin::Unary(twin::Op::k##NAME, where, twin::Prefix(isSetMask, mask, repeatTime),                                    \
                twin::At(dst, p.dstBlkStride, p.dstRepStride), twin::At(src, p.srcBlkStride, p.srcRepStride));          \
  }                                                                                                                     \
  template <typename T>                                                                                                 \
  void NAME(const LocalTensor<T>& dst, const LocalTensor<T>& src, const int32_t& count, Where where = Where::Here()) {  \
    TWIN_TYPES_##NAME();                                                                                                \
    twin::Unary(twin::Op::k##NAME, where, twin::Count(count), twin::At(dst), twin::At(src));                            \
  }
#define TWIN_TYPES_Abs() TWIN_ARITHMETIC(Abs, half, float)
#define TWIN_TYPES_Relu() TWIN_ARITHMETIC(Relu, half, float, int32_t)
#define TWIN_TYPES_Not() TWIN_ARITHMETIC(Not, int16_t, uint16_t)
TWIN_UNARY(Abs)
TWIN_UNARY(Relu)
TWIN_UNARY(Not)

// dst = op(src, scalar); Axpy is dst += src * scalar.
#define TWIN_SCALAR(NAME, U, TEMPLATE, TEMPLATE_COUNT)                                                                  \
  TEMPLATE void NAME(const LocalTensor<T>& dst, const LocalTensor<U>& src, const U& scalarValue, uint64_t mask[],       \
                     const uint8_t repeatTime, const UnaryRepeatParams& p, Where where = Where::Here()) {               \
    TWIN_TYPES_##NAME();                                                                                                \
    const twin::Operand from = twin::At(src, p.srcBlkStride, p.srcRepStride);                                           \
    twin::Scalar(twin::Op::k##NAME, where, twin::Bits(isSetMask, mask, repeatTime),                                     \
                 twin::At(dst, p.dstBlkStride, p.dstRepStride), &from, scalarValue);                                    \
  }                                                                                                                     \
  TEMPLATE void NAME(const LocalTensor<T>& dst, const LocalTensor<U>& src, const U& scalarValue, uint64_t mask,         \
                     const uint8_t repeatTime, const UnaryRepeatParams& p, Where where = Where::Here()) {               \
    TWIN_TYPES_##NAME();                                                                                                \
    const twin::Operand from = twin::At(src, p.srcBlkStride, p.srcRepStride);                                           \
    twin::Scalar(twin::Op::k##NAME, where, twin::Prefix(isSetMask, mask, repeatTime),                                   \
                 twin::At(dst, p.dstBlkStride, p.dstRepStride), &from, scalarValue);                                    \
  }                                                                                                                     \
  TEMPLATE_COUNT void NAME(const LocalTensor<T>& dst, const LocalTensor<U>& src, const U& scalarValue,                  \
                           const int32_t& count, Where where = Where::Here()) {                                         \
    TWIN_TYPES_##NAME();                                                                                                \
    const twin::Operand from = twin::At(src, 1, sizeof(T) == sizeof(U) ? 8 : 4);                                        \
    twin::Scalar(twin::Op::k##NAME, where, twin::Count(count), twin::At(dst), &from, scalarValue);                      \
  }
#define TWIN_COUNT_T template <typename T, bool isSetMask = true>
#define TWIN_COUNT_TU template <typename T, typename U>
#define TWIN_TYPES_Adds() TWIN_ARITHMETIC(Adds, half, float, int16_t, int32_t)
#define TWIN_TYPES_Muls() TWIN_ARITHMETIC(Muls, half, float, int16_t, int32_t)
#define TWIN_TYPES_Maxs() TWIN_ARITHMETIC(Maxs, half, float, int16_t, int32_t)
#define TWIN_TYPES_Mins() TWIN_ARITHMETIC(Mins, half, float, int16_t, int32_t)
#define TWIN_TYPES_Axpy() TWIN_TYPES_MulAddDst()
TWIN_SCALAR(Adds, T, TWIN_TEMPLATE_T, TWIN_COUNT_T)
TWIN_SCALAR(Muls, T, TWIN_TEMPLATE_T, TWIN_COUNT_T)
TWIN_SCALAR(Maxs, T, TWIN_TEMPLATE_T, TWIN_COUNT_T)
TWIN_SCALAR(Mins, T, TWIN_TEMPLATE_T, TWIN_COUNT_T)
TWIN_SCALAR(Axpy, U, TWIN_TEMPLATE_TU, TWIN_COUNT_TU)

#define TWIN_TYPES_Duplicate() \
  TWIN_ARITHMETIC(Duplicate, half, bfloat16_t, float, int16_t, uint16_t, int32_t, uint32_t)
template <typename T, bool isSetMask = true>
void Duplicate(const LocalTensor<T>& dst, const T& scalarValue, uint64_t mask, const uint8_t repeatTime,
               const uint16_t dstBlockStride, const uint8_t dstRepeatStride, Where where = Where::Here()) {
  TWIN_TYPES_Duplicate();
  twin::Scalar(twin::Op::kDuplicate, where, twin::Prefix(isSetMask, mask, repeatTime),
               twin::At(dst, dstBlockStride, dstRepeatStride), nullptr, scalarValue);
}
template <typename T, bool isSetMask = true>
void Duplicate(const LocalTensor<T>& dst, const T& scalarValue, uint64_t mask[], const uint8_t repeatTime,
               const uint16_t dstBlockStride, const uint8_t dstRepeatStride, Where where = Where::Here()) {
  TWIN_TYPES_Duplicate();
  twin::Scalar(twin::Op::kDuplicate, where, twin::Bits(isSetMask, mask, repeatTime),
               twin::At(dst, dstBlockStride, dstRepeatStride), nullptr, scalarValue);
}
template <typename T>
void Duplicate(const LocalTensor<T>& dst, const T& scalarValue, const int32_t& count, Where where = Where::Here()) {
  TWIN_TYPES_Duplicate();
  twin::Scalar(twin::Op::kDuplicate, where, twin::Count(count), twin::At(dst), nullptr, scalarValue);
}

#define TWIN_TYPES_Copy() \
  TWIN_ARITHMETIC(Copy, half, bfloat16_t, float, int16_t, uint16_t, int32_t, uint32_t)
template <typename T, bool isSetMask = true>
void Copy(const LocalTensor<T>& dst, const LocalTensor<T>& src, const uint64_t mask[], const uint8_t repeatTime,
          const CopyRepeatParams& p, Where where = Where::Here()) {
  TWIN_TYPES_Copy();
  twin::Unary(twin::Op::kCopy, where, twin::Bits(isSetMask, mask, repeatTime), twin::At(dst, p.dstStride, p.dstRepeatSize),
              twin::At(src, p.srcStride, p.srcRepeatSize));
}
template <typename T, bool isSetMask = true>
void Copy(const LocalTensor<T>& dst, const LocalTensor<T>& src, const uint64_t mask, const uint8_t repeatTime,
          const CopyRepeatParams& p, Where where = Where::Here()) {
  TWIN_TYPES_Copy();
  twin::Unary(twin::Op::kCopy, where, twin::Prefix(isSetMask, mask, repeatTime), twin::At(dst, p.dstStride, p.dstRepeatSize),
              twin::At(src, p.srcStride, p.srcRepeatSize));
}

// Which pairs and rounding modes exist is checked when the instruction runs.
template <typename T, typename U, bool isSetMask = true>
void Cast(const LocalTensor<T>& dst, const LocalTensor<U>& src, const RoundMode& roundMode, const uint64_t mask[],
          const uint8_t repeatTime, const UnaryRepeatParams& p, Where where = Where::Here()) {
  twin::Unary(twin::Op::kCast, where, twin::Bits(isSetMask, mask, repeatTime),
              twin::At(dst, p.dstBlkStride, p.dstRepStride), twin::At(src, p.srcBlkStride, p.srcRepStride), roundMode);
}
template <typename T, typename U, bool isSetMask = true>
void Cast(const LocalTensor<T>& dst, const LocalTensor<U>& src, const RoundMode& roundMode, const uint64_t mask,
          const uint8_t repeatTime, const UnaryRepeatParams& p, Where where = Where::Here()) {
  twin::Unary(twin::Op::kCast, where, twin::Prefix(isSetMask, mask, repeatTime),
              twin::At(dst, p.dstBlkStride, p.dstRepStride), twin::At(src, p.srcBlkStride, p.srcRepStride), roundMode);
}
template <typename T, typename U>
void Cast(const LocalTensor<T>& dst, const LocalTensor<U>& src, const RoundMode& roundMode, const uint32_t count,
          Where where = Where::Here()) {
  constexpr uint32_t wide = sizeof(T) > sizeof(U) ? sizeof(T) : sizeof(U);
  twin::Unary(twin::Op::kCast, where, twin::Count(count), twin::At(dst, 1, 8 * sizeof(T) / wide),
              twin::At(src, 1, 8 * sizeof(U) / wide), roundMode);
}

}  // namespace AscendC

#endif
