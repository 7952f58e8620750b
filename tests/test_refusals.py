# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
"""Is every wrong call refused, with the same error in both modes and in the NumPy reference, before any work?"""
import numpy as np
import pytest
import mindspore as ms
from mindspore import Tensor

from ms_ropegrad import Rope, RopeGrad, check_lengths, custom, reference, rope, rope_grad, rope_tables
from oracle import same_bits


pytestmark = pytest.mark.usefixtures("backend")


def good(**changes):
    """The document's case, as ndarrays and lengths, with some of it replaced."""
    rng = np.random.default_rng(0)
    args = dict(q=(11, 128), k=(11, 128), cos=(64, 128), sin=(64, 128), q_seq_len=[2, 1, 4, 4], dtype="float16")
    args.update(changes)
    for name in ("q", "k", "cos", "sin"):
        if isinstance(args[name], tuple):
            args[name] = rng.standard_normal(args[name]).astype(args["dtype"])
    del args["dtype"]
    return args


# id -> (changes to the good case, error, part of the message)
STATIC = {
    # the vendor's own refusals
    "int32 q": (dict(q=np.zeros((11, 128), np.int32)), TypeError, "dtype of 'rope_q_grad' must be one of ['float16', 'bfloat16', 'float32'], but got int32"),
    "int8 k": (dict(k=np.zeros((11, 128), np.int8)), TypeError, "dtype of 'rope_k_grad' must be one of"),
    "bool cos": (dict(cos=np.zeros((64, 128), bool)), TypeError, "dtype of 'cos' must be one of"),
    "complex sin": (dict(sin=np.zeros((64, 128), np.complex64)), TypeError, "dtype of 'sin' must be one of"),
    "float64": (dict(dtype="float64"), TypeError, "but got float64"),
    "token counts differ": (dict(q=(12, 128)), ValueError, "n_tokens of 'rope_k_grad' must be the same as 'rope_q_grad' (12, 128), but got (11, 128)"),
    "hidden 129": (dict(q=(11, 129), k=(11, 129)), ValueError, "hidden_size of 'rope_q_grad' must be a positive multiple of head_size 128 (columns of 'cos'), but got 129"),
    "hidden 385": (dict(k=(11, 385)), ValueError, "hidden_size of 'rope_k_grad'"),
    "hidden 0": (dict(q=(11, 0)), ValueError, "hidden_size of 'rope_q_grad'"),
    "tables 127 wide": (dict(cos=(64, 127), sin=(64, 127)), ValueError, "head_size (columns of 'cos') must be even"),
    "tables 0 wide": (dict(cos=(64, 0), sin=(64, 0)), ValueError, "head_size"),
    "tables without rows": (dict(cos=(0, 128), sin=(0, 128)), ValueError, "max_seq_len (rows of 'cos') must be at least 1"),
    "sin shorter than cos": (dict(sin=(32, 128)), ValueError, "shape of 'sin' must be the same as 'cos' (64, 128), but got (32, 128)"),
    "sin narrower": (dict(sin=(64, 64)), ValueError, "shape of 'sin'"),
    "rank 3 q": (dict(q=(11, 1, 128)), ValueError, "rank of 'rope_q_grad' must be 2, but got 3"),
    "rank 1 k": (dict(k=(128,)), ValueError, "rank of 'rope_k_grad'"),
    "rank 3 cos": (dict(cos=(1, 64, 128)), ValueError, "rank of 'cos'"),
    "rank 1 sin": (dict(sin=(128,)), ValueError, "rank of 'sin'"),
    "no lengths in the list": (dict(q_seq_len=[]), ValueError, "number of sequences in 'q_seq_len' must be at least 1"),
    "a zero length": (dict(q_seq_len=[2, 0, 9]), ValueError, "'q_seq_len[1]' must be at least 1, but got 0"),
    "a negative length": (dict(q_seq_len=[12, -1]), ValueError, "'q_seq_len[1]' must be at least 1, but got -1"),
    "longer than the table": (dict(cos=(10, 128), sin=(10, 128), q_seq_len=[11]), ValueError, "at most max_seq_len 10 (rows of 'cos'), but got 11"),
    # what the vendor does not check, and more
    "sum too small": (dict(q_seq_len=[2, 1, 4]), ValueError, "sum of 'q_seq_len' must be n_tokens 11, but got 7 from [2, 1, 4]"),
    "sum too large": (dict(q_seq_len=[2, 1, 4, 5]), ValueError, "sum of 'q_seq_len' must be n_tokens 11, but got 12"),
    "sum wraps int32": (dict(q_seq_len=[2**31, 2**31, 11]), ValueError, "at most 2147483647"),
    "sum wraps int64": (dict(q_seq_len=[2**62, 2**62, 2**62, 2**62, 11]), ValueError, "at most 2147483647"),
    "ends as lengths": (dict(q_seq_len=[2, 3, 7, 11]), ValueError, "look like cumulative ends (non-decreasing, last == n_tokens): pass them as seq_ends="),
    "ends with a leading 0 as lengths": (dict(q_seq_len=[0, 2, 3, 7, 11]), ValueError, "pass them as seq_ends= without the leading 0"),
    "lengths as ends": (dict(q_seq_len=None, seq_ends=[2, 1, 4, 4]), ValueError, "look like lengths (they sum to n_tokens): pass them as q_seq_len"),
    "ends short": (dict(q_seq_len=None, seq_ends=[2, 3]), ValueError, "last element of 'seq_ends' must be n_tokens 11, but got 3"),
    "ends decrease": (dict(q_seq_len=None, seq_ends=[7, 3, 11]), ValueError, "values of 'seq_ends' must be non-negative and non-decreasing"),
    "ends negative": (dict(q_seq_len=None, seq_ends=[-1, 11]), ValueError, "'seq_ends[0]' must be at least 0"),
    "both forms": (dict(seq_ends=[2, 3, 7, 11]), ValueError, "given once, as 'q_seq_len' or as 'seq_ends', but got both"),
    "no form": (dict(q_seq_len=None), ValueError, "but got none of them"),
    "float length": (dict(q_seq_len=[2.0, 9]), TypeError, "type of 'q_seq_len[0]' must be int, but got float 2.0"),
    "bool length": (dict(q_seq_len=[True, 10]), TypeError, "must be int, but got bool True"),
    "nested lengths": (dict(q_seq_len=[[2, 1], [4, 4]]), TypeError, "must be int, but got"),
    "a tensor among the lengths": (dict(q_seq_len=[Tensor(2, ms.int32), 9]), TypeError, "must be int, but got Tensor. Lengths that are computed or mutable go in one int32 or int64 Tensor"),
    "a long list among the lengths": (dict(q_seq_len=[list(range(9999))]), TypeError, "20, 21, 2..."),
    "text lengths": (dict(q_seq_len="2144"), TypeError, "type of 'q_seq_len' must be a list or tuple of int"),
    "one number": (dict(q_seq_len=11), TypeError, "type of 'q_seq_len' must be a list or tuple of int"),
    "k of another dtype": (dict(k=np.zeros((11, 128), np.float32)), TypeError, "dtype of 'rope_k_grad' must be the same as 'rope_q_grad' (float16), but got float32"),
    "sin of another dtype": (dict(sin=np.zeros((64, 128), np.float32)), TypeError, "dtype of 'sin' must be the same as 'cos' (float16), but got float32"),
    "float16 tables for float32": (dict(q=np.zeros((11, 128), np.float32), k=np.zeros((11, 128), np.float32)), TypeError,
                                   "dtype of 'cos' for 'rope_q_grad' of float32 must be float32, but got float16"),
    "q is None": (dict(q=None), TypeError, "type of 'rope_q_grad' must be"),
    "cos is a list": (dict(cos=[[1.0]]), TypeError, "type of 'cos' must be"),
}


