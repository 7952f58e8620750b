// Copyright 2026 The ms_ropegrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The operators on CPU at the speed of memory, bit for bit as ms_ropegrad/reference.py. Entries: RopeGrad, RopeGradExact
// and RopeForward for MindSpore (ops.Custom, aot), with their InferShape and InferType; ms_ropegrad_apply for ctypes.
// The file includes itself once for each instruction set: what needs one stands in the first part.
// Compile with -ffp-contract=off: a fused multiply-add has one rounding too few.

#ifdef ROPE_LANES
// ------------------------------------------------------------------------------------ arithmetic, for one instruction set
namespace ROPE_ISA {

using F = float __attribute__((vector_size(4 * ROPE_LANES)));
using U = uint32_t __attribute__((vector_size(4 * ROPE_LANES)));
using U16 = uint16_t __attribute__((vector_size(2 * ROPE_LANES)));
constexpr int64_t kLanes = ROPE_LANES;

// A bfloat16 is the upper half of a float32: a vector of pairs of them is taken as its even elements, then its odd ones, and
// their factors stand in that order. The other types are one part.
template <class X>
constexpr int kParts = std::is_same_v<X, Bfloat16> ? 2 : 1;

template <class V>
inline V Read(const void *p) {
  V v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

inline U Bits(F f) { return Read<U>(&f); }
inline F Value(U u) { return Read<F>(&u); }
inline F Load(const float *p, int = 0) { return Read<F>(p); }
inline F Load(const Bfloat16 *p, int part) { return Value(part ? Read<U>(p) & 0xFFFF0000 : Read<U>(p) << 16); }
#if ROPE_LANES == 16  // masks of ones: with the unmasked forms GCC 12 warns of its own header
inline F Load(const Float16 *p, int = 0) { return _mm512_maskz_cvtph_ps(0xFFFF, Read<__m256i>(p)); }
inline __m256i Round(const F *f, Float16) { return _mm512_maskz_cvtps_ph(0xFFFF, *f, _MM_FROUND_TO_NEAREST_INT); }
#elif ROPE_LANES == 8
inline F Load(const Float16 *p, int = 0) { return _mm256_cvtph_ps(Read<__m128i>(p)); }
inline __m128i Round(const F *f, Float16) { return _mm256_cvtps_ph(*f, _MM_FROUND_TO_NEAREST_INT); }
#elif defined(__aarch64__)
inline F Load(const Float16 *p, int = 0) { return vcvt_f32_f16(Read<float16x4_t>(p)); }
inline float16x4_t Round(const F *f, Float16) { return vcvt_f16_f32(*f); }
#else
inline F Load(const Float16 *p, int = 0) {
  U h = __builtin_convertvector(Read<U16>(p), U), magnitude = h & 0x7FFF;
  U u = Bits(Value(magnitude << 13) * 0x1p112f);  // the product also normalises subnormals
  u |= magnitude >= 0x7C00 ? U{} + 0x7F800000 : U{};
  return Value(u | (h & 0x8000) << 16);
}
inline U16 Round(const F *f, Float16) {
  U u = Bits(*f), magnitude = u & 0x7FFFFFFF;
  U normal = (magnitude - 0x38000000 + 0xFFF + ((magnitude >> 13) & 1)) >> 13;
  U subnormal = Bits(Value(magnitude) + 0.5f) - 0x3F000000;  // the addition rounds at 2^-24
  U inf_or_nan = magnitude > 0x7F800000 ? U{} + 0x7E00 : U{} + 0x7C00;
  U h = magnitude < 0x38800000 ? subnormal : magnitude >= 0x47800000 ? inf_or_nan : normal;
  return __builtin_convertvector(h | (u >> 16 & 0x8000), U16);
}
#endif
inline F Round(const F *f, float) { return *f; }
inline U Upper(F f) {  // rounded in its upper half: plus 0x7FFF or, where the result would be odd, 0x8000
  U u = Bits(f);
  return u - ((~(u >> 16) & 1) | 0xFFFF8000);
}
inline U Round(const F *f, Bfloat16) { return Upper(f[0]) >> 16 | (Upper(f[1]) & 0xFFFF0000); }

template <bool kStream, class V>
inline void Write(void *p, V v) {
#if ROPE_LANES > 4
  if constexpr (kStream) {  // past the caches; 16 bytes a time, since MindSpore aligns no further
    __m128i part[sizeof v / 16];
    std::memcpy(part, &v, sizeof v);
    for (size_t i = 0; i < sizeof v / 16; ++i) _mm_stream_si128(static_cast<__m128i *>(p) + i, part[i]);
    return;
  }
#endif
  std::memcpy(p, &v, sizeof v);
}

// An element of the tables, in the order of X. NaNs of bfloat16 and those that operators make have nothing in their lower halves:
// with none in the tables either, Upper cannot carry one into infinity.
template <class X, class T>
inline F Factor(const T *p, int part) {
  if constexpr (kParts<X> == kParts<T>) {
    return Load(p, part);
  } else {
    U at;
    for (int i = 0; i < kLanes; ++i) at[i] = 2 * i + part;
    F f = __builtin_shuffle(Load(p), Load(p + kLanes), at);
    return f == f ? f : Value(U{} + 0x7FC00000);
  }
}

// A row of the tables as factors, each half padded: y = x * direct + the other half of x * swapped.
template <class X, class T>
inline void Turn(const Call &call, const T *cos1, const T *cos2, const T *sin1, const T *sin2, float *direct, float *swapped) {
  const int64_t padded = Padded(call.head / 2);
  for (int part = 0; part < kParts<X>; ++part, direct += kLanes, swapped += kLanes) {
    F c1 = Factor<X>(cos1, part), c2 = Factor<X>(cos2, part), s1 = Factor<X>(sin1, part), s2 = Factor<X>(sin2, part);
    if (call.op == kForward) {
      Write<false>(swapped, -s1), Write<false>(swapped + padded, s2);
    } else if (call.op == kExact) {
      Write<false>(swapped, s2), Write<false>(swapped + padded, -s1);
    } else {
      c1 += s2, c2 -= s1;
      if constexpr (std::is_same_v<T, Float16>) {  // the document rounds here too
        auto h1 = Round(&c1, T{}), h2 = Round(&c2, T{});
        c1 = Load(reinterpret_cast<T *>(&h1)), c2 = Load(reinterpret_cast<T *>(&h2));
      }
    }
    Write<false>(direct, c1), Write<false>(direct + padded, c2);
  }
}

template <class X, class T>
void Factors(const Call &call, int64_t row, float *direct, float *swapped) {
  constexpr int64_t kStep = kParts<X> * kLanes;
  const int64_t half = call.head / 2;
  const T *cos = static_cast<const T *>(call.cos) + row * call.head, *sin = static_cast<const T *>(call.sin) + row * call.head;
  int64_t i = 0;
  for (; i + kStep <= half; i += kStep) Turn<X>(call, cos + i, cos + half + i, sin + i, sin + half + i, direct + i, swapped + i);
  if (i < half) {
    T some[4][kStep] = {};
    const T *parts[] = {cos + i, cos + half + i, sin + i, sin + half + i};
    for (int k = 0; k < 4; ++k) std::memcpy(some[k], parts[k], (half - i) * sizeof(T));
    Turn<X>(call, some[0], some[1], some[2], some[3], direct + i, swapped + i);
  }
}

template <int kForWriting>
inline void Prefetch(const void *p, uintptr_t ahead) {  // may lie past the tensor: as an integer that is no undefined behaviour
  __builtin_prefetch(reinterpret_cast<const void *>(reinterpret_cast<uintptr_t>(p) + ahead), kForWriting);
}

template <class X, bool kSwap, bool kStream>
inline void Pair(const X *x1, const X *x2, X *y1, X *y2, const float *direct, const float *swapped, int64_t padded) {
  Prefetch<0>(x1, 2048), Prefetch<0>(x2, 2048);
  if constexpr (!kStream) Prefetch<1>(y1, 1024), Prefetch<1>(y2, 1024);
  F d1[kParts<X>], d2[kParts<X>];
  for (int part = 0; part < kParts<X>; ++part, direct += kLanes, swapped += kLanes) {
    F a = Load(x1, part), b = Load(x2, part);
    d1[part] = a * Load(direct), d2[part] = b * Load(direct + padded);
    if constexpr (kSwap) d1[part] += b * Load(swapped), d2[part] += a * Load(swapped + padded);
  }
  Write<kStream>(y1, Round(d1, X{})), Write<kStream>(y2, Round(d2, X{}));
}

template <class X, bool kSwap, bool kStream>
void Heads(const X *x, X *y, int64_t hidden, int64_t head, const float *direct, const float *swapped) {
  constexpr int64_t kStep = kParts<X> * kLanes;
  const int64_t half = head / 2, padded = Padded(half);
  for (const X *end = x + hidden; x < end; x += head, y += head) {
    int64_t i = 0;
    for (; i + kStep <= half; i += kStep) {
      Pair<X, kSwap, kStream>(x + i, x + half + i, y + i, y + half + i, direct + i, swapped + i, padded);
    }
    if (i < half) {
      X some[4][kStep] = {};
      const size_t bytes = (half - i) * sizeof(X);
      std::memcpy(some[0], x + i, bytes), std::memcpy(some[1], x + half + i, bytes);
      Pair<X, kSwap, false>(some[0], some[1], some[2], some[3], direct + i, swapped + i, padded);
      std::memcpy(y + i, some[2], bytes), std::memcpy(y + half + i, some[3], bytes);
    }
  }
}

template <class X>
void Token(const Call &call, int64_t token, int64_t row, float *factors) {
  float *direct = factors, *swapped = factors + 2 * Padded(call.head / 2);
  if (row < call.rows) {
    auto make = call.table_type == kFloat32 ? Factors<X, float> : Factors<X, X>;
    make(call, row, direct, swapped);
  }
  auto heads = call.op == kAtb ? call.stream ? Heads<X, false, true> : Heads<X, false, false>
                               : call.stream ? Heads<X, true, true> : Heads<X, true, false>;
  for (int i = 0; i < 2; ++i) {
    X *y = static_cast<X *>(call.y[i]) + token * call.hidden[i];
    if (row < call.rows) {
      heads(static_cast<const X *>(call.x[i]) + token * call.hidden[i], y, call.hidden[i], call.head, direct, swapped);
    } else {
      std::memset(y, 0, call.hidden[i] * sizeof(X));
    }
  }
}

inline void Fence() {
#if ROPE_LANES > 4
  _mm_sfence();  // streamed stores are ordered by nothing else
#endif
}

constexpr Isa kIsa = {{Token<Float16>, Token<Bfloat16>, Token<float>}, Fence, ROPE_NAME};

}  // namespace ROPE_ISA
#else
// ------------------------------------------------------------------------------------------------- once: calls and threads
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>
#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#ifndef ROPE_STAMP
#define ROPE_STAMP "none"  // set by setup.py, checked by native.py: a library of other sources is not used
#endif

namespace {

enum Op { kAtb, kExact, kForward };           // in the order of spec.OPS
enum Type { kFloat16, kBfloat16, kFloat32 };  // in the order of spec.DTYPES
struct Float16 { uint16_t bits; };
struct Bfloat16 { uint16_t bits; };

struct Call {
  int op, x_type, table_type;
  const void *x[2], *cos, *sin;
  void *y[2];
  const int32_t *ends;
  int64_t n_tokens, hidden[2], rows, head, batch;
  bool stream;
};

struct Isa {
  void (*token[3])(const Call &, int64_t token, int64_t row, float *factors);
  void (*fence)();
  const char *name;
};

constexpr int64_t Padded(int64_t n) { return (n + 31) / 32 * 32; }

#if defined(__x86_64__)
#define ROPE_ISA baseline
#define ROPE_NAME "x86-64 baseline"
#define ROPE_LANES 4
#include "rope_native.cpp"
#undef ROPE_ISA
#undef ROPE_NAME
#undef ROPE_LANES
#pragma GCC push_options
#pragma GCC target("avx2,f16c")
#define ROPE_ISA avx2
#define ROPE_NAME "AVX2 and F16C"
#define ROPE_LANES 8
#include "rope_native.cpp"
#undef ROPE_ISA
#undef ROPE_NAME
#undef ROPE_LANES
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl")
#define ROPE_ISA avx512
#define ROPE_NAME "AVX-512"
#define ROPE_LANES 16
#include "rope_native.cpp"
#pragma GCC pop_options
#else
#define ROPE_ISA baseline
#define ROPE_NAME "aarch64 or other baseline"
#define ROPE_LANES 4
#include "rope_native.cpp"
#endif

// For tests, since each is chosen by the CPU.
enum Flags { kNoAvx512 = 1, kBaseline = 2, kAlwaysStream = 4 };

const Isa &Best(int flags) {
#if defined(__x86_64__)
  static const bool has_avx2 = [] {  // once: a virtual machine takes 10 us for cpuid
    unsigned a, b, c = 0, d;
    return __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
  }();
  if (!(flags & (kNoAvx512 | kBaseline)) && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) return avx512::kIsa;
  if (!(flags & kBaseline) && has_avx2) return avx2::kIsa;
#endif
  (void)flags;
  return baseline::kIsa;
}

// Zen 3 writes large outputs fastest past its caches; Sapphire Rapids is faster without (by a seventh to a quarter).
bool Streams(int64_t bytes) {
#if defined(__x86_64__)
  return bytes > 8 << 20 && __builtin_cpu_is("amd");
#else
  return bytes < 0;
#endif
}

// MindSpore runs some of its threads with flush-to-zero: round to nearest and keep subnormals, then leave all as it was.
class FloatMode {
#if defined(__x86_64__)
 public:
  FloatMode() { _mm_setcsr(0x1F80); }
  ~FloatMode() { _mm_setcsr(saved_); }

