// Copyright 2026 The ms_ropegrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// CANN's side of tiling: read the call and the platform, check (rope_shape.h), split (rope_tiling.h), hand over.
#include "register/op_impl_registry.h"
#include "rope_context.h"
#include "rope_tiling.h"
#include "tiling/platform/platform_ascendc.h"

namespace {
using namespace ms_ropegrad;

struct CompileInfo {};

ge::graphStatus Parse(gert::TilingParseContext*) { return ge::GRAPH_SUCCESS; }

uint32_t Bytes(const std::string& dtype) { return dtype == "float32" ? 4 : 2; }

std::string Fill(const RopeOp& op, bool atb, gert::TilingContext* context) {
  std::vector<Dims> shapes;
  std::vector<std::string> dtypes;
  for (size_t i = 0; i < kInputs; ++i) {
    const gert::StorageShape* shape = context->GetInputShape(i);
    const gert::CompileTimeTensorDesc* desc = context->GetInputDesc(i);
    if (shape == nullptr || desc == nullptr) {
      return Must(op, std::string("input '") + op.inputs[i] + "'", "given", "none");
    }
    shapes.push_back(DimsOf(shape->GetStorageShape()));
    dtypes.push_back(DtypeName(desc->GetDataType()));
  }
  std::string reason = CheckDtypes(op, dtypes);
  if (reason.empty()) {
    reason = CheckShapes(op, shapes, false);
  }
  if (!reason.empty()) {
    return reason;
  }
  if (context->GetPlatformInfo() == nullptr) {
    return Must(op, "platform information", "given to tiling", "none");
  }
  const platform_ascendc::PlatformAscendC platform(context->GetPlatformInfo());

  RopeProblem problem = RopeProblem();
  problem.nTokens = shapes[kQ][0];
  problem.qHidden = shapes[kQ][1];
  problem.kHidden = shapes[kK][1];
  problem.maxSeqLen = shapes[kCos][0];
  problem.headSize = shapes[kCos][1];
  problem.batch = shapes[kSeqEnds][0];
  problem.xBytes = Bytes(dtypes[kQ]);
  problem.tableBytes = Bytes(dtypes[kCos]);
  problem.native16 = atb && dtypes[kQ] == "float16" && dtypes[kCos] == "float16";
  problem.cores = platform.GetCoreNumAiv();
  platform.GetCoreMemSize(platform_ascendc::CoreMemType::UB, problem.ubBytes);

  RopeTiling tiling = RopeTiling();
  const char* why = ComputeTiling(problem, &tiling);
  if (why != nullptr) {
    return Must(op, "problem", "one that tiling can split",
                "q " + Show(shapes[kQ]) + ", k " + Show(shapes[kK]) + ", cos " + Show(shapes[kCos]) + " on " +
                    std::to_string(problem.cores) + " cores with " + std::to_string(problem.ubBytes) + " bytes of UB: " + why);
  }
  RopeTilingData* data = context->GetTilingData<RopeTilingData>();
  size_t* workspace = context->GetWorkspaceSizes(1);
  if (data == nullptr || workspace == nullptr) {
    return Must(op, "tiling data and workspace", "given to tiling", "none for " + std::to_string(sizeof(RopeTilingData)) + " bytes");
  }
  *data = tiling.data;
  workspace[0] = platform.GetLibApiWorkSpaceSize();
  context->SetBlockDim(tiling.blockDim);
  context->SetTilingKey(0);  // one kernel per dtype row; nothing else is chosen at compile time
  return "";
}

template <RopeOpId kId>
ge::graphStatus Tiling(gert::TilingContext* context) {
  return Result(Fill(kRopeOps[kId], kId == kRopeGrad, context));
}

IMPL_OP_OPTILING(RopeGrad).Tiling(Tiling<kRopeGrad>).TilingParse<CompileInfo>(Parse);
IMPL_OP_OPTILING(RopeGradExact).Tiling(Tiling<kRopeGradExact>).TilingParse<CompileInfo>(Parse);
IMPL_OP_OPTILING(RopeForward).Tiling(Tiling<kRopeForward>).TilingParse<CompileInfo>(Parse);

}  // namespace
