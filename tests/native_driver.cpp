// Copyright 2026 The ms_ropegrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Calls of the native library as bytes on stdin (test_native.py packs them), outputs as bytes on stdout: for builds that
// Python cannot load, with sanitizers or for aarch64.
#include <cstdint>
#include <cstdio>
#include <vector>

extern "C" int ms_ropegrad_apply(int op, int x_type, int table_type, const void *const *inputs, void *const *outputs,
                                 const int64_t *shape, int64_t threads, int flags);

int main() {
  int64_t h[11];  // op, x_type, table_type, n_tokens, q and k hidden, rows, head, sequences, threads, flags
  while (std::fread(h, sizeof h, 1, stdin) == 1) {
    const int64_t x = h[1] == 2 ? 4 : 2, table = h[2] == 2 ? 4 : 2;
    const int64_t bytes[5] = {h[3] * h[4] * x, h[3] * h[5] * x, h[6] * h[7] * table, h[6] * h[7] * table, h[8] * 4};
    std::vector<char> in[5], out[2];
    for (int i = 0; i < 5; ++i) {
      in[i].resize(bytes[i]);
      if (bytes[i] && std::fread(in[i].data(), bytes[i], 1, stdin) != 1) return 2;
    }
    for (int i = 0; i < 2; ++i) out[i].assign(bytes[i], 0x55);
    const void *inputs[] = {in[0].data(), in[1].data(), in[2].data(), in[3].data(), in[4].data()};
    void *outputs[] = {out[0].data(), out[1].data()};
    if (ms_ropegrad_apply(h[0], h[1], h[2], inputs, outputs, h + 3, h[9], h[10])) return 3;
    for (const auto &o : out) {
      if (o.size() && std::fwrite(o.data(), o.size(), 1, stdout) != 1) return 4;
    }
  }
}
