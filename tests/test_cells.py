# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
"""Do the Cells and functions give the reference's bits through ops.Custom, in both modes?"""
import os
import subprocess
import sys

import numpy as np
import pytest
import mindspore as ms
from mindspore import Tensor, nn

from ms_ropegrad import Rope, RopeGrad, custom, lengths, reference, rope, rope_grad, spec
from oracle import document, random_case, same_bits

pytestmark = pytest.mark.usefixtures("backend")

LENGTHS = [2, 1, 4, 4]


def to_tensor(a, dtype):
    return Tensor(a.astype(np.float32)).astype(getattr(ms, dtype))


def to_numpy(t):
    """bfloat16 as float32 holding it."""
    return t.astype(ms.float32).asnumpy() if t.dtype == ms.bfloat16 else t.asnumpy()


def case(pair, seed=0, lens=LENGTHS, **kw):
    """Tensors of a dtype pair and the ndarrays they hold."""
    x, table = pair
    tensors = [to_tensor(a, d) for a, d in zip(random_case(np.random.default_rng(seed), lens, **kw), (x, x, table, table))]
    return tensors, [to_numpy(t) for t in tensors], "bfloat16" if x == "bfloat16" else None


FORMS = {
    "list": dict(q_seq_len=LENGTHS),
    "tuple ends": dict(seq_ends=(2, 3, 7, 11)),
    "int64 lengths": dict(q_seq_len=Tensor(LENGTHS, ms.int64)),
    "padded int32 lengths": dict(q_seq_len=Tensor([2, 0, 1, 4, 4, 0, 0], ms.int32)),
    "padded int32 ends": dict(seq_ends=Tensor([2, 3, 3, 7, 11, 11], ms.int32)),
    "int64 ends": dict(seq_ends=Tensor([2, 3, 7, 11], ms.int64)),
}


@pytest.mark.parametrize("pair", spec.DTYPE_PAIRS, ids="/".join)
def test_every_operator_and_form_of_lengths(mode, pair):
    tensors, arrays, dtype = case(pair)
    for formula in spec.FORMULAS:
        want = reference.rope_grad(*arrays, LENGTHS, formula, dtype=dtype)
        for form in FORMS.values():
            for got, w in zip(RopeGrad(formula=formula)(*tensors, **form), want):
                assert got.dtype == tensors[0].dtype
                same_bits(to_numpy(got), w)
    for form in FORMS.values():
        for got, w in zip(Rope()(*tensors, **form), reference.rope(*arrays, LENGTHS, dtype=dtype)):
            same_bits(to_numpy(got), w)


@pytest.mark.parametrize("head", [*spec.HEAD_SIZES, 80])
def test_head_sizes_and_grouped_heads(mode, head):
    tensors, arrays, _ = case(("float16", "float32"), head=head, heads=(4, 1))
    for got, w in zip(Rope(LENGTHS)(*tensors), reference.rope(*arrays, LENGTHS)):
        same_bits(got.asnumpy(), w)


def test_the_document_through_the_operator(mode):
    tensors, arrays, _ = case(("float16", "float16"), heads=(3, 2), rows=64)
    for got, w in zip(RopeGrad(LENGTHS)(*tensors), document(*arrays, LENGTHS)):
        same_bits(got.asnumpy(), w)


@ms.jit
def jit_rope(q, k, cos, sin, q_seq_len):
    return rope(q, k, cos, sin, q_seq_len)


@ms.jit
def jit_rope_grad(q, k, cos, sin, seq_ends):
    return rope_grad(q, k, cos, sin, formula="exact", seq_ends=seq_ends)


def test_functions_eager_and_jitted():
    tensors, arrays, _ = case(("float32", "float32"))
    lens, ends = Tensor(LENGTHS, ms.int32), Tensor(np.cumsum(LENGTHS), ms.int32)
    for f in (rope, jit_rope):
        same_bits(f(*tensors, lens)[1].asnumpy(), reference.rope(*arrays, LENGTHS)[1])
    for f in (jit_rope_grad, lambda *a: rope_grad(*a[:4], formula="exact", seq_ends=a[4])):
        same_bits(f(*tensors, ends)[0].asnumpy(), reference.rope_grad(*arrays, LENGTHS, "exact")[0])


class ComputedLengths(nn.Cell):
    def __init__(self):
        super().__init__()
        self.rope = Rope()

    def construct(self, q, k, cos, sin, position_starts):
        return self.rope(q, k, cos, sin, seq_ends=lengths.ends_from_cu_seqlens(position_starts))


def test_lengths_computed_in_the_graph(mode):
    tensors, arrays, _ = case(("float32", "float32"))
    got = ComputedLengths()(*tensors, Tensor([0, 2, 3, 7, 11], ms.int64))
    same_bits(got[0].asnumpy(), reference.rope(*arrays, LENGTHS)[0])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_subnormals_survive(mode, dtype):
    """MindSpore's graph threads flush subnormals to zero; ours must not."""
    x = Tensor(np.full((4, 4), 2.0 ** -128, np.float32)).astype(getattr(ms, dtype))
    half = Tensor(np.full((4, 4), 0.5, np.float32)).astype(x.dtype)
    zero = Tensor(np.zeros((4, 4), np.float32)).astype(x.dtype)
    cell = Rope([4])
    for _ in range(3):
        got = to_numpy(cell(x, x, half, zero)[0])
        assert (got == to_numpy(x) / 2).all() and (got != 0).all()


