// Copyright 2026 The ms_ropegrad Authors
// SPDX-License-Identifier: Apache-2.0
// The arithmetic: IEEE, subnormals kept, half and bfloat16 computed in float and rounded once (float has more than twice
// half's precision plus two bits, so that equals rounding the exact result).
#include <cmath>
#include <limits>

#include "work.h"
#if defined(__F16C__) && defined(__AVX__)
#include <immintrin.h>
#endif

namespace twin {

float HalfToFloat(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16, exponent = bits >> 10 & 31, fraction = bits & 1023;
  uint32_t wide;
  if (exponent == 0) {
    const float value = std::ldexp(static_cast<float>(fraction), -24);
    return sign ? -value : value;
  }
  if (exponent == 31) wide = 0x7F800000 | fraction << 13 | (fraction ? 0x400000 : 0);
  else wide = (exponent + 112) << 23 | fraction << 13;
  wide |= sign;
  float value;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}

uint16_t FloatToHalf(float value) {
  uint32_t wide;
  std::memcpy(&wide, &value, sizeof(wide));
  const uint32_t sign = wide >> 16 & 0x8000, magnitude = wide & 0x7FFFFFFF;
  uint32_t bits;
  if (magnitude > 0x7F800000) {
    bits = 0x7E00 | (magnitude >> 13 & 0x3FF);
  } else if (magnitude >= 0x477FF000) {
    bits = 0x7C00;  // from halfway between 65504 and 65536 upwards
  } else if (magnitude < 0x38800000) {
    bits = static_cast<uint32_t>(std::nearbyint(std::ldexp(std::fabs(value), 24)));  // subnormal: multiples of 2^-24
  } else {
    bits = (magnitude - 0x38000000 + 0xFFF + (magnitude >> 13 & 1)) >> 13;
  }
  return static_cast<uint16_t>(sign | bits);
}

uint16_t FloatToBfloat(float value) {
  uint32_t wide;
  std::memcpy(&wide, &value, sizeof(wide));
  if ((wide & 0x7FFFFFFF) > 0x7F800000) return static_cast<uint16_t>(wide >> 16 | 0x40);
  return static_cast<uint16_t>((wide + 0x7FFF + (wide >> 16 & 1)) >> 16);
}

namespace {

constexpr uint32_t kMaxLanes = 256;
using AscendC::RoundMode;

void Widen(const uint16_t* in, float* out, uint32_t n) {
#if defined(__F16C__) && defined(__AVX__)
  for (; n >= 8; n -= 8, in += 8, out += 8) {
    _mm256_storeu_ps(out, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in))));
  }
#endif
  for (uint32_t i = 0; i < n; ++i) out[i] = HalfToFloat(in[i]);
}

void Narrow(const float* in, uint16_t* out, uint32_t n) {
#if defined(__F16C__) && defined(__AVX__)
  for (; n >= 8; n -= 8, in += 8, out += 8) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm256_cvtps_ph(_mm256_loadu_ps(in), _MM_FROUND_TO_NEAREST_INT));
  }
#endif
  for (uint32_t i = 0; i < n; ++i) out[i] = FloatToHalf(in[i]);
}

// The lanes of repeat r of an operand, in a row.
void Gather(const Work& work, const Operand& operand, uint32_t r, const uint8_t* ub, void* row) {
  const uint32_t size = SizeOf(operand.type), bytes = (r + 1 == work.repeats ? work.last : work.lanes) * size;
  const uint8_t* base = ub + operand.at.addr + static_cast<uint64_t>(r) * operand.repeat * kBlock;
  if (operand.block == 1) {
    std::memcpy(row, base, bytes);
    return;
  }
  for (uint32_t i = 0; i < bytes; i += kBlock) {
    std::memcpy(static_cast<uint8_t*>(row) + i, base + static_cast<uint64_t>(i / kBlock) * operand.block * kBlock,
                std::min(kBlock, bytes - i));
  }
}

void Scatter(const Work& work, uint32_t r, uint8_t* ub, const void* row) {
  const Operand& operand = work.instr.dst;
  const uint32_t size = SizeOf(operand.type), n = r + 1 == work.repeats ? work.last : work.lanes;
  uint8_t* base = ub + operand.at.addr + static_cast<uint64_t>(r) * operand.repeat * kBlock;
  if (operand.block == 1 && !work.bits) {
    std::memcpy(base, row, static_cast<size_t>(n) * size);
    return;
  }
  for (uint32_t i = 0; i < n; ++i) {
    if (!work.Lane(i)) continue;
    const uint32_t at = i * size;
    std::memcpy(base + static_cast<uint64_t>(at / kBlock) * operand.block * kBlock + at % kBlock,
                static_cast<const uint8_t*>(row) + at, size);
  }
}

