// Copyright 2026 The ms_ropegrad Authors
// SPDX-License-Identifier: Apache-2.0
// Clocks, and execution: at once or, with a seed, later and in any order the edges allow.
#include "state.h"

namespace twin {

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

namespace {

void RunPending(size_t index) {
  Execute(core->pending[index].work, core->ub.data(), run.modes);
  core->pending.erase(core->pending.begin() + static_cast<std::ptrdiff_t>(index));
}

// Executes one instruction that may run now: any, the newest, or of a favoured pipe.
void Step() {
  uint32_t oldest[kPipes];  // the least number still pending; a pipe's instructions are pending in order
  std::fill(oldest, oldest + kPipes, ~0u);
  for (const Pending& item : core->pending) oldest[item.pipe] = std::min(oldest[item.pipe], item.seq);
  static std::vector<size_t> ready;
  ready.clear();
  for (size_t i = 0; i < core->pending.size(); ++i) {
    bool free = true;
    for (int p = 0; p < kPipes; ++p) free &= core->pending[i].start.at[p] < oldest[p];
    if (free) ready.push_back(i);
  }
  size_t pick = ready[core->random() % ready.size()];
  if (core->taste == 1) pick = ready.back();
  if (core->taste >= 2) {
    for (const size_t i : ready) if (core->pending[i].pipe == core->taste - 1) { pick = i; break; }
  }
  RunPending(pick);
}

}  // namespace

void Settle(const Clock& clock) {
  for (size_t i = 0; i < core->pending.size();) {
    if (core->pending[i].seq <= clock.at[core->pending[i].pipe]) RunPending(i);
    else ++i;
  }
  for (uint64_t more = core->random() % 4; more > 0 && !core->pending.empty(); --more) Step();
}

void Dispatch(const Work& work, Pipe pipe, const Clock& start) {
  if (run.dry && work.instr.op != Op::kCopyIn) return;
  if (!run.lazy) {
    Execute(work, core->ub.data(), run.modes);
    return;
  }
  core->pending.push_back({work, pipe, core->seq[pipe], start});
  while (core->pending.size() > core->window) Step();
}

void Finish() {
  while (!core->pending.empty()) Step();
}

}  // namespace twin
