// Copyright 2026 The ms_ropegrad Authors
// SPDX-License-Identifier: Apache-2.0
// One run of a kernel: cores one after another, limits and hazards checked as instructions are issued, execution at once
// or, with a seed, later and in any order the edges allow.
#include <exception>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "hazard.h"
#include "work.h"

namespace twin {
namespace {

using AscendC::HardEvent;

constexpr const char* kOpNames[] = {
    "DataCopy GM->UB", "DataCopy UB->GM", "DataCopy UB->UB", "Copy", "Duplicate", "Add", "Sub", "Mul", "Div", "Max", "Min", "And", "Or",
    "Adds", "Muls", "Maxs", "Mins", "MulAddDst", "Axpy", "Abs", "Relu", "Not", "Cast", "SetFlag", "WaitFlag",
    "PipeBarrier", "GetValue", "SetValue", "AllocTensor"};
constexpr const char* kTypeNames[] = {"f16", "bf16", "f32", "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64"};
constexpr const char* kPipeNames[] = {"S", "V", "MTE2", "MTE3", "AllocTensor"};
constexpr const char* kEventNames[] = {"MTE2_V", "V_MTE2", "MTE3_V", "V_MTE3", "V_V", "MTE3_MTE2", "MTE2_MTE3",
                                       "S_V", "V_S", "S_MTE2", "MTE2_S", "S_MTE3", "MTE3_S"};
constexpr Pipe kSource[] = {kMte2, kV, kMte3, kV, kV, kMte3, kMte2, kS, kV, kS, kMte2, kS, kMte3};
constexpr Pipe kTarget[] = {kV, kMte2, kV, kMte3, kV, kMte2, kMte3, kV, kS, kMte2, kS, kMte3, kS};
constexpr int kOps = static_cast<int>(Op::kCount), kTypes = 11, kEvents = static_cast<int>(HardEvent::MAX), kIds = 8;
static_assert(sizeof(kOpNames) / sizeof(*kOpNames) == kOps, "a name for every op");
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
  uint8_t op, pipe, type, file, pad[10];
};
static_assert(sizeof(Record) == 80, "twin.py's TRACE_DTYPE");

enum Counter { kDmaIn, kDmaOut, kBytesIn, kBytesOut, kBurstsIn, kBurstsOut, kBarriers, kFlags, kScalarGm, kUbHigh, kCounters };

enum class State : uint8_t { kFree, kTaken, kQueued, kStatic };
struct Buffer {
  uint32_t addr = 0, bytes = 0, gen = 0;
  State state = State::kFree;
  int32_t fullId = -1, emptyId = -1;
  HardEvent empty = HardEvent::MAX;
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
  bool check = false, trace = false, lazy = false;
  int64_t seed = -1;
  Modes modes;
  std::vector<Record> records;
  std::vector<const char*> files;
  std::vector<std::string> errors;
  std::set<std::tuple<std::string, int, int>> seen;
  std::vector<uint64_t> counters, args;
  std::vector<std::unique_ptr<Shadow<GmCell>>> gm;
};

Run run;
std::unique_ptr<Core> core;

uint64_t* Counters() { return run.counters.data() + static_cast<size_t>(core->index) * (kCounters + kOps * kTypes * 2); }

// ---- reports ------------------------------------------------------------------------------------------------------

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

[[noreturn]] void Stop(const char* detector, Where where, const std::string& what, const std::string& second) {
  Report(detector, where.line, 0, what, second);
  core->dead = true;
  throw Fatal();
}

[[noreturn]] void Stop(const char* detector, const Instr& instr, const std::string& what) {
  Stop(detector, instr.where, what, std::string("in ") + kOpNames[static_cast<int>(instr.op)] + " at " + Place(instr.where));
}

// ---- records, clocks ----------------------------------------------------------------------------------------------

uint8_t FileIndex(const char* file) {
  for (size_t i = 0; i < run.files.size(); ++i) if (run.files[i] == file) return static_cast<uint8_t>(i);
  run.files.push_back(file);
  return static_cast<uint8_t>(run.files.size() - 1);
}

bool Recording() { return run.check || run.trace; }

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

// S dispatches in order, so what S has waited for also holds for all it dispatches later. S's own accesses to UB need a flag.
void FromScalar(Pipe pipe) {
  if (pipe == kS) return;
  Clock seen = core->clock[kS];
  seen.at[kS] = 0;
  core->clock[pipe].Join(seen);
}

Clock Begin(Pipe pipe) {
  if (++core->issued > kInstrBudget) Stop("budget", Where{}, "the kernel does not end", "more than 200 million instructions");
  FromScalar(pipe);
  Clock start = core->clock[pipe];
  ++core->seq[pipe];
  if (pipe == kS) core->clock[kS].at[kS] = core->seq[kS];
  return start;
}

// ---- out-of-order execution ---------------------------------------------------------------------------------------

bool Ready(const Pending& item) {
  for (const Pending& other : core->pending) {
    if (&other == &item) break;  // edges only go back in program order
    if (other.seq <= item.start.at[other.pipe]) return false;
  }
  return true;
}

void RunPending(size_t index) {
  Execute(core->pending[index].work, core->ub.data(), run.modes);
  core->pending.erase(core->pending.begin() + static_cast<std::ptrdiff_t>(index));
}

// Executes one instruction that may run now: any, the newest, or of a favoured pipe.
void Step() {
  std::vector<size_t> ready;
  for (size_t i = 0; i < core->pending.size(); ++i) if (Ready(core->pending[i])) ready.push_back(i);
  size_t pick = ready[core->random() % ready.size()];
  if (core->taste == 1) pick = ready.back();
  if (core->taste >= 2) {
    for (const size_t i : ready) if (core->pending[i].pipe == core->taste - 1) { pick = i; break; }
  }
  RunPending(pick);
}

// Executes what must be complete by `clock`.
void Settle(const Clock& clock) {
  for (size_t i = 0; i < core->pending.size();) {
    if (core->pending[i].seq <= clock.at[core->pending[i].pipe]) RunPending(i);
    else ++i;
  }
  for (uint64_t more = core->random() % 4; more > 0 && !core->pending.empty(); --more) Step();
}

void Dispatch(const Work& work, Pipe pipe, const Clock& start) {
  if (!run.lazy) {
    Execute(work, core->ub.data(), run.modes);
    return;
  }
  core->pending.push_back({work, pipe, core->seq[pipe], start});
  while (core->pending.size() > core->window) Step();
}

// ---- hazards ------------------------------------------------------------------------------------------------------

std::string MissingEdge(Pipe from, Pipe to) {
  if (from == to) return std::string("PipeBarrier<PIPE_") + kPipeNames[from] + "> between them is missing";
  return std::string("the edge ") + kPipeNames[from] + "->" + kPipeNames[to] + " (a flag " + kPipeNames[from] + "_" +
         kPipeNames[to] + ", or EnQue and DeQue, FreeTensor and AllocTensor) is missing";
}

// Joins neighbouring cells with the same fault into one report.
class Finding {
 public:
  Finding(bool writes, const char* space) : writes_(writes), space_(space), now_(run.records.back()) {}
  ~Finding() { Flush(); }
  const Record& Now() const { return now_; }
  // other: the record (index + 1) that is not ordered; 0 and a reason for undefined contents
  void Add(uint32_t other, bool wrote, const char* reason, uint64_t from, uint64_t to) {
    if (from != high_ || other != other_ || wrote != wrote_ || reason != reason_) {
      Flush();
      low_ = from;
      other_ = other;
      wrote_ = wrote;
      reason_ = reason;
    }
    high_ = to;
  }

