# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
"""Every refusal, in one wording, for all paths. Works on shapes and dtype names; imports no mindspore."""
import math
import numbers
import re

import numpy as np

from . import spec

_CALLER = {"RopeForward": "Rope", "RopeGradExact": "RopeGrad"}  # op type -> the name its user called


def _must(op, what, need, got):
    return f"For '{_CALLER.get(op, op)}', the {what} must be {need}, but got {short(got) if isinstance(got, int) else got}."


def short(value, most=80):
    """repr of a user's value, for messages; Python refuses that of huge ints."""
    text = hex(value) if isinstance(value, int) and abs(value) >> 256 else repr(value)
    return text if len(text) <= most else text[:most] + "..."


def refuse(op, what, need, got):
    raise ValueError(_must(op, what, need, got))


def refuse_type(op, what, need, got):
    raise TypeError(_must(op, what, need, got))


def reraise(error):
    """MindSpore makes a RuntimeError of whatever the native library throws: ValueError again, in the words of this file."""
    refusal = re.search(r"Error message is (For 'Rope(?:Grad)?', the .*)", str(error))
    if refusal:
        raise ValueError(refusal.group(1)) from error
    raise error


def formula_op(formula, arg, op=None):
    """The gradient operator of a formula's name; ``arg`` is 'formula' (RopeGrad) or 'grad_formula' (Rope, unless ``op`` says who)."""
    op = op or ("RopeForward" if arg == "grad_formula" else "RopeGrad")
    names = " or ".join(f"'{f}'" for f in spec.FORMULAS)
    if not isinstance(formula, str):
        raise TypeError(_must(op, f"'{arg}'", names, type(formula).__name__))
    if formula not in spec.FORMULAS:
        raise ValueError(_must(op, f"'{arg}'", names, f"'{formula}'"))
    return spec.FORMULAS[formula]


def tensor_kinds(op, kinds):
    """kinds: type name of each of the four inputs, 'Tensor' when it is one."""
    for name, kind in zip(spec.OPS.get(op, spec.OPS["RopeForward"])[0], kinds):
        if kind != "Tensor":
            raise TypeError(_must(op, f"type of '{name}'", "Tensor", kind))


def ndarrays(op, values):
    for name, value in zip(spec.OPS[op][0], values):
        if not _plain(value):
            raise TypeError(_must(op, f"type of '{name}'", "numpy.ndarray", type(value).__name__))


def held_dtype(op, dtypes, dtype):
    """``dtype`` names what the arrays hold: their own dtype, or bfloat16 held in float32."""
    if not isinstance(dtype, str):
        raise TypeError(_must(op, "'dtype'", "a string or None", type(dtype).__name__))
    if dtype not in spec.DTYPES:
        raise ValueError(_must(op, "'dtype'", f"one of {list(spec.DTYPES)}", f"'{dtype}'"))
    for name, got in zip(spec.OPS[op][0], dtypes):
        need = {"float32", "bfloat16"} if dtype == "bfloat16" else {dtype} | ({"float32"} if name in ("cos", "sin") else set())
        if got not in need:
            raise TypeError(_must(op, f"dtype of '{name}'", " or ".join(sorted(need)) + f" when 'dtype' is '{dtype}'", got))


def backend(name, value):
    """The CPU backend ``value``; ``name`` is 'backend' or the environment variable."""
    if not isinstance(value, str) or value not in spec.BACKENDS:
        need = f"{', '.join(map(repr, spec.BACKENDS[:-1]))} or {spec.BACKENDS[-1]!r}"
        raise (ValueError if isinstance(value, str) else TypeError)(f"The {name} must be {need}, but got {short(value)}.")
    return value


