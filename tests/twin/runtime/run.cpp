// Copyright 2026 The ms_ropegrad Authors
// SPDX-License-Identifier: Apache-2.0
// One run of a kernel, its cores one after another, and the C interface twin.py calls.
#include <utility>

#include "state.h"

namespace twin {

Run run;
std::unique_ptr<Core> core;

int64_t BlockIdx() { return core->index; }
int64_t BlockNum() { return run.blocks; }
bool TilingKeyIs(uint64_t key) { return key == run.tilingKey; }

void LoadTiling(void* data, uint64_t size, const void* argument, Where where) {
  if (argument != run.tiling) Stop("tiling", where, "GET_TILING_DATA of something else than the tiling argument");
  if (size != run.tilingSize) {
    Stop("tiling", where, "the tiling struct has " + std::to_string(size) + " bytes", "the host gave " +
        std::to_string(run.tilingSize));
  }
  std::memcpy(data, run.tiling, size);
}

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
    Finish();
    for (int e = 0; e < kEvents; ++e) {
      for (int i = 0; i < kIds; ++i) {
        const Flag& flag = core->flags[e][i];
        if (flag.set && !run.plain) {
          Report("flag-left-set", flag.where.line, 0, "SetFlag of " + FlagName(static_cast<HardEvent>(e), i) + " at " +
              Place(flag.where), "is never waited for: the next kernel finds it set");
        }
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
  int32_t check, trace, saturate, fused, plain, dry;
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
  run.plain = asked->plain != 0;
  run.trace = asked->trace;
  run.dry = asked->dry != 0;
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
