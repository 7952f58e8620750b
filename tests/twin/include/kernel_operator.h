// Copyright 2026 The ms_ropegrad Authors
// SPDX-License-Identifier: Apache-2.0
// The Ascend C names a vector kernel needs, for g++. See docs/twin.md.
#ifndef TWIN_KERNEL_OPERATOR_H
#define TWIN_KERNEL_OPERATOR_H

#include "twin/types.h"
#include "twin/core.h"
#include "twin/tensor.h"
#include "twin/queue.h"
#include "twin/copy.h"
#include "twin/vector.h"

#endif
