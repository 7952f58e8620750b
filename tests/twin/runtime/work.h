// Copyright 2026 The ms_ropegrad Authors
// SPDX-License-Identifier: Apache-2.0
// An instruction with its mask resolved, and the bytes it touches.
#ifndef TWIN_WORK_H
#define TWIN_WORK_H

#include <algorithm>

#include "twin/core.h"
#include "twin/queue.h"

namespace twin {

constexpr uint32_t kBlock = 32;
constexpr uint8_t kPoisonByte = 0xFF;  // NaN in every float format, -1 in every integer

inline bool IsDma(Op op) { return op <= Op::kCopyOut; }
inline bool IsVector(Op op) { return op > Op::kCopyOut && op <= Op::kCast; }
inline bool ReadsDst(Op op) { return op == Op::kMulAddDst || op == Op::kAxpy; }

struct Work {
  Instr instr;
  // vector: lanes of every repeat but the last, and of the last; or the mask bits of every repeat
  uint32_t repeats = 0, lanes = 0, last = 0;
  bool bits = false;
  // DMA
  uint8_t* gm = nullptr;  // the host address
  bool Lane(uint32_t i) const { return !bits || (instr.mask[i / 64] >> (i % 64) & 1); }
};

// Hands maximal runs [low, high) of an operand's bytes to f, in the order of the repeats.
template <typename F>
void ForEachRun(const Work& work, const Operand& operand, F&& f) {
  uint64_t low = 0, high = 0;
  const auto add = [&](uint64_t from, uint64_t to) {
    if (from == high) { high = to; return; }
    if (high > low) f(low, high);
    low = from;
    high = to;
  };
  const uint32_t size = SizeOf(operand.type), per = kBlock / size;
  const uint32_t repeats = operand.repeat == 0 ? 1 : work.repeats;
  for (uint32_t r = 0; r < repeats; ++r) {
    const uint64_t base = operand.at.addr + static_cast<uint64_t>(r) * operand.repeat * kBlock;
    const uint32_t n = r + 1 == work.repeats ? work.last : work.lanes;
    if (!work.bits && operand.block == 1) {
      add(base, base + static_cast<uint64_t>(n) * size);
    } else if (!work.bits) {
      for (uint32_t i = 0; i < n; i += per) {
        const uint64_t from = base + static_cast<uint64_t>(i / per) * operand.block * kBlock;
        add(from, from + std::min(per, n - i) * size);
      }
    } else {
      for (uint32_t i = 0; i < n; ++i) {
        if (!work.Lane(i)) continue;
        const uint64_t from = base + static_cast<uint64_t>(i / per) * operand.block * kBlock + i % per * size;
        add(from, from + size);
      }
    }
  }
  if (high > low) f(low, high);
}

// One past the last byte a vector operand touches.
inline uint64_t EndOf(const Work& work, const Operand& operand) {
  const uint32_t size = SizeOf(operand.type), per = kBlock / size;
  const auto end = [&](uint32_t repeat, uint32_t n) {
    const uint32_t i = n - 1;
    return operand.at.addr + static_cast<uint64_t>(repeat) * operand.repeat * kBlock +
           static_cast<uint64_t>(i / per) * operand.block * kBlock + (i % per + 1) * size;
  };
  const uint64_t last = end(work.repeats - 1, work.last);
  return work.repeats > 1 ? std::max(last, end(work.repeats - 2, work.lanes)) : last;
}

struct Modes {
  bool saturate = false;  // CTRL[48] = 0
  bool fused = false;     // MulAddDst and Axpy round once
};

// Carries the instruction out on the bytes of UB (and GM).
void Execute(const Work& work, uint8_t* ub, const Modes& modes);
// Whether the device has this Cast.
bool CastExists(Type dst, Type src, AscendC::RoundMode round);

}  // namespace twin

#endif
