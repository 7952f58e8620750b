// Copyright 2026 The ms_ropegrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// What the three operators are called and take, and why a call is refused: shared by OpDef, tiling and infer shape.
// Plain C++11 without CANN types; the wording and the order of the checks are those of ms_ropegrad/checks.py.
#ifndef MS_ROPEGRAD_ROPE_SHAPE_H
#define MS_ROPEGRAD_ROPE_SHAPE_H

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ms_ropegrad {

enum RopeOpId { kRopeGrad, kRopeGradExact, kRopeForward };
enum RopeInput { kQ, kK, kCos, kSin, kSeqEnds, kInputs };
constexpr size_t kOutputs = 2;

struct RopeOp {
  const char* type;
  const char* caller;  // what the user called
  const char* inputs[kInputs];
  const char* outputs[kOutputs];
};

static const RopeOp kRopeOps[] = {
    {"RopeGrad", "RopeGrad", {"rope_q_grad", "rope_k_grad", "cos", "sin", "seq_ends"}, {"q_grad", "k_grad"}},
    {"RopeGradExact", "RopeGrad", {"rope_q_grad", "rope_k_grad", "cos", "sin", "seq_ends"}, {"q_grad", "k_grad"}},
    {"RopeForward", "Rope", {"q", "k", "cos", "sin", "seq_ends"}, {"rope_q", "rope_k"}},
};

static const char* const kSocs[] = {"ascend910b", "ascend910_93"};
static const char* const kDtypes[] = {"float16", "bfloat16", "float32"};
static const char* const kSeqEndsDtype = "int32";

struct DtypePair {
  const char* x;      // q, k and the outputs
  const char* table;  // cos and sin
};
static const DtypePair kDtypePairs[] = {{"float16", "float16"},
                                        {"bfloat16", "bfloat16"},
                                        {"float32", "float32"},
                                        {"float16", "float32"},
                                        {"bfloat16", "float32"}};

static const int64_t kHeadSizes[] = {64, 96, 128, 192, 256};
constexpr int64_t kMaxEnd = 2147483647;  // seq_ends is int32
constexpr int64_t kUnknownDim = -1;
constexpr int64_t kUnknownRank = -2;

using Dims = std::vector<int64_t>;

inline std::string Must(const RopeOp& op, const std::string& what, const std::string& need, const std::string& got) {
  return std::string("For '") + op.caller + "', the " + what + " must be " + need + ", but got " + got + ".";
}

inline std::string Of(const char* what, const char* input) { return std::string(what) + " of '" + input + "'"; }

inline std::string Show(const Dims& dims) {
  std::string text = "(";
  for (size_t i = 0; i < dims.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(dims[i]);
  }
  return text + (dims.size() == 1 ? ",)" : ")");
}

template <typename T, size_t N>
bool Holds(const T (&table)[N], const std::string& value) {
  for (const T& entry : table) {
    if (value == entry) {
      return true;
    }
  }
  return false;
}

/// The reason why these five dtypes are refused; empty when they are taken.
inline std::string CheckDtypes(const RopeOp& op, const std::vector<std::string>& dtypes) {
  const std::string& x = dtypes[kQ];
  const std::string& table = dtypes[kCos];
  for (size_t i = kQ; i <= kSin; ++i) {
    if (!Holds(kDtypes, dtypes[i])) {
      return Must(op, Of("dtype", op.inputs[i]), "one of ['float16', 'bfloat16', 'float32']", dtypes[i]);
    }
  }
  if (dtypes[kK] != x) {
    return Must(op, Of("dtype", op.inputs[kK]), std::string("the same as '") + op.inputs[kQ] + "' (" + x + ")", dtypes[kK]);
  }
  bool paired = false;
  std::string need;
  for (const DtypePair& pair : kDtypePairs) {
    if (x == pair.x) {
      paired = paired || table == pair.table;
      need += (need.empty() ? "" : " or ") + std::string(pair.table);
    }
  }
  if (!paired) {
    return Must(op, std::string("dtype of 'cos' for '") + op.inputs[kQ] + "' of " + x, need, table);
  }
  if (dtypes[kSin] != table) {
    return Must(op, "dtype of 'sin'", "the same as 'cos' (" + table + ")", dtypes[kSin]);
  }
  if (dtypes[kSeqEnds] != kSeqEndsDtype) {
    return Must(op, "dtype of 'seq_ends'", kSeqEndsDtype, dtypes[kSeqEnds]);
  }
  return "";
}

inline bool Known(int64_t dim) { return dim != kUnknownDim; }
inline bool MayEqual(int64_t a, int64_t b) { return a == b || !Known(a) || !Known(b); }

/// Refuse negative dimensions; spell an unknown rank out as ``rank`` unknown dimensions.
inline std::string CheckDims(const RopeOp& op, size_t input, size_t rank, bool dynamic, Dims* shape) {
  if (dynamic && shape->size() == 1 && (*shape)[0] == kUnknownRank) {
    shape->assign(rank, kUnknownDim);
  }
  for (const int64_t dim : *shape) {
    if (dim < 0 && !(dynamic && dim == kUnknownDim)) {
      return Must(op, Of("shape", op.inputs[input]), dynamic ? "non-negative, or -1 where unknown" : "static", Show(*shape));
    }
  }
  return "";
}

/// The reason why these five shapes are refused; empty when they are taken. With ``dynamic`` (infer shape) a dimension may
/// be -1 and a shape {-2} for an unknown rank: whatever is known is checked, the rest passes.
inline std::string CheckShapes(const RopeOp& op, std::vector<Dims> shapes, bool dynamic) {
  for (size_t i = kQ; i <= kSin; ++i) {
    const std::string reason = CheckDims(op, i, 2, dynamic, &shapes[i]);
    if (!reason.empty()) {
      return reason;
    }
    if (shapes[i].size() != 2) {
      return Must(op, Of("rank", op.inputs[i]), "2", std::to_string(shapes[i].size()) + " with shape " + Show(shapes[i]));
    }
  }
  const Dims& cos = shapes[kCos];
  const Dims& sin = shapes[kSin];
  if (!MayEqual(sin[0], cos[0]) || !MayEqual(sin[1], cos[1])) {
    return Must(op, "shape of 'sin'", "the same as 'cos' " + Show(cos), Show(sin));
  }
  const Dims table = {Known(cos[0]) ? cos[0] : sin[0], Known(cos[1]) ? cos[1] : sin[1]};
  const int64_t head_size = table[1];
  bool taken = !Known(head_size);
  std::string sizes;
  for (const int64_t size : kHeadSizes) {
    taken = taken || head_size == size;
    sizes += (sizes.empty() ? "" : ", ") + std::to_string(size);
  }
  if (!taken) {
    return Must(op, "head_size (columns of 'cos')", "one of [" + sizes + "]",
                std::to_string(head_size) + " with shape " + Show(table));
  }
  if (table[0] == 0) {
    return Must(op, "max_seq_len (rows of 'cos')", "at least 1", "0 with shape " + Show(table));
  }
  for (size_t i = kQ; i <= kK; ++i) {
    const int64_t hidden = shapes[i][1];
    if (Known(hidden) && (hidden == 0 || (Known(head_size) && hidden % head_size != 0))) {
      const std::string number = Known(head_size) ? std::to_string(head_size) + " " : "";
      return Must(op, Of("hidden_size", op.inputs[i]), "a positive multiple of head_size " + number + "(columns of 'cos')",
                  std::to_string(hidden) + " with shape " + Show(shapes[i]));
    }
  }
  const int64_t n_tokens = shapes[kQ][0];
  if (!MayEqual(n_tokens, shapes[kK][0])) {
    return Must(op, Of("n_tokens", op.inputs[kK]), std::string("the same as '") + op.inputs[kQ] + "' " + Show(shapes[kQ]),
                Show(shapes[kK]));
  }
  if (n_tokens > kMaxEnd || shapes[kK][0] > kMaxEnd) {
    return Must(op, "n_tokens", "at most " + std::to_string(kMaxEnd), std::to_string(n_tokens > kMaxEnd ? n_tokens : shapes[kK][0]));
  }
  Dims& ends = shapes[kSeqEnds];
  const std::string reason = CheckDims(op, kSeqEnds, 1, dynamic, &ends);
  if (reason.empty() && (ends.size() != 1 || ends[0] == 0)) {
    return Must(op, "shape of 'seq_ends'", "(number of sequences,) with at least one", Show(ends));
  }
  return reason;
}

}  // namespace ms_ropegrad
#endif  // MS_ROPEGRAD_ROPE_SHAPE_H