def arrays(op, shapes, dtypes, dynamic=False):
    """Shapes and dtype names of the four inputs, in the operator's order.

    ``dynamic``: shapes of a graph may be unknown; the native library checks them when they are known.
    """
    names = spec.OPS[op][0]
    _dtypes(op, names, dtypes, "dtype of 'cos'")
    if dtypes[3] != dtypes[2]:
        raise TypeError(_must(op, "dtype of 'sin'", f"the same as 'cos' ({dtypes[2]})", dtypes[3]))
    if dynamic and any(map(_unknown, shapes)):
        return
    for name, shape in zip(names, shapes):
        _static(op, name, shape)
        if len(shape) != 2:
            raise ValueError(_must(op, f"rank of '{name}'", "2", f"{len(shape)} with shape {tuple(shape)}"))
    q, k, cos, sin = (tuple(int(d) for d in s) for s in shapes)
    if sin != cos:
        raise ValueError(_must(op, "shape of 'sin'", f"the same as 'cos' {cos}", sin))
    max_seq_len, head = cos
    if head < 2 or head % 2:
        raise ValueError(_must(op, "head_size (columns of 'cos')", "even and at least 2", f"{head} with shape {cos}"))
    if max_seq_len < 1:
        raise ValueError(_must(op, "max_seq_len (rows of 'cos')", "at least 1", f"{max_seq_len} with shape {cos}"))
    for name, shape in ((names[0], q), (names[1], k)):
        if shape[1] < head or shape[1] % head:
            raise ValueError(_must(op, f"hidden_size of '{name}'", f"a positive multiple of head_size {head} (columns of 'cos')",
                                   f"{shape[1]} with shape {shape}"))
    if q[0] != k[0]:
        raise ValueError(_must(op, f"n_tokens of '{names[1]}'", f"the same as '{names[0]}' {q}", k))
    if q[0] > spec.MAX_END:
        raise ValueError(_must(op, "n_tokens", f"at most {spec.MAX_END}", q[0]))


def _dtypes(op, names, dtypes, table):
    for name, dtype in zip(names, dtypes):
        if dtype not in spec.DTYPES:
            raise TypeError(_must(op, f"dtype of '{name}'", f"one of {list(spec.DTYPES)}", dtype))
    if dtypes[1] != dtypes[0]:
        raise TypeError(_must(op, f"dtype of '{names[1]}'", f"the same as '{names[0]}' ({dtypes[0]})", dtypes[1]))
    if (dtypes[0], dtypes[2]) not in spec.DTYPE_PAIRS:
        need = " or ".join(t for x, t in spec.DTYPE_PAIRS if x == dtypes[0])
        raise TypeError(_must(op, f"{table} for '{names[0]}' of {dtypes[0]}", need, dtypes[2]))


def _static(op, name, shape):
    if _unknown(shape):
        raise ValueError(_must(op, f"shape of '{name}'", "static (the numbers of tokens and sequences may change from "
                               "call to call: leave set_inputs out) unless the backend is native", "a dynamic shape"))


def layout(op, value):
    if not isinstance(value, str) or value not in spec.LAYOUTS:
        (refuse if isinstance(value, str) else refuse_type)(op, "'layout'", f"one of {list(spec.LAYOUTS)}", short(value))
    return value