def tensors(args):
    return {k: Tensor(v) if isinstance(v, np.ndarray) else v for k, v in args.items()}


def positional(args):
    return [args.pop(name) for name in ("q", "k", "cos", "sin")]


@pytest.mark.parametrize("name", STATIC)
def test_refused_alike_in_cells_functions_and_reference(mode, name, monkeypatch):
    changes, error, text = STATIC[name]
    monkeypatch.setattr(custom, "_build", lambda *a: pytest.fail("an op was built"))
    monkeypatch.setattr(custom, "_built", {})
    calls = [lambda a: RopeGrad()(*positional(a), **a), lambda a: RopeGrad(formula="exact")(*positional(a), **a)]
    if mode == "pynative":
        calls.append(lambda a: rope_grad(*positional(a), **a))
    messages = set()
    for call in calls:
        with pytest.raises(error) as caught:
            call(tensors(good(**changes)))
        messages.add(str(caught.value).split("\n")[0])
    assert len(messages) == 1 and messages.pop().startswith("For 'RopeGrad', the ") and text in str(caught.value)
    if "is None" in name or "a list" in name:
        text = text.replace("Tensor", "numpy.ndarray")
    with pytest.raises(error) as caught:
        a = good(**changes)
        reference.rope_grad(*positional(a), **a)
    assert text in str(caught.value)
    for call in (lambda a: Rope()(*positional(a), **a), lambda a: Rope(grad_formula="atb")(*positional(a), **a)):
        with pytest.raises(error, match="^For 'Rope', the "):
            call(tensors(good(**changes)))


