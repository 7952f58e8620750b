// Copyright 2026 The ms_ropegrad Authors
// SPDX-License-Identifier: Apache-2.0
// TPipe, TQue, TQueBind and TBuf. A queue is an allocator plus flags: EnQue sets a flag DeQue waits for, FreeTensor sets
// one that the next AllocTensor of that buffer waits for. Ids come from eight per event, so a ninth live buffer has none.
#ifndef TWIN_QUEUE_H
#define TWIN_QUEUE_H

#include "tensor.h"

namespace twin {

class Queue {
 public:
  void Init(uint32_t count, uint32_t bytes, Where where);
  UbRef Alloc(Where where);
  void EnQue(UbRef at, AscendC::HardEvent event, Where where);
  UbRef DeQue(AscendC::HardEvent event, Where where);
  void DeQue(UbRef at, Where where);  // depth 0: in place
  void Free(UbRef at, Where where);
  uint32_t BufferBytes() const { return bytes_; }
  int32_t InQueue() const { return used_; }
  bool HasIdle() const;

 protected:
  Queue(AscendC::HardEvent full, AscendC::HardEvent empty, int32_t depth) : full_(full), empty_(empty), depth_(depth) {}
  AscendC::HardEvent full_, empty_;

 private:
  int32_t depth_;
  int16_t first_ = -1, count_ = 0, cursor_ = 0;
  uint32_t bytes_ = 0;
  int32_t used_ = 0, head_ = 0, tail_ = 0;
  int16_t fifo_[64] = {};
};

// A buffer table entry without a queue, for TBuf.
UbRef InitStatic(uint32_t bytes, Where where);
int32_t AllocEvent(AscendC::HardEvent event, Where where);
int32_t FetchEvent(AscendC::HardEvent event, Where where);
void ReleaseEvent(AscendC::HardEvent event, int32_t id, Where where);
void PipeBegin(void* pipe);
void PipeEnd();
void* CurrentPipe();

constexpr AscendC::HardEvent FullEvent(TPosition src, TPosition dst) {
  return src == TPosition::GM ? AscendC::HardEvent::MTE2_V
       : dst == TPosition::GM ? AscendC::HardEvent::V_MTE3 : AscendC::HardEvent::MTE2_MTE3;
}
constexpr AscendC::HardEvent EmptyEvent(TPosition src, TPosition dst) {
  return src == TPosition::GM ? AscendC::HardEvent::V_MTE2
       : dst == TPosition::GM ? AscendC::HardEvent::MTE3_V : AscendC::HardEvent::MTE3_MTE2;
}

}  // namespace twin

namespace AscendC {

template <TPosition src, TPosition dst, int32_t depth, auto mask = 0>
class TQueBind : public twin::Queue {
  static_assert(depth >= 0 && depth <= 64, "queue depth");

 public:
  TQueBind() : twin::Queue(twin::FullEvent(src, dst), twin::EmptyEvent(src, dst), depth) {}
  template <typename T> LocalTensor<T> AllocTensor(Where where = Where::Here()) {
    static_assert(depth != 0, "a queue of depth 0 allocates in place: AllocTensor(tensor)");
    return Tensor<T>(Alloc(where));
  }
  template <typename T> void AllocTensor(LocalTensor<T>& tensor, Where where = Where::Here()) {
    static_assert(depth == 0, "AllocTensor(tensor) is for queues of depth 0");
    tensor = Tensor<T>(Alloc(where));
  }
  template <typename T> bool EnQue(const LocalTensor<T>& tensor, Where where = Where::Here()) {
    Queue::EnQue(tensor.TwinRef(), full_, where);
    return true;
  }
  // Between other pipes than the queue's own: GM to VECIN is MTE2_V, VECOUT to GM is V_MTE3.
  template <TPosition srcUser, TPosition dstUser, typename T>
  bool EnQue(const LocalTensor<T>& tensor, Where where = Where::Here()) {
    static_assert(depth != 0, "user positions need a queue of some depth");
    Queue::EnQue(tensor.TwinRef(), twin::FullEvent(srcUser, dstUser), where);
    return true;
  }
  template <TPosition srcUser, TPosition dstUser, typename T> LocalTensor<T> DeQue(Where where = Where::Here()) {
    return Tensor<T>(Queue::DeQue(twin::FullEvent(srcUser, dstUser), where));
  }
  template <typename T> LocalTensor<T> DeQue(Where where = Where::Here()) {
    static_assert(depth != 0, "a queue of depth 0 works in place: DeQue(tensor)");
    return Tensor<T>(Queue::DeQue(full_, where));
  }
  template <typename T> void DeQue(LocalTensor<T>& tensor, Where where = Where::Here()) {
    static_assert(depth == 0, "DeQue(tensor) is for queues of depth 0");
    Queue::DeQue(tensor.TwinRef(), where);
  }
  template <typename T> void FreeTensor(LocalTensor<T>& tensor, Where where = Where::Here()) { Free(tensor.TwinRef(), where); }
  bool HasTensorInQue() { return InQueue() > 0; }
  bool VacantInQue() { return InQueue() < depth; }
  int32_t GetTensorCountInQue() { return InQueue(); }
  bool HasIdleBuffer() { return HasIdle(); }