def rotary(op, axes, head, part, max_seq_len, dense, shapes, dtypes, target):
    """q and k of RotaryEmbedding in layout ``axes``; ``dense``: without lengths. Unknown dimensions are left to the library."""
    _dtypes(op, ("q", "k"), dtypes, "'table_dtype'")
    if target == "Ascend" and part not in spec.HEAD_SIZES:
        refuse(op, "rotary_dim (head_size unless given) on Ascend", f"one of {list(spec.HEAD_SIZES)}", part)
    for name, shape in zip("qk", shapes):
        if target != "native":
            _static(op, name, shape)
        if shape is None or len(shape) != spec.LAYOUTS[axes]:
            refuse(op, f"rank of '{name}' in layout '{axes}'", spec.LAYOUTS[axes], "unknown" if shape is None else f"{len(shape)} with shape {tuple(shape)}")
        if axes == "TH":
            if not shape[1] or shape[1] < head or shape[1] % head:
                refuse(op, f"hidden_size of '{name}'", f"a positive multiple of head_size {head}", f"{shape[1]} with shape {tuple(shape)}")
        elif shape[-1] != head or not shape[axes.index("N")] or shape[axes.index("N")] < 1:
            refuse(op, f"shape of '{name}' in layout '{axes}'", f"({', '.join(axes[:-1])}, {head}) with at least one head", tuple(shape))
    for axis in axes:
        sizes = [shape[axes.index(axis)] for shape in shapes]
        if axis in "TBS" and sizes[0] != sizes[1] and not _unknown(sizes):
            refuse(op, f"{axis} of 'k' in layout '{axes}'", f"the same as 'q' {tuple(shapes[0])}", tuple(shapes[1]))
    if dense and axes in ("TH", "TND"):
        refuse(op, f"sequence lengths in layout '{axes}'", "given, as 'q_seq_len' or as 'seq_ends' (one sequence: seq_ends=[n_tokens])", "none of them")
    if dense and (shapes[0][axes.index("S")] or 0) > max_seq_len:
        refuse(op, f"S of 'q' in layout '{axes}'", f"at most max_seq_len {max_seq_len}", tuple(shapes[0]))


def one_lengths(op, has_lengths, has_ends, has_own=False):
    """Exactly one form of the lengths, from the constructor (``has_own``) or the call."""
    count = has_lengths + has_ends + has_own
    if count != 1:
        got = "none of them" if not count else "both" if has_lengths and has_ends else "one in the constructor and one in the call"
        raise ValueError(_must(op, "sequence lengths", "given once, as 'q_seq_len' or as 'seq_ends'", got))


def _unknown(shape):
    return shape is None or None in shape or any(d < 0 for d in shape)


def length_tensor(op, name, shape, dtype, dynamic=False):
    if dtype not in spec.LENGTH_DTYPES:
        raise TypeError(_must(op, f"dtype of '{name}'", f"one of {list(spec.LENGTH_DTYPES)}", dtype))
    if _unknown(shape):
        if dynamic:
            return
        raise ValueError(_must(op, f"shape of '{name}'", "static (pad to a fixed number of sequences) unless the backend is native",
                               "a dynamic shape"))
    if len(shape) != 1 or shape[0] < 1:
        raise ValueError(_must(op, f"shape of '{name}'", "(number of sequences,) with at least one", tuple(shape)))


def count(op, name, value, low=0):
    """A number of tokens, rows or columns."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(_must(op, f"type of '{name}'", "int", type(value).__name__))
    if not low <= value <= spec.MAX_END:
        raise ValueError(_must(op, f"'{name}'", f"from {low} to {spec.MAX_END}", short(int(value))))
    return int(value)


def even(op, name, value, most=None):
    """A head size or rotary_dim."""
    value = count(op, name, value, 2)
    if value % 2 or most is not None and value > most:
        refuse(op, f"'{name}'", "even" if most is None else f"even and at most head_size {most}", value)
    return value


def number(op, name, value, low, above=False):
    """A finite float of at least (or ``above``) ``low``."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        refuse_type(op, f"type of '{name}'", "float", type(value).__name__)
    try:
        x = float(value)
    except OverflowError:
        x = math.inf
    if not low <= x < math.inf or above and x == low:
        refuse(op, f"'{name}'", f"finite and {'greater than' if above else 'at least'} {low}", short(value))
    return x


def base(op, value):
    return number(op, "base", value, 1e-290)  # below, angles are not finite


