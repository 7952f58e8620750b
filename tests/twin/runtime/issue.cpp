// Copyright 2026 The ms_ropegrad Authors
// SPDX-License-Identifier: Apache-2.0
// One instruction: its limits, its bounds, what it counts; then the hazard model, then execution.
#include "state.h"

namespace twin {
namespace {

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
  if (writes && !found.writable) {
    Stop("gm-bounds", instr, "writes GM argument " + std::to_string(region - 1) + ", a read-only array");
  }
  *arg = static_cast<int>(region - 1);
  *at = begin;
  return found.data + begin;
}

void CheckUb(const UbRef& at, uint64_t end, uint32_t alignment, const Instr& instr) {
  if (at.buffer < 0) Stop("ub-bounds", instr, "a LocalTensor that no buffer belongs to");
  const Buffer& buffer = core->buffers[static_cast<size_t>(at.buffer)];
  if (!run.plain && (buffer.state == State::kFree || buffer.gen != at.gen)) {
    Stop("use-after-free", instr, "uses a tensor after FreeTensor, " + Bytes("UB", at.addr, end));
  }
  if (at.addr < buffer.addr || end > buffer.addr + buffer.bytes) {
    Stop("ub-bounds", instr, "touches " + Bytes("UB", at.addr, end) + " outside its buffer [" + std::to_string(buffer.addr) +
         ", " + std::to_string(buffer.addr + buffer.bytes) + ") of InitBuffer at " + Place(buffer.where));
  }
  if (at.addr % alignment) {
    Stop("alignment", instr, "UB address " + std::to_string(at.addr) + " is not aligned to " + std::to_string(alignment) +
        " bytes");
  }
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

// Within a repeat only an exact alias; no repeat may read what an earlier one of the instruction wrote.
void CheckOverlap(const Work& work, uint64_t dstEnd) {
  const Instr& instr = work.instr;
  const Operand& dst = instr.dst;
  const Op op = instr.op;
  const bool accumulates = op == Op::kAdd || op == Op::kSub || op == Op::kMul || op == Op::kMax || op == Op::kMin;
  for (int s = 0; s < instr.sources; ++s) {
    const Operand& src = instr.src[s];
    if (src.at.addr >= dstEnd || dst.at.addr >= EndOf(work, src)) continue;
    const uint32_t size = SizeOf(dst.type), blocks = (work.lanes * size + kBlock - 1) / kBlock;
    const bool alias = src.at.addr == dst.at.addr && src.block == dst.block && SizeOf(src.type) == size;
    const bool apart = src.repeat == dst.repeat && dst.repeat > (blocks - 1) * dst.block;
    if (alias && (work.repeats == 1 || apart)) continue;
    // The documented exception: dst and src1 of these, with a repeat stride of 0.
    if (s == 1 && accumulates && dst.type != Type::kI16 && alias && (src.repeat == 0 || dst.repeat == 0)) continue;

    std::vector<uint32_t> writtenBy((dstEnd - dst.at.addr + kBlock - 1) / kBlock, 0);  // by block: the repeat + 1
    const auto eachBlock = [&](const Operand& operand, uint32_t r, auto&& f) {
      Work one = work;
      one.repeats = 1;
      one.last = r + 1 == work.repeats ? work.last : work.lanes;
      Operand shifted = operand;
      shifted.at.addr += r * operand.repeat * kBlock;
      ForEachRun(one, shifted, [&](uint64_t low, uint64_t high) {
        for (uint64_t at = low / kBlock * kBlock; at < high; at += kBlock) {
          if (at >= dst.at.addr && at < dstEnd) f(at, writtenBy[(at - dst.at.addr) / kBlock]);
        }
      });
    };
    for (uint32_t r = 0; r < work.repeats; ++r) {
      const auto bad = [&](const std::string& what, uint64_t at) {
        Stop("overlap", instr, "repeat " + std::to_string(r) + what + Bytes("UB", at, at + kBlock));
      };
      eachBlock(src, r, [&](uint64_t at, uint32_t writer) {
        if (writer) bad(" reads what repeat " + std::to_string(writer - 1) + " wrote, ", at);
      });
      eachBlock(dst, r, [&](uint64_t, uint32_t& writer) { writer = r + 1; });
      if (alias && src.repeat == dst.repeat) continue;
      eachBlock(src, r, [&](uint64_t at, uint32_t writer) {
        if (writer == r + 1) bad(": source and destination overlap in part, ", at);
      });
    }
  }
}

// Repeats whose two sources read the same bank group: UB has 16 groups, 32 bytes of each in turn.
uint32_t Conflicts(const Work& work) {
  uint32_t found = 0;
  for (uint32_t r = 0; work.instr.sources == 2 && r < work.repeats; ++r) {
    uint32_t groups[2] = {0, 0};
    for (int i = 0; i < 2; ++i) {
      const Operand& source = work.instr.src[i];
      const uint32_t bytes = (r + 1 == work.repeats ? work.last : work.lanes) * SizeOf(source.type);
      for (uint32_t b = 0; b * kBlock < bytes; ++b) {
        groups[i] |= 1u << ((source.at.addr / kBlock + r * source.repeat + b * source.block) % 16);
      }
    }
    found += (groups[0] & groups[1]) != 0;
  }
  return found;
}

void IssueVector(Work& work) {
  Instr& instr = work.instr;
  if (instr.op == Op::kCopyUb && (instr.bursts == 0 || instr.length == 0)) return;
  if (instr.op == Op::kCopyUb && instr.bursts > 4095) {
    Stop("limit", instr, "blockCount " + std::to_string(instr.bursts) + " exceeds 4095");
  }
  Resolve(work);
  if (instr.dst.block == 0) Stop("limit", instr, "a destination block stride of 0 is undefined");
  if (instr.op == Op::kCopy && (instr.dst.repeat > 4095 || instr.src[0].repeat > 4095)) {
    Stop("limit", instr, "a repeat stride over 4095");
  }
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
    record.conflicts = run.trace ? Conflicts(work) : 0;
    record.ub_lo = instr.dst.at.addr;
    record.ub_hi = static_cast<uint32_t>(dstEnd);
    for (int i = 0; i < instr.sources; ++i) {
      (i ? record.src1_lo : record.src0_lo) = instr.src[i].at.addr;
      (i ? record.src1_hi : record.src0_hi) = static_cast<uint32_t>(EndOf(work, instr.src[i]));
    }
  }
  if (run.check) {
    bool inPlace = ReadsDst(instr.op);
    for (int i = 0; i < instr.sources; ++i) {
      inPlace |= instr.src[i].at.addr < dstEnd && instr.dst.at.addr < EndOf(work, instr.src[i]);
    }
    const auto touch = [&](Do what) {
      const auto read = [&](uint64_t low, uint64_t high) { ReadUb(low, high, start, what); };
      for (int i = 0; i < instr.sources; ++i) ForEachRun(work, instr.src[i], read);
      if (ReadsDst(instr.op)) ForEachRun(work, instr.dst, read);
      ForEachRun(work, instr.dst, [&](uint64_t low, uint64_t high) { WriteUb(low, high, start, what); });
    };
    if (inPlace) touch(Do::kCheck);
    touch(inPlace ? Do::kMark : Do::kBoth);
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
    if (instr.length % size) {
      Stop("limit", instr, "blockLen " + std::to_string(instr.length) + " is not a multiple of the element's " +
          std::to_string(size) + " bytes");
    }
    if (instr.left > 32 || instr.right > 32) Stop("limit", instr, "padding of more than 32 bytes");
  }
  const uint32_t used = instr.left + instr.length + instr.right, whole = (used + kBlock - 1) / kBlock * kBlock;
  const uint64_t ubEnd = instr.dst.at.addr + (instr.bursts - 1) * instr.ubStride + (in ? whole : instr.length);
  CheckUb(instr.dst.at, ubEnd, kBlock, instr);
  int arg = 0;
  uint64_t at = 0;
  work.gm = GmBytes(instr.gm, 0, (instr.bursts - 1) * instr.gmStride + instr.length, !in, instr.op, instr.where, &arg, &at);
  if (at % size && !instr.padded) {
    Stop("alignment", instr, "GM address " + std::to_string(at) + " is not aligned to the element's " + std::to_string(size) +
        " bytes");
  }

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
      WriteUb(local, local + whole, start, Do::kBoth, all ? UbCell::kWritten : UbCell::kFiller);
      if (!all) WriteUb(local + instr.left, local + instr.left + instr.length, start);
    }
  }
  Dispatch(work, pipe, start);
}

}  // namespace

void Refuse(const char* detector, Where where, const char* what) { Stop(detector, where, what); }

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

void SetMask(uint64_t high, uint64_t low) { core->maskHigh = high; core->maskLow = low; }
void SetMaskMode(AscendC::MaskMode mode) { core->counter = mode == AscendC::MaskMode::COUNTER; }

}  // namespace twin
