# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
"""The operators' host code, compiled as C++11 against tests/stubs and run: OpDef, infer shape, infer data type, tiling."""
import ctypes
import json
import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ms_ropegrad import checks, custom, spec

REPO = Path(__file__).resolve().parent.parent
GE = {"float32": 0, "float16": 1, "int8": 2, "int32": 3, "int64": 9, "bfloat16": 27}  # numbers of ge::DataType
NAME = {number: name for name, number in GE.items()}
FORMAT_ND = 2
UB = 196352
WORKSPACE = 16 * 1024 * 1024
ROOM = 2048  # CANN's default room for tiling data
CXX = os.environ.get("CXX", "g++")
FLAGS = ["-std=c++11", "-pedantic", "-Wall", "-Wextra", "-Werror"]

DOCUMENT = [(11, 128), (11, 128), (64, 128), (64, 128), (4,)]
HALF = ["float16"] * 4 + ["int32"]


@pytest.fixture(scope="module")
def lib(tmp_path_factory):
    """All host sources and the driver as one library."""
    out = tmp_path_factory.mktemp("host")
    sources = [REPO / "op_impl/op_host/rope_grad_def.cpp", REPO / "op_impl/op_host/rope_grad_tiling.cpp",
               REPO / "op_proto/rope_grad_proto.cpp", REPO / "tests/stubs/driver.cpp"]
    flags = [*FLAGS, "-fPIC", f"-I{REPO / 'tests/stubs'}"]
    for source in sources:
        subprocess.run([CXX, *flags, "-c", str(source), "-o", str(out / (source.stem + ".o"))], check=True)
    path = out / "libhost.so"
    subprocess.run([CXX, "-shared", "-o", str(path), *map(str, out.glob("*.o"))], check=True)
    lib = ctypes.CDLL(str(path))
    for name in ("op_defs", "head_sizes", "infer_shape", "infer_dtype", "tiling", "compute_tiling"):
        getattr(lib, name).restype = ctypes.c_char_p
    return lib


def _text(shapes):
    return "".join(",".join(map(str, s)) + ";" for s in shapes).encode()


def _numbers(dtypes):
    return (ctypes.c_int * len(dtypes))(*(GE[d] for d in dtypes))


def infer_shape(lib, op, shapes):
    answer = lib.infer_shape(op.encode(), _text(shapes))
    return [tuple(s) for s in json.loads(answer)] if answer else None


def infer_dtype(lib, op, dtypes):
    answer = lib.infer_dtype(op.encode(), _numbers(dtypes), len(dtypes))
    return [NAME[d] for d in json.loads(answer)] if answer else None


def tiling(lib, op, shapes, dtypes, cores=40, ub=UB, room=ROOM):
    answer = lib.tiling(op.encode(), _text(shapes), _numbers(dtypes), cores, ctypes.c_uint64(ub), ctypes.c_size_t(room))
    return json.loads(answer) if answer else None


def message(capfd):
    """What the host code wrote to stderr since the last look."""
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) <= 1, lines
    return lines[0].replace("[ERROR] ms_ropegrad: ", "") if lines else None


def python_refusal(op, shapes, dtypes):
    try:
        checks.arrays(op, shapes[:4], dtypes[:4])
        checks.length_tensor(op, "seq_ends", shapes[4], dtypes[4])
    except (TypeError, ValueError) as error:
        return str(error)
    return None


@pytest.mark.parametrize("header", ["op_host/rope_shape.h", "op_host/rope_tiling.h"])
def test_arithmetic_needs_no_cann_header(header):
    subprocess.run([CXX, *FLAGS, "-fsyntax-only", "-x", "c++", "-"], input=f'#include "{REPO}/op_impl/{header}"', text=True, check=True)


# The table of names, dtypes and limits.

