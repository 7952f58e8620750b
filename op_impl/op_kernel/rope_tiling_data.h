// Copyright 2026 The ms_ropegrad Authors
// SPDX-License-Identifier: Apache-2.0
// What the host tells the kernel. Plain old data, the same layout on both sides.
#ifndef ROPE_TILING_DATA_H
#define ROPE_TILING_DATA_H

#include <cstdint>

// The heads of a token are counted through q and k: [0, qHeads) are q's, [qHeads, qHeads + kHeads) are k's.
// Units of work, in order: (token, head) when splitHeads, else tokens. Core i takes unitsPerCore of them, the first
// unitsRest cores one more.
struct RopeTilingData {
  int64_t nTokens;
  int64_t maxSeqLen;
  int64_t batch;
  int64_t unitsPerCore;
  int64_t unitsRest;
  uint32_t qHeads;
  uint32_t kHeads;
  uint32_t headSize;
  uint32_t splitHeads;
  uint32_t tileTokens;   // a tile of q and k is tileTokens x tileHeads
  uint32_t tileHeads;
  uint32_t tableTokens;  // rows of cos and sin in UB: a multiple of tileTokens, at most kRopeMaxTableTokens
  uint32_t reserved;
};

constexpr uint32_t kRopeMaxTableTokens = 64;   // one bit each in a 64-bit mask
constexpr uint32_t kRopeEndsWindow = 4096;     // bytes of UB through which seq_ends is searched and walked
constexpr uint32_t kRopeBuffers = 2;           // of every queue
constexpr uint32_t kRopeStagger = 256;         // bytes of UB left free so that tables and data lie in other bank groups

#endif
