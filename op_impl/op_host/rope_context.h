// Copyright 2026 The ms_ropegrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// From CANN's types to those of rope_shape.h, for tiling and infer shape.
#ifndef MS_ROPEGRAD_ROPE_CONTEXT_H
#define MS_ROPEGRAD_ROPE_CONTEXT_H

#include <cstdio>
#include <string>
#include <vector>

#include "register/op_impl_registry.h"
#include "rope_shape.h"

namespace ms_ropegrad {

inline std::string DtypeName(ge::DataType dtype) {
  switch (dtype) {
    case ge::DT_FLOAT16: return "float16";
    case ge::DT_BF16: return "bfloat16";
    case ge::DT_FLOAT: return "float32";
    case ge::DT_INT32: return "int32";
    case ge::DT_INT64: return "int64";
    default: return "ge::DataType " + std::to_string(static_cast<int>(dtype));
  }
}

inline Dims DimsOf(const gert::Shape& shape) {
  Dims dims(shape.GetDimNum());
  for (size_t i = 0; i < dims.size(); ++i) {
    dims[i] = shape.GetDim(i);
  }
  return dims;
}

/// Success without a reason. A reason goes to stderr, where MindSpore's user sees it above "call failed".
inline ge::graphStatus Result(const std::string& reason) {
  if (reason.empty()) {
    return ge::GRAPH_SUCCESS;
  }
  (void)fprintf(stderr, "[ERROR] ms_ropegrad: %s\n", reason.c_str());
  return ge::GRAPH_FAILED;
}

}  // namespace ms_ropegrad
#endif  // MS_ROPEGRAD_ROPE_CONTEXT_H
