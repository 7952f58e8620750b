// Copyright 2026 The ms_ropegrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The three operators' definitions, from the tables of rope_shape.h. No attributes: PYNATIVE_MODE cannot pass them.
#include "register/op_def_registry.h"
#include "rope_shape.h"

namespace ops {
namespace {

ge::DataType DtypeOf(const std::string& name) {
  return name == "float16" ? ge::DT_FLOAT16 : name == "bfloat16" ? ge::DT_BF16 : name == "float32" ? ge::DT_FLOAT : ge::DT_INT32;
}

}  // namespace

class RopeDef : public OpDef {
 public:
  RopeDef(const char* name, ms_ropegrad::RopeOpId id) : OpDef(name) {
    using namespace ms_ropegrad;
    std::vector<ge::DataType> x;
    std::vector<ge::DataType> table;
    for (const DtypePair& pair : kDtypePairs) {
      x.push_back(DtypeOf(pair.x));
      table.push_back(DtypeOf(pair.table));
    }
    const std::vector<ge::DataType> ends(x.size(), DtypeOf(kSeqEndsDtype));
    const std::vector<ge::Format> nd(x.size(), ge::FORMAT_ND);
    for (size_t i = 0; i < kInputs; ++i) {
      const std::vector<ge::DataType>& dtypes = i <= kK ? x : i <= kSin ? table : ends;
      this->Input(kRopeOps[id].inputs[i]).ParamType(REQUIRED).DataType(dtypes).Format(nd).AutoContiguous();
    }
    for (const char* output : kRopeOps[id].outputs) {
      this->Output(output).ParamType(REQUIRED).DataType(x).Format(nd);
    }
    for (const char* soc : kSocs) {
      this->AICore().AddConfig(soc);
    }
  }
};

#define ROPE_OP(op_type)                                                           \
  class op_type : public RopeDef {                                                 \
   public:                                                                         \
    explicit op_type(const char* name) : RopeDef(name, ms_ropegrad::k##op_type) {} \
  };                                                                               \
  OP_ADD(op_type)

ROPE_OP(RopeGrad);
ROPE_OP(RopeGradExact);
ROPE_OP(RopeForward);

}  // namespace ops