@pytest.mark.parametrize("op", spec.OPS)
def test_op_def(lib, op):
    defs = {d["type"]: d for d in json.loads(lib.op_defs())}
    assert list(defs) == list(spec.OPS)
    inputs, outputs = spec.OPS[op]
    mine = defs[op]
    assert [p["name"] for p in mine["inputs"]] == list(inputs)
    assert [p["name"] for p in mine["outputs"]] == list(outputs)
    assert mine["socs"] == list(spec.SOCS)
    rows = [(x, x, t, t, spec.SEQ_ENDS_DTYPE, x, x) for x, t in spec.DTYPE_PAIRS]
    params = mine["inputs"] + mine["outputs"]
    assert list(zip(*([NAME[d] for d in p["dtypes"]] for p in params))) == rows
    assert all(p["formats"] == [FORMAT_ND] * len(rows) and p["required"] for p in params)
    assert all(p["auto_contiguous"] for p in mine["inputs"])


@pytest.mark.parametrize("op", spec.OPS)
def test_mindspore_registration_equals_op_def(lib, op):
    mine = next(d for d in json.loads(lib.op_defs()) if d["type"] == op)
    info = custom.reg_info(op)
    assert isinstance(info, dict) and info["op_name"] == op and info["target"] == "Ascend" and not info["attr"]
    for kind in ("inputs", "outputs"):
        assert [(p["index"], p["name"], p["paramType"]) for p in info[kind]] == [
            (i, p["name"], "required") for i, p in enumerate(mine[kind])]
    columns = zip(*([(NAME[d], "DefaultFormat") for d in p["dtypes"]] for p in mine["inputs"] + mine["outputs"]))
    assert [[tuple(d) for d in row] for row in info["dtype_format"]] == [list(row) for row in columns]


def test_head_sizes(lib):
    assert tuple(json.loads(lib.head_sizes())) == spec.HEAD_SIZES


# Infer shape and data type.

@pytest.mark.parametrize("op", spec.OPS)
@pytest.mark.parametrize("shapes", [
    DOCUMENT,
    [(7, 192), (7, 576), (5, 192), (5, 192), (3,)],
    [(0, 128), (0, 256), (64, 128), (64, 128), (1,)],
    [(-1, 128), (-1, 256), (64, 128), (64, 128), (-1,)],
    [(-1, 128), (9, 256), (64, 128), (64, 128), (4,)],
    [(9, -1), (9, -1), (-1, -1), (-1, -1), (4,)],
    [(9, 384), (9, 128), (-1, 128), (64, -1), (4,)],
    [(-2,), (9, 128), (64, 128), (64, 128), (4,)],
    [(9, 128), (-2,), (-2,), (64, 128), (-2,)],
    [(-2,), (-2,), (-2,), (-2,), (-2,)],
], ids=str)
def test_infer_shape_passes_shapes_through(lib, capfd, op, shapes):
    assert infer_shape(lib, op, shapes) == shapes[:2]
    assert message(capfd) is None


@pytest.mark.parametrize("shapes, text", [
    ([(-1, 128), (-1, 129), (64, 128), (64, 128), (-1,)],
     "the hidden_size of 'rope_k_grad' must be a positive multiple of head_size 128 (columns of 'cos'), but got 129 with shape (-1, 129)."),
    ([(9, 192), (9, 128), (-1, 128), (64, -1), (4,)],
     "the hidden_size of 'rope_q_grad' must be a positive multiple of head_size 128 (columns of 'cos'), but got 192 with shape (9, 192)."),
    ([(9, 192), (9, 128), (-2,), (64, 128), (4,)],
     "the hidden_size of 'rope_q_grad' must be a positive multiple of head_size 128 (columns of 'cos'), but got 192 with shape (9, 192)."),
    ([(9, 0), (9, 128), (-2,), (-2,), (4,)],
     "the hidden_size of 'rope_q_grad' must be a positive multiple of head_size (columns of 'cos'), but got 0 with shape (9, 0)."),
    ([(9, -1), (8, -1), (-2,), (-2,), (4,)], "the n_tokens of 'rope_k_grad' must be the same as 'rope_q_grad' (9, -1), but got (8, -1)."),
    ([(-2,), (-2,), (64, -1), (63, 128), (4,)], "the shape of 'sin' must be the same as 'cos' (64, -1), but got (63, 128)."),
    ([(-2,), (-2,), (-1, 80), (-2,), (4,)],
     "the head_size (columns of 'cos') must be one of [64, 96, 128, 192, 256], but got 80 with shape (-1, 80)."),
    ([(-2,), (-2,), (-2,), (0, -1), (4,)], "the max_seq_len (rows of 'cos') must be at least 1, but got 0 with shape (0, -1)."),
    ([(-2,), (-1,), (-2,), (-2,), (4,)], "the rank of 'rope_k_grad' must be 2, but got 1 with shape (-1,)."),
    ([(-2,), (-2,), (-2,), (-2,), (-1, 4)], "the shape of 'seq_ends' must be (number of sequences,) with at least one, but got (-1, 4)."),
    ([(-1, -3), (-2,), (-2,), (-2,), (4,)], "the shape of 'rope_q_grad' must be non-negative, or -1 where unknown, but got (-1, -3)."),
    ([(-1, 2**31), (2**31, -1), (-2,), (-2,), (4,)], "the n_tokens must be at most 2147483647, but got 2147483648."),
], ids=str)
def test_infer_shape_refuses_what_is_known_to_be_wrong(lib, capfd, shapes, text):
    assert infer_shape(lib, "RopeGrad", shapes) is None
    assert message(capfd) == "For 'RopeGrad', " + text


