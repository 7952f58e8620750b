// Copyright 2026 The ms_ropegrad Authors
// SPDX-License-Identifier: Apache-2.0
// Happens-before by vector clocks. Every instruction has a pipe and a number on that pipe; clock[p] = n means that
// everything up to number n on pipe p is complete. Shadows remember who last touched each byte.
#ifndef TWIN_HAZARD_H
#define TWIN_HAZARD_H

#include <array>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace twin {

// kFill is a pipe of the twin's own: the poisoning of a buffer at AllocTensor.
enum Pipe : uint8_t { kS, kV, kMte2, kMte3, kFill, kPipes };

struct Clock {
  std::array<uint32_t, kPipes> at{};
  void Join(const Clock& other) {
    for (int p = 0; p < kPipes; ++p) at[p] = at[p] < other.at[p] ? other.at[p] : at[p];
  }
};

// Records are named by index + 1; 0 is nobody.
struct UbCell {
  enum Contents : uint32_t { kWritten, kNever, kStale, kFiller };
  uint32_t writer = 0, readers[4] = {0, 0, 0, 0}, contents = kNever;
  bool operator==(const UbCell& o) const {
    return writer == o.writer && contents == o.contents && readers[0] == o.readers[0] && readers[1] == o.readers[1] &&
           readers[2] == o.readers[2] && readers[3] == o.readers[3];
  }
};

// The last reads by DMA and by S, and one read by another core than theirs.
struct GmCell {
  uint32_t writer = 0, dma = 0, scalar = 0, other = 0;
  bool operator==(const GmCell& o) const {
    return writer == o.writer && dma == o.dma && scalar == o.scalar && other == o.other;
  }
};

// One cell per 32 bytes, split into one per byte while its bytes differ.
template <typename Cell>
class Shadow {
 public:
  void Reset(uint64_t bytes) {
    blocks_.assign((bytes + 31) / 32, Cell());
    split_.clear();
  }
  // f(cell, low, high) for every cell of the bytes [low, high).
  template <typename F>
  void Visit(uint64_t low, uint64_t high, F&& f) {
    while (low < high) {
      const uint64_t block = low / 32, start = block * 32, end = high < start + 32 ? high : start + 32;
      const bool whole = low == start && end == start + 32;
      auto found = split_.empty() ? split_.end() : split_.find(block);
      if (whole && found == split_.end()) {
        f(blocks_[block], low, end);
      } else {
        if (found == split_.end()) {
          found = split_.emplace(block, std::array<Cell, 32>()).first;
          found->second.fill(blocks_[block]);
        }
        auto& cells = found->second;
        for (uint64_t byte = low; byte < end; ++byte) f(cells[byte - start], byte, byte + 1);
        bool same = true;
        for (int i = 1; i < 32 && same; ++i) same = cells[i] == cells[0];
        if (same) {
          blocks_[block] = cells[0];
          split_.erase(found);
        }
      }
      low = end;
    }
  }

 private:
  std::vector<Cell> blocks_;
  std::unordered_map<uint64_t, std::array<Cell, 32>> split_;
};

}  // namespace twin

#endif
