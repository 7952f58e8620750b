// Copyright 2026 The ms_ropegrad Authors
// SPDX-License-Identifier: Apache-2.0
// RoPE and its gradients on packed sequences: one body for three operators and every dtype.
//
//     RopeForward    y1 = x1*c1 - x2*s1 ; y2 = x2*c2 + x1*s2
//     RopeGradExact  y1 = x1*c1 + x2*s2 ; y2 = x2*c2 - x1*s1     its transpose
//     RopeGrad       y1 = x1*(c1 + s2)  ; y2 = x2*(c2 - s1)      the vendor document
//
// 1 and 2 are the halves of a head, and of a row of cos and sin. Products and sums are rounded one by one (no MulAddDst), in
// float16 for RopeGrad with everything float16, else in float32 with one rounding to nearest even at the end.
// Infinities and NaN pass as IEEE says in INF/NAN mode (CTRL[48] = 1). In saturation mode (0) float16 arithmetic and every
// cast to 16 bits give the largest finite value for an overflow or infinity and 0 for NaN.
//
// Tiles come from rope_tiles.h; MTE2 is one tile ahead of V.
#ifndef ROPE_KERNEL_H
#define ROPE_KERNEL_H

#include <type_traits>

#include "kernel_operator.h"
#include "rope_tiles.h"

namespace ms_ropegrad {

using namespace AscendC;

enum class RopeOp { kGrad, kGradExact, kForward };

// The ends of the sequences, through a window of UB.
class SeqEnds {
 public:
  __aicore__ inline void Init(TPipe* pipe, GM_ADDR ends, int64_t batch) {
    gm_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(ends));
    pipe_ = pipe;
    batch_ = batch;
    pipe->InitBuffer(buffer_, kRopeEndsWindow);
    window_ = buffer_.Get<int32_t>();
    arrived_ = static_cast<TEventID>(pipe->AllocEventID<HardEvent::MTE2_S>());
    read_ = static_cast<TEventID>(pipe->AllocEventID<HardEvent::S_MTE2>());
  }

  __aicore__ inline void Release() {
    pipe_->ReleaseEventID<HardEvent::MTE2_S>(arrived_);
    pipe_->ReleaseEventID<HardEvent::S_MTE2>(read_);
  }

  // Issues the first copy of the search: it does not depend on the token.
  __aicore__ inline void Start() { Narrow(0, batch_); }

  // The first sequence whose end is past the token (the number of sequences if none is). Ends in any order are safe.
  __aicore__ inline int64_t Search(int64_t token) {
    int64_t low = 0, high = batch_;
    while (high - low >= kEnds) {
      const int64_t stride = Stride(low, high), samples = (high - low + stride - 1) / stride;
      int64_t first = 0, last = samples;
      while (first < last) {
        const int64_t middle = (first + last) / 2;
        if (Read(middle * kPerBlock) > token) last = middle;
        else first = middle + 1;
      }
      if (first < samples) high = low + first * stride;
      if (first > 0) low += (first - 1) * stride + 1;
      Narrow(low, high);
    }
    return First(low, high, token);
  }

  // The first sequence from `i` on whose end is past the token. Steps double: empty sequences may be many.
  __aicore__ inline int64_t Walk(int64_t i, int64_t token) {
    for (int64_t step = 1; i < batch_ && At(i) <= token; step *= 2) {
      const int64_t far = Least(i + step, end_ - 1);
      if (Read(far - begin_) > token) return First(i + 1, far, token);
      i = far + 1;
    }
    return i;
  }

  __aicore__ inline int64_t At(int64_t i) {
    if (i < begin_ || i >= end_) Refill(i);
    return Read(i - begin_);
  }

