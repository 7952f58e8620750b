// Copyright 2026 The ms_ropegrad Authors
// SPDX-License-Identifier: Apache-2.0
// The hazard model: every access against the last ones to the same bytes.
#include "state.h"

namespace twin {
namespace {

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
      Report("uninitialised", now_.line, 0, Name(now_) + " reads " + range, std::string("whose contents are undefined: ") +
          reason_);
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

}  // namespace

void ReadUb(uint64_t low, uint64_t high, const Clock& start, Do what) {
  const uint32_t name = static_cast<uint32_t>(run.records.size());
  Finding finding(false, "UB");
  core->shadow.Visit(low, high, [&](UbCell& cell, uint64_t from, uint64_t to) {
    constexpr const char* kWhy[] = {"", "never written", "not written since AllocTensor", "DataCopyPad filler"};
    if (what != Do::kMark) {
      if (cell.contents != UbCell::kWritten) finding.Add(0, false, kWhy[cell.contents], from, to);
      if (cell.writer && !Before(cell.writer, start)) finding.Add(cell.writer, true, nullptr, from, to);
    }
    if (what != Do::kCheck) cell.readers[finding.Now().pipe] = name;
  });
}

void WriteUb(uint64_t low, uint64_t high, const Clock& start, Do what, uint32_t contents) {
  const uint32_t name = static_cast<uint32_t>(run.records.size());
  Finding finding(true, "UB");
  core->shadow.Visit(low, high, [&](UbCell& cell, uint64_t from, uint64_t to) {
    uint32_t other = 0;  // a reader rather than the writer it came after: that is the edge to add
    for (const uint32_t reader : cell.readers) {
      if (reader && reader != name && !Before(reader, start)) other = reader;
    }
    if (what != Do::kMark) {
      if (other) finding.Add(other, false, nullptr, from, to);
      else if (cell.writer && cell.writer != name && !Before(cell.writer, start)) finding.Add(cell.writer, true, nullptr, from, to);
    }
    if (what != Do::kCheck) {
      cell = UbCell();
      cell.writer = name;
      cell.contents = contents;
    }
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

}  // namespace twin
