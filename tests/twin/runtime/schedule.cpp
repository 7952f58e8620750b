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

}  // namespace

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

void Finish() {
  while (!core->pending.empty()) Step();
}

}  // namespace twin
