// Copyright 2026 The ms_ropegrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// OpDef that records what a definition says.
#ifndef STUB_OP_DEF_REGISTRY_H
#define STUB_OP_DEF_REGISTRY_H
#include <deque>

#include "register/op_impl_registry.h"

namespace ops {
enum Option { IGNORE = 0, OPTIONAL = 1, REQUIRED = 2, DYNAMIC = 3, VIRTUAL = 4 };
struct OpParamDef {
  std::string name;
  Option option;
  std::vector<ge::DataType> dtypes;
  std::vector<ge::Format> formats;
  bool auto_contiguous;
  OpParamDef& ParamType(Option value) { return option = value, *this; }
  OpParamDef& DataType(std::vector<ge::DataType> value) { return dtypes = value, *this; }
  OpParamDef& Format(std::vector<ge::Format> value) { return formats = value, *this; }
  OpParamDef& AutoContiguous() { return auto_contiguous = true, *this; }
};
struct OpAICoreDef {
  std::vector<std::string> socs;
  OpAICoreDef& AddConfig(const char* soc) { return socs.push_back(soc), *this; }
};
class OpDef {
 public:
  static std::vector<OpDef>& All() { static std::vector<OpDef> all; return all; }
  explicit OpDef(const char* name) : type(name) {}
  OpParamDef& Input(const char* name) { return Add(inputs, name); }
  OpParamDef& Output(const char* name) { return Add(outputs, name); }
  OpAICoreDef& AICore() { return aicore; }
  std::string type;
  std::deque<OpParamDef> inputs, outputs;  // no Attr: the operators have none
  OpAICoreDef aicore;

 private:
  static OpParamDef& Add(std::deque<OpParamDef>& params, const char* name) {
    params.push_back({name, IGNORE, {}, {}, false});
    return params.back();
  }
};
}  // namespace ops

#define OP_ADD(op_type) static const bool added_##op_type = (ops::OpDef::All().push_back(op_type(#op_type)), true)
#endif
