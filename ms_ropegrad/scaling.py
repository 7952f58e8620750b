# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
"""Frequencies of RoPE and the published ways to stretch them over longer contexts, in float64; imports no mindspore."""
import math

import numpy as np


def frequencies(dim, base, kind="default", given=None):
    """(frequencies [dim / 2], factor of the tables); ``given``: the checked values of a rope_scaling of that ``kind``."""
    plain = base ** (-np.arange(0, dim, 2, dtype=np.float64) / dim)
    if kind == "default":
        return plain, 1.0
    s = given["factor"]
    if kind == "linear":  # position interpolation, arXiv 2306.15595
        return plain / s, 1.0
    if kind == "ntk":  # a larger base: the highest frequency stays, the lowest is divided by s; arXiv 2309.00071, section 3.1
        return (base * s ** (dim / (dim - 2))) ** (-np.arange(0, dim, 2, dtype=np.float64) / dim), 1.0
    context = given["original_max_position_embeddings"]
    if kind == "llama3":  # by wavelength: the short ones stay, the long ones are divided by s
        turns = context * plain / (2 * math.pi)  # in the original context
        keep = (turns - given["low_freq_factor"]) / (given["high_freq_factor"] - given["low_freq_factor"])
        return _blend(plain, s, keep), 1.0
    # YaRN, arXiv 2309.00071: between two dimensions, as the authors' code has it (their paper says: between two numbers of turns).
    low, high = (dim * math.log(context / (given[beta] * 2 * math.pi)) / (2 * math.log(base)) for beta in ("beta_fast", "beta_slow"))
    if given["truncate"]:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    keep = 1 - (np.arange(dim // 2) - low) / ((high - low) or 0.001)
    return _blend(plain, s, keep), _attention(given)


def _blend(plain, s, keep):
    keep = np.clip(keep, 0, 1)
    return plain * keep + plain / s * (1 - keep)


def _attention(given):
    """YaRN's factor of the tables; mscale and mscale_all_dim are DeepSeek's."""
    if "attention_factor" in given:
        return given["attention_factor"]
    of = lambda m: 0.1 * m * math.log(given["factor"]) + 1
    return of(given["mscale"]) / of(given["mscale_all_dim"]) if "mscale" in given else of(1.0)
