// Copyright 2026 The ms_ropegrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Enough of CANN's host interface to compile and run op_impl/op_host and op_proto. A context holds what a call would bring.
#ifndef STUB_OP_IMPL_REGISTRY_H
#define STUB_OP_IMPL_REGISTRY_H
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <vector>

namespace ge {
using graphStatus = uint32_t;
const graphStatus GRAPH_SUCCESS = 0;
const graphStatus GRAPH_FAILED = 0xFFFFFFFF;
enum DataType { DT_FLOAT = 0, DT_FLOAT16 = 1, DT_INT8 = 2, DT_INT32 = 3, DT_INT64 = 9, DT_BF16 = 27, DT_UNDEFINED = 28 };
enum Format { FORMAT_NCHW = 0, FORMAT_ND = 2 };
}  // namespace ge

namespace fe {
struct PlatFormInfos {
  uint32_t aiv_cores;
  uint64_t ub_bytes;
};
}  // namespace fe

namespace gert {
class Shape {
 public:
  std::vector<int64_t> dims;
  size_t GetDimNum() const { return dims.size(); }
  int64_t GetDim(size_t i) const { return dims.at(i); }
};
struct StorageShape {
  Shape storage;
  const Shape& GetStorageShape() const { return storage; }
};
struct CompileTimeTensorDesc {
  ge::DataType dtype;
  ge::DataType GetDataType() const { return dtype; }
};

template <typename T>
T* At(std::vector<T>& values, size_t i) { return i < values.size() ? &values[i] : nullptr; }

struct InferShapeContext {
  std::vector<Shape> inputs, outputs;
  const Shape* GetInputShape(size_t i) { return At(inputs, i); }
  Shape* GetOutputShape(size_t i) { return At(outputs, i); }
};
struct InferDataTypeContext {
  std::vector<ge::DataType> inputs, outputs;
  ge::DataType GetInputDataType(size_t i) const { return i < inputs.size() ? inputs[i] : ge::DT_UNDEFINED; }
  ge::graphStatus SetOutputDataType(size_t i, ge::DataType dtype) {
    if (i >= outputs.size()) return ge::GRAPH_FAILED;
    outputs[i] = dtype;
    return ge::GRAPH_SUCCESS;
  }
};
struct TilingParseContext {};
struct TilingContext {
  std::vector<StorageShape> shapes;
  std::vector<CompileTimeTensorDesc> descs;
  fe::PlatFormInfos* platform;
  std::vector<uint64_t> data;  // of the tiling struct, poisoned by the driver
  size_t data_bytes, workspace;
  uint32_t block_dim;
  uint64_t key;
  const StorageShape* GetInputShape(size_t i) { return At(shapes, i); }
  const CompileTimeTensorDesc* GetInputDesc(size_t i) { return At(descs, i); }
  fe::PlatFormInfos* GetPlatformInfo() const { return platform; }
  template <typename T>
  T* GetTilingData() {
    if (sizeof(T) > data.size() * sizeof(uint64_t)) return nullptr;
    data_bytes = sizeof(T);
    return reinterpret_cast<T*>(data.data());
  }
  size_t* GetWorkspaceSizes(size_t count) { return count == 1 ? &workspace : nullptr; }
  ge::graphStatus SetBlockDim(uint32_t n) { return block_dim = n, ge::GRAPH_SUCCESS; }
  ge::graphStatus SetTilingKey(uint64_t n) { return key = n, ge::GRAPH_SUCCESS; }
};

class OpImplRegisterV2 {
 public:
  struct Functions {
    uint32_t (*infer_shape)(InferShapeContext*);
    uint32_t (*infer_dtype)(InferDataTypeContext*);
    uint32_t (*tiling)(TilingContext*);
    uint32_t (*parse)(TilingParseContext*);
  };
  static std::map<std::string, Functions>& All() { static std::map<std::string, Functions> all; return all; }
  explicit OpImplRegisterV2(const char* op_type) : mine_(&All()[op_type]) {}
  OpImplRegisterV2& InferShape(uint32_t (*f)(InferShapeContext*)) { return mine_->infer_shape = f, *this; }
  OpImplRegisterV2& InferDataType(uint32_t (*f)(InferDataTypeContext*)) { return mine_->infer_dtype = f, *this; }
  OpImplRegisterV2& Tiling(uint32_t (*f)(TilingContext*)) { return mine_->tiling = f, *this; }
  template <typename T>
  OpImplRegisterV2& TilingParse(uint32_t (*f)(TilingParseContext*)) { return mine_->parse = f, *this; }

 private:
  Functions* mine_;
};
}  // namespace gert

#define IMPL_OP_INFERSHAPE(op_type) \
  gert::OpImplRegisterV2 __attribute__((unused)) infershape_##op_type = gert::OpImplRegisterV2(#op_type)
#define IMPL_OP_OPTILING(op_type) \
  gert::OpImplRegisterV2 __attribute__((unused)) optiling_##op_type = gert::OpImplRegisterV2(#op_type)
#endif