 private:
  void Flush() {
    if (high_ == low_) return;
    const std::string range = Bytes(space_.c_str(), low_, high_);
    if (reason_) {
      Report("uninitialised", now_.line, 0, Name(now_) + " reads " + range, std::string("whose contents are undefined: ") + reason_);
    } else {
      const Record& before = run.records[other_ - 1];
      const bool cores = before.core != now_.core;
      Report(cores ? "gm-race" : "race", now_.line, before.line, Name(now_) + (writes_ ? " writes " : " reads ") + range,
             "which " + Name(before) + (wrote_ ? " writes: " : " reads: ") +
                 (cores ? "nothing orders two cores" : MissingEdge(static_cast<Pipe>(before.pipe), static_cast<Pipe>(now_.pipe))));
    }
    low_ = high_;
  }
  bool writes_, wrote_ = false;
  std::string space_;
  const Record now_;
  uint64_t low_ = 0, high_ = 0;
  uint32_t other_ = 0;
  const char* reason_ = nullptr;
};

// Whether record `name` (index + 1) is complete before something that starts at `start`.
bool Before(uint32_t name, const Clock& start) {
  const Record& record = run.records[name - 1];
  return record.core == core->index && record.seq <= start.at[record.pipe];
}

void ReadUb(uint64_t low, uint64_t high, const Clock& start) {
  const uint32_t name = static_cast<uint32_t>(run.records.size());
  Finding finding(false, "UB");
  core->shadow.Visit(low, high, [&](UbCell& cell, uint64_t from, uint64_t to) {
    constexpr const char* kWhy[] = {"", "never written", "not written since AllocTensor", "DataCopyPad filler"};
    if (cell.contents != UbCell::kWritten) finding.Add(0, false, kWhy[cell.contents], from, to);
    if (cell.writer && !Before(cell.writer, start)) finding.Add(cell.writer, true, nullptr, from, to);
    cell.readers[finding.Now().pipe] = name;
  });
}

void WriteUb(uint64_t low, uint64_t high, const Clock& start, uint32_t contents = UbCell::kWritten) {
  const uint32_t name = static_cast<uint32_t>(run.records.size());
  Finding finding(true, "UB");
  core->shadow.Visit(low, high, [&](UbCell& cell, uint64_t from, uint64_t to) {
    uint32_t other = 0;  // a reader rather than the writer it came after: that is the edge to add
    for (uint32_t& reader : cell.readers) {
      if (reader && reader != name && !Before(reader, start)) other = reader;
      reader = 0;
    }
    if (other) finding.Add(other, false, nullptr, from, to);
    else if (cell.writer && cell.writer != name && !Before(cell.writer, start)) finding.Add(cell.writer, true, nullptr, from, to);
    cell.writer = name;
    cell.contents = contents;
  });
}

void TouchGm(int arg, uint64_t low, uint64_t high, bool writes, const Clock& start) {
  auto& shadow = run.gm[static_cast<size_t>(arg)];
  if (!shadow) {
    shadow = std::make_unique<Shadow<GmCell>>();
    shadow->Reset(run.regions[static_cast<size_t>(arg)].size);
  }
  const uint32_t name = static_cast<uint32_t>(run.records.size());
  Finding finding(writes, ("GM argument " + std::to_string(arg)).c_str());
  const Record& now = finding.Now();
  shadow->Visit(low, high, [&](GmCell& cell, uint64_t from, uint64_t to) {
    const auto clash = [&](uint32_t other, bool wrote) {
      if (other && other != name && !Before(other, start)) finding.Add(other, wrote, nullptr, from, to);
    };
    clash(cell.writer, true);
    if (writes) {
      clash(cell.dma, false);
      clash(cell.scalar, false);
      clash(cell.other, false);
      cell = GmCell();
      cell.writer = name;
      return;
    }
    uint32_t& mine = now.pipe == kS ? cell.scalar : cell.dma;
    if (mine && run.records[mine - 1].core != now.core) cell.other = mine;
    mine = name;
  });
}

// ---- checks of one instruction ------------------------------------------------------------------------------------

uint8_t* GmBytes(const void* address, uint64_t offset, uint64_t bytes, bool writes, Op op, Where where, int* arg, uint64_t* at) {
  const uint64_t value = reinterpret_cast<uint64_t>(address);
  const uint64_t region = value >> kRegionShift, begin = (value & ((1ULL << kRegionShift) - 1)) + offset;
  Instr instr;
  instr.op = op;
  instr.where = where;
  if (region < 1 || region > run.regions.size()) Stop("gm-bounds", instr, "a GM address that is no argument's");
  const Region& found = run.regions[region - 1];
  if (begin > found.size || bytes > found.size - begin) {
    Stop("gm-bounds", instr, std::string(writes ? "writes " : "reads ") +
         Bytes(("GM argument " + std::to_string(region - 1)).c_str(), begin, begin + bytes) + " of " + std::to_string(found.size));
  }
  if (writes && !found.writable) Stop("gm-bounds", instr, "writes GM argument " + std::to_string(region - 1) + ", a read-only array");
  *arg = static_cast<int>(region - 1);
  *at = begin;
  return found.data + begin;
}

void CheckUb(const UbRef& at, uint64_t end, uint32_t alignment, const Instr& instr) {
  if (at.buffer < 0) Stop("ub-bounds", instr, "a LocalTensor that no buffer belongs to");
  const Buffer& buffer = core->buffers[static_cast<size_t>(at.buffer)];
  if (buffer.state == State::kFree || buffer.gen != at.gen) {
    Stop("use-after-free", instr, "uses a tensor after FreeTensor, " + Bytes("UB", at.addr, end));
  }
  if (at.addr < buffer.addr || end > buffer.addr + buffer.bytes) {
    Stop("ub-bounds", instr, "touches " + Bytes("UB", at.addr, end) + " outside its buffer [" + std::to_string(buffer.addr) +
         ", " + std::to_string(buffer.addr + buffer.bytes) + ") of InitBuffer at " + Place(buffer.where));
  }
  if (at.addr % alignment) Stop("alignment", instr, "UB address " + std::to_string(at.addr) + " is not aligned to " + std::to_string(alignment) + " bytes");
}

// Resolves the mask to lanes and repeats.
void Resolve(Work& work) {
  Instr& instr = work.instr;
  if (instr.op == Op::kCopyUb) {
    instr.dst.type = instr.src[0].type = Type::kU8;
    work.repeats = instr.bursts;
    work.lanes = work.last = instr.length;
    return;
  }
  uint32_t widest = SizeOf(instr.dst.type);
  for (int i = 0; i < instr.sources; ++i) widest = std::max(widest, SizeOf(instr.src[i].type));
  const uint32_t full = 256 / widest;
  const auto counted = [&](int64_t count) {
    if (count <= 0) Stop("limit", instr, "a count of " + std::to_string(count) + " elements");
    work.repeats = static_cast<uint32_t>((count + full - 1) / full);
    work.lanes = work.repeats == 1 ? static_cast<uint32_t>(count) : full;
    work.last = static_cast<uint32_t>(count - static_cast<int64_t>(work.repeats - 1) * full);
  };
  Masking masking = instr.masking;
  if (masking == Masking::kCount) {
    counted(instr.count);
    core->maskHigh = core->maskLow = ~0ULL;
    core->counter = false;
    return;
  }
  if (masking == Masking::kRegister) {
    instr.mask[0] = core->maskLow;
    instr.mask[1] = core->maskHigh;
    masking = core->counter ? Masking::kPrefix : Masking::kBits;
  }
  if (core->counter) {
    if (masking == Masking::kBits) Stop("limit", instr, "mask bits in counter mode");
    if (instr.op != Op::kCopy) return counted(static_cast<int64_t>(instr.mask[0]));  // Copy alone still counts per repeat
  }
  if (instr.repeats == 0) Stop("limit", instr, "repeatTime is 0: the instruction does nothing (256 wraps to 0)");
  work.repeats = instr.repeats;
  if (masking == Masking::kPrefix) {
    if (instr.mask[0] < 1 || instr.mask[0] > full) {
      Stop("limit", instr, "mask " + std::to_string(instr.mask[0]) + " is not in [1, " + std::to_string(full) + "]");
    }
    work.lanes = work.last = static_cast<uint32_t>(instr.mask[0]);
    instr.mask[0] = work.lanes >= 64 ? ~0ULL : (1ULL << work.lanes) - 1;
    instr.mask[1] = work.lanes <= 64 ? 0 : work.lanes == 128 ? ~0ULL : (1ULL << (work.lanes - 64)) - 1;
  } else {
    if (full <= 64) {
      if (instr.masking == Masking::kBits && instr.mask[1]) Stop("limit", instr, "mask[1] must be 0 for 32-bit types");
      instr.mask[1] = 0;
    }
    if (!instr.mask[0] && !instr.mask[1]) Stop("limit", instr, "an empty mask");
    uint32_t lanes = 0;
    for (uint32_t i = 0; i < full; ++i) if (instr.mask[i / 64] >> (i % 64) & 1) lanes = i + 1;
    work.lanes = work.last = lanes;
    for (uint32_t i = 0; i < lanes; ++i) work.bits |= !(instr.mask[i / 64] >> (i % 64) & 1);
  }
  core->maskLow = instr.mask[0];
  core->maskHigh = instr.mask[1];
}

// Within a repeat only an exact alias; no repeat may read (or overwrite) what an earlier one of the instruction wrote.
void CheckOverlap(const Work& work, uint64_t dstEnd) {
  const Instr& instr = work.instr;
  const Operand& dst = instr.dst;
  const bool accumulates = instr.op == Op::kAdd || instr.op == Op::kSub || instr.op == Op::kMul || instr.op == Op::kMax || instr.op == Op::kMin;
  for (int s = 0; s < instr.sources; ++s) {
    const Operand& src = instr.src[s];
    const uint64_t srcEnd = EndOf(work, src);
    if (src.at.addr >= dstEnd || dst.at.addr >= srcEnd) continue;
    const bool alias = src.at.addr == dst.at.addr && src.block == dst.block && SizeOf(src.type) == SizeOf(dst.type);
    if (alias && work.repeats == 1) continue;
    // The documented exception: dst and src1 of these, with a repeat stride of 0.
    if (s == 1 && accumulates && dst.type != Type::kI16 && alias && (src.repeat == 0 || dst.repeat == 0)) continue;
    // Which repeat wrote each block; a block of UB is written by at most a few repeats.
    std::map<uint64_t, uint32_t> writtenBy;
    Work one = work;
    const auto range = [&](const Operand& operand, uint32_t r, auto&& f) {
      Operand shifted = operand;
      shifted.at.addr += r * operand.repeat * kBlock;
      one.repeats = 1;
      one.last = r + 1 == work.repeats ? work.last : work.lanes;
      ForEachRun(one, shifted, f);
    };
    for (uint32_t r = 0; r < work.repeats; ++r) {
      const bool same = alias && static_cast<uint64_t>(r) * src.repeat == static_cast<uint64_t>(r) * dst.repeat;
      range(src, r, [&](uint64_t low, uint64_t high) {
        for (uint64_t b = low / kBlock; b <= (high - 1) / kBlock; ++b) {
          if (writtenBy.count(b)) {
            Stop("overlap", instr, "repeat " + std::to_string(r) + " reads what repeat " + std::to_string(writtenBy[b]) + " wrote, " +
                 Bytes("UB", b * kBlock, b * kBlock + kBlock));
          }
        }
      });
      std::vector<uint64_t> blocks;
      range(dst, r, [&](uint64_t low, uint64_t high) {
        for (uint64_t b = low / kBlock; b <= (high - 1) / kBlock; ++b) blocks.push_back(b);
      });
      if (!same) {
        const std::set<uint64_t> mine(blocks.begin(), blocks.end());
        range(src, r, [&](uint64_t low, uint64_t high) {
          for (uint64_t b = low / kBlock; b <= (high - 1) / kBlock; ++b) {
            if (mine.count(b)) Stop("overlap", instr, "source and destination of repeat " + std::to_string(r) + " overlap in part, " +
                                    Bytes("UB", b * kBlock, b * kBlock + kBlock));
          }
        });
      }
      for (const uint64_t b : blocks) writtenBy[b] = r;
    }
  }
}

void IssueVector(Work& work) {
  Instr& instr = work.instr;
  if (instr.op == Op::kCopyUb && (instr.bursts == 0 || instr.length == 0)) return;
  if (instr.op == Op::kCopyUb && instr.bursts > 4095) Stop("limit", instr, "blockCount " + std::to_string(instr.bursts) + " exceeds 4095");
  Resolve(work);
  if (instr.dst.block == 0) Stop("limit", instr, "a destination block stride of 0 is undefined");
  if (instr.op == Op::kCopy && (instr.dst.repeat > 4095 || instr.src[0].repeat > 4095)) Stop("limit", instr, "a repeat stride over 4095");
  if (instr.op == Op::kCast && !CastExists(instr.dst.type, instr.src[0].type, instr.round)) {
    Stop("limit", instr, std::string("no Cast ") + kTypeNames[static_cast<int>(instr.src[0].type)] + " -> " +
         kTypeNames[static_cast<int>(instr.dst.type)] + " with rounding mode " + std::to_string(static_cast<int>(instr.round)));
  }
  const uint64_t dstEnd = EndOf(work, instr.dst);
  CheckUb(instr.dst.at, dstEnd, kBlock, instr);
  for (int i = 0; i < instr.sources; ++i) CheckUb(instr.src[i].at, EndOf(work, instr.src[i]), kBlock, instr);
  CheckOverlap(work, dstEnd);

  uint64_t* vec = Counters() + kCounters + (static_cast<int>(instr.op) * kTypes + static_cast<int>(instr.dst.type)) * 2;
  ++vec[0];
  vec[1] += work.repeats;
  const Clock start = Begin(kV);
  if (Recording()) {
    Record& record = Log(instr.op, kV, instr.where);
    record.type = static_cast<uint8_t>(instr.dst.type);
    record.repeats = work.repeats;
    record.ub_lo = instr.dst.at.addr;
    record.ub_hi = static_cast<uint32_t>(dstEnd);
    for (int i = 0; i < instr.sources; ++i) {
      (i ? record.src1_lo : record.src0_lo) = instr.src[i].at.addr;
      (i ? record.src1_hi : record.src0_hi) = static_cast<uint32_t>(EndOf(work, instr.src[i]));
    }
  }
  if (run.check) {
    for (int i = 0; i < instr.sources; ++i) {
      ForEachRun(work, instr.src[i], [&](uint64_t low, uint64_t high) { ReadUb(low, high, start); });
    }
    if (ReadsDst(instr.op)) ForEachRun(work, instr.dst, [&](uint64_t low, uint64_t high) { ReadUb(low, high, start); });
    ForEachRun(work, instr.dst, [&](uint64_t low, uint64_t high) { WriteUb(low, high, start); });
  }
  Dispatch(work, kV, start);
}

void IssueDma(Work& work) {
  Instr& instr = work.instr;
  const bool in = instr.op == Op::kCopyIn;
  if (instr.bursts > 4095) Stop("limit", instr, "blockCount " + std::to_string(instr.bursts) + " exceeds 4095");
  if (instr.length == 0 || instr.bursts == 0) return;
  const uint32_t size = SizeOf(instr.dst.type);
  if (instr.padded) {
    if (instr.length > 2097151) Stop("limit", instr, "blockLen " + std::to_string(instr.length) + " exceeds 2097151 bytes");
    if (instr.length % size) Stop("limit", instr, "blockLen " + std::to_string(instr.length) + " is not a multiple of the element's " + std::to_string(size) + " bytes");
    if (instr.left > 32 || instr.right > 32) Stop("limit", instr, "padding of more than 32 bytes");
  }
  const uint32_t used = instr.left + instr.length + instr.right, whole = (used + kBlock - 1) / kBlock * kBlock;
  const uint64_t ubEnd = instr.dst.at.addr + (instr.bursts - 1) * instr.ubStride + (in ? whole : instr.length);
  CheckUb(instr.dst.at, ubEnd, kBlock, instr);
  int arg = 0;
  uint64_t at = 0;
  work.gm = GmBytes(instr.gm, 0, (instr.bursts - 1) * instr.gmStride + instr.length, !in, instr.op, instr.where, &arg, &at);
  if (at % size && !instr.padded) Stop("alignment", instr, "GM address " + std::to_string(at) + " is not aligned to the element's " + std::to_string(size) + " bytes");

  const uint64_t bytes = static_cast<uint64_t>(instr.bursts) * instr.length;
  uint64_t* counters = Counters();
  counters[in ? kDmaIn : kDmaOut] += 1;
  counters[in ? kBytesIn : kBytesOut] += bytes;
  counters[in ? kBurstsIn : kBurstsOut] += instr.bursts;
  run.args[static_cast<size_t>(arg) * 4 + (in ? 0 : 1)] += bytes;
  run.args[static_cast<size_t>(arg) * 4 + (in ? 2 : 3)] += 1;
  const Pipe pipe = in ? kMte2 : kMte3;
  const Clock start = Begin(pipe);
  if (Recording()) {
    Record& record = Log(instr.op, pipe, instr.where);
    record.type = static_cast<uint8_t>(instr.dst.type);
    record.bytes = bytes;
    record.bursts = instr.bursts;
    record.arg = static_cast<int16_t>(arg);
    record.gm = at;
    record.ub_lo = instr.dst.at.addr;
    record.ub_hi = static_cast<uint32_t>(ubEnd);
  }
  if (run.check) {
    for (uint32_t b = 0; b < instr.bursts; ++b) {
      const uint64_t local = instr.dst.at.addr + b * instr.ubStride, global = at + b * instr.gmStride;
      TouchGm(arg, global, global + instr.length, !in, start);
      if (!in) {
        ReadUb(local, local + instr.length, start);
        continue;
      }
      const bool all = instr.fill && used > instr.length;
      WriteUb(local, local + whole, start, all ? UbCell::kWritten : UbCell::kFiller);
      if (!all) WriteUb(local + instr.left, local + instr.left + instr.length, start);
    }
  }
  Dispatch(work, pipe, start);
}

// ---- flags --------------------------------------------------------------------------------------------------------

Flag& CheckedFlag(HardEvent event, int32_t id, Where where, const char* what) {
  if (id < 0 || id >= kIds) {
    Stop("event-id", where, std::string(what) + "<" + kEventNames[static_cast<int>(event)] + ">(" + std::to_string(id) + ")",
         "event ids are 0 to 7, at " + Place(where));
  }
  return core->flags[static_cast<int>(event)][id];
}

std::string FlagName(HardEvent event, int32_t id) {
  return std::string(kEventNames[static_cast<int>(event)]) + " " + std::to_string(id);
}

void Set(HardEvent event, int32_t id, Where where, bool queue) {
  Flag& flag = CheckedFlag(event, id, where, "SetFlag");
  const Pipe source = kSource[static_cast<int>(event)], target = kTarget[static_cast<int>(event)];
  FromScalar(source);
  Clock now = core->clock[source];
  now.at[source] = core->seq[source];
  if (flag.set) {
    Stop("double-set", where, "SetFlag of " + FlagName(event, id) + " at " + Place(where),
         "while it is still set by SetFlag at " + Place(flag.where) + ": flags hold one bit");
  }
  // A queue takes its ids from AllocEventID in turn and is exempt; the device's own queues rely on that.
  if (run.check && !queue && !flag.queue && flag.waited && target != kS && flag.waitSeq > now.at[target]) {
    Report("double-set", where.line, flag.waitWhere.line, "SetFlag of " + FlagName(event, id) + " at " + Place(where),
           std::string("may run before WaitFlag at ") + Place(flag.waitWhere) + " has taken the last one: " + MissingEdge(target, source));
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
  if (!flag.set) {
    Stop("wait-without-set", where, "WaitFlag of " + FlagName(event, id) + " at " + Place(where),
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

}  // namespace

// ---- what the headers call ----------------------------------------------------------------------------------------

void Refuse(const char* detector, Where where, const char* what) { Stop(detector, where, what, "at " + Place(where)); }

void Issue(Instr& instr) {
  Work work;
  work.instr = instr;
  if (IsDma(instr.op)) IssueDma(work);
  else IssueVector(work);
}

void AccessUb(UbRef at, void* value, uint32_t size, bool write, Where where) {
  Instr instr;
  instr.op = write ? Op::kScalarWrite : Op::kScalarRead;
  instr.where = where;
  CheckUb(at, at.addr + size, size, instr);
  const Clock start = Begin(kS);
  if (Recording()) {
    Record& record = Log(instr.op, kS, where);
    record.ub_lo = at.addr;
    record.ub_hi = at.addr + size;
  }
  if (run.check) write ? WriteUb(at.addr, at.addr + size, start) : ReadUb(at.addr, at.addr + size, start);
  if (write) {
    Work work;
    work.instr = instr;
    work.instr.dst.at = at;
    work.instr.length = size;
    std::memcpy(&work.instr.scalar, value, size);
    Dispatch(work, kS, start);
    return;
  }
  if (run.lazy) Settle(start);
  std::memcpy(value, core->ub.data() + at.addr, size);
}

void AccessGm(const void* address, void* value, uint32_t size, bool write, Where where) {
  int arg = 0;
  uint64_t at = 0;
  const Op op = write ? Op::kScalarWrite : Op::kScalarRead;
  uint8_t* bytes = GmBytes(address, 0, size, write, op, where, &arg, &at);
  ++Counters()[kScalarGm];
  const Clock start = Begin(kS);
  if (Recording()) {
    Record& record = Log(op, kS, where);
    record.arg = static_cast<int16_t>(arg);
    record.gm = at;
    record.bytes = size;
  }
  if (run.check) TouchGm(arg, at, at + size, write, start);
  if (run.lazy) Settle(start);
  write ? std::memcpy(bytes, value, size) : std::memcpy(value, bytes, size);
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
    if (pipe == kS) Stop("limit", where, "PipeBarrier of a pipe a vector core does not have", "at " + Place(where));
    FromScalar(pipe);
    core->clock[pipe].at[pipe] = core->seq[pipe];
  }
  if (Recording()) Log(Op::kBarrier, pipe, where).event_id = static_cast<int8_t>(which == PIPE_ALL);
}

void SetMask(uint64_t high, uint64_t low) { core->maskHigh = high; core->maskLow = low; }
void SetMaskMode(AscendC::MaskMode mode) { core->counter = mode == AscendC::MaskMode::COUNTER; }
int64_t BlockIdx() { return core->index; }
int64_t BlockNum() { return run.blocks; }
bool TilingKeyIs(uint64_t key) { return key == run.tilingKey; }

void LoadTiling(void* data, uint64_t size, const void* argument, Where where) {
  if (argument != run.tiling) Stop("tiling", where, "GET_TILING_DATA of something else than the tiling argument", "at " + Place(where));
  if (size != run.tilingSize) {
    Stop("tiling", where, "the tiling struct has " + std::to_string(size) + " bytes", "the host gave " + std::to_string(run.tilingSize) + ", at " + Place(where));
  }
  std::memcpy(data, run.tiling, size);
}

// ---- buffers and queues -------------------------------------------------------------------------------------------

namespace {

int16_t NewBuffer(uint32_t bytes, Where where) {
  if (bytes == 0) Stop("limit", where, "InitBuffer of 0 bytes", "at " + Place(where));
  if (core->buffers.size() >= kMaxBuffers) Stop("limit", where, "more than 64 buffers", "at " + Place(where));
  Buffer buffer;
  buffer.addr = core->top;
  buffer.bytes = bytes;
  buffer.where = where;
  if (static_cast<uint64_t>(core->top) + bytes > run.ubSize) {
    Stop("ub-overflow", where, "InitBuffer reaches UB byte " + std::to_string(static_cast<uint64_t>(core->top) + bytes) + " of " + std::to_string(run.ubSize), "at " + Place(where));
  }
  core->top += bytes;
  Counters()[kUbHigh] = core->top;
  core->buffers.push_back(buffer);
  return static_cast<int16_t>(core->buffers.size() - 1);
}

Buffer& Owned(UbRef at, int16_t first, int16_t count, Where where, const char* what) {
  if (at.buffer < first || at.buffer >= first + count) Stop("queue", where, std::string(what) + " of a tensor of another queue", "at " + Place(where));
  Buffer& buffer = core->buffers[static_cast<size_t>(at.buffer)];
  if (buffer.gen != at.gen || buffer.state == State::kFree) Stop("use-after-free", where, std::string(what) + " of a tensor already freed", "at " + Place(where));
  return buffer;
}

}  // namespace

int32_t FetchEvent(HardEvent event, Where where) {
  const uint8_t taken = core->occupied[static_cast<int>(event)];
  for (int32_t id = 0; id < kIds; ++id) if (!(taken >> id & 1)) return id;
  Stop("event-ids", where, std::string("no event id of ") + kEventNames[static_cast<int>(event)] + " is left", "eight are live (a ninth buffer of that position?), at " + Place(where));
}

int32_t AllocEvent(HardEvent event, Where where) {
  const int32_t id = FetchEvent(event, where);
  core->occupied[static_cast<int>(event)] |= static_cast<uint8_t>(1 << id);
  return id;
}

void ReleaseEvent(HardEvent event, int32_t id, Where where) {
  uint8_t& taken = core->occupied[static_cast<int>(event)];
  if (id < 0 || id >= kIds || !(taken >> id & 1)) Stop("event-id", where, "ReleaseEventID of " + FlagName(event, id) + ", which is not allocated", "at " + Place(where));
  taken = static_cast<uint8_t>(taken & ~(1 << id));
}

UbRef InitStatic(uint32_t bytes, Where where) {
  const int16_t index = NewBuffer(bytes, where);
  Buffer& buffer = core->buffers[static_cast<size_t>(index)];
  buffer.state = State::kStatic;
  return {buffer.addr, 0, index};
}

void Queue::Init(uint32_t count, uint32_t bytes, Where where) {
  if (count == 0) Stop("limit", where, "InitBuffer of 0 buffers", "at " + Place(where));
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
  if (!HasIdle()) Stop("no-free-buffer", where, "AllocTensor with all " + std::to_string(count_) + " buffers taken", "the core waits forever (FreeTensor forgotten?), at " + Place(where));
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
  if (run.check) core->shadow.Visit(buffer.addr, buffer.addr + buffer.bytes, [](UbCell& cell, uint64_t, uint64_t) { cell.contents = UbCell::kStale; });
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

void Queue::EnQue(UbRef at, Where where) {
  Buffer& buffer = Owned(at, first_, count_, where, "EnQue");
  if (buffer.state == State::kQueued) Stop("queue", where, "EnQue of a tensor that is in the queue", "at " + Place(where));
  if (depth_ != 0) {
    if (used_ >= depth_) Stop("queue-depth", where, "EnQue into a full queue of depth " + std::to_string(depth_), "at " + Place(where));
    fifo_[tail_] = at.buffer;
    tail_ = (tail_ + 1) % depth_;
    ++used_;
    buffer.fullId = AllocEvent(full_, where);
  }
  buffer.state = State::kQueued;
  Set(full_, buffer.fullId, where, true);
}

UbRef Queue::DeQue(Where where) {
  if (used_ == 0) Stop("empty-queue", where, "DeQue from an empty queue", "the core waits forever, at " + Place(where));
  const int16_t index = fifo_[head_];
  head_ = (head_ + 1) % depth_;
  --used_;
  Buffer& buffer = core->buffers[static_cast<size_t>(index)];
  buffer.state = State::kTaken;
  Wait(full_, buffer.fullId, where);
  ReleaseEvent(full_, buffer.fullId, where);
  buffer.fullId = -1;
  return {buffer.addr, buffer.gen, index};
}

void Queue::DeQue(UbRef at, Where where) {
  Buffer& buffer = Owned(at, first_, count_, where, "DeQue");
  if (buffer.state != State::kQueued) Stop("empty-queue", where, "DeQue of a tensor that was not enqueued", "the core waits forever, at " + Place(where));
  buffer.state = State::kTaken;
  Wait(full_, buffer.fullId, where);
}

void Queue::Free(UbRef at, Where where) {
  Buffer& buffer = Owned(at, first_, count_, where, "FreeTensor");
  if (buffer.state == State::kQueued) Stop("queue", where, "FreeTensor of a tensor that is in the queue", "at " + Place(where));
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
    if (buffer.empty != HardEvent::MAX && buffer.state != State::kFree) {
      Report("not-freed", buffer.where.line, 0, "a tensor of the queue initialised at " + Place(buffer.where), "is never freed (FreeTensor forgotten?)");
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

// ---- a run --------------------------------------------------------------------------------------------------------

namespace {

template <size_t... I>
void Call(void* entry, uint8_t** args, std::index_sequence<I...>) {
  reinterpret_cast<void (*)(decltype(static_cast<void>(I), static_cast<uint8_t*>(nullptr))...)>(entry)(args[I]...);
}

template <size_t N = 1>
void CallWith(void* entry, uint8_t** args, size_t count) {
  if constexpr (N <= 16) {
    if (count == N) Call(entry, args, std::make_index_sequence<N>());
    else CallWith<N + 1>(entry, args, count);
  }
}

void RunCore(int index, void* entry, std::vector<uint8_t*>& args) {
  core = std::make_unique<Core>();
  core->index = index;
  core->ub.assign(run.ubSize + 65536, kPoisonByte);
  if (run.check) core->shadow.Reset(run.ubSize);
  if (run.lazy) {
    core->random.seed(static_cast<uint64_t>(run.seed) * 1000003u + static_cast<uint64_t>(index));
    core->taste = static_cast<int>(core->random() % 6) - 1;  // any order (-1, 0), newest first (1), or one pipe ahead: V, MTE2, MTE3
    core->window = 1 + core->random() % 96;
  }
  try {
    CallWith(entry, args.data(), args.size());
    while (!core->pending.empty()) Step();
    for (int e = 0; e < kEvents; ++e) {
      for (int i = 0; i < kIds; ++i) {
        const Flag& flag = core->flags[e][i];
        if (flag.set) Report("flag-left-set", flag.where.line, 0, "SetFlag of " + FlagName(static_cast<HardEvent>(e), i) + " at " + Place(flag.where), "is never waited for: the next kernel finds it set");
      }
    }
  } catch (const Fatal&) {
  }
}

}  // namespace
}  // namespace twin

using twin::run;

#define TWIN_API extern "C" __attribute__((visibility("default")))

struct TwinRun {
  void* entry;
  int32_t args;
  void** data;
  const uint64_t* sizes;
  const uint8_t* writable;
  const uint8_t* tiling;
  uint64_t tilingSize, tilingKey;
  uint32_t blocks, ubSize;
  int32_t check, trace, saturate, fused;
  int64_t seed;
};

TWIN_API int32_t twin_run(const TwinRun* asked) {
  run = twin::Run();
  std::vector<uint8_t*> args;
  for (int32_t i = 0; i < asked->args; ++i) {
    run.regions.push_back({static_cast<uint8_t*>(asked->data[i]), asked->sizes[i], asked->writable[i] != 0});
    args.push_back(asked->data[i] ? reinterpret_cast<uint8_t*>(static_cast<uint64_t>(i + 1) << twin::kRegionShift) : nullptr);
  }
  run.gm.resize(run.regions.size());
  run.tiling = asked->tiling;
  run.tilingSize = asked->tilingSize;
  run.tilingKey = asked->tilingKey;
  args.push_back(const_cast<uint8_t*>(asked->tiling));
  run.blocks = asked->blocks;
  run.ubSize = asked->ubSize;
  run.seed = asked->seed;
  run.lazy = asked->seed >= 0;
  run.check = asked->check || run.lazy;
  run.trace = asked->trace;
  run.modes = {asked->saturate != 0, asked->fused != 0};
  run.counters.assign(static_cast<size_t>(run.blocks) * (twin::kCounters + twin::kOps * twin::kTypes * 2), 0);
  run.args.assign(run.regions.size() * 4, 0);
  std::vector<int> order(run.blocks);
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
  if (run.lazy) std::shuffle(order.begin(), order.end(), std::mt19937_64(static_cast<uint64_t>(run.seed)));
  for (const int index : order) twin::RunCore(index, asked->entry, args);
  twin::core.reset();
  run.gm.clear();
  return static_cast<int32_t>(run.errors.size());
}
TWIN_API const char* twin_error(int32_t i) { return run.errors[static_cast<size_t>(i)].c_str(); }
TWIN_API const uint64_t* twin_counters() { return run.counters.data(); }
TWIN_API const uint64_t* twin_args() { return run.args.data(); }
TWIN_API const void* twin_records(uint64_t* count) { *count = run.records.size(); return run.records.data(); }
TWIN_API const char* twin_file(int32_t i) { return static_cast<size_t>(i) < run.files.size() ? run.files[static_cast<size_t>(i)] : nullptr; }
TWIN_API const char* twin_name(int32_t table, int32_t i) {
  if (table == 0) return i < twin::kOps ? twin::kOpNames[i] : nullptr;
  if (table == 1) return i < twin::kTypes ? twin::kTypeNames[i] : nullptr;
  if (table == 2) return i < twin::kPipes ? twin::kPipeNames[i] : nullptr;
  return i < twin::kEvents ? twin::kEventNames[i] : nullptr;
}