// How a type is computed on: half in float, the rest as itself.
template <typename T> struct Lanes {
  using Stored = T;
  using Computed = T;
  static void Read(const T* in, T* out, uint32_t n) { std::memcpy(out, in, n * sizeof(T)); }
  static void Write(const T* in, T* out, uint32_t n) { std::memcpy(out, in, n * sizeof(T)); }
};
template <> struct Lanes<half> {
  using Stored = uint16_t;
  using Computed = float;
  static void Read(const uint16_t* in, float* out, uint32_t n) { Widen(in, out, n); }
  static void Write(const float* in, uint16_t* out, uint32_t n) { Narrow(in, out, n); }
};

template <typename L>
void Saturate(typename L::Stored* row, uint32_t n) {
  if constexpr (std::is_same<L, Lanes<half>>::value) {
    for (uint32_t i = 0; i < n; ++i) {
      if ((row[i] & 0x7FFF) > 0x7C00) row[i] = 0;
      else if ((row[i] & 0x7FFF) == 0x7C00) --row[i];
    }
  } else if constexpr (std::is_same<L, Lanes<float>>::value) {
    for (uint32_t i = 0; i < n; ++i) {
      if (std::isnan(row[i])) row[i] = 0;
      else if (std::isinf(row[i])) row[i] = std::copysign(std::numeric_limits<float>::max(), row[i]);
    }
  }
}

template <typename L>
void LoadRow(const Work& work, const Operand& operand, uint32_t r, uint32_t n, const uint8_t* ub, typename L::Computed* out) {
  typename L::Stored row[kMaxLanes];
  Gather(work, operand, r, ub, row);
  L::Read(row, out, n);
}

template <typename L>
void StoreRow(const Work& work, uint32_t r, uint32_t n, uint8_t* ub, const typename L::Computed* in, bool saturate) {
  typename L::Stored row[kMaxLanes];
  L::Write(in, row, n);
  if (saturate) Saturate<L>(row, n);
  Scatter(work, r, ub, row);
}

// dst = f(src0, src1 or the scalar)
template <typename L, typename F>
void Map(const Work& work, uint8_t* ub, const Modes& modes, F f) {
  typename L::Computed a[kMaxLanes] = {}, b[kMaxLanes] = {};
  const Instr& instr = work.instr;
  if (instr.sources < 2) {
    typename L::Stored scalar;
    std::memcpy(&scalar, &instr.scalar, sizeof(scalar));
    L::Read(&scalar, b, 1);
    std::fill(b + 1, b + kMaxLanes, b[0]);
  }
  for (uint32_t r = 0; r < work.repeats; ++r) {
    const uint32_t n = r + 1 == work.repeats ? work.last : work.lanes;
    LoadRow<L>(work, instr.src[0], r, n, ub, a);
    if (instr.sources == 2) LoadRow<L>(work, instr.src[1], r, n, ub, b);
    for (uint32_t i = 0; i < n; ++i) a[i] = static_cast<typename L::Computed>(f(a[i], b[i]));
    StoreRow<L>(work, r, n, ub, a, modes.saturate);
  }
}

template <typename F>
void Arithmetic(const Work& work, uint8_t* ub, const Modes& modes, F f) {
  switch (work.instr.dst.type) {
    case Type::kF16: return Map<Lanes<half>>(work, ub, modes, f);
    case Type::kF32: return Map<Lanes<float>>(work, ub, modes, f);
    case Type::kI16: return Map<Lanes<int16_t>>(work, ub, modes, f);
    case Type::kI32: return Map<Lanes<int32_t>>(work, ub, modes, f);
    default: return;
  }
}

