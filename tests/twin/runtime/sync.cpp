// Copyright 2026 The ms_ropegrad Authors
// SPDX-License-Identifier: Apache-2.0
// Flags, barriers, event ids, buffers and queues.
#include "state.h"

namespace twin {
namespace {

Flag& CheckedFlag(HardEvent event, int32_t id, Where where, const char* what) {
  if (id < 0 || id >= kIds) {
    Stop("event-id", where, std::string(what) + "<" + kEventNames[static_cast<int>(event)] + ">(" + std::to_string(id) + ")",
         "event ids are 0 to 7");
  }
  return core->flags[static_cast<int>(event)][id];
}

}  // namespace

void Set(HardEvent event, int32_t id, Where where, bool queue) {
  Flag& flag = CheckedFlag(event, id, where, "SetFlag");
  const Pipe source = kSource[static_cast<int>(event)], target = kTarget[static_cast<int>(event)];
  FromScalar(source);
  Clock now = core->clock[source];
  now.at[source] = core->seq[source];
  if (flag.set && !run.plain) {
    Stop("double-set", where, "SetFlag of " + FlagName(event, id),
         "while it is still set by SetFlag at " + Place(flag.where) + ": flags hold one bit");
  }
  // A queue takes its ids from AllocEventID in turn and is exempt; the device's own queues rely on that.
  if (run.check && !queue && !flag.queue && flag.waited && target != kS && flag.waitSeq > now.at[target]) {
    Report("double-set", where.line, flag.waitWhere.line, "SetFlag of " + FlagName(event, id) + " at " + Place(where),
           std::string("may run before WaitFlag at ") + Place(flag.waitWhere) + " has taken the last one: " +
               MissingEdge(target, source));
  }
  flag.set = true;
  flag.queue = queue;
  flag.clock = now;
  flag.where = where;
  ++Counters()[kFlags];
  flag.record = static_cast<int32_t>(run.records.size());
  if (Recording()) {
    Record& record = Log(Op::kSetFlag, source, where);
    record.event = static_cast<int8_t>(event);
    record.event_id = static_cast<int8_t>(id);
  }
}

void Wait(HardEvent event, int32_t id, Where where) {
  Flag& flag = CheckedFlag(event, id, where, "WaitFlag");
  if (!flag.set && run.plain) return;
  if (!flag.set) {
    Stop("wait-without-set", where, "WaitFlag of " + FlagName(event, id),
         "no SetFlag before it: " + std::string(kPipeNames[kTarget[static_cast<int>(event)]]) + " waits forever");
  }
  const Pipe target = kTarget[static_cast<int>(event)];
  Begin(target);
  core->clock[target].Join(flag.clock);
  flag.set = false;
  flag.waited = true;
  flag.waitSeq = core->seq[target];
  flag.waitWhere = where;
  if (Recording()) {
    Record& record = Log(Op::kWaitFlag, target, where);
    record.event = static_cast<int8_t>(event);
    record.event_id = static_cast<int8_t>(id);
    record.link = flag.record;
  }
}

void SetFlag(HardEvent event, int32_t id, Where where) { Set(event, id, where, false); }
void WaitFlag(HardEvent event, int32_t id, Where where) { Wait(event, id, where); }

void Barrier(pipe_t which, Where where) {
  ++Counters()[kBarriers];
  Pipe pipe = which == PIPE_V ? kV : which == PIPE_MTE2 ? kMte2 : which == PIPE_MTE3 ? kMte3 : kS;
  if (which == PIPE_ALL) {
    for (int p = 0; p < kPipes; ++p) core->clock[kS].at[p] = core->seq[p];
    for (Clock& clock : core->clock) clock = core->clock[kS];
  } else {
    if (pipe == kS) Stop("limit", where, "PipeBarrier of a pipe a vector core does not have");
    FromScalar(pipe);
    core->clock[pipe].at[pipe] = core->seq[pipe];
  }
  if (Recording()) Log(Op::kBarrier, pipe, where).event_id = static_cast<int8_t>(which == PIPE_ALL);
}

namespace {

int16_t NewBuffer(uint32_t bytes, Where where) {
  if (bytes == 0) Stop("limit", where, "InitBuffer of 0 bytes");
  if (core->buffers.size() >= kMaxBuffers) Stop("limit", where, "more than 64 buffers");
  Buffer buffer;
  buffer.addr = core->top;
  buffer.bytes = bytes;
  buffer.where = where;
  if (static_cast<uint64_t>(core->top) + bytes > run.ubSize) {
    Stop("ub-overflow", where, "InitBuffer reaches UB byte " + std::to_string(static_cast<uint64_t>(core->top) + bytes) +
        " of " + std::to_string(run.ubSize));
  }
  core->top += bytes;
  Counters()[kUbHigh] = core->top;
  core->buffers.push_back(buffer);
  return static_cast<int16_t>(core->buffers.size() - 1);
}

Buffer& Owned(UbRef at, int16_t first, int16_t count, Where where, const char* what) {
  if (at.buffer < first || at.buffer >= first + count) Stop("queue", where, std::string(what) + " of a tensor of another queue");
  Buffer& buffer = core->buffers[static_cast<size_t>(at.buffer)];
  if (!run.plain && (buffer.gen != at.gen || buffer.state == State::kFree)) {
    Stop("use-after-free", where, std::string(what) + " of a tensor already freed");
  }
  return buffer;
}

}  // namespace

int32_t FetchEvent(HardEvent event, Where where) {
  const uint8_t taken = core->occupied[static_cast<int>(event)];
  for (int32_t id = 0; id < kIds; ++id) if (!(taken >> id & 1)) return id;
  Stop("event-ids", where, std::string("no event id of ") + kEventNames[static_cast<int>(event)] + " is left",
      "eight are live (a ninth buffer of that position?)");
}

int32_t AllocEvent(HardEvent event, Where where) {
  const int32_t id = FetchEvent(event, where);
  core->occupied[static_cast<int>(event)] |= static_cast<uint8_t>(1 << id);
  return id;
}

void ReleaseEvent(HardEvent event, int32_t id, Where where) {
  uint8_t& taken = core->occupied[static_cast<int>(event)];
  if (id < 0 || id >= kIds || !(taken >> id & 1)) {
    Stop("event-id", where, "ReleaseEventID of " + FlagName(event, id) + ", which is not allocated");
  }
  taken = static_cast<uint8_t>(taken & ~(1 << id));
}

UbRef InitStatic(uint32_t bytes, Where where) {
  const int16_t index = NewBuffer(bytes, where);
  Buffer& buffer = core->buffers[static_cast<size_t>(index)];
  buffer.state = State::kStatic;
  return {buffer.addr, 0, index};
}

void Queue::Init(uint32_t count, uint32_t bytes, Where where) {
  if (count == 0) Stop("limit", where, "InitBuffer of 0 buffers");
  bytes_ = (bytes + kBlock - 1) / kBlock * kBlock;
  first_ = static_cast<int16_t>(core->buffers.size());
  count_ = static_cast<int16_t>(count);
  cursor_ = 0;
  used_ = head_ = tail_ = 0;
  for (uint32_t i = 0; i < count; ++i) {
    Buffer& buffer = core->buffers[static_cast<size_t>(NewBuffer(bytes_, where))];
    buffer.empty = empty_;
    buffer.depth = depth_;
    if (depth_ == 0) {
      buffer.fullId = AllocEvent(full_, where);
      buffer.emptyId = AllocEvent(empty_, where);
      Set(empty_, buffer.emptyId, where, true);
    }
  }
}

bool Queue::HasIdle() const {
  for (int16_t i = 0; i < count_; ++i) if (core->buffers[static_cast<size_t>(first_ + i)].state == State::kFree) return true;
  return false;
}

UbRef Queue::Alloc(Where where) {
  if (!HasIdle()) {
    Stop("no-free-buffer", where, "AllocTensor with all " + std::to_string(count_) + " buffers taken",
        "the core waits forever (FreeTensor forgotten?)");
  }
  int16_t index;
  do {
    index = static_cast<int16_t>(first_ + cursor_);
    cursor_ = static_cast<int16_t>((cursor_ + 1) % count_);
  } while (core->buffers[static_cast<size_t>(index)].state != State::kFree);
  Buffer& buffer = core->buffers[static_cast<size_t>(index)];
  buffer.state = State::kTaken;
  ++buffer.gen;
  if (buffer.emptyId >= 0) {
    Wait(empty_, buffer.emptyId, where);
    if (depth_ != 0) {
      ReleaseEvent(empty_, buffer.emptyId, where);
      buffer.emptyId = -1;
    }
  }
  // The old contents are gone: poison what the producing pipe is about to fill.
  const Pipe producer = kSource[static_cast<int>(full_)];
  const auto stale = [](UbCell& cell, uint64_t, uint64_t) { cell.contents = UbCell::kStale; };
  if (run.check) core->shadow.Visit(buffer.addr, buffer.addr + buffer.bytes, stale);
  Work work;
  work.instr.op = Op::kPoison;
  work.instr.dst.at.addr = buffer.addr;
  work.instr.length = buffer.bytes;
  FromScalar(producer);
  const Clock start = core->clock[producer];
  core->clock[producer].at[kFill] = ++core->seq[kFill];
  Dispatch(work, kFill, start);
  return {buffer.addr, buffer.gen, index};
}

void Queue::EnQue(UbRef at, HardEvent event, Where where) {
  Buffer& buffer = Owned(at, first_, count_, where, "EnQue");
  if (buffer.state == State::kQueued) Stop("queue", where, "EnQue of a tensor that is in the queue");
  if (depth_ != 0) {
    if (used_ >= depth_) Stop("queue-depth", where, "EnQue into a full queue of depth " + std::to_string(depth_));
    fifo_[tail_] = at.buffer;
    tail_ = (tail_ + 1) % depth_;
    ++used_;
    buffer.fullId = AllocEvent(event, where);
  }
  buffer.full = event;
  buffer.state = State::kQueued;
  Set(event, buffer.fullId, where, true);
}

UbRef Queue::DeQue(HardEvent event, Where where) {
  if (used_ == 0) Stop("empty-queue", where, "DeQue from an empty queue", "the core waits forever");
  const int16_t index = fifo_[head_];
  head_ = (head_ + 1) % depth_;
  --used_;
  Buffer& buffer = core->buffers[static_cast<size_t>(index)];
  if (buffer.full != event) {
    Stop("queue", where, std::string("DeQue waits for ") + kEventNames[static_cast<int>(event)] + ", EnQue set " +
        kEventNames[static_cast<int>(buffer.full)]);
  }
  buffer.state = State::kTaken;
  Wait(event, buffer.fullId, where);
  ReleaseEvent(event, buffer.fullId, where);
  buffer.fullId = -1;
  return {buffer.addr, buffer.gen, index};
}

void Queue::DeQue(UbRef at, Where where) {
  Buffer& buffer = Owned(at, first_, count_, where, "DeQue");
  if (buffer.state != State::kQueued) {
    Stop("empty-queue", where, "DeQue of a tensor that was not enqueued", "the core waits forever");
  }
  buffer.state = State::kTaken;
  Wait(full_, buffer.fullId, where);
}

void Queue::Free(UbRef at, Where where) {
  Buffer& buffer = Owned(at, first_, count_, where, "FreeTensor");
  if (buffer.state == State::kQueued) Stop("queue", where, "FreeTensor of a tensor that is in the queue");
  buffer.state = State::kFree;
  if (depth_ != 0) buffer.emptyId = AllocEvent(empty_, where);
  Set(empty_, buffer.emptyId, where, true);
}

void PipeBegin(void* pipe) {
  if (core->pipe) Stop("limit", Where{}, "a second TPipe", "one TPipe at a time");
  core->pipe = pipe;
  core->top = 0;
  core->buffers.clear();
}

// The destructor of TPipe: takes the flags FreeTensor left, then waits for all pipes. It must not throw.
void PipeEnd() {
  core->pipe = nullptr;
  if (core->dead) return;
  for (Buffer& buffer : core->buffers) {
    if (!run.plain && buffer.empty != HardEvent::MAX && buffer.state != State::kFree) {
      Report("not-freed", buffer.where.line, 0, "a tensor of the queue initialised at " + Place(buffer.where),
          "is never freed (FreeTensor forgotten?)");
    }
    if (buffer.emptyId < 0 || !core->flags[static_cast<int>(buffer.empty)][buffer.emptyId].set) continue;
    Wait(buffer.empty, buffer.emptyId, buffer.where);
    ReleaseEvent(buffer.empty, buffer.emptyId, buffer.where);
    buffer.emptyId = -1;
  }
  Barrier(PIPE_ALL, Where{"TPipe", 0});
  --Counters()[kBarriers];
}

void* CurrentPipe() { return core->pipe; }

}  // namespace twin
