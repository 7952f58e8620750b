# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
"""A CPU twin of Ascend C: compile a kernel with g++, run it with the limits of the device, get a report."""

from .twin import Kernel, Report, TwinError, build

__all__ = ["Kernel", "Report", "TwinError", "build"]