VALUES = {
    "sum too small": ([2, 1, 4, 3], "q_seq_len"),
    "sum too large": ([2, 1, 4, 5], "q_seq_len"),
    "negative": ([12, -1, 0, 0], "q_seq_len"),
    "longer than the table": ([0, 0, 0, 11], "q_seq_len"),
    "ends as lengths": ([2, 3, 7, 11], "q_seq_len"),
    "wraps round": ([2**31 - 1, 2**31 - 1, 2, 11], "q_seq_len"),
    "wraps int64": ([2**62, 2**62, 2**62, 2**62 + 11], "q_seq_len"),
    "ends short": ([2, 3, 7, 10], "seq_ends"),
    "ends long": ([2, 3, 7, 12], "seq_ends"),
    "ends decrease": ([2, 7, 3, 11], "seq_ends"),
    "ends negative": ([-1, 3, 7, 11], "seq_ends"),
    "lengths as ends": ([2, 1, 4, 4], "seq_ends"),
    "int64 ends beyond int32": ([2, 3, 7, 2**32 + 11], "seq_ends"),
}


OFTEN = ("sum too small", "longer than the table", "ends as lengths", "ends decrease", "int64 ends beyond int32", "lengths as ends")


@pytest.mark.parametrize("name", [n if n in OFTEN else pytest.param(n, marks=pytest.mark.slow) for n in VALUES])
def test_values_of_a_tensor_and_the_recovery(mode, name):
    values, form = VALUES[name]
    args = tensors(good(cos=(10, 128), sin=(10, 128)))
    four, cell = positional(args), Rope()
    big = max(map(abs, values)) > 2**31 - 1
    bad, fine = (Tensor(np.array(v), ms.int64 if big else ms.int32) for v in (values, [2, 1, 4, 4] if form == "q_seq_len" else [2, 3, 7, 11]))
    with pytest.raises(ValueError, match="^For 'Rope', the ") as caught:
        [t.asnumpy() for t in cell(*four, **{form: bad})]
    if "as" in name.split():
        assert "look like" in str(caught.value)
    want = reference.rope(*(t.asnumpy() for t in four), [2, 1, 4, 4])[0]
    if mode == "graph":  # MindSpore may refuse the next step of that compiled graph, loudly; a new Cell always recovers
        try:
            same_bits(cell(*four, **{form: fine})[0].asnumpy(), want)
        except RuntimeError as e:
            assert "previous step" in str(e)
        cell = Rope()
    same_bits(cell(*four, **{form: fine})[0].asnumpy(), want)
    with pytest.raises(ValueError, match="look like" if "as" in name.split() else "For 'check_lengths'"):
        check_lengths(11, 10, **{form: bad})
    check_lengths(11, 10, **{form: fine})


