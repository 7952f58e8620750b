// Copyright 2026 The ms_ropegrad Authors
// SPDX-License-Identifier: Apache-2.0
// How the work is split over cores and what fits into UB: plain C++11 arithmetic, no CANN types.
#ifndef ROPE_TILING_H
#define ROPE_TILING_H

#include <algorithm>

#include "../op_kernel/rope_tiling_data.h"

namespace ms_ropegrad {

struct RopeProblem {
  int64_t nTokens, qHidden, kHidden, maxSeqLen, headSize, batch;
  uint32_t xBytes, tableBytes;  // of an element: 2 or 4
  bool native16;                // RopeGrad with everything float16: float16 arithmetic, no float32 scratch
  uint32_t cores;
  uint64_t ubBytes;
};

struct RopeTiling {
  RopeTilingData data;
  uint32_t blockDim;
};

constexpr uint64_t kUbReserve = 8 * 1024;      // the compiler's
constexpr int64_t kBytesPerCore = 8 * 1024;    // of q and k: below this another core costs more than it saves
constexpr int64_t kTokensPerCore = 20;         // with fewer, whole tokens would be uneven by more than 5 %
constexpr uint64_t kTableTokens = 8;           // rows of cos and sin worth a DMA
constexpr uint64_t kRunTokens = 32;            // rows of cos and sin that let short sequences share them
constexpr uint64_t kTileBytes = 8 * 1024;      // a tile of q and k worth its overhead
constexpr uint64_t kTilesPerCore = 8;          // enough for the copies to overlap

// Bytes of UB for one element of a q and k tile: queues in and out; x and y in float32 when 16-bit data is computed there.
inline uint64_t UbPerElement(const RopeProblem& p) {
  return 2ull * kRopeBuffers * p.xBytes + (p.xBytes == 2 && !p.native16 ? 8 : 0);
}

// Bytes of UB for one row of cos and sin: the queue, and both in float32 when they come in 16 bits.
inline uint64_t UbPerTableRow(const RopeProblem& p) {
  return static_cast<uint64_t>(p.headSize) * (2ull * kRopeBuffers * p.tableBytes + (p.tableBytes == 2 && !p.native16 ? 8 : 0));
}

constexpr uint64_t kUbFixed = kRopeEndsWindow + kRopeStagger;

inline uint64_t UbBytes(const RopeProblem& p, const RopeTilingData& d) {
  return kUbFixed + UbPerElement(p) * d.tileTokens * d.tileHeads * d.headSize + UbPerTableRow(p) * d.tableTokens;
}

// The problem has passed rope_shape.h. Returns nullptr, or why it cannot be tiled.
inline const char* ComputeTiling(const RopeProblem& p, RopeTiling* out) {
  const int64_t heads = p.headSize > 0 ? p.qHidden / p.headSize + p.kHidden / p.headSize : 0;
  if (p.cores == 0) return "no vector core";
  if (heads < 2 || heads > INT32_MAX) return "the heads of q and k together are not in [2, 2^31)";
  if (p.nTokens < 0 || p.nTokens > INT64_MAX / heads / p.headSize / 8) return "n_tokens is out of range";

  RopeTilingData& d = out->data;
  d = RopeTilingData();
  d.nTokens = p.nTokens;
  d.maxSeqLen = p.maxSeqLen;
  d.batch = p.batch;
  d.headSize = static_cast<uint32_t>(p.headSize);
  d.qHeads = static_cast<uint32_t>(p.qHidden / p.headSize);
  d.kHeads = static_cast<uint32_t>(p.kHidden / p.headSize);

  // Cores: even shares of tokens, or of (token, head) when tokens alone would be uneven.
  const int64_t tokenBytes = heads * p.headSize * p.xBytes;
  int64_t cores = std::max<int64_t>(1, std::min<int64_t>(p.cores, p.nTokens * tokenBytes / kBytesPerCore));
  d.splitHeads = cores > 1 && p.nTokens % cores != 0 && p.nTokens < kTokensPerCore * cores ? 1 : 0;
  const int64_t units = d.splitHeads ? p.nTokens * heads : p.nTokens;
  cores = std::max<int64_t>(1, std::min(cores, units));
  d.unitsPerCore = units / cores;
  d.unitsRest = units % cores;
  out->blockDim = static_cast<uint32_t>(cores);

  // Tiles: whole tokens while they fit, else parts of one token's heads, small enough that runs of tables are long.
  const uint64_t headBytes = UbPerElement(p) * d.headSize, rowBytes = UbPerTableRow(p);
  uint64_t tableTokens = kTableTokens;
  if (p.ubBytes < kUbReserve + kUbFixed + rowBytes + headBytes) return "UB cannot hold one head";
  const uint64_t ub = p.ubBytes - kUbReserve - kUbFixed;
  if (ub < tableTokens * rowBytes + headBytes) tableTokens = 1;
  const uint64_t allHeads = static_cast<uint64_t>(heads), fits = (ub - tableTokens * rowBytes) / headBytes;
  uint64_t tileHeads = allHeads, tileTokens = 1;
  if (fits < allHeads) {
    const uint64_t parts = (allHeads + fits - 1) / fits;
    tileHeads = (allHeads + parts - 1) / parts;
  } else {
    tileTokens = std::min<uint64_t>(fits / allHeads, tableTokens);
    if (tileTokens == tableTokens) tileTokens = ub / (allHeads * headBytes + rowBytes);
    const uint64_t tokensPerCore = (static_cast<uint64_t>(p.nTokens) + out->blockDim - 1) / out->blockDim;
    const uint64_t enough = std::max((tokensPerCore + kTilesPerCore - 1) / kTilesPerCore,
                                     (kTileBytes + static_cast<uint64_t>(tokenBytes) - 1) / static_cast<uint64_t>(tokenBytes));
    tileTokens = std::max<uint64_t>(1, std::min<uint64_t>({tileTokens, enough, kRopeMaxTableTokens}));
  }
  while (tileTokens == 1 && tileHeads * d.headSize * p.xBytes >= 2 * kTileBytes &&
         (ub - tileHeads * headBytes) / rowBytes < kRunTokens) {
    tileHeads = (tileHeads + 1) / 2;
  }
  tableTokens = std::min<uint64_t>((ub - tileTokens * tileHeads * headBytes) / rowBytes, kRopeMaxTableTokens);
  d.tileTokens = static_cast<uint32_t>(tileTokens);
  d.tileHeads = static_cast<uint32_t>(tileHeads);
  d.tableTokens = static_cast<uint32_t>(tableTokens / tileTokens * tileTokens);
  return nullptr;
}

}  // namespace ms_ropegrad

#endif