 private:
  // By halves of [low, high): the first end past the token, or high.
  __aicore__ inline int64_t First(int64_t low, int64_t high, int64_t token) {
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (At(middle) > token) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  static constexpr int64_t kPerBlock = 8, kEnds = kRopeEndsWindow / 4, kSamples = kRopeEndsWindow / 32;

  __aicore__ inline int64_t Stride(int64_t low, int64_t high) const { return (high - low + kSamples - 1) / kSamples; }

  // What tells more about the answer in [low, high]: one end in `stride`, each in its own block of the window, or all of them.
  __aicore__ inline void Narrow(int64_t low, int64_t high) {
    if (high - low < kEnds) return Refill(low);
    const int64_t stride = Stride(low, high);
    Load(low, (high - low + stride - 1) / stride, 1, stride - 1);
  }

  // With the one before, where a sequence starts.
  __aicore__ inline void Refill(int64_t i) {
    begin_ = i > 0 ? i - 1 : 0;
    end_ = Least(batch_, begin_ + kEnds);
    Load(begin_, 1, end_ - begin_, 0);
  }

  __aicore__ inline void Load(int64_t i, int64_t bursts, int64_t length, int64_t gap) {
    Arrive();
    SetFlag<HardEvent::S_MTE2>(read_);
    WaitFlag<HardEvent::S_MTE2>(read_);
    DataCopyPad(window_, gm_[static_cast<uint64_t>(i)],
                DataCopyExtParams(static_cast<uint16_t>(bursts), static_cast<uint32_t>(length * 4),
                                  static_cast<uint32_t>(gap * 4), 0, 0),
                DataCopyPadExtParams<int32_t>(false, 0, 0, 0));
    SetFlag<HardEvent::MTE2_S>(arrived_);
    arriving_ = true;
  }

  __aicore__ inline void Arrive() {
    if (arriving_) WaitFlag<HardEvent::MTE2_S>(arrived_);
    arriving_ = false;
  }

  __aicore__ inline int64_t Read(int64_t offset) {
    Arrive();
    return window_.GetValue(static_cast<uint32_t>(offset));
  }

  GlobalTensor<int32_t> gm_;
  TPipe* pipe_ = nullptr;
  TBuf<TPosition::VECCALC> buffer_;
  LocalTensor<int32_t> window_;
  TEventID arrived_, read_;
  bool arriving_ = false;
  int64_t batch_ = 0, begin_ = 0, end_ = 0;
};

// X: type of q, k and the outputs. T: type of cos and sin.
template <RopeOp op, typename X, typename T>
class Rope {
 public:
  __aicore__ inline Rope(const RopeTilingData& tiling) : d_(tiling) {}