 private:
  template <typename T> LocalTensor<T> Tensor(twin::UbRef at) const {
    return LocalTensor<T>(at, BufferBytes() / static_cast<uint32_t>(sizeof(T)));
  }
};

// VECIN is filled from GM, VECOUT drained to it.
template <TPosition pos, int32_t depth, auto mask = 0>
class TQue : public TQueBind<pos == TPosition::VECIN ? TPosition::GM : pos,
                             pos == TPosition::VECIN ? TPosition::VECIN : TPosition::GM, depth, mask> {
  static_assert(pos == TPosition::VECIN || pos == TPosition::VECOUT, "the twin has VECIN and VECOUT queues");
};

template <TPosition pos = TPosition::LCM>
class TBuf {
 public:
  template <typename T> LocalTensor<T> Get() { return GetWithOffset<T>(bytes_ / static_cast<uint32_t>(sizeof(T)), 0); }
  template <typename T> LocalTensor<T> Get(uint32_t len) { return GetWithOffset<T>(len, 0); }
  template <typename T> LocalTensor<T> GetWithOffset(uint32_t size, uint32_t offset) {
    twin::UbRef at = at_;
    at.addr += offset;
    return LocalTensor<T>(at, size);
  }
  void TwinInit(uint32_t len, Where where) {
    bytes_ = (len + 31) / 32 * 32;
    at_ = twin::InitStatic(bytes_, where);
  }

 private:
  twin::UbRef at_;
  uint32_t bytes_ = 0;
};

class TPipe {
 public:
  TPipe() { twin::PipeBegin(this); }
  ~TPipe() { twin::PipeEnd(); }
  TPipe(const TPipe&) = delete;
  template <class Q> bool InitBuffer(Q& queue, uint8_t num, uint32_t len, Where where = Where::Here()) {
    queue.Init(num, len, where);
    return true;
  }
  template <TPosition pos> bool InitBuffer(TBuf<pos>& buffer, uint32_t len, Where where = Where::Here()) {
    buffer.TwinInit(len, where);
    return true;
  }
  template <HardEvent event> TEventID AllocEventID(Where where = Where::Here()) {
    return static_cast<TEventID>(twin::AllocEvent(event, where));
  }
  template <HardEvent event> void ReleaseEventID(TEventID id, Where where = Where::Here()) {
    twin::ReleaseEvent(event, id, where);
  }
  template <HardEvent event> TEventID FetchEventID(Where where = Where::Here()) { return FetchEventID(event, where); }
  TEventID FetchEventID(HardEvent event, Where where = Where::Here()) {
    return static_cast<TEventID>(twin::FetchEvent(event, where));
  }
};

}  // namespace AscendC

inline AscendC::TPipe* GetTPipePtr() { return static_cast<AscendC::TPipe*>(twin::CurrentPipe()); }

#endif