@pytest.mark.parametrize("op", spec.OPS)
def test_infer_shape_needs_all_inputs(lib, capfd, op):
    assert infer_shape(lib, op, DOCUMENT[:4]) is None
    assert message(capfd).endswith("the shape of 'seq_ends' must be given, but got none.")


@pytest.mark.parametrize("op", spec.OPS)
@pytest.mark.parametrize("x", GE)
@pytest.mark.parametrize("table", GE)
def test_infer_dtype(lib, capfd, op, x, table):
    dtypes = [x, x, table, table, "int32"]
    taken = (x, table) in spec.DTYPE_PAIRS
    assert infer_dtype(lib, op, dtypes) == ([x, x] if taken else None)
    text = message(capfd)
    assert (text is None) == taken
    if not taken and text.split("but got ")[1] == "ge::DataType 2.":  # C++ does not name the dtypes that no operator takes
        text = text.replace("ge::DataType 2.", "int8.")
    assert text == python_refusal(op, DOCUMENT, dtypes)


# Tiling: what is refused, with the reason and the numbers, and that Python refuses the same cases in the same words.

def changed(**inputs):
    """The document's case with other shapes or dtypes for some inputs."""
    shapes, dtypes = list(DOCUMENT), list(HALF)
    for name, value in inputs.items():
        i = ("q", "k", "cos", "sin", "ends").index(name)
        (dtypes if isinstance(value, str) else shapes)[i] = value
    return shapes, dtypes