@pytest.mark.parametrize("lens,error,text", [
    (Tensor([2.0, 9.0], ms.float32), TypeError, "dtype of 'q_seq_len' must be one of ['int32', 'int64'], but got float32"),
    (Tensor([True, False]), TypeError, "but got bool"),
    (Tensor([[11]], ms.int32), ValueError, "(number of sequences,) with at least one, but got (1, 1)"),
    (Tensor(11, ms.int32), ValueError, "(number of sequences,)"),
    (Tensor(np.zeros(0, np.int32)), ValueError, "(number of sequences,)"),
])
def test_kinds_of_length_tensors(mode, lens, error, text):
    four = positional(tensors(good()))
    for form in ("q_seq_len", "seq_ends"):
        with pytest.raises(error) as caught:
            RopeGrad()(*four, **{form: lens})
        assert text.replace("q_seq_len", form) in str(caught.value)


@pytest.mark.parametrize("make", [RopeGrad, Rope])
def test_constructor(make):
    name = "formula" if make is RopeGrad else "grad_formula"
    caller = make.__name__
    with pytest.raises(ValueError, match=f"For '{caller}', the '{name}' must be 'atb' or 'exact', but got 'vendor'"):
        make(**{name: "vendor"})
    for wrong in (None, 1, ["atb"]):
        with pytest.raises(TypeError, match=f"'{name}' must be"):
            make(**{name: wrong})
        with pytest.raises(TypeError, match="The backend must be"):
            make(backend=wrong)
    for bad, error in ([], ValueError), ([0], ValueError), ([1.5], TypeError), (Tensor([11], ms.int32), TypeError), (7, TypeError), \
            ([2**63], ValueError), ([10**5000], ValueError), ([-10**5000], ValueError), (np.ma.masked_array([11]), TypeError):
        with pytest.raises(error, match=f"For '{caller}', the "):
            make(bad)
    with pytest.raises(ValueError, match="non-decreasing"):
        make(seq_ends=[3, 2])
    with pytest.raises(ValueError, match="but got both"):
        make([11], seq_ends=[11])
    with pytest.raises(ValueError, match="one in the constructor and one in the call"):
        four = positional(tensors(good()))
        make([2, 1, 4, 4])(*four, q_seq_len=[2, 1, 4, 4])
    for cell in (make([11]), make(seq_ends=[11])):
        for attribute in ("q_seq_len", "seq_ends"):
            with pytest.raises(AttributeError, match=f"'{attribute}' is fixed at construction"):
                setattr(cell, attribute, [5, 6])


@ms.jit
def computed_list(q, k, cos, sin, end):
    return rope(q, k, cos, sin, seq_ends=[end, 11])


@pytest.mark.parametrize("end", [Tensor(5, ms.int32), ms.mutable(5), ms.Parameter(Tensor(5, ms.int32), name="end")], ids=["tensor", "mutable", "parameter"])
def test_lists_that_are_no_constants_of_a_graph(mode, end):
    """Their values are placeholders while the graph is compiled: taken for lengths they would be silently wrong."""
    with pytest.raises(TypeError, match=r"^For 'Rope', the type of 'seq_ends\[0\]' must be int, .* go in one int32 or int64 Tensor"):
        computed_list(*positional(tensors(good())), end)


@pytest.mark.parametrize("n_tokens,max_seq_len,error", [(11.0, 64, TypeError), ("11", 64, TypeError), (None, None, TypeError), (True, 64, TypeError),
                                                        (11, float("nan"), TypeError), (-1, 64, ValueError), (11, 0, ValueError), (2**31, 64, ValueError)])
