// Copyright 2026 The ms_ropegrad Authors
// SPDX-License-Identifier: Apache-2.0
// What faults are called, and the record of a run.
#include "state.h"

namespace twin {

const char* const kOpNames[] = {
    "DataCopy GM->UB", "DataCopy UB->GM", "DataCopy UB->UB", "Copy", "Duplicate", "Add", "Sub", "Mul", "Div", "Max", "Min", "And", "Or",
    "Adds", "Muls", "Maxs", "Mins", "MulAddDst", "Axpy", "Abs", "Relu", "Not", "Cast", "SetFlag", "WaitFlag",
    "PipeBarrier", "GetValue", "SetValue", "AllocTensor"};
const char* const kTypeNames[] = {"f16", "bf16", "f32", "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64"};
const char* const kPipeNames[] = {"S", "V", "MTE2", "MTE3", "AllocTensor"};
const char* const kEventNames[] = {"MTE2_V", "V_MTE2", "MTE3_V", "V_MTE3", "V_V", "MTE3_MTE2", "MTE2_MTE3",
                                       "S_V", "V_S", "S_MTE2", "MTE2_S", "S_MTE3", "MTE3_S"};
static_assert(sizeof(kOpNames) / sizeof(*kOpNames) == kOps, "a name for every op");

std::string Place(const char* file, int line) {
  const std::string path = file ? file : "?";
  const size_t slash = path.rfind('/');
  return (slash == std::string::npos ? path : path.substr(slash + 1)) + ":" + std::to_string(line);
}
std::string Place(Where where) { return Place(where.file, where.line); }

std::string Name(const Record& record) {
  return std::string(kOpNames[record.op]) + " at " + Place(run.files[record.file], record.line) + " (" +
         kPipeNames[record.pipe] + (record.core == core->index ? "" : ", core " + std::to_string(record.core)) + ")";
}

std::string Bytes(const char* space, uint64_t low, uint64_t high) {
  return std::string(space) + " bytes [" + std::to_string(low) + ", " + std::to_string(high) + ")";
}

void Report(const char* detector, int lineA, int lineB, const std::string& first, const std::string& second) {
  if (run.errors.size() >= 50 || !run.seen.insert({detector, lineA, lineB}).second) return;
  run.errors.push_back(std::string(detector) + ": " + first + ", core " + std::to_string(core->index) + "\n  " + second);
}

[[noreturn]] void Stop(const char* detector, Where where, const std::string& what, const std::string& why) {
  Report(detector, where.line, 0, what, (why.empty() ? "at " : why + ", at ") + Place(where));
  core->dead = true;
  throw Fatal();
}

[[noreturn]] void Stop(const char* detector, const Instr& instr, const std::string& what) {
  Stop(detector, instr.where, what, std::string("in ") + kOpNames[static_cast<int>(instr.op)]);
}

std::string MissingEdge(Pipe from, Pipe to) {
  if (from == to) return std::string("PipeBarrier<PIPE_") + kPipeNames[from] + "> between them is missing";
  const std::string flag = std::string("the edge ") + kPipeNames[from] + "->" + kPipeNames[to] + " (" + kPipeNames[from] +
      "_" + kPipeNames[to];
  const bool filled = from == kMte2 || to == kMte3;  // else drained: the way back to the producer
  const char* queue = from == kS || to == kS ? "" : filled ? ", or EnQue and DeQue" : ", or FreeTensor and AllocTensor";
  return flag + queue + ") is missing";
}

std::string FlagName(HardEvent event, int32_t id) {
  return std::string(kEventNames[static_cast<int>(event)]) + " " + std::to_string(id);
}

namespace {

uint8_t FileIndex(const char* file) {
  for (size_t i = 0; i < run.files.size(); ++i) if (run.files[i] == file) return static_cast<uint8_t>(i);
  run.files.push_back(file);
  return static_cast<uint8_t>(run.files.size() - 1);
}

}  // namespace

Record& Log(Op op, Pipe pipe, Where where) {
  Record record{};
  record.op = static_cast<uint8_t>(op);
  record.pipe = pipe;
  record.core = static_cast<uint16_t>(core->index);
  record.seq = core->seq[pipe];
  record.line = where.line;
  record.file = FileIndex(where.file);
  record.arg = record.event = record.event_id = -1;
  record.link = -1;
  run.records.push_back(record);
  return run.records.back();
}

}  // namespace twin