REFUSED = [
    (changed(q="int8"), "dtype of 'rope_q_grad' must be one of ['float16', 'bfloat16', 'float32'], but got ge::DataType 2"),
    (changed(cos="int32"), "dtype of 'cos' must be one of ['float16', 'bfloat16', 'float32'], but got int32"),
    (changed(k="float32"), "dtype of 'rope_k_grad' must be the same as 'rope_q_grad' (float16), but got float32"),
    (changed(cos="bfloat16", sin="bfloat16"), "dtype of 'cos' for 'rope_q_grad' of float16 must be float16 or float32, but got bfloat16"),
    (changed(q="float32", k="float32"), "dtype of 'cos' for 'rope_q_grad' of float32 must be float32, but got float16"),
    (changed(sin="float32"), "dtype of 'sin' must be the same as 'cos' (float16), but got float32"),
    (changed(ends="float16"), "dtype of 'seq_ends' must be int32, but got float16"),
    (changed(ends="int64"), "dtype of 'seq_ends' must be int32, but got int64"),
    (changed(q=(11, 1, 128)), "rank of 'rope_q_grad' must be 2, but got 3 with shape (11, 1, 128)"),
    (changed(k=(11,)), "rank of 'rope_k_grad' must be 2, but got 1 with shape (11,)"),
    (changed(cos=(1, 64, 128)), "rank of 'cos' must be 2, but got 3 with shape (1, 64, 128)"),
    (changed(sin=(128,)), "rank of 'sin' must be 2, but got 1 with shape (128,)"),
    (changed(sin=()), "rank of 'sin' must be 2, but got 0 with shape ()"),
    (changed(sin=(63, 128)), "shape of 'sin' must be the same as 'cos' (64, 128), but got (63, 128)"),
    (changed(sin=(64, 64)), "shape of 'sin' must be the same as 'cos' (64, 128), but got (64, 64)"),
    (changed(cos=(64, 80), sin=(64, 80), q=(11, 80), k=(11, 80)),
     "head_size (columns of 'cos') must be one of [64, 96, 128, 192, 256], but got 80 with shape (64, 80)"),
    (changed(cos=(64, 127), sin=(64, 127)),
     "head_size (columns of 'cos') must be one of [64, 96, 128, 192, 256], but got 127 with shape (64, 127)"),
    (changed(cos=(0, 128), sin=(0, 128)), "max_seq_len (rows of 'cos') must be at least 1, but got 0 with shape (0, 128)"),
    (changed(q=(11, 129)),
     "hidden_size of 'rope_q_grad' must be a positive multiple of head_size 128 (columns of 'cos'), but got 129 with shape (11, 129)"),
    (changed(k=(11, 385)),
     "hidden_size of 'rope_k_grad' must be a positive multiple of head_size 128 (columns of 'cos'), but got 385 with shape (11, 385)"),
    (changed(k=(11, 0)),
     "hidden_size of 'rope_k_grad' must be a positive multiple of head_size 128 (columns of 'cos'), but got 0 with shape (11, 0)"),
    (changed(q=(12, 128)), "n_tokens of 'rope_k_grad' must be the same as 'rope_q_grad' (12, 128), but got (11, 128)"),
    (changed(q=(2**31, 128), k=(2**31, 128)), "n_tokens must be at most 2147483647, but got 2147483648"),
    (changed(ends=(0,)), "shape of 'seq_ends' must be (number of sequences,) with at least one, but got (0,)"),
    (changed(ends=(1, 4)), "shape of 'seq_ends' must be (number of sequences,) with at least one, but got (1, 4)"),
    (changed(ends=()), "shape of 'seq_ends' must be (number of sequences,) with at least one, but got ()"),
]
ONLY_ASCEND = ("80 with shape", "but got int64")  # any even head size and int64 lengths are fine before the operator
OTHER_WORDS = {  # the same refusal; the operator needs less, or knows less
    "127 with shape": ("one of [64, 96, 128, 192, 256]", "even and at least 2"),
    "ge::DataType 2": ("ge::DataType 2", "int8"),
    "'seq_ends' must be int32, but got float16": ("int32", "one of ['int32', 'int64']"),
}


@pytest.mark.parametrize("op", spec.OPS)
@pytest.mark.parametrize("case, text", REFUSED, ids=[text for _, text in REFUSED])
def test_tiling_refuses(lib, capfd, op, case, text):
    shapes, dtypes = case
    assert tiling(lib, op, shapes, dtypes) is None
    caller = "Rope" if op == "RopeForward" else "RopeGrad"
    for old, new in zip(spec.OPS["RopeGrad"][0][:2], spec.OPS[op][0][:2]):
        text = text.replace(f"'{old}'", f"'{new}'")
    text = f"For '{caller}', the {text}."
    assert message(capfd) == text

    if any(part in text for part in ONLY_ASCEND):
        assert python_refusal(op, shapes, dtypes) is None
        return
    for part, (old, new) in OTHER_WORDS.items():
        if part in text:
            text = text.replace(old, new)
    assert python_refusal(op, shapes, dtypes) == text


