// Copyright 2026 The ms_ropegrad Authors
// SPDX-License-Identifier: Apache-2.0
// The state of a run and what its parts offer each other.
#ifndef TWIN_STATE_H
#define TWIN_STATE_H

#include <memory>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "hazard.h"
#include "work.h"

namespace twin {

using AscendC::HardEvent;

constexpr Pipe kSource[] = {kMte2, kV, kMte3, kV, kV, kMte3, kMte2, kS, kV, kS, kMte2, kS, kMte3};
constexpr Pipe kTarget[] = {kV, kMte2, kV, kMte3, kV, kMte2, kMte3, kV, kS, kMte2, kS, kMte3, kS};
constexpr int kOps = static_cast<int>(Op::kCount), kTypes = 11, kEvents = static_cast<int>(HardEvent::MAX), kIds = 8;
constexpr int kMaxBuffers = 64;
constexpr uint64_t kRegionShift = 44;  // GM argument i lives at (i + 1) << 44: an overrun can never land in another one
constexpr uint64_t kInstrBudget = 200'000'000;

struct Fatal {};  // stops the core

struct Region {
  uint8_t* data;
  uint64_t size;
  bool writable;
};

// One line of the trace; twin.py mirrors it as TRACE_DTYPE.
struct Record {
  uint64_t bytes, gm;
  uint32_t seq, repeats, bursts, ub_lo, ub_hi, src0_lo, src0_hi, src1_lo, src1_hi;
  int32_t line, link;  // link: for WaitFlag the index of its SetFlag
  uint16_t core;
  int16_t arg;
  int8_t event, event_id;
  uint8_t op, pipe, type, file, pad[2];
  uint32_t conflicts, pad2;  // repeats in which two sources lie in one bank group of UB
};
static_assert(sizeof(Record) == 80, "twin.py's TRACE_DTYPE");

enum Counter { kDmaIn, kDmaOut, kBytesIn, kBytesOut, kBurstsIn, kBurstsOut, kBarriers, kFlags, kScalarGm, kUbHigh, kCounters };

enum class State : uint8_t { kFree, kTaken, kQueued, kStatic };
struct Buffer {
  uint32_t addr = 0, bytes = 0, gen = 0;
  State state = State::kFree;
  int32_t fullId = -1, emptyId = -1;
  HardEvent full = HardEvent::MAX, empty = HardEvent::MAX;
  int32_t depth = 0;
  Where where{};
};

struct Flag {
  bool set = false, waited = false, queue = false;
  Clock clock;
  uint32_t waitSeq = 0;
  int32_t record = -1;
  Where where{}, waitWhere{};
};

struct Pending {
  Work work;
  Pipe pipe;
  uint32_t seq;
  Clock start;
};

struct Core {
  int index = 0;
  bool dead = false;
  std::vector<uint8_t> ub;
  std::vector<Buffer> buffers;
  uint32_t top = 0;
  Clock clock[kPipes];
  uint32_t seq[kPipes] = {};
  Flag flags[kEvents][kIds];
  uint8_t occupied[kEvents] = {};
  uint64_t maskHigh = ~0ULL, maskLow = ~0ULL;
  bool counter = false;
  uint64_t issued = 0;
  void* pipe = nullptr;
  Shadow<UbCell> shadow;
  std::vector<Pending> pending;
  size_t window = 0;
  int taste = 0;
  std::mt19937_64 random;
};

struct Run {
  std::vector<Region> regions;
  const uint8_t* tiling = nullptr;
  uint64_t tilingSize = 0, tilingKey = 0;
  uint32_t blocks = 1, ubSize = 0;
  bool check = false, trace = false, lazy = false, plain = false, dry = false;
  int64_t seed = -1;
  Modes modes;
  std::vector<Record> records;
  std::vector<const char*> files;
  std::vector<std::string> errors;
  std::set<std::tuple<std::string, int, int>> seen;
  std::vector<uint64_t> counters, args;
  std::vector<std::unique_ptr<Shadow<GmCell>>> gm;
};

extern Run run;
extern std::unique_ptr<Core> core;

inline uint64_t* Counters() { return run.counters.data() + static_cast<size_t>(core->index) * (kCounters + kOps * kTypes * 2); }

// report.cpp
extern const char* const kOpNames[];
extern const char* const kTypeNames[];
extern const char* const kPipeNames[];
extern const char* const kEventNames[];
std::string Place(const char* file, int line);
std::string Place(Where where);
std::string Name(const Record& record);
std::string Bytes(const char* space, uint64_t low, uint64_t high);
std::string FlagName(HardEvent event, int32_t id);
std::string MissingEdge(Pipe from, Pipe to);
// One fault, once for each detector and pair of lines.
void Report(const char* detector, int lineA, int lineB, const std::string& first, const std::string& second);
// A fault after which the core cannot go on.
[[noreturn]] void Stop(const char* detector, Where where, const std::string& what, const std::string& why = "");
[[noreturn]] void Stop(const char* detector, const Instr& instr, const std::string& what);
inline bool Recording() { return run.check || run.trace; }
Record& Log(Op op, Pipe pipe, Where where);

// hazard.cpp: accesses of the last record, which starts when `start` is complete
enum class Do { kBoth, kCheck, kMark };  // an instruction in place must check all it touches before it leaves a mark
void ReadUb(uint64_t low, uint64_t high, const Clock& start, Do what = Do::kBoth);
void WriteUb(uint64_t low, uint64_t high, const Clock& start, Do what = Do::kBoth, uint32_t contents = UbCell::kWritten);
void TouchGm(int arg, uint64_t low, uint64_t high, bool writes, const Clock& start);

// schedule.cpp
void FromScalar(Pipe pipe);
Clock Begin(Pipe pipe);  // numbers an instruction of the pipe; returns what is complete when it starts
void Dispatch(const Work& work, Pipe pipe, const Clock& start);
void Settle(const Clock& clock);  // executes what must be complete by then
void Finish();                    // executes the rest

// sync.cpp
void Set(HardEvent event, int32_t id, Where where, bool queue);
void Wait(HardEvent event, int32_t id, Where where);

}  // namespace twin

#endif
