// Copyright 2026 The ms_ropegrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Infer shape and data type: the outputs are like the first two inputs.
#include "../op_impl/op_host/rope_context.h"

namespace {
using namespace ms_ropegrad;

template <RopeOpId kId>
ge::graphStatus InferShape(gert::InferShapeContext* context) {
  const RopeOp& op = kRopeOps[kId];
  std::vector<Dims> shapes;
  for (size_t i = 0; i < kInputs; ++i) {
    const gert::Shape* shape = context->GetInputShape(i);
    if (shape == nullptr) {
      return Result(Must(op, std::string("shape of '") + op.inputs[i] + "'", "given", "none"));
    }
    shapes.push_back(DimsOf(*shape));
  }
  const std::string reason = CheckShapes(op, shapes, true);
  if (!reason.empty()) {
    return Result(reason);
  }
  for (size_t i = 0; i < kOutputs; ++i) {
    gert::Shape* output = context->GetOutputShape(i);
    if (output == nullptr) {
      return Result(Must(op, std::string("shape of '") + op.outputs[i] + "'", "given", "none"));
    }
    *output = *context->GetInputShape(i);
  }
  return ge::GRAPH_SUCCESS;
}

template <RopeOpId kId>
ge::graphStatus InferDataType(gert::InferDataTypeContext* context) {
  std::vector<std::string> dtypes;
  for (size_t i = 0; i < kInputs; ++i) {
    dtypes.push_back(DtypeName(context->GetInputDataType(i)));
  }
  const std::string reason = CheckDtypes(kRopeOps[kId], dtypes);
  if (!reason.empty()) {
    return Result(reason);
  }
  for (size_t i = 0; i < kOutputs; ++i) {
    if (context->SetOutputDataType(i, context->GetInputDataType(i)) != ge::GRAPH_SUCCESS) {
      return ge::GRAPH_FAILED;
    }
  }
  return ge::GRAPH_SUCCESS;
}

IMPL_OP_INFERSHAPE(RopeGrad).InferShape(InferShape<kRopeGrad>).InferDataType(InferDataType<kRopeGrad>);
IMPL_OP_INFERSHAPE(RopeGradExact).InferShape(InferShape<kRopeGradExact>).InferDataType(InferDataType<kRopeGradExact>);
IMPL_OP_INFERSHAPE(RopeForward).InferShape(InferShape<kRopeForward>).InferDataType(InferDataType<kRopeForward>);

}  // namespace