def scaling(op, value, dim, base_of_call):
    """A rope_scaling in Hugging Face's form -> (rope_type, its values with the defaults)."""
    if value is None:
        return "default", {}
    if not isinstance(value, dict):
        refuse_type(op, "type of 'scaling'", "dict or None", type(value).__name__)
    value = {k: v for k, v in value.items() if v is not None}
    kinds = [value.pop(k) for k in ("rope_type", "type") if k in value]
    need = f"one of {list(spec.SCALINGS)}"
    if len(kinds) == 2 and kinds[0] != kinds[1]:
        refuse(op, "'rope_type' and 'type' of 'scaling'", "the same", f"{short(kinds[0])} and {short(kinds[1])}")
    if not kinds or not isinstance(kinds[0], str) or kinds[0] not in spec.SCALINGS:
        why = ""
        if kinds and kinds[0] == "dynamic":
            why = " Dynamic NTK changes the frequencies with the longest sequence of each step, but tables are fixed: take 'ntk' or 'yarn'."
        raise ValueError(_must(op, "'rope_type' of 'scaling'", need, short(kinds[0]) if kinds else "none") + why)
    kind = kinds[0]
    required, optional = spec.SCALINGS[kind]
    if number(op, "rope_theta", value.pop("rope_theta", base_of_call), 0) != base_of_call:
        refuse(op, "'rope_theta' of 'scaling'", f"the same as 'base' ({short(base_of_call)})", "another value")
    unknown, missing = [k for k in value if k not in (*required, *optional)], [k for k in required if k not in value]
    if unknown or missing:
        refuse(op, f"keys of 'scaling' of type '{kind}'", f"{[*required]} and optionally {[*optional]}",
               f"unknown {short(unknown)}" if unknown else f"no {missing}")
    given = {k: v for k, v in {**optional, **value}.items() if v is not None}
    for k, v in given.items():
        if k != "truncate":
            given[k] = number(op, f"{k}' of 'scaling", v, 1 if "factor" == k else 0, k != "factor")
        elif not isinstance(v, bool):
            refuse_type(op, "type of 'truncate' of 'scaling'", "bool", type(v).__name__)
    for low, high in (("low_freq_factor", "high_freq_factor"), ("beta_slow", "beta_fast")):
        if low in given and not given[low] < given[high]:
            refuse(op, f"'{high}' of 'scaling'", f"greater than '{low}' {given[low]}", short(given[high]))
    if ("mscale" in given) != ("mscale_all_dim" in given):
        refuse(op, "'mscale' and 'mscale_all_dim' of 'scaling'", "given together", "one of them")
    if kind == "ntk" and dim == 2:
        refuse(op, "rotary_dim", "at least 4 for 'ntk'", 2)
    if kind == "yarn" and base_of_call <= 1:
        refuse(op, "'base'", "greater than 1 for 'yarn'", short(base_of_call))
    return kind, given


_VARIABLE = " Lengths that are computed or mutable go in one int32 or int64 Tensor."


def _plain(value):
    return isinstance(value, np.ndarray) and not isinstance(value, np.ma.MaskedArray)  # the mask would be ignored


def int_list(op, name, values):
    """A list or tuple of ints -> tuple of int; lengths are at least 1, ends at least 0."""
    if _plain(values):
        if values.ndim != 1 or values.dtype.kind not in "iu":
            raise TypeError(_must(op, f"array '{name}'", "one-dimensional and of an integer dtype", f"{values.dtype} with shape {values.shape}"))
        values = values.tolist()
    if not isinstance(values, (list, tuple)):
        if hasattr(values, "asnumpy"):
            raise TypeError(_must(op, f"type of '{name}' at construction", "a list or tuple of int", "Tensor") + " Pass a Tensor in the call.")
        need = "a list or tuple of int, or an int32 or int64 Tensor"
        raise TypeError(_must(op, f"type of '{name}'", need, type(values).__name__) + (_VARIABLE if values is None else ""))
    if not values:
        raise ValueError(_must(op, f"number of sequences in '{name}'", "at least 1", "an empty list"))
    result = []
    for i, v in enumerate(values):
        if isinstance(v, bool) or not isinstance(v, numbers.Integral):
            kind = type(v).__name__
            if v is None or hasattr(v, "asnumpy"):  # perhaps a variable of a graph, whose value is not known here
                raise TypeError(_must(op, f"type of '{name}[{i}]'", "int", kind) + _VARIABLE)
            raise TypeError(_must(op, f"type of '{name}[{i}]'", "int", f"{kind} {short(v)}"))
        result.append(int(v))
    return tuple(result)


