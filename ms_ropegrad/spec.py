# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
"""The operators' names, inputs, dtypes and limits, written once. Imports nothing; every layer reads it or is tested against it."""

VENDOR = "ms_ropegrad"
SOCS = ("ascend910b", "ascend910_93")

_GRAD_INPUTS = ("rope_q_grad", "rope_k_grad", "cos", "sin", "seq_ends")
_GRAD_OUTPUTS = ("q_grad", "k_grad")

# op type -> (input names, output names), in the order of every layer.
OPS = {
    "RopeGrad": (_GRAD_INPUTS, _GRAD_OUTPUTS),
    "RopeGradExact": (_GRAD_INPUTS, _GRAD_OUTPUTS),
    "RopeForward": (("q", "k", "cos", "sin", "seq_ends"), ("rope_q", "rope_k")),
}

# The gradient formulas a user chooses from -> the operator that computes it.
FORMULAS = {"atb": "RopeGrad", "exact": "RopeGradExact"}

# op type -> the op that computes its backward with respect to q and k (atb is diagonal: its own transpose).
ADJOINT = {"RopeGrad": "RopeGrad", "RopeGradExact": "RopeForward", "RopeForward": "RopeGradExact"}

# (dtype of q, k and the outputs; dtype of cos and sin). seq_ends is always int32 inside.
DTYPE_PAIRS = (
    ("float16", "float16"),
    ("bfloat16", "bfloat16"),
    ("float32", "float32"),
    ("float16", "float32"),
    ("bfloat16", "float32"),
)
DTYPES = ("float16", "bfloat16", "float32")
SEQ_ENDS_DTYPE = "int32"
LENGTH_DTYPES = ("int32", "int64")
MAX_END = 2**31 - 1  # seq_ends is int32

# Head sizes of the Ascend kernel; the CPU implementations take any even head size.
HEAD_SIZES = (64, 96, 128, 192, 256)


# rope_type of a rope_scaling -> (keys it needs, keys it may have with their defaults; None: left out).
SCALINGS = {
    "default": ((), {}),
    "linear": (("factor",), {}),
    "ntk": (("factor",), {}),
    "llama3": (("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"), {}),
    "yarn": (("factor", "original_max_position_embeddings"),
             {"beta_fast": 32.0, "beta_slow": 1.0, "truncate": True, "attention_factor": None, "mscale": None, "mscale_all_dim": None}),
}

# Layouts of q and k -> their axes: B batch, S sequence, T tokens, N heads, D head_size, H = N * D.
LAYOUTS = {"TH": 2, "TND": 3, "BSND": 4, "BNSD": 4, "SBND": 4}

# What computes on CPU: auto is native (the C++ library) when it is there, else numpy.
BACKENDS = ("auto", "native", "numpy")


def op_file(op_type):
    """RopeGradExact -> rope_grad_exact: the stem of the kernel's and its tables' file names."""
    return "".join("_" + c.lower() if c.isupper() else c for c in op_type).lstrip("_")