def test_numbers_of_check_lengths(n_tokens, max_seq_len, error):
    with pytest.raises(error, match="^For 'check_lengths', the "):
        check_lengths(n_tokens, max_seq_len, [2, 1, 4, 4])


@ms.jit
def checking(lens):
    check_lengths(11, 64, lens)
    return lens


def test_check_lengths_in_a_graph():
    with pytest.raises(ValueError, match="'check_lengths' must be outside the graph"):
        checking(Tensor([2, 1, 4, 4], ms.int32))


def test_unknown_formula_of_a_function(mode):
    four = positional(tensors(good()))
    for call in (lambda: rope_grad(*four, [2, 1, 4, 4], formula="EXACT"), lambda: rope(*four, [2, 1, 4, 4], grad_formula="EXACT")):
        with pytest.raises(ValueError, match="must be 'atb' or 'exact', but got 'EXACT'"):
            call()


def test_numbers_of_arguments(mode):
    four = positional(tensors(good()))
    for args in (four[:3], [*four, None, None, None]):
        with pytest.raises(TypeError):
            RopeGrad()(*args)


@pytest.mark.parametrize("dtype,error,text", [("bfloat16", TypeError, "float32 when 'dtype' is 'bfloat16', but got float16"),
                                              ("float32", TypeError, "but got float16"), ("half", ValueError, "one of"), (np.float16, TypeError, "string")])
def test_dtype_of_the_reference(dtype, error, text):
    args = good()
    with pytest.raises(error) as caught:
        reference.rope_grad(*positional(args), dtype=dtype, **args)
    assert text in str(caught.value)


def test_dynamic_shapes_are_refused_clearly(backend):
    if backend == "native":
        pytest.skip("takes them: test_native.py")
    ms.set_context(mode=ms.GRAPH_MODE)
    cell, args = Rope(), tensors(good())
    four, lens = positional(args), Tensor([2, 1, 4, 4], ms.int32)
    cell.set_inputs(*(Tensor(shape=[None, 128], dtype=ms.float16) for _ in range(2)), *four[2:], lens)
    try:
        with pytest.raises(ValueError, match="For 'Rope', the shape of 'q' must be static"):
            cell(*four, lens)
        cell = Rope()
        cell.set_inputs(*four, Tensor(shape=[None], dtype=ms.int32))
        with pytest.raises(ValueError, match="For 'Rope', the shape of 'q_seq_len' must be static"):
            cell(*four, lens)
    finally:
        ms.set_context(mode=ms.PYNATIVE_MODE)


def test_device(monkeypatch):
    monkeypatch.setattr(custom, "device", lambda: "GPU")
    with pytest.raises(RuntimeError, match="must be Ascend or CPU, but got GPU"):
        RopeGrad()(**{k if k not in "qk" else f"rope_{k}_grad": v for k, v in tensors(good()).items()})


@pytest.mark.parametrize("kwargs,error", [
    (dict(max_seq_len=0), ValueError), (dict(max_seq_len=2.0), TypeError), (dict(max_seq_len=True), TypeError),
    (dict(max_seq_len=4, head_size=3), ValueError), (dict(max_seq_len=4, head_size=0), ValueError), (dict(max_seq_len=4, base=0), ValueError),
    (dict(max_seq_len=4, base=float("nan")), ValueError), (dict(max_seq_len=4, base=float("inf")), ValueError), (dict(max_seq_len=4, base="1e4"), TypeError),
    (dict(max_seq_len=2**31), ValueError), (dict(max_seq_len=10**5000), ValueError), (dict(max_seq_len=4, head_size=2**31), ValueError),
    (dict(max_seq_len=4, base=10**400), ValueError), (dict(max_seq_len=4, base=5e-324), ValueError),
    (dict(max_seq_len=4, dtype=ms.int32), TypeError), (dict(max_seq_len=4, dtype="float16"), TypeError)])
def test_tables(kwargs, error):
    with pytest.raises(error, match="^For 'rope_tables', the "):
        rope_tables(**kwargs)
