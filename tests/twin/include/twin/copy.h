// Copyright 2026 The ms_ropegrad Authors
// SPDX-License-Identifier: Apache-2.0
// DataCopy and DataCopyPad between GM and UB. DataCopy counts in 32 B blocks, DataCopyPad in bytes on the GM side; both
// give gaps (end of a block to the start of the next), which become start-to-start strides here.
#ifndef TWIN_COPY_H
#define TWIN_COPY_H

#include "tensor.h"

namespace twin {

template <typename T>
Instr Dma(Op op, const AscendC::LocalTensor<T>& ub, const AscendC::GlobalTensor<T>& gm, Where where) {
  Instr instr;
  instr.op = op;
  instr.where = where;
  instr.dst = At(ub);
  instr.gm = gm.GetPhyAddr();
  return instr;
}

template <typename T>
void BlockDma(Op op, const AscendC::LocalTensor<T>& ub, const AscendC::GlobalTensor<T>& gm,
              const AscendC::DataCopyParams& params, Where where) {
  Instr instr = Dma(op, ub, gm, where);
  const uint32_t gmGap = op == Op::kCopyIn ? params.srcGap : params.dstGap;
  const uint32_t ubGap = op == Op::kCopyIn ? params.dstGap : params.srcGap;
  instr.bursts = params.blockCount;
  instr.length = params.blockLen * 32u;
  instr.gmStride = (params.blockLen + gmGap) * 32ull;
  instr.ubStride = (params.blockLen + ubGap) * 32ull;
  Issue(instr);
}

template <typename T>
void CountDma(Op op, const AscendC::LocalTensor<T>& ub, const AscendC::GlobalTensor<T>& gm, uint32_t count, Where where) {
  Instr instr = Dma(op, ub, gm, where);
  const uint64_t bytes = static_cast<uint64_t>(count) * sizeof(T);
  if (bytes % 32 != 0) Refuse("limit", where, "the count form of DataCopy copies whole 32 B blocks: the rest would be lost");
  if (bytes / 32 > 65535) Refuse("limit", where, "the count form of DataCopy copies at most 65535 blocks of 32 B");
  instr.bursts = 1;
  instr.length = static_cast<uint32_t>(bytes);
  Issue(instr);
}

template <typename T>
void PadDma(Op op, const AscendC::LocalTensor<T>& ub, const AscendC::GlobalTensor<T>& gm, uint32_t count, uint32_t length,
            uint64_t gmGap, uint64_t ubGap, Where where, bool fill = false, uint32_t left = 0, uint32_t right = 0,
            uint64_t value = 0) {
  Instr instr = Dma(op, ub, gm, where);
  instr.padded = true;
  instr.bursts = count;
  instr.length = length;
  instr.left = left * static_cast<uint32_t>(sizeof(T));
  instr.right = right * static_cast<uint32_t>(sizeof(T));
  instr.gmStride = length + gmGap;
  instr.ubStride = (instr.left + length + instr.right + 31ull) / 32 * 32 + ubGap * 32;
  instr.fill = fill;
  instr.scalar = value;
  Issue(instr);
}

}  // namespace twin

namespace AscendC {

template <typename T>
void DataCopy(const LocalTensor<T>& dst, const GlobalTensor<T>& src, const DataCopyParams& params, Where where = Where::Here()) {
  twin::BlockDma(twin::Op::kCopyIn, dst, src, params, where);
}
template <typename T>
void DataCopy(const GlobalTensor<T>& dst, const LocalTensor<T>& src, const DataCopyParams& params, Where where = Where::Here()) {
  twin::BlockDma(twin::Op::kCopyOut, src, dst, params, where);
}
template <typename T>
void DataCopy(const LocalTensor<T>& dst, const GlobalTensor<T>& src, const uint32_t count, Where where = Where::Here()) {
  twin::CountDma(twin::Op::kCopyIn, dst, src, count, where);
}
template <typename T>
void DataCopy(const GlobalTensor<T>& dst, const LocalTensor<T>& src, const uint32_t count, Where where = Where::Here()) {
  twin::CountDma(twin::Op::kCopyOut, src, dst, count, where);
}

// UB to UB: a vector instruction.
template <typename T>
void DataCopy(const LocalTensor<T>& dst, const LocalTensor<T>& src, const DataCopyParams& params, Where where = Where::Here()) {
  twin::Instr instr;
  instr.op = twin::Op::kCopyUb;
  instr.where = where;
  instr.dst = twin::At(dst, 1, params.blockLen + params.dstGap);
  instr.src[0] = twin::At(src, 1, params.blockLen + params.srcGap);
  instr.sources = 1;
  instr.bursts = params.blockCount;
  instr.length = params.blockLen * 32u;
  twin::Issue(instr);
}
template <typename T>
void DataCopy(const LocalTensor<T>& dst, const LocalTensor<T>& src, const uint32_t count, Where where = Where::Here()) {
  const uint64_t bytes = static_cast<uint64_t>(count) * sizeof(T);
  if (bytes % 32 != 0 || bytes / 32 > 65535) {
    twin::Refuse("limit", where, "the count form of DataCopy copies up to 65535 whole 32 B blocks");
  }
  DataCopy(dst, src, DataCopyParams(1, static_cast<uint16_t>(bytes / 32), 0, 0), where);
}

template <typename T>
void DataCopyPad(const LocalTensor<T>& dst, const GlobalTensor<T>& src, const DataCopyExtParams& params,
                 const DataCopyPadExtParams<T>& pad, Where where = Where::Here()) {
  uint64_t value = 0;
  std::memcpy(&value, &pad.paddingValue, sizeof(T));
  twin::PadDma(twin::Op::kCopyIn, dst, src, params.blockCount, params.blockLen, params.srcStride, params.dstStride, where,
               pad.isPad, pad.leftPadding, pad.rightPadding, value);
}
template <typename T>
void DataCopyPad(const GlobalTensor<T>& dst, const LocalTensor<T>& src, const DataCopyExtParams& params,
                 Where where = Where::Here()) {
  twin::PadDma(twin::Op::kCopyOut, src, dst, params.blockCount, params.blockLen, params.dstStride, params.srcStride, where);
}
// The older structs: the same with 16-bit fields.
template <typename T>
void DataCopyPad(const LocalTensor<T>& dst, const GlobalTensor<T>& src, const DataCopyParams& params,
                 const DataCopyPadParams& pad, Where where = Where::Here()) {
  twin::PadDma(twin::Op::kCopyIn, dst, src, params.blockCount, params.blockLen, params.srcGap, params.dstGap, where,
               pad.isPad, pad.leftPadding, pad.rightPadding, pad.paddingValue);
}
template <typename T>
void DataCopyPad(const GlobalTensor<T>& dst, const LocalTensor<T>& src, const DataCopyParams& params,
                 Where where = Where::Here()) {
  twin::PadDma(twin::Op::kCopyOut, src, dst, params.blockCount, params.blockLen, params.dstGap, params.srcGap, where);
}

}  // namespace AscendC

#endif