def test_reference_takes_mindspores_bfloat16_arrays():
    for table in ("bfloat16", "float32"):
        tensors, arrays, _ = case(("bfloat16", table))
        held = [t.asnumpy() for t in tensors]
        for formula in spec.FORMULAS:
            want = reference.rope_grad(*arrays, LENGTHS, formula, dtype="bfloat16")
            for got, w in zip(reference.rope_grad(*held, LENGTHS, formula), want):
                assert got.dtype == held[0].dtype
                same_bits(to_numpy(Tensor(got)), w)


def test_special_values(mode):
    values = np.array([np.nan, np.inf, -np.inf, 0, -0.0, 65504, 6e-8, 1], np.float16)
    q = Tensor(np.tile(values, 4).reshape(2, 16))
    tensors = [q, q, Tensor(values.reshape(2, 4)[::-1].copy()), Tensor(values.reshape(2, 4))]
    for cell, ref in ((RopeGrad([2]), reference.rope_grad), (Rope([2]), reference.rope)):
        for got, w in zip(cell(*tensors), ref(*(t.asnumpy() for t in tensors), [2])):
            same_bits(got.asnumpy(), w)


def test_no_tokens(mode):
    tensors, _, _ = case(("float16", "float32"))
    empty = [t[:0] for t in tensors[:2]] + tensors[2:]
    for form in (dict(q_seq_len=Tensor([0, 0], ms.int32)), dict(seq_ends=[0])):
        q_grad, k_grad = RopeGrad()(*empty, **form)
        assert q_grad.shape == (0, 256) and k_grad.shape == (0, 128) and q_grad.dtype == ms.float16


def test_strided_tensors(mode):
    tensors, arrays, _ = case(("float32", "float32"), lens=[8], rows=8, heads=(2, 2))
    q = tensors[0].reshape(16, 128).T[:, ::2][:, :4].T.reshape(4, 128)  # a view in PYNATIVE_MODE
    want = reference.rope(q.asnumpy(), q.asnumpy(), arrays[2], arrays[3], [4])
    same_bits(Rope([4])(q, q, tensors[2], tensors[3])[0].asnumpy(), want[0])
    spread = ms.ops.broadcast_to(Tensor(np.float32([[2.0]])), (4, 128))
    want = reference.rope_grad(spread.asnumpy(), q.asnumpy(), arrays[2], arrays[3], [4])
    same_bits(RopeGrad([4])(spread, q, tensors[2], tensors[3])[0].asnumpy(), want[0])


def test_one_custom_op_per_device_and_formula(mode):
    tensors, _, _ = case(("float32", "float32"), rows=11)
    for _ in range(3):
        for lens in ([11], [5, 6]):
            Rope(lens)(*tensors), RopeGrad(lens, "exact")(*tensors), RopeGrad(lens)(*tensors)
    keys = [key for key in custom._built if key[0] == custom.target("auto")]
    assert len(keys) == len(set(keys)) <= 4  # RopeForward exact and atb, RopeGradExact, RopeGrad


def test_import_is_silent_and_builds_nothing(tmp_path):
    code = ("import ms_ropegrad, sys; assert 'mindspore' not in sys.modules\n"
            "from ms_ropegrad import Rope, RopeGrad, custom; Rope(); RopeGrad(); assert not custom._built")
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
    assert not list(tmp_path.iterdir())


def test_a_second_process_gives_the_same_bits(mode, tmp_path):
    tensors, _, _ = case(("float16", "float16"))
    np.savez(tmp_path / "in.npz", *(t.asnumpy() for t in tensors))
    code = ("import numpy as np, mindspore as ms; from ms_ropegrad import RopeGrad\n"
            f"ms.set_context(mode={ms.get_context('mode')})\n"
            "a = [ms.Tensor(v) for v in np.load('in.npz').values()]\n"
            f"np.save('out.npy', RopeGrad({LENGTHS})(*a)[0].asnumpy())")
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path, capture_output=True)
    same_bits(np.load(tmp_path / "out.npy"), RopeGrad(LENGTHS)(*tensors)[0].asnumpy())


def test_a_forked_process(tmp_path):
    """After eager use on NumPy; MindSpore's own operators hang in a process forked after their use."""
    code = ("import os, signal, numpy as np, mindspore as ms; from ms_ropegrad import rope\n"
            "x = ms.Tensor(np.ones((3, 2), np.float32))\n"
            "run = lambda: rope(x, x, x, x, [2, 1])[0].asnumpy()\n"
            "want, child = run(), os.fork()\n"
            "if not child:\n"
            "    signal.alarm(20)\n"
            "    os._exit(0 if (run() == want).all() else 1)\n"
            "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0\n")
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path, env={**os.environ, "MS_ROPEGRAD_BACKEND": "numpy"})
