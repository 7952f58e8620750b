# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
"""Rotary position embedding and its backward on packed sequences, as MindSpore operators.

Names load on first use: ``ms_ropegrad.reference`` works without mindspore.
"""
from importlib import import_module

__version__ = "0.1.0"

_HOME = {
    "RopeGrad": "cells", "Rope": "cells", "rope_grad": "cells", "rope": "cells", "check_lengths": "cells",
    "rope_tables": "tables",
    "reference": None, "lengths": None,
}
__all__ = sorted(_HOME)


def __getattr__(name):
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _HOME[name]
    value = import_module(f"{__name__}.{home or name}")
    if home:
        value = getattr(value, name)
    globals()[name] = value
    return value


def __dir__():
    return sorted(set(globals()) | set(__all__))