  __aicore__ inline void Init(TPipe* pipe, GM_ADDR q, GM_ADDR k, GM_ADDR cos, GM_ADDR sin, GM_ADDR ends, GM_ADDR qOut,
                              GM_ADDR kOut) {
    q_.SetGlobalBuffer(reinterpret_cast<__gm__ X*>(q));
    k_.SetGlobalBuffer(reinterpret_cast<__gm__ X*>(k));
    qOut_.SetGlobalBuffer(reinterpret_cast<__gm__ X*>(qOut));
    kOut_.SetGlobalBuffer(reinterpret_cast<__gm__ X*>(kOut));
    cosGm_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(cos));
    sinGm_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(sin));
    ends_.Init(pipe, ends, d_.batch);
    size_ = d_.headSize;
    half_ = size_ / 2;
    const uint32_t tile = d_.tileTokens * d_.tileHeads * size_, table = d_.tableTokens * size_;
    pipe->InitBuffer(in_, kRopeBuffers, tile * static_cast<uint32_t>(sizeof(X)));
    pipe->InitBuffer(out_, kRopeBuffers, tile * static_cast<uint32_t>(sizeof(X)));
    if constexpr (kCastX) {
      pipe->InitBuffer(xBuffer_, tile * static_cast<uint32_t>(sizeof(C)));
      pipe->InitBuffer(yBuffer_, tile * static_cast<uint32_t>(sizeof(C)));
    }
    // Two operands whose addresses differ by 256 B (mod 512) are read in one cycle; at head sizes 128 and 256 everything
    // else is a multiple of 512 B.
    pipe->InitBuffer(stagger_, kRopeStagger);
    pipe->InitBuffer(tables_, kRopeBuffers, 2 * table * static_cast<uint32_t>(sizeof(T)));
    if constexpr (kCastT) pipe->InitBuffer(tableBuffer_, 2 * table * static_cast<uint32_t>(sizeof(C)));
  }

  __aicore__ inline void Process() {
    RopeTiles tiles(d_, GetBlockIdx());
    RopeTile tile, next;
    bool more = tiles.First(next);
    if (more) {
      ends_.Start();
      Load(next);
      seq_ = ends_.Search(next.token);
      start_ = seq_ > 0 ? Clamp(ends_.At(seq_ - 1)) : 0;
      LoadTables(next);
    }
    while (more) {
      tile = next;
      more = tiles.Next(next);
      if (more) Load(next);
      if (more && next.opensTable) LoadTables(next);
      if (tile.opensTable) PrepareTables(tile);
      Compute(tile);
      if (!more || next.opensTable) tables_.FreeTensor(table_);
      Store(tile);
    }
    ends_.Release();
  }

 private:
  static constexpr bool kNative = op == RopeOp::kGrad && std::is_same<X, half>::value && std::is_same<T, half>::value;
  using C = typename std::conditional<kNative, half, float>::type;  // computed in
  static constexpr bool kCastX = !std::is_same<X, C>::value, kCastT = !std::is_same<T, C>::value;
  static constexpr uint32_t kLanes = 256 / sizeof(C), kPerBlock = 32 / sizeof(C), kMaxRepeats = 255;

  // ---- GM to UB and back ------------------------------------------------------------------------------------------

  // q's and k's part of the tile, side by side in UB. No lambda: the device compiler wants an attribute on it that g++
  // does not know.
  template <bool load>
  __aicore__ inline void Copy(const RopeTile& tile, const LocalTensor<X>& ub) {
    const uint32_t end = tile.head + tile.heads, qEnd = Least(end, d_.qHeads);
    const uint32_t qPart = tile.head < qEnd ? qEnd - tile.head : 0, kPart = tile.heads - qPart;
    if (qPart > 0) {
      CopyPart<load>(load ? q_ : qOut_, Offset(tile.token, d_.qHeads, tile.head), ub, Params(tile, qPart, d_.qHeads));
    }
    if (kPart > 0) {
      CopyPart<load>(load ? k_ : kOut_, Offset(tile.token, d_.kHeads, end - kPart - d_.qHeads), ub[qPart * size_],
                     Params(tile, kPart, d_.kHeads));
    }
  }

  template <bool load>
  __aicore__ inline void CopyPart(const GlobalTensor<X>& gm, uint64_t at, const LocalTensor<X>& ub,
                                  const DataCopyParams& in) {
    if constexpr (load) DataCopy(ub, gm[at], in);
    else DataCopy(gm[at], ub, DataCopyParams(in.blockCount, in.blockLen, in.dstStride, in.srcStride));
  }

  __aicore__ inline uint64_t Offset(int64_t token, uint32_t heads, uint32_t head) const {
    return (static_cast<uint64_t>(token) * heads + head) * size_;
  }

  // Gaps of a single row do not count, and do not fit 16 bits when rows are long; tiling keeps several rows whole.
  __aicore__ inline DataCopyParams Params(const RopeTile& tile, uint32_t part, uint32_t heads) const {
    const uint32_t blocks = size_ * static_cast<uint32_t>(sizeof(X)) / 32;
    const bool single = tile.rows == 1;
    return DataCopyParams(static_cast<uint16_t>(tile.rows), static_cast<uint16_t>(part * blocks),
                          static_cast<uint16_t>(single ? 0 : (heads - part) * blocks),
                          static_cast<uint16_t>(single ? 0 : (tile.heads - part) * blocks));
  }

  __aicore__ inline void Load(const RopeTile& tile) {
    LocalTensor<X> x = in_.template AllocTensor<X>();
    Copy<true>(tile, x);
    in_.EnQue(x);
  }

  __aicore__ inline void Store(const RopeTile& tile) {
    LocalTensor<X> y = out_.template DeQue<X>();
    Copy<false>(tile, y);
    out_.FreeTensor(y);
  }

  __aicore__ inline int64_t Clamp(int64_t end) const { return end < 0 ? 0 : Least(end, d_.nTokens); }

  // The rows of cos and sin of the tokens' positions, one copy of each per sequence; which rows there are goes to tile.valid.
  // Positions that an earlier sequence of the run has are not copied from GM again: RepeatRows.
  __aicore__ inline void LoadTables(RopeTile& tile) {
    LocalTensor<T> table = tables_.template AllocTensor<T>();
    tile.valid = tile.segments = tile.fromZero = 0;
    uint32_t known = 0;  // the run has the positions [0, known)
    const int64_t last = tile.token + tile.tableRows;
    for (int64_t token = tile.token; token < last;) {
      const int64_t walked = ends_.Walk(seq_, token);
      if (walked == d_.batch) break;  // no sequence holds the rest
      if (walked > seq_) start_ = Clamp(ends_.At(walked - 1));
      seq_ = walked;
      const int64_t end = Least(Clamp(ends_.At(seq_)), last);
      const int64_t position = token - start_, rows = Least(end - token, d_.maxSeqLen - position);
      if (position >= 0 && rows > 0) {
        const uint32_t row = static_cast<uint32_t>(token - tile.token), all = static_cast<uint32_t>(rows);
        const uint32_t held = position == 0 ? Least(known, all) : 0, count = (all - held) * size_;
        if (count > 0) {
          const uint64_t from = (static_cast<uint64_t>(position) + held) * size_;
          DataCopy(table[(row + held) * size_], cosGm_[from], count);
          DataCopy(table[(d_.tableTokens + row + held) * size_], sinGm_[from], count);
          if (position == 0) known = all;
        }
        tile.valid |= Ones(all) << row;
        tile.segments |= 1ull << row;
        if (position == 0) tile.fromZero |= 1ull << row;
      }
      token = end;
    }
    tables_.EnQue(table);
  }

  // ---- vector work ------------------------------------------------------------------------------------------------

  __aicore__ inline uint64_t Ones(uint32_t n) const { return n >= 64 ? ~0ull : (1ull << n) - 1; }

  // Zeros the rows whose bit is not set.
  template <typename E>
  __aicore__ inline void ZeroInvalid(const LocalTensor<E>& rows, uint64_t valid, uint32_t count, uint32_t rowElements) {
    const uint32_t words = rowElements * static_cast<uint32_t>(sizeof(E)) / 4;
    const LocalTensor<int32_t> bits = rows.template ReinterpretCast<int32_t>();
    for (uint32_t row = 0; row < count;) {
      uint32_t end = row;
      while (end < count && !(valid >> end & 1)) ++end;
      if (end > row) Duplicate(bits[row * words], 0, static_cast<int32_t>((end - row) * words));
      row = end + 1;
    }
  }

  // The rows that LoadTables left out, from the last sequence that had more of them than those before it.
  __aicore__ inline void RepeatRows(const RopeTile& tile) {
    uint32_t from = 0, known = 0;
    for (uint32_t row = 0, end; row < tile.tableRows; row = end) {
      for (end = row + 1; end < tile.tableRows && !(tile.segments >> end & 1);) ++end;
      if (!(tile.fromZero >> row & 1)) continue;
      uint32_t rows = end - row;
      while (!(tile.valid >> (row + rows - 1) & 1)) --rows;  // those past the table
      const uint32_t held = Least(known, rows), count = held * size_, all = d_.tableTokens;
      if (held > 0) {
        DataCopy(table_[row * size_], table_[from * size_], count);
        DataCopy(table_[(all + row) * size_], table_[(all + from) * size_], count);
      }
      if (rows <= known) continue;
      if (held > 0) PipeBarrier<PIPE_V>();  // the next copies read these rows
      from = row;
      known = rows;
    }
  }

  __aicore__ inline void PrepareTables(const RopeTile& tile) {
    table_ = tables_.template DeQue<T>();
    const uint32_t used = tile.tableRows * size_, all = d_.tableTokens * size_;
    if (tile.valid != Ones(tile.tableRows)) {  // never read what was not written
      ZeroInvalid(table_, tile.valid, tile.tableRows, size_);
      ZeroInvalid(table_[all], tile.valid, tile.tableRows, size_);
    }
    if ((tile.fromZero & (tile.fromZero - 1)) != 0) RepeatRows(tile);
    PipeBarrier<PIPE_V>();
    if constexpr (kCastT) {
      cos_ = tableBuffer_.template Get<C>();
      sin_ = cos_[all];
      Cast(cos_, table_, RoundMode::CAST_NONE, used);
      Cast(sin_, table_[all], RoundMode::CAST_NONE, used);
      PipeBarrier<PIPE_V>();
    } else {
      cos_ = table_;
      sin_ = table_[all];
    }
    if constexpr (op == RopeOp::kGrad) {  // cos becomes the coefficient
      AddSwapped<false>(cos_, sin_, tile.tableRows);
      PipeBarrier<PIPE_V>();
    }
  }

  __aicore__ inline void Compute(const RopeTile& tile) {
    LocalTensor<X> in = in_.template DeQue<X>();
    LocalTensor<X> out = out_.template AllocTensor<X>();
    const uint32_t elements = tile.rows * tile.heads * size_;
    LocalTensor<C> x, y;
    if constexpr (kCastX) {
      x = xBuffer_.template Get<C>();
      y = yBuffer_.template Get<C>();
      Cast(x, in, RoundMode::CAST_NONE, elements);
      in_.FreeTensor(in);
      PipeBarrier<PIPE_V>();
    } else {
      x = in;
      y = out;
    }
    const LocalTensor<C> cos = cos_[tile.tableRow * size_], sin = sin_[tile.tableRow * size_];
    MulTable(y, x, cos, tile, 0, 0, size_);
    if constexpr (op != RopeOp::kGrad) {
      PipeBarrier<PIPE_V>();
      if constexpr (op == RopeOp::kForward) {
        MulTable(x, x, sin, tile, 0, half_, half_);
        MulTable(x, x, sin, tile, half_, 0, half_);
      } else {
        MulTable(x, x, sin, tile, 0, 0, size_);
      }
      PipeBarrier<PIPE_V>();
      AddSwapped<op == RopeOp::kForward>(y, x, tile.rows * tile.heads);
    }
    if constexpr (kCastX) {
      PipeBarrier<PIPE_V>();
      Cast(out, y, RoundMode::CAST_RINT, elements);
    } else {
      in_.FreeTensor(in);
    }
    const uint64_t valid = tile.valid >> tile.tableRow & Ones(tile.rows);
    if (valid != Ones(tile.rows)) {  // 0 * inf is not 0
      PipeBarrier<PIPE_V>();
      ZeroInvalid(out, valid, tile.rows, tile.heads * size_);
    }
    out_.EnQue(out);
  }

  // dst = src * table in `length` columns of every head from `at`; the table's columns start at tableAt. A repeat is a head
  // of one token or a token of one head, whichever takes fewer instructions.
  __aicore__ inline void MulTable(const LocalTensor<C>& dst, const LocalTensor<C>& src, const LocalTensor<C>& table,
                                  const RopeTile& tile, uint32_t at, uint32_t tableAt, uint32_t length) {
    const uint32_t headBlocks = size_ / kPerBlock, rowBlocks = tile.heads * headBlocks;
    const bool byHead = tile.rows > tile.heads && rowBlocks <= kMaxRepeats;
    const uint32_t loops = byHead ? tile.heads : tile.rows, repeats = byHead ? tile.rows : tile.heads;
    const uint32_t step = byHead ? size_ : tile.heads * size_, tableStep = byHead ? 0 : size_;
    const uint32_t stride = byHead ? rowBlocks : headBlocks, tableStride = byHead ? headBlocks : 0;
    const BinaryRepeatParams params(1, 1, 1, static_cast<uint8_t>(stride), static_cast<uint8_t>(stride),
                                    static_cast<uint8_t>(tableStride));
    for (uint32_t column = 0; column < length; column += kLanes) {
      const uint64_t mask = Least(kLanes, length - column);
      for (uint32_t loop = 0; loop < loops; ++loop) {
        for (uint32_t done = 0; done < repeats; done += kMaxRepeats) {
          const uint32_t x = loop * step + at + column + done * stride * kPerBlock;
          const uint32_t t = loop * tableStep + tableAt + column + done * tableStride * kPerBlock;
          Mul(dst[x], src[x], table[t], mask, static_cast<uint8_t>(Least(kMaxRepeats, repeats - done)), params);
        }
      }
    }
  }

  // With the halves of x swapped: y1 += x2 and y2 -= x1, or the reverse when `subFirst`.
  template <bool subFirst>
  __aicore__ inline void AddSwapped(const LocalTensor<C>& y, const LocalTensor<C>& x, uint32_t heads) {
    const uint8_t stride = static_cast<uint8_t>(size_ / kPerBlock);
    const BinaryRepeatParams params(1, 1, 1, stride, stride, stride);
    for (uint32_t column = 0; column < half_; column += kLanes) {
      const uint64_t mask = Least(kLanes, half_ - column);
      for (uint32_t done = 0; done < heads; done += kMaxRepeats) {
        const uint8_t repeats = static_cast<uint8_t>(Least(kMaxRepeats, heads - done));
        const uint32_t first = done * size_ + column, second = first + half_;
        if constexpr (subFirst) {
          Sub(y[first], y[first], x[second], mask, repeats, params);
          Add(y[second], y[second], x[first], mask, repeats, params);
        } else {
          Add(y[first], y[first], x[second], mask, repeats, params);
          Sub(y[second], y[second], x[first], mask, repeats, params);
        }
      }
    }
  }

  const RopeTilingData& d_;
  SeqEnds ends_;
  GlobalTensor<X> q_, k_, qOut_, kOut_;
  GlobalTensor<T> cosGm_, sinGm_;
  TQue<TPosition::VECIN, kRopeBuffers> in_, tables_;
  TQue<TPosition::VECOUT, kRopeBuffers> out_;
  TBuf<TPosition::VECCALC> xBuffer_, yBuffer_, tableBuffer_, stagger_;
  LocalTensor<T> table_;
  LocalTensor<C> cos_, sin_;
  uint32_t size_ = 0, half_ = 0;
  int64_t seq_ = 0, start_ = 0;  // the walk: the sequence, and where it starts
};

}  // namespace ms_ropegrad

// The body of an entry function. TPipe stays outside the class: inside, the compiler cannot keep the class in registers.
#define ROPE_KERNEL(op, x, k, cos, sin, ends, xOut, kOut, tilingArgument, X, T)                    \
  KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);                                                  \
  REGISTER_TILING_DEFAULT(RopeTilingData);                                                         \
  GET_TILING_DATA_WITH_STRUCT(RopeTilingData, tilingData, tilingArgument);                         \
  AscendC::TPipe pipe;                                                                             \
  ms_ropegrad::Rope<ms_ropegrad::RopeOp::op, X, T> rope(tilingData);                               \
  rope.Init(&pipe, x, k, cos, sin, ends, xOut, kOut);                                              \
  rope.Process()

#endif
