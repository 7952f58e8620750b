// Copyright 2026 The ms_ropegrad Authors
// SPDX-License-Identifier: Apache-2.0
// Which tiles of (token, head) a core computes, in which order. Plain C++, so that tests walk it without a device.
//
// A core's units are up to three rectangles: the rest of a token, whole tokens, the start of a token. A rectangle is walked in
// runs of tableTokens tokens that share the rows of cos and sin in UB, a run in tiles of tileTokens x tileHeads.
#ifndef ROPE_TILES_H
#define ROPE_TILES_H

#include "rope_tiling_data.h"

#ifndef __aicore__
#define __aicore__
#endif

namespace ms_ropegrad {

template <typename T>
__aicore__ inline T Least(T a, T b) {
  return a < b ? a : b;
}

struct RopeTile {
  int64_t token;        // the first
  uint32_t rows;        // tokens
  uint32_t head;        // the first, counted through q and k
  uint32_t heads;
  uint32_t tableRow;    // of the first token, in the run's tables
  uint32_t tableRows;   // tokens of the run
  bool opensTable;      // the run's first tile
  // The kernel's to fill in. Bit r, for row r of the run's tables: it is a position of a sequence; a sequence begins or goes on there;
  // that is its position 0.
  uint64_t valid, segments, fromZero;
};

class RopeTiles {
 public:
  __aicore__ inline RopeTiles(const RopeTilingData& tiling, int64_t core)
      : d_(tiling),
        heads_(static_cast<int64_t>(tiling.qHeads) + tiling.kHeads),
        unit_(core * tiling.unitsPerCore + Least(core, tiling.unitsRest)),
        unitEnd_(unit_ + tiling.unitsPerCore + (core < tiling.unitsRest ? 1 : 0)) {}

  // False when the core has no work (left).
  __aicore__ inline bool First(RopeTile& tile) {
    if (unit_ >= unitEnd_) return false;
    const int64_t perToken = d_.splitHeads ? heads_ : 1, head = unit_ % perToken, left = unitEnd_ - unit_;
    tile.token = unit_ / perToken;
    if (head == 0 && left >= perToken) {
      tokenEnd_ = tile.token + left / perToken;
      headBegin_ = 0;
      headEnd_ = static_cast<uint32_t>(heads_);
      unit_ += left / perToken * perToken;
    } else {
      const int64_t taken = Least(left, perToken - head);
      tokenEnd_ = tile.token + 1;
      headBegin_ = static_cast<uint32_t>(head);
      headEnd_ = static_cast<uint32_t>(head + taken);
      unit_ += taken;
    }
    OpenTable(tile);
    return true;
  }

  __aicore__ inline bool Next(RopeTile& tile) {
    tile.opensTable = false;
    tile.head += tile.heads;
    if (tile.head < headEnd_) {
      tile.heads = Least(d_.tileHeads, headEnd_ - tile.head);
      return true;
    }
    tile.token += tile.rows;
    tile.tableRow += tile.rows;
    if (tile.tableRow < tile.tableRows) {
      OpenRows(tile);
      return true;
    }
    if (tile.token >= tokenEnd_) return First(tile);
    OpenTable(tile);
    return true;
  }

 private:
  __aicore__ inline void OpenTable(RopeTile& tile) {
    tile.opensTable = true;
    tile.tableRow = 0;
    tile.tableRows = static_cast<uint32_t>(Least<int64_t>(d_.tableTokens, tokenEnd_ - tile.token));
    OpenRows(tile);
  }

  __aicore__ inline void OpenRows(RopeTile& tile) {
    tile.rows = Least(d_.tileTokens, tile.tableRows - tile.tableRow);
    tile.head = headBegin_;
    tile.heads = Least(d_.tileHeads, headEnd_ - headBegin_);
  }

  const RopeTilingData& d_;
  int64_t heads_, unit_, unitEnd_;  // units not yet in a rectangle
  int64_t tokenEnd_ = 0;            // of the rectangle
  uint32_t headBegin_ = 0, headEnd_ = 0;
};

}  // namespace ms_ropegrad

#endif
