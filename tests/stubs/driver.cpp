// Copyright 2026 The ms_ropegrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// What the host sources registered, to be read and called from tests/test_host.py. Answers are JSON.
#include <cstring>
#include <sstream>

#include "../../op_impl/op_host/rope_shape.h"
#include "../../op_impl/op_host/rope_tiling.h"
#include "register/op_def_registry.h"

namespace {

template <typename T>
std::string List(const T& values) {
  std::ostringstream text;
  const char* comma = "[";
  for (const auto& value : values) {
    text << comma << value;
    comma = ", ";
  }
  return (values.empty() ? "[" : text.str()) + "]";
}

std::string Params(const std::deque<ops::OpParamDef>& params) {
  std::vector<std::string> texts;
  for (const ops::OpParamDef& p : params) {
    std::ostringstream text;
    text << "{\"name\": \"" << p.name << "\", \"required\": " << (p.option == ops::REQUIRED) << ", \"auto_contiguous\": "
         << p.auto_contiguous << ", \"dtypes\": " << List(p.dtypes) << ", \"formats\": " << List(p.formats) << "}";
    texts.push_back(text.str());
  }
  return List(texts);
}

gert::Shape ShapeOf(const std::string& text) {
  std::istringstream dims(text);
  gert::Shape shape;
  for (std::string dim; std::getline(dims, dim, ',');) {
    shape.dims.push_back(std::stoll(dim));
  }
  return shape;
}

std::string Hex(const void* data, size_t bytes) {
  std::ostringstream text;
  text << std::hex;
  for (size_t i = 0; i < bytes; ++i) {
    const unsigned byte = static_cast<const unsigned char*>(data)[i];
    text << (byte >> 4) << (byte & 15);
  }
  return text.str();
}

std::string answer;

}  // namespace

extern "C" const char* op_defs() {
  std::vector<std::string> texts;
  for (const ops::OpDef& def : ops::OpDef::All()) {
    std::vector<std::string> socs;
    for (const std::string& soc : def.aicore.socs) {
      socs.push_back("\"" + soc + "\"");
    }
    texts.push_back("{\"type\": \"" + def.type + "\", \"inputs\": " + Params(def.inputs) + ", \"outputs\": " + Params(def.outputs) +
                    ", \"socs\": " + List(socs) + "}");
  }
  return (answer = List(texts)).c_str();
}

extern "C" const char* head_sizes() {
  const std::vector<int64_t> sizes(std::begin(ms_ropegrad::kHeadSizes), std::end(ms_ropegrad::kHeadSizes));
  return (answer = List(sizes)).c_str();
}

/// shapes "11,128;11,128;64,128;64,128;4;"; dtypes are numbers of ge::DataType. The answer is empty for a refusal.
extern "C" const char* infer_shape(const char* op, const char* shapes) {
  std::istringstream all(shapes);
  gert::InferShapeContext context;
  for (std::string one; std::getline(all, one, ';');) {
    context.inputs.push_back(ShapeOf(one));
  }
  context.outputs.resize(2);
  const bool ok = gert::OpImplRegisterV2::All().at(op).infer_shape(&context) == ge::GRAPH_SUCCESS;
  return (answer = !ok ? "" : "[" + List(context.outputs[0].dims) + ", " + List(context.outputs[1].dims) + "]").c_str();
}

extern "C" const char* infer_dtype(const char* op, const int* dtypes, int n) {
  gert::InferDataTypeContext context;
  for (int i = 0; i < n; ++i) {
    context.inputs.push_back(static_cast<ge::DataType>(dtypes[i]));
  }
  context.outputs.assign(2, ge::DT_UNDEFINED);
  const bool ok = gert::OpImplRegisterV2::All().at(op).infer_dtype(&context) == ge::GRAPH_SUCCESS;
  return (answer = ok ? List(context.outputs) : "").c_str();
}

/// ``data_bytes`` is the room that CANN would give; no platform information with ``cores`` 0.
extern "C" const char* tiling(const char* op, const char* shapes, const int* dtypes, uint32_t cores, uint64_t ub_bytes,
                              size_t data_bytes) {
  std::istringstream all(shapes);
  fe::PlatFormInfos platform = {cores, ub_bytes};
  gert::TilingContext context = {{}, {}, cores == 0 ? nullptr : &platform, std::vector<uint64_t>(data_bytes / 8, ~0ull), 0, 0, 0, 99};
  for (std::string one; std::getline(all, one, ';');) {
    context.descs.push_back({static_cast<ge::DataType>(dtypes[context.shapes.size()])});
    context.shapes.push_back({ShapeOf(one)});
  }
  const gert::OpImplRegisterV2::Functions& functions = gert::OpImplRegisterV2::All().at(op);
  gert::TilingParseContext parse;
  if (functions.parse(&parse) != ge::GRAPH_SUCCESS || functions.tiling(&context) != ge::GRAPH_SUCCESS) {
    return "";
  }
  std::ostringstream text;
  text << "{\"block_dim\": " << context.block_dim << ", \"key\": " << context.key << ", \"workspace\": " << context.workspace
       << ", \"data\": \"" << Hex(context.data.data(), context.data_bytes) << "\"}";
  return (answer = text.str()).c_str();
}

/// The same without CANN's side.
extern "C" const char* compute_tiling(const int64_t* sizes, uint32_t x_bytes, uint32_t table_bytes, bool native16, uint32_t cores,
                                      uint64_t ub_bytes) {
  using namespace ms_ropegrad;
  RopeProblem problem = RopeProblem();
  problem.nTokens = sizes[0];
  problem.qHidden = sizes[1];
  problem.kHidden = sizes[2];
  problem.maxSeqLen = sizes[3];
  problem.headSize = sizes[4];
  problem.batch = sizes[5];
  problem.xBytes = x_bytes;
  problem.tableBytes = table_bytes;
  problem.native16 = native16;
  problem.cores = cores;
  problem.ubBytes = ub_bytes;
  RopeTiling out = RopeTiling();
  const char* why = ComputeTiling(problem, &out);
  std::ostringstream text;
  text << "{\"block_dim\": " << out.blockDim << ", \"data\": \"" << Hex(&out.data, sizeof(out.data)) << "\"}";
  return (answer = why != nullptr ? why : text.str()).c_str();
}