_dims = st.sampled_from([0, 1, 11, 12, 64, 96, 127, 128, 192, 256, 384, 512])
_shape = st.one_of(st.tuples(_dims, _dims), st.tuples(_dims), st.tuples(_dims, _dims, _dims))
_same_tokens = st.tuples(st.sampled_from([0, 1, 11]), st.sampled_from([64, 128, 256, 384]))


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(op=st.sampled_from(list(spec.OPS)), q=st.one_of(_same_tokens, _shape), k=st.one_of(_same_tokens, _shape),
       cos=st.tuples(st.sampled_from([0, 1, 64]), st.sampled_from(spec.HEAD_SIZES)), sin=st.one_of(st.none(), _shape),
       batch=st.sampled_from([(1,), (4,), (0,), (1, 1)]), pair=st.sampled_from(spec.DTYPE_PAIRS),
       odd=st.one_of(st.none(), st.tuples(st.integers(0, 3), st.sampled_from(["float16", "bfloat16", "float32", "int32"]))))
@example(op="RopeGrad", q=(11, 128), k=(11, 256), cos=(64, 128), sin=None, batch=(4,), pair=("float16", "float16"), odd=None)
def test_tiling_and_python_refuse_the_same_in_the_same_words(lib, capfd, op, q, k, cos, sin, batch, pair, odd):
    shapes = [q, k, cos, sin or cos, batch]
    dtypes = [pair[0], pair[0], pair[1], pair[1], "int32"]
    if odd:
        dtypes[odd[0]] = odd[1]
    capfd.readouterr()
    result = tiling(lib, op, shapes, dtypes)
    refusal = python_refusal(op, shapes, dtypes)
    assert (message(capfd), result is None) == (refusal, refusal is not None)


# Tiling: what is handed over.

@pytest.mark.parametrize("op", spec.OPS)
@pytest.mark.parametrize("pair", spec.DTYPE_PAIRS, ids="-".join)
def test_tiling_hands_over_what_was_computed(lib, capfd, op, pair):
    x, table = pair
    shapes = [(4097, 4096), (4097, 1024), (2048, 128), (2048, 128), (7,)]
    got = tiling(lib, op, shapes, [x, x, table, table, "int32"], cores=48)
    assert message(capfd) is None
    sizes = (ctypes.c_int64 * 6)(4097, 4096, 1024, 2048, 128, 7)
    native16 = op == "RopeGrad" and x == table == "float16"
    bytes_of = {"float16": 2, "bfloat16": 2, "float32": 4}
    want = json.loads(lib.compute_tiling(sizes, bytes_of[x], bytes_of[table], native16, 48, ctypes.c_uint64(UB)))
    assert got == {**want, "key": 0, "workspace": WORKSPACE}
    assert got["block_dim"] == 48


@pytest.mark.parametrize("op", spec.OPS)
@pytest.mark.parametrize("shapes", [DOCUMENT, [(0, 128), (0, 128), (64, 128), (64, 128), (1,)],
                                    [(2**31 - 1, 5120), (2**31 - 1, 128), (64, 128), (64, 128), (100000,)]], ids=str)
def test_tiling_accepts(lib, capfd, op, shapes):
    got = tiling(lib, op, shapes, HALF)
    assert message(capfd) is None
    assert 1 <= got["block_dim"] <= 40


def test_tiling_refuses_what_it_cannot_split(lib, capfd):
    assert tiling(lib, "RopeGrad", DOCUMENT, HALF, ub=1024) is None
    text = message(capfd)
    assert text.startswith("For 'RopeGrad', the problem must be one that tiling can split, but got q (11, 128), k (11, 128), "
                           "cos (64, 128) on 40 cores with 1024 bytes of UB: ")


def test_tiling_needs_inputs_platform_and_room(lib, capfd):
    assert tiling(lib, "RopeForward", DOCUMENT[:4], HALF) is None
    assert message(capfd) == "For 'Rope', the input 'seq_ends' must be given, but got none."
    assert tiling(lib, "RopeGrad", DOCUMENT, HALF, cores=0) is None
    assert message(capfd) == "For 'RopeGrad', the platform information must be given to tiling, but got none."
    assert tiling(lib, "RopeGrad", DOCUMENT, HALF, room=8) is None
    assert message(capfd).startswith("For 'RopeGrad', the tiling data and workspace must be given to tiling, but got none for ")