 private:
  const unsigned saved_ = _mm_getcsr();
#elif defined(__aarch64__)
 public:
  FloatMode() {
    asm volatile("mrs %0, fpcr" : "=r"(saved_));
    asm volatile("msr fpcr, %0" ::"r"(uint64_t{0}) : "memory");
  }
  ~FloatMode() { asm volatile("msr fpcr, %0" ::"r"(saved_) : "memory"); }

 private:
  uint64_t saved_;
#endif
};

int64_t Threads(int64_t asked) {
  if (asked > 0) return asked;
  const char *text = std::getenv("MS_ROPEGRAD_THREADS");  // set by native.py: MindSpore sets OMP_NUM_THREADS on its own
  if (!text) text = std::getenv("OMP_NUM_THREADS");
  const long wanted = text ? std::strtol(text, nullptr, 10) : 0;
  if (wanted > 0) return wanted;
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) ? std::max(1u, std::thread::hardware_concurrency()) : CPU_COUNT(&set);
}

// Any ends: they are clamped to [0, n_tokens], a decrease counts as an empty sequence, and tokens that no sequence covers or
// that lie past the tables become zero.
void Run(Call call, int64_t threads, int flags) {
  constexpr int64_t kSerial = 128 << 10, kChunk = 64 << 10;  // elements
  const int64_t hidden = call.hidden[0] + call.hidden[1], width = call.x_type == kFloat32 ? 4 : 2;
  const Isa &isa = Best(flags);
  call.stream = ((flags & kAlwaysStream) || Streams(call.n_tokens * hidden * width)) && call.head % 16 == 0 &&
                (reinterpret_cast<uintptr_t>(call.y[0]) | reinterpret_cast<uintptr_t>(call.y[1])) % 16 == 0;
  const int64_t chunk = std::max<int64_t>(1, kChunk / std::max<int64_t>(1, hidden)), chunks = (call.n_tokens + chunk - 1) / chunk;
  threads = call.n_tokens * hidden < kSerial ? 1 : std::min({Threads(threads), chunks, int64_t{256}});
  const int64_t stride = 4 * Padded(call.head / 2) + 64;  // the gap keeps two threads off one cache line
  std::vector<float> factors(threads * stride);
  std::atomic<int64_t> next{0};

  auto work = [&](int64_t thread) {
    FloatMode mode;
    int64_t sequence = 0, start = 0, stop = 0, end = 0;  // tokens [start, stop) are one sequence
    for (int64_t c; (c = next++) < chunks;) {            // rising: a thread walks over the ends once
      for (int64_t t = c * chunk; t < std::min((c + 1) * chunk, call.n_tokens); ++t) {
        while (t >= stop && sequence < call.batch) {
          const int64_t last = end;
          end = std::clamp<int64_t>(call.ends[sequence++], 0, call.n_tokens);
          start = stop, stop += std::max<int64_t>(0, end - last);
        }
        isa.token[call.x_type](call, t, t < stop ? t - start : call.rows, factors.data() + thread * stride);
      }
    }
    isa.fence();
  };
  std::vector<std::thread> others;
  try {
    for (int64_t i = 1; i < threads; ++i) others.emplace_back(work, i);
  } catch (const std::exception &) {  // no more threads to be had: those there are take all chunks
  }
  work(0);
  for (auto &t : others) t.join();
}

// ------------------------------------------------------------- refusals, in the words of ms_ropegrad/checks.py: ValueError
using Shape = std::vector<int64_t>;
constexpr const char *kNames[2][4] = {{"rope_q_grad", "rope_k_grad", "cos", "sin"}, {"q", "k", "cos", "sin"}};

std::string Show(const Shape &s) {
  std::string text = "(";
  for (size_t i = 0; i < s.size(); ++i) text += (i ? ", " : "") + std::to_string(s[i]);
  return text + (s.size() == 1 ? ",)" : ")");
}

[[noreturn]] void Refuse(Op op, const std::string &what, const std::string &need, const std::string &got, const std::string &hint = "") {
  const std::string caller = op == kForward ? "Rope" : "RopeGrad";
  throw std::invalid_argument("For '" + caller + "', the " + what + " must be " + need + ", but got " + got + "." + hint);
}

// Dimensions still unknown while a graph is compiled are -1, an unknown rank is [-2]: they are checked when they are known.
bool Known(const Shape &s) { return s.size() == 2; }

void CheckShapes(Op op, const Shape *shapes) {
  auto name = [&](int i) { return "'" + std::string(kNames[op == kForward][i]) + "'"; };
  auto differ = [](int64_t a, int64_t b) { return a >= 0 && b >= 0 && a != b; };
  for (int i = 0; i < 4; ++i) {
    if (!Known(shapes[i]) && shapes[i] != Shape{-2}) {
      Refuse(op, "rank of " + name(i), "2", std::to_string(shapes[i].size()) + " with shape " + Show(shapes[i]));
    }
  }
  const Shape &q = shapes[0], &k = shapes[1], &cos = shapes[2], &sin = shapes[3];
  if (Known(cos) && Known(sin) && (differ(cos[0], sin[0]) || differ(cos[1], sin[1]))) {
    Refuse(op, "shape of 'sin'", "the same as 'cos' " + Show(cos), Show(sin));
  }
  if (!Known(cos)) return;
  const int64_t head = cos[1];
  if (head >= 0 && (head < 2 || head % 2)) {
    Refuse(op, "head_size (columns of 'cos')", "even and at least 2", std::to_string(head) + " with shape " + Show(cos));
  }
  if (cos[0] == 0) Refuse(op, "max_seq_len (rows of 'cos')", "at least 1", "0 with shape " + Show(cos));
  for (int i = 0; i < 2; ++i) {
    const Shape &x = shapes[i];
    if (head > 0 && Known(x) && x[1] >= 0 && (x[1] < head || x[1] % head)) {
      Refuse(op, "hidden_size of " + name(i), "a positive multiple of head_size " + std::to_string(head) + " (columns of 'cos')",
             std::to_string(x[1]) + " with shape " + Show(x));
    }
  }
  if (Known(q) && Known(k) && differ(q[0], k[0])) Refuse(op, "n_tokens of " + name(1), "the same as " + name(0) + " " + Show(q), Show(k));
  if (Known(q) && q[0] > INT32_MAX) Refuse(op, "n_tokens", "at most " + std::to_string(INT32_MAX), std::to_string(q[0]));
}

std::string List(const Shape &values) {
  std::string text = "[";
  for (size_t i = 0; i < std::min<size_t>(8, values.size()); ++i) text += (i ? ", " : "") + std::to_string(values[i]);
  return values.size() > 8 ? text + ", ...] (" + std::to_string(values.size()) + " sequences)" : text + "]";
}

void CheckEnds(Op op, const int32_t *values, int64_t batch, int64_t n_tokens, int64_t rows) {
  if (batch < 1) Refuse(op, "shape of 'seq_ends'", "(number of sequences,) with at least one", "(0,)");
  int64_t last = 0, low = 0, longest = 0;
  for (int64_t i = 0; i < batch; last = values[i++]) {
    low = std::min(low, values[i] - last), longest = std::max(longest, values[i] - last);
  }
  if (low >= 0 && last == n_tokens && longest <= rows) return;
  const Shape ends(values, values + batch);
  Shape lengths(ends);
  for (int64_t i = batch - 1; i > 0; --i) lengths[i] -= ends[i - 1];
  std::string hint;  // lengths and ends are the likeliest mix-up; lengths given as such have become ends already
  int64_t sum = 0;
  for (int64_t e : ends) sum += e;
  if (*std::min_element(ends.begin(), ends.end()) >= 0 && sum == n_tokens) {
    hint = " These look like lengths (they sum to n_tokens): pass them as q_seq_len.";
  } else if (batch > 1 && std::is_sorted(lengths.begin(), lengths.end()) && lengths[0] >= 0 && lengths.back() == n_tokens) {
    hint = " The q_seq_len " + List(lengths) + " behind them look like cumulative ends: pass them as seq_ends=.";
  }
  if (low < 0) Refuse(op, "values of 'seq_ends'", "non-negative and non-decreasing", List(ends), hint);
  if (last != n_tokens) {
    Refuse(op, "last element of 'seq_ends'", "n_tokens " + std::to_string(n_tokens), std::to_string(last) + " from " + List(ends), hint);
  }
  Refuse(op, "longest sequence of 'seq_ends'", "at most max_seq_len " + std::to_string(rows) + " (rows of 'cos')", std::to_string(longest));
}

// ---------------------------------------------------------------------------------------------------------------- entries
int TypeOf(const char *name) {
  const char *const names[] = {"float16", "bfloat16", "float32"};
  for (int i = 0; i < 3; ++i) {
    if (!std::strcmp(name, names[i])) return i;
  }
  throw std::invalid_argument(std::string("unexpected dtype ") + name);  // MindSpore chose by the registered dtypes
}

int Custom(Op op, void **params, int *ndims, int64_t **shapes, const char **dtypes) {
  Shape s[5];
  for (int i = 0; i < 5; ++i) s[i].assign(shapes[i], shapes[i] + ndims[i]);
  CheckShapes(op, s);
  const int64_t batch = s[4].empty() ? 0 : s[4][0];
  auto ends = static_cast<const int32_t *>(params[4]);
  CheckEnds(op, ends, batch, s[0][0], s[2][0]);
  Run({op, TypeOf(dtypes[0]), TypeOf(dtypes[2]), {params[0], params[1]}, params[2], params[3], {params[5], params[6]}, ends,
       s[0][0], {s[0][1], s[1][1]}, s[2][0], s[2][1], batch, false}, 0, 0);
  return 0;
}

std::vector<Shape> InferShape(Op op, int *ndims, int64_t **shapes) {
  Shape s[4];
  for (int i = 0; i < 4; ++i) s[i].assign(shapes[i], shapes[i] + ndims[i]);
  CheckShapes(op, s);
  return {s[0], s[1]};
}

}  // namespace

