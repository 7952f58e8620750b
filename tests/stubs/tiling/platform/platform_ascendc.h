// Copyright 2026 The ms_ropegrad Authors
// SPDX-License-Identifier: Apache-2.0
#ifndef STUB_PLATFORM_ASCENDC_H
#define STUB_PLATFORM_ASCENDC_H
#include "register/op_impl_registry.h"

namespace platform_ascendc {
enum class CoreMemType { L1 = 3, UB = 5 };
class PlatformAscendC {
 public:
  explicit PlatformAscendC(fe::PlatFormInfos* infos) : infos_(infos) {}
  uint32_t GetCoreNumAiv() const { return infos_->aiv_cores; }
  void GetCoreMemSize(const CoreMemType& type, uint64_t& size) const { size = type == CoreMemType::UB ? infos_->ub_bytes : 0; }
  uint32_t GetLibApiWorkSpaceSize() const { return 16 * 1024 * 1024; }

 private:
  fe::PlatFormInfos* infos_;
};
}  // namespace platform_ascendc
#endif
