# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
"""Rotary position embedding and its backward on packed sequences, as MindSpore operators.

Names load on first use: ``ms_ropegrad.reference`` works without mindspore.
"""
from importlib import import_module
from os import path as _path

__version__ = "0.1.0"

_HOME = {
    "RopeGrad": "cells", "Rope": "cells", "rope_grad": "cells", "rope": "cells", "check_lengths": "cells",
    "rope_tables": "tables", "RotaryEmbedding": "rotary",
    "reference": None, "lengths": None,
}
__all__ = sorted(_HOME)


def require_numpy():
    """Refuse NumPy 2 before mindspore is imported: it dies with it later, in "numpy.core.multiarray failed to import"."""
    import numpy
    if int(numpy.__version__.split(".")[0]) >= 2:
        raise ImportError(f"ms_ropegrad needs numpy < 2, as MindSpore does, but got {numpy.__version__}: pip install 'numpy<2'")


def __getattr__(name):
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _HOME[name]
    if name != "reference":
        require_numpy()
    value = import_module(f"{__name__}.{home or name}")
    if home:
        value = getattr(value, name)
    globals()[name] = value
    return value


def __dir__():
    return sorted(set(globals()) | set(__all__))


if _path.isdir(_path.join(_path.dirname(__file__), "vendors")):  # a wheel with the Ascend operators
    import_module(f"{__name__}.opp").use_bundled()