class AotExtra;          // MindSpore's, unused here
enum TypeId : int {};    // likewise

#define ROPE_EXPORT extern "C" __attribute__((visibility("default")))
#define ROPE_OPERATOR(name, op)                                                                                             \
  ROPE_EXPORT int name(int, void **params, int *ndims, int64_t **shapes, const char **dtypes, void *, void *) {             \
    return Custom(op, params, ndims, shapes, dtypes);                                                                       \
  }                                                                                                                         \
  ROPE_EXPORT std::vector<Shape> name##InferShape(int *ndims, int64_t **shapes, AotExtra *) {                               \
    return InferShape(op, ndims, shapes);                                                                                   \
  }                                                                                                                         \
  ROPE_EXPORT std::vector<TypeId> name##InferType(std::vector<TypeId> types, AotExtra *) { return {types[0], types[1]}; }

ROPE_OPERATOR(RopeGrad, kAtb)
ROPE_OPERATOR(RopeGradExact, kExact)
ROPE_OPERATOR(RopeForward, kForward)

// shape: n_tokens, hidden sizes of q and k, max_seq_len, head_size, number of sequences. threads: 0 is automatic. flags: Flags.
// Returns 0, or 1 when there is no memory.
ROPE_EXPORT int ms_ropegrad_apply(int op, int x_type, int table_type, const void *const *inputs, void *const *outputs,
                                  const int64_t *shape, int64_t threads, int flags) try {
  Run({op, x_type, table_type, {inputs[0], inputs[1]}, inputs[2], inputs[3], {outputs[0], outputs[1]},
       static_cast<const int32_t *>(inputs[4]), shape[0], {shape[1], shape[2]}, shape[3], shape[4], shape[5], false},
      threads, flags);
  return 0;
} catch (const std::exception &) {
  return 1;
}

ROPE_EXPORT const char *ms_ropegrad_stamp() { return ROPE_STAMP; }
ROPE_EXPORT int64_t ms_ropegrad_threads() { return Threads(0); }
ROPE_EXPORT const char *ms_ropegrad_isa() { return Best(0).name; }
#endif