def ends_of_list(op, name, values, n_tokens=None, max_seq_len=None):
    """A list -> its cumulative ends as int64 ndarray; n_tokens and max_seq_len are checked when known."""
    values = int_list(op, name, values)
    low = 1 if name == "q_seq_len" else 0
    for i, v in enumerate(values):
        if v < low:
            hint = _form_hint(name, values, n_tokens)
            raise ValueError(_must(op, f"'{name}[{i}]'", f"at least {low}", v) + hint)
    if max(values) > spec.MAX_END:
        raise ValueError(_must(op, f"largest element of '{name}'", f"at most {spec.MAX_END}", max(values)))
    return ends_of_values(op, name, np.array(values, np.int64), n_tokens, max_seq_len)


def ends_of_values(op, name, values, n_tokens=None, max_seq_len=None):
    """Values of a lengths list or tensor (zeros allowed, [batch] int) -> int64 ends, refused when they do not fit."""
    values = values.astype(np.int64)
    lengths = values.copy()
    if name != "q_seq_len":
        lengths[1:] -= values[:-1]
    if lengths.min() < 0:
        need = "non-negative" if name == "q_seq_len" else "non-negative and non-decreasing"
        raise ValueError(_must(op, f"values of '{name}'", need, show(values)) + _form_hint(name, values, n_tokens))
    ends = np.cumsum(lengths) if lengths.max() <= spec.MAX_END else np.array([-1])
    if n_tokens is not None and ends[-1] != n_tokens:
        what = "sum of 'q_seq_len'" if name == "q_seq_len" else "last element of 'seq_ends'"
        got = f"{sum(lengths.tolist())} from {show(values)}"
        raise ValueError(_must(op, what, f"n_tokens {n_tokens}", got) + _form_hint(name, values, n_tokens))
    if max_seq_len is not None and lengths.max() > max_seq_len:
        raise ValueError(_must(op, f"longest sequence of '{name}'", f"at most max_seq_len {max_seq_len}" + " (rows of 'cos')" * (op in spec.OPS),
                               int(lengths.max())))
    return ends


def _form_hint(name, values, n_tokens):
    """Lengths and cumulative ends are the likeliest mix-up: name it when the values fit the other form."""
    values = [int(v) for v in values]
    rising = all(a <= b for a, b in zip(values, values[1:]))
    if name == "q_seq_len" and rising and len(values) > 1 and values[0] >= 0 and values[-1] == n_tokens:
        zero = " without the leading 0" if values[0] == 0 else ""
        return f" These look like cumulative ends (non-decreasing, last == n_tokens): pass them as seq_ends={zero}."
    if name == "seq_ends" and min(values) >= 0 and sum(values) == n_tokens:
        return " These look like lengths (they sum to n_tokens): pass them as q_seq_len."
    if name == "seq_ends":  # inside the operator lengths have become ends already
        lengths = [b - a for a, b in zip([0, *values], values)]
        if _form_hint("q_seq_len", lengths, n_tokens):
            return f" The q_seq_len {show(lengths)} behind them look like cumulative ends: pass them as seq_ends=."
    return ""


def show(values, most=8):
    """Lengths or ends, for messages."""
    text = ", ".join(short(int(v)) for v in values[:most])
    return f"[{text}, ...] ({len(values)} sequences)" if len(values) > most else f"[{text}]"


def ends(op, q_seq_len, seq_ends, n_tokens, max_seq_len):
    """The NumPy path: a list, tuple or integer ndarray in either form -> int64 ends."""
    one_lengths(op, q_seq_len is not None, seq_ends is not None)
    name, values = ("q_seq_len", q_seq_len) if seq_ends is None else ("seq_ends", seq_ends)
    if _plain(values):  # as a tensor: zeros allowed
        length_tensor(op, name, values.shape, values.dtype.name)
        return ends_of_values(op, name, values, n_tokens, max_seq_len)
    return ends_of_list(op, name, values, n_tokens, max_seq_len)