// dst += src0 * (src1 or the scalar); D and S are half or float.
template <typename D, typename S>
void MulAdd(const Work& work, uint8_t* ub, const Modes& modes) {
  float a[kMaxLanes] = {}, b[kMaxLanes] = {}, d[kMaxLanes] = {};
  const Instr& instr = work.instr;
  if (instr.sources < 2) {
    typename S::Stored scalar;
    std::memcpy(&scalar, &instr.scalar, sizeof(scalar));
    S::Read(&scalar, b, 1);
    std::fill(b + 1, b + kMaxLanes, b[0]);
  }
  for (uint32_t r = 0; r < work.repeats; ++r) {
    const uint32_t n = r + 1 == work.repeats ? work.last : work.lanes;
    LoadRow<S>(work, instr.src[0], r, n, ub, a);
    if (instr.sources == 2) LoadRow<S>(work, instr.src[1], r, n, ub, b);
    LoadRow<D>(work, instr.dst, r, n, ub, d);
    for (uint32_t i = 0; i < n; ++i) {
      if (modes.fused) {
        d[i] = std::fma(a[i], b[i], d[i]);
      } else {
        float product = a[i] * b[i];
        if (std::is_same<D, Lanes<half>>::value) product = HalfToFloat(FloatToHalf(product));
        d[i] = product + d[i];
      }
    }
    StoreRow<D>(work, r, n, ub, d, modes.saturate);
  }
}

// Rounds to a format with `digits` fraction bits and smallest exponent `least`; the result of a double is exact.
double RoundTo(double x, int digits, int least, double largest, RoundMode mode) {
  if (!std::isfinite(x) || x == 0) return x;
  const int exponent = std::max(std::ilogb(x), least);
  const double units = std::ldexp(x, digits - exponent);
  double rounded = units;
  switch (mode) {
    case RoundMode::CAST_NONE:
    case RoundMode::CAST_RINT: rounded = std::nearbyint(units); break;
    case RoundMode::CAST_FLOOR: rounded = std::floor(units); break;
    case RoundMode::CAST_CEIL: rounded = std::ceil(units); break;
    case RoundMode::CAST_ROUND: rounded = std::round(units); break;
    case RoundMode::CAST_TRUNC: rounded = std::trunc(units); break;
    case RoundMode::CAST_ODD:
      rounded = std::trunc(units);
      if (rounded != units && std::fmod(rounded, 2) == 0) rounded += std::copysign(1.0, units);
      break;
  }
  const double result = std::copysign(std::ldexp(rounded, exponent - digits), x);
  if (std::fabs(result) <= largest) return result;
  const bool away = mode <= RoundMode::CAST_RINT || mode == RoundMode::CAST_ROUND ||
                    (mode == RoundMode::CAST_FLOOR && x < 0) || (mode == RoundMode::CAST_CEIL && x > 0);
  return std::copysign(away ? std::numeric_limits<double>::infinity() : largest, x);
}

double RoundIntegral(double x, RoundMode mode) {
  switch (mode) {
    case RoundMode::CAST_FLOOR: return std::floor(x);
    case RoundMode::CAST_CEIL: return std::ceil(x);
    case RoundMode::CAST_ROUND: return std::round(x);
    case RoundMode::CAST_TRUNC: return std::trunc(x);
    default: return std::nearbyint(x);
  }
}

// One element as a double: exact for every type Cast has here.
double ReadAs(Type type, const void* row, uint32_t i) {
  switch (type) {
    case Type::kF16: return HalfToFloat(static_cast<const uint16_t*>(row)[i]);
    case Type::kBf16: return BfloatToFloat(static_cast<const uint16_t*>(row)[i]);
    case Type::kF32: return static_cast<const float*>(row)[i];
    case Type::kI8: return static_cast<const int8_t*>(row)[i];
    case Type::kU8: return static_cast<const uint8_t*>(row)[i];
    case Type::kI16: return static_cast<const int16_t*>(row)[i];
    default: return static_cast<const int32_t*>(row)[i];
  }
}

template <typename T>
void WriteInteger(double value, void* row, uint32_t i, RoundMode mode) {
  constexpr double least = std::numeric_limits<T>::min(), most = std::numeric_limits<T>::max();
  static_cast<T*>(row)[i] = std::isnan(value) ? T(0) : static_cast<T>(std::clamp(RoundIntegral(value, mode), least, most));
}

