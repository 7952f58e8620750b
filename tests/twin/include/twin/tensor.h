// Copyright 2026 The ms_ropegrad Authors
// SPDX-License-Identifier: Apache-2.0
#ifndef TWIN_TENSOR_H
#define TWIN_TENSOR_H

#include "core.h"

namespace AscendC {

template <typename T>
class LocalTensor {
 public:
  using PrimType = T;
  LocalTensor() = default;
  LocalTensor(twin::UbRef at, uint32_t size) : at_(at), size_(size) {}

  T GetValue(uint32_t offset, Where where = Where::Here()) const {
    T value;
    twin::AccessUb((*this)[offset].at_, &value, sizeof(T), false, where);
    return value;
  }
  template <typename S> void SetValue(uint32_t offset, const S value, Where where = Where::Here()) const {
    T stored = static_cast<T>(value);
    twin::AccessUb((*this)[offset].at_, &stored, sizeof(T), true, where);
  }
  LocalTensor operator[](uint32_t offset) const {
    LocalTensor moved = *this;
    moved.at_.addr += offset * static_cast<uint32_t>(sizeof(T));
    moved.size_ = offset < size_ ? size_ - offset : 0;
    return moved;
  }
  template <typename U> LocalTensor<U> ReinterpretCast() const {
    return LocalTensor<U>(at_, static_cast<uint32_t>(size_ * sizeof(T) / sizeof(U)));
  }
  uint32_t GetSize() const { return size_; }
  void SetSize(uint32_t size) { size_ = size; }
  uint64_t GetPhyAddr(uint32_t offset = 0) const { return at_.addr + offset * sizeof(T); }
  const twin::UbRef& TwinRef() const { return at_; }

 private:
  twin::UbRef at_;
  uint32_t size_ = 0;
};

template <typename T>
class GlobalTensor {
 public:
  using PrimType = T;
  void SetGlobalBuffer(__gm__ T* buffer, uint64_t size) { address_ = buffer; size_ = size; }
  void SetGlobalBuffer(__gm__ T* buffer) { SetGlobalBuffer(buffer, 0); }
  const __gm__ T* GetPhyAddr() const { return address_; }
  __gm__ T* GetPhyAddr(uint64_t offset) const { return address_ + offset; }
  T GetValue(uint64_t offset, Where where = Where::Here()) const {
    T value;
    twin::AccessGm(address_ + offset, &value, sizeof(T), false, where);
    return value;
  }
  void SetValue(uint64_t offset, T value, Where where = Where::Here()) const {
    twin::AccessGm(address_ + offset, &value, sizeof(T), true, where);
  }
  GlobalTensor operator[](uint64_t offset) const {
    GlobalTensor moved = *this;
    moved.address_ = address_ + offset;
    moved.size_ = offset < size_ ? size_ - offset : 0;
    return moved;
  }
  uint64_t GetSize() const { return size_; }
  template <CacheRwMode mode = CacheRwMode::RW> void SetL2CacheHint(CacheMode) {}

 private:
  __gm__ T* address_ = nullptr;
  uint64_t size_ = 0;
};

}  // namespace AscendC

namespace twin {

template <typename T>
Operand At(const AscendC::LocalTensor<T>& tensor, uint32_t block = 1, uint32_t repeat = 8) {
  return Operand{tensor.TwinRef(), TypeOf<T>(), block, repeat};
}

}  // namespace twin

#endif