void CastRow(Type dst, Type src, RoundMode mode, const void* in, void* out, uint32_t n) {
  const bool nearest = mode <= RoundMode::CAST_RINT;
  if (src == Type::kF16 && dst == Type::kF32) return Widen(static_cast<const uint16_t*>(in), static_cast<float*>(out), n);
  if (src == Type::kF32 && dst == Type::kF16 && nearest) {
    return Narrow(static_cast<const float*>(in), static_cast<uint16_t*>(out), n);
  }
  for (uint32_t i = 0; i < n; ++i) {
    if (src == Type::kBf16 && dst == Type::kF32) static_cast<float*>(out)[i] = BfloatToFloat(static_cast<const uint16_t*>(in)[i]);
    else if (src == Type::kF32 && dst == Type::kBf16 && nearest) static_cast<uint16_t*>(out)[i] = FloatToBfloat(static_cast<const float*>(in)[i]);
    else {
      const double value = ReadAs(src, in, i);
      switch (dst) {
        case Type::kF32: {
          const double result = src == Type::kF32 ? RoundIntegral(value, mode) : RoundTo(value, 23, -126, 0x1.FFFFFEp127, mode);
          static_cast<float*>(out)[i] = static_cast<float>(result);
          break;
        }
        case Type::kF16: {
          const double result = RoundTo(value, 10, -14, 65504, mode);
          static_cast<uint16_t*>(out)[i] = FloatToHalf(static_cast<float>(result));
          break;
        }
        case Type::kBf16: {
          const double result = RoundTo(value, 7, -126, 0x1.FEp127, mode);
          static_cast<uint16_t*>(out)[i] = FloatToBfloat(static_cast<float>(result));
          break;
        }
        case Type::kI8: WriteInteger<int8_t>(value, out, i, mode); break;
        case Type::kU8: WriteInteger<uint8_t>(value, out, i, mode); break;
        case Type::kI16: WriteInteger<int16_t>(value, out, i, mode); break;
        default: WriteInteger<int32_t>(value, out, i, mode);
      }
    }
  }
}

void CastAll(const Work& work, uint8_t* ub, const Modes& modes) {
  alignas(64) uint8_t in[kMaxLanes * 4], out[kMaxLanes * 4];
  const Instr& instr = work.instr;
  for (uint32_t r = 0; r < work.repeats; ++r) {
    const uint32_t n = r + 1 == work.repeats ? work.last : work.lanes;
    Gather(work, instr.src[0], r, ub, in);
    CastRow(instr.dst.type, instr.src[0].type, instr.round, in, out, n);
    if (modes.saturate && instr.dst.type == Type::kF16) Saturate<Lanes<half>>(reinterpret_cast<uint16_t*>(out), n);
    if (modes.saturate && instr.dst.type == Type::kF32) Saturate<Lanes<float>>(reinterpret_cast<float*>(out), n);
    if (modes.saturate && instr.dst.type == Type::kBf16) {
      for (uint16_t* row = reinterpret_cast<uint16_t*>(out); row < reinterpret_cast<uint16_t*>(out) + n; ++row) {
        if ((*row & 0x7FFF) > 0x7F80) *row = 0;
        else if ((*row & 0x7FFF) == 0x7F80) --*row;
      }
    }
    Scatter(work, r, ub, out);
  }
}

// Duplicate, Copy, And, Or, Not: bits only.
void MoveBits(const Work& work, uint8_t* ub) {
  uint8_t row[kMaxLanes * 4], other[kMaxLanes * 4];
  const Instr& instr = work.instr;
  const uint32_t size = SizeOf(instr.dst.type);
  for (uint32_t r = 0; r < work.repeats; ++r) {
    const uint32_t bytes = (r + 1 == work.repeats ? work.last : work.lanes) * size;
    if (instr.op == Op::kDuplicate) {
      for (uint32_t i = 0; i < bytes; i += size) std::memcpy(row + i, &instr.scalar, size);
    } else {
      Gather(work, instr.src[0], r, ub, row);
    }
    if (instr.sources == 2) Gather(work, instr.src[1], r, ub, other);
    for (uint32_t i = 0; i < bytes; ++i) {
      if (instr.op == Op::kAnd) row[i] = row[i] & other[i];
      if (instr.op == Op::kOr) row[i] = row[i] | other[i];
      if (instr.op == Op::kNot) row[i] = static_cast<uint8_t>(~row[i]);
    }
    Scatter(work, r, ub, row);
  }
}

void CopyDma(const Work& work, uint8_t* ub) {
  const Instr& instr = work.instr;
  for (uint32_t b = 0; b < instr.bursts; ++b) {
    uint8_t* local = ub + instr.dst.at.addr + b * instr.ubStride;
    uint8_t* global = work.gm + b * instr.gmStride;
    if (instr.op == Op::kCopyOut) {
      std::memcpy(global, local, instr.length);
      continue;
    }
    const uint32_t used = instr.left + instr.length + instr.right, whole = (used + kBlock - 1) / kBlock * kBlock;
    if (whole > instr.length) std::memset(local, kPoisonByte, whole);
    if (instr.fill && used > instr.length) {
      const uint32_t size = SizeOf(instr.dst.type);
      for (uint32_t i = 0; i < whole; i += size) std::memcpy(local + i, &instr.scalar, size);
    }
    std::memcpy(local + instr.left, global, instr.length);
  }
}

}  // namespace

bool CastExists(Type dst, Type src, RoundMode mode) {
  const bool none = mode == RoundMode::CAST_NONE, odd = mode == RoundMode::CAST_ODD;
  const auto from = [&](std::initializer_list<Type> types) { return std::find(types.begin(), types.end(), src) != types.end(); };
  switch (dst) {
    case Type::kF32:
      if (src == Type::kI32) return !odd;
      return src == Type::kF32 ? !none && !odd : none && from({Type::kF16, Type::kBf16, Type::kI16});
    case Type::kF16:
      if (src == Type::kF32) return true;
      return src == Type::kI16 ? !odd : none && from({Type::kI8, Type::kU8});
    case Type::kBf16: return src == Type::kF32 && !none && !odd;
    case Type::kI32: return from({Type::kF32, Type::kF16, Type::kBf16}) && !none && !odd;
    case Type::kI16: return src == Type::kI32 ? none : from({Type::kF32, Type::kF16}) && !none && !odd;
    case Type::kI8:
    case Type::kU8: return src == Type::kF16 && !odd;
    default: return false;
  }
}

void Execute(const Work& work, uint8_t* ub, const Modes& modes) {
  const Instr& instr = work.instr;
  const bool wide = instr.dst.type == Type::kF32, mixed = wide && instr.src[0].type == Type::kF16;
  switch (instr.op) {
    case Op::kCopyIn:
    case Op::kCopyOut: return CopyDma(work, ub);
    case Op::kPoison: std::memset(ub + instr.dst.at.addr, kPoisonByte, instr.length); return;
    case Op::kScalarWrite: std::memcpy(ub + instr.dst.at.addr, &instr.scalar, instr.length); return;
    case Op::kCopyUb:
      for (uint32_t r = 0; r < work.repeats; ++r) {
        std::memmove(ub + instr.dst.at.addr + static_cast<uint64_t>(r) * instr.dst.repeat * kBlock,
                     ub + instr.src[0].at.addr + static_cast<uint64_t>(r) * instr.src[0].repeat * kBlock, work.lanes);
      }
      return;
    case Op::kAdd:
    case Op::kAdds: return Arithmetic(work, ub, modes, [](auto x, auto y) { return x + y; });
    case Op::kSub: return Arithmetic(work, ub, modes, [](auto x, auto y) { return x - y; });
    case Op::kMul:
    case Op::kMuls: return Arithmetic(work, ub, modes, [](auto x, auto y) { return x * y; });
    case Op::kDiv: return wide ? Map<Lanes<float>>(work, ub, modes, [](float x, float y) { return x / y; })
                               : Map<Lanes<half>>(work, ub, modes, [](float x, float y) { return x / y; });
    case Op::kMax:
    case Op::kMaxs: return Arithmetic(work, ub, modes, [](auto x, auto y) { return x > y ? x : y; });
    case Op::kMin:
    case Op::kMins: return Arithmetic(work, ub, modes, [](auto x, auto y) { return x < y ? x : y; });
    case Op::kRelu: return Arithmetic(work, ub, modes, [](auto x, auto) { return x > 0 ? x : 0; });
    case Op::kAbs: return wide ? Map<Lanes<float>>(work, ub, modes, [](float x, float) { return std::fabs(x); })
                               : Map<Lanes<half>>(work, ub, modes, [](float x, float) { return std::fabs(x); });
    case Op::kMulAddDst:
    case Op::kAxpy: return mixed ? MulAdd<Lanes<float>, Lanes<half>>(work, ub, modes)
                         : wide  ? MulAdd<Lanes<float>, Lanes<float>>(work, ub, modes)
                                 : MulAdd<Lanes<half>, Lanes<half>>(work, ub, modes);
    case Op::kCast: return CastAll(work, ub, modes);
    default: return MoveBits(work, ub);
  }
}

}  // namespace twin

extern "C" {
// For the twin's own tests: the vector path against the portable one.
__attribute__((visibility("default"))) void twin_convert(const void* in, void* out, uint32_t n, int32_t to_half, int32_t portable) {
  for (uint32_t i = 0; i < n; i += portable ? 1 : n) {
    const uint32_t step = portable ? 1 : n;
    if (to_half) twin::Narrow(static_cast<const float*>(in) + i, static_cast<uint16_t*>(out) + i, step);
    else twin::Widen(static_cast<const uint16_t*>(in) + i, static_cast<float*>(out) + i, step);
  }
}
}
