# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
"""Is the native library the NumPy reference, bit for bit, on every CPU path; and does nothing break without it?"""
import ctypes
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
import mindspore as ms
from mindspore import Tensor, nn

from conftest import REPO
from ms_ropegrad import __main__, Rope, RopeGrad, custom, native, reference, rope_tables, spec
from oracle import any_float16, random_case, same_bits
from test_training import compilations, count_compilation

NO_AVX512, BASELINE, STREAM = 1, 2, 4  # flags of the source
PATHS = {"best": 0, "avx2": NO_AVX512, "baseline": BASELINE, "streamed": STREAM, "streamed avx2": NO_AVX512 | STREAM}
BFLOAT16 = Tensor([0], ms.bfloat16).asnumpy().dtype  # MindSpore's own NumPy dtype


def draw(rng, dtype, *shape):
    """Every kind of value: random bits, so NaN, inf and subnormals too, then half of them of moderate size."""
    bits = rng.integers(0, 2**32, shape).astype(np.uint32)
    moderate = rng.standard_normal(shape).astype(np.float32)
    values = np.where(rng.random(shape) < 0.5, bits.view(np.float32), moderate)
    if dtype == "float16":
        return np.where(rng.random(shape) < 0.5, any_float16(rng, *shape), moderate.astype(np.float16))
    if dtype == "bfloat16":
        return (values.view(np.uint32) >> 16).astype(np.uint16).view(BFLOAT16)
    return values


def inputs(pair, n, head, heads=(3, 1), rows=None, seed=0):
    rng = np.random.default_rng(seed)
    x, table = pair
    shapes = [(n, heads[0] * head), (n, heads[1] * head), (rows or n, head), (rows or n, head)]
    return [draw(rng, d, *s) for d, s in zip((x, x, table, table), shapes)]


def equal(op, arrays, ends, dtype=None, **kw):
    for got, want in zip(native.apply(op, *arrays, ends, dtype, **kw), reference.apply(op, *arrays, ends, dtype)):
        assert got.dtype == want.dtype
        if got.dtype == BFLOAT16:
            got, want = ((a.view(np.uint16).astype(np.uint32) << 16).view(np.float32) for a in (got, want))
        same_bits(got, want)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("pair", spec.DTYPE_PAIRS, ids="/".join)
@pytest.mark.parametrize("op", spec.OPS)
def test_bits(op, pair, path):
    for head in (2, 4, 6, 14, 16, 18, 34, 64, 80, 96, 128, 192, 256, 1026):
        arrays = inputs(pair, 23, head, rows=12, seed=head)
        for ends in ([12, 23], [3, 10, 10, 14, 20]):
            equal(op, arrays, ends, flags=PATHS[path])


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("op", spec.OPS)
@pytest.mark.parametrize("table", ["float16", "float32"])
def test_every_float16(op, table, path):
    g = np.arange(2**16, dtype=np.uint16).view(np.float16).reshape(-1, 128)
    equal(op, [g, g[:, ::-1], *inputs(("float16", table), 512, 128)[2:]], [512], flags=PATHS[path])


@pytest.mark.parametrize("path", PATHS)
def test_every_bfloat16_and_its_ties(path):
    x = (np.arange(2**16, dtype=np.uint32) << 16).view(np.float32).reshape(-1, 128)
    one_and_ulps = np.float32([1, 1 + 2**-7, 1 + 2**-8, 2**-120]).repeat(32).reshape(1, 128).repeat(512, 0)
    for op in spec.OPS:
        equal(op, [x, x, one_and_ulps, np.zeros_like(x)], [512], "bfloat16", flags=PATHS[path])


@pytest.mark.parametrize("path", PATHS)
def test_nan_of_any_bits_in_float32_tables_stays_nan(path):
    nans = np.array([0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001, 0xFF80FFFF, 0x7FC08001], np.uint32).repeat(40).view(np.float32)[:192].reshape(2, 96)
    x = np.tile(np.uint16([0x3F80, 0x7FFF, 0xFFFF, 0x7F81, 0x7F80, 0]), (2, 32)).view(BFLOAT16)
    for op in spec.OPS:
        for cos, sin in ((nans, nans), (nans, nans * 0 + 1), (np.ones_like(nans), nans)):
            equal(op, [x, x, cos, sin], [2], flags=PATHS[path])


def test_float32_that_holds_bfloat16():
    for table in ("bfloat16", "float32"):
        arrays = [a.astype(np.float32) for a in random_case(np.random.default_rng(3), [5, 9])]
        arrays = [reference.round_bfloat16(a) for a in arrays[:2]] + arrays[2:]
        for op in spec.OPS:
            equal(op, arrays, [5, 14], "bfloat16")


@pytest.mark.parametrize("threads", [1, 2, 7, 300])
def test_threads(threads):
    for lens in ([700], np.random.default_rng(4).integers(1, 9, 200)):
        arrays = inputs(("float16", "float16"), int(np.sum(lens)), 64, (9, 2), rows=700)
        for op in spec.OPS:
            equal(op, arrays, np.cumsum(lens), threads=threads)


@pytest.mark.parametrize("variable,threads", [("1", 1), ("3", 3), ("3,2", 3), ("", 0), ("none", 0), ("-1", 0), (None, 0)])
def test_number_of_threads(monkeypatch, variable, threads):
    """OMP_NUM_THREADS when the library is first asked for, else the CPUs this process may use; MS_ROPEGRAD_THREADS at any time."""
    cpus = len(os.sched_getaffinity(0))
    monkeypatch.setenv("MS_ROPEGRAD_THREADS", "5")
    assert native.threads() == 5
    monkeypatch.delenv("MS_ROPEGRAD_THREADS")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if variable is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", variable)
    native._open.cache_clear()
    assert native.threads() == (threads or cpus)
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert native.threads() == (threads or cpus)


@pytest.mark.parametrize("ends", [[3, 7], [0, 3, 3, 7, 7, 12], [-5, 2, 30], [-1], [0], [2**31 - 1], [2**40, 5], [7, 3, 11], [12, 0, 12],
                                  [], [9, 1, 9, 1, 9]], ids=str)
def test_any_ends_are_safe_and_zero_where_nothing_covers(ends):
    for op in spec.OPS:
        equal(op, inputs(("float32", "float32"), 12, 8, rows=6), ends)
        equal(op, inputs(("float16", "float16"), 12, 32, rows=6), ends, flags=STREAM)


def unaligned(a, shift):
    raw = np.zeros(a.nbytes + 64, np.uint8)
    here = raw[shift:shift + a.nbytes].view(a.dtype).reshape(a.shape)
    here[...] = a
    return here


@pytest.mark.parametrize("pair", spec.DTYPE_PAIRS, ids="/".join)
def test_unaligned_and_strided(pair):
    arrays = inputs(pair, 9, 32)
    for op in spec.OPS:
        for flags in PATHS.values():
            equal(op, [unaligned(a, 1 + i) for i, a in enumerate(arrays)], [4, 9], flags=flags)
        equal(op, [a[::-1] for a in arrays], [4, 9])


def test_no_tokens_and_a_million():
    equal("RopeForward", inputs(("float16", "float16"), 0, 8, rows=4), [0])
    n = 10**6
    x = np.ones((n, 2), np.float16)
    tables = inputs(("float16", "float16"), 1, 2, rows=3)[2:]
    equal("RopeGradExact", [x, x, *tables], np.append(np.arange(3, n, 3), n))
    rows = np.arange(n, dtype=np.float32)[:, None].repeat(2, 1)
    got = native.apply("RopeForward", x.astype(np.float32), x.astype(np.float32), rows, np.zeros_like(rows), [n])[0]
    np.testing.assert_array_equal(got, rows)


def test_signature_and_checks_of_the_reference():
    arrays = random_case(np.random.default_rng(5), [5, 9])
    same_bits(native.rope(*arrays, [5, 9])[0], reference.rope(*arrays, [5, 9])[0])
    for formula in spec.FORMULAS:
        same_bits(native.rope_grad(*arrays, seq_ends=[5, 14], formula=formula)[1], reference.rope_grad(*arrays, [5, 9], formula)[1])
    for call, changed, text in ((native.rope, (arrays[0], arrays[1][:3], *arrays[2:]), "For 'Rope', the n_tokens of 'k'"),
                                (native.rope_grad, (*arrays[:3], arrays[3][:1]), "For 'RopeGrad', the shape of 'sin'")):
        with pytest.raises(ValueError, match=text):
            call(*changed, [5, 9])
    with pytest.raises(ValueError, match="For 'Rope', the hidden_size"):  # never past the end of an array
        native.apply("RopeForward", arrays[0][:, :200], *arrays[1:], [14])


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="sets the MXCSR register of x86-64")
def test_float_mode_of_the_caller_neither_matters_nor_changes(tmp_path):
    (tmp_path / "mode.cpp").write_text('#include <immintrin.h>\nextern "C" void set(unsigned m) { _mm_setcsr(m); }\n'
                                       'extern "C" unsigned get() { return _mm_getcsr(); }\n')
    subprocess.run(["g++", "-shared", "-fPIC", "mode.cpp", "-o", "mode.so"], check=True, cwd=tmp_path)
    mode = ctypes.CDLL(str(tmp_path / "mode.so"))
    flush_and_round_down = 0xBFC0
    x, half, zero, third = (np.full((2000, 128), v, np.float32) for v in (2.0 ** -128, 0.5, 0, 1 / 3))
    want = reference.apply("RopeForward", third, third, third, third, [2000])[0]
    for flags in PATHS.values():
        before = mode.get()
        mode.set(flush_and_round_down)
        tiny = native.apply("RopeForward", x, x, half, zero, [2000], threads=2, flags=flags)[0]
        got = native.apply("RopeForward", third, third, third, third, [2000], threads=2, flags=flags)[0]
        after = mode.get()
        mode.set(before)
        assert after & ~0x3F == flush_and_round_down  # but for the sticky exception flags
        assert (tiny == np.float32(2.0 ** -129)).all()
        same_bits(got, want)


# ------------------------------------------------------------------------------------------ choosing, and being without

def broken(tmp_path, how):
    """A library that must not be used, and the reason that `info` gives."""
    file = tmp_path / "librope_native.so"
    if how == "missing":
        return file, "is not there"
    if how == "no library":
        file.write_text("not a library")
        return file, "cannot be loaded"
    if how == "half a library":
        file.write_bytes(open(native.path(), "rb").read()[:5000])
        return file, "cannot be loaded"
    code = {"stale": '"0.0.9 12345678"', "another version": '"0.1.00 ffffffff"'}.get(how)
    functions = "" if code is None else ('extern "C" const char *ms_ropegrad_stamp() { return %s; } extern "C" const char *ms_ropegrad_isa() '
                                         '{ return "any"; } extern "C" int ms_ropegrad_threads() { return 1; } '
                                         'extern "C" int ms_ropegrad_apply() { return 0; }' % code)
    (tmp_path / "other.cpp").write_text(functions)
    subprocess.run(["g++", "-shared", "-fPIC", tmp_path / "other.cpp", "-o", file], check=True)
    return file, "cannot be loaded" if code is None else "is stale"


@pytest.mark.parametrize("how", ["missing", "no library", "half a library", "another library", "stale", "another version"])
def test_a_library_that_cannot_be_used_breaks_nothing(how, tmp_path, monkeypatch):
    file, reason = broken(tmp_path, how)
    monkeypatch.setenv("MS_ROPEGRAD_LIBRARY", str(file))
    backend, why = custom.choose()
    assert backend == "numpy" and reason in why and str(file) in why
    arrays = random_case(np.random.default_rng(6), [3, 4])
    tensors = [Tensor(a) for a in arrays]
    same_bits(Rope([3, 4])(*tensors)[0].asnumpy(), reference.rope(*arrays, [3, 4])[0])
    with pytest.raises(RuntimeError, match="The backend 'native' cannot be used"):
        Rope([3, 4], backend="native")(*tensors)
    with pytest.raises(RuntimeError, match="The native library cannot be used"):
        native.rope(*arrays, [3, 4])


def test_choice(monkeypatch, tmp_path):
    monkeypatch.delenv("MS_ROPEGRAD_BACKEND", raising=False)
    assert custom.choose()[0] == custom.choose("native")[0] == "native" and custom.choose("numpy")[0] == "numpy"
    monkeypatch.setenv("MS_ROPEGRAD_BACKEND", "numpy")
    assert custom.choose()[0] == "numpy" and custom.choose("native")[0] == "native"  # the argument is nearer
    for wrong in ("cuda", "Native"):
        with pytest.raises(ValueError, match="The backend must be 'auto', 'native' or 'numpy', but got"):
            RopeGrad(backend=wrong)
        monkeypatch.setenv("MS_ROPEGRAD_BACKEND", wrong)
        with pytest.raises(ValueError, match="The MS_ROPEGRAD_BACKEND must be"):
            custom.choose()
    monkeypatch.delenv("MS_ROPEGRAD_BACKEND")
    monkeypatch.setenv("MS_CUSTOM_AOT_WHITE_LIST", str(tmp_path))
    assert custom.choose()[0] == "numpy" and "MS_CUSTOM_AOT_WHITE_LIST" in custom.choose()[1]
    colon = tmp_path / "a:b.so"
    shutil.copy(native.path(), colon)
    monkeypatch.setenv("MS_ROPEGRAD_LIBRARY", str(colon))
    assert custom.choose()[0] == "numpy"


def test_info(tmp_path, monkeypatch, capsys):
    def info(**env):
        for name in ("MS_ROPEGRAD_BACKEND", "MS_ROPEGRAD_LIBRARY"):
            monkeypatch.setenv(name, env.get(name, native.path() if name == "MS_ROPEGRAD_LIBRARY" else ""))
        return __main__.main(["info"]), capsys.readouterr().out

    status, text = info()
    assert status == 0 and "CPU backend: native" in text and native.path() in text
    status, text = info(MS_ROPEGRAD_BACKEND="numpy")
    assert status == 0 and "CPU backend: numpy\n  asked for" in text
    monkeypatch.undo()
    run = subprocess.run([sys.executable, "-m", "ms_ropegrad", "info"], capture_output=True, text=True,
                         env={**os.environ, "MS_ROPEGRAD_LIBRARY": "/none.so"})
    assert run.returncode == 0 and "CPU backend: numpy\n  /none.so is not there" in run.stdout
    status, text = info(MS_ROPEGRAD_LIBRARY="/none.so", MS_ROPEGRAD_BACKEND="native")
    assert status == 1 and "/none.so is not there" in text


def test_backends_side_by_side(mode):
    arrays = random_case(np.random.default_rng(7), [3, 4])
    tensors = [Tensor(a) for a in arrays]
    want = reference.rope_grad(*arrays, [3, 4])
    for backend in ("native", "numpy", "auto"):
        same_bits(RopeGrad([3, 4], backend=backend)(*tensors)[1].asnumpy(), want[1])
    assert {key[0] for key in custom._built} >= ({"native", "numpy"} if mode == "graph" else {"native"})


def test_setup_without_a_compiler(tmp_path):
    run = subprocess.run([sys.executable, "setup.py", "-q", "build_ext", "--build-lib", tmp_path / "lib", "--build-temp", tmp_path / "temp"],
                         cwd=REPO, capture_output=True, text=True, env={**os.environ, "CC": "no-such-compiler", "CXX": "no-such-compiler"})
    assert run.returncode == 0 and not list(tmp_path.rglob("*.so")), run.stderr


# -------------------------------------------------------------------------------------------------- through MindSpore

@pytest.fixture
def graph_mode():
    ms.set_context(mode=ms.GRAPH_MODE)
    yield
    ms.set_context(mode=ms.PYNATIVE_MODE)


class Projected(nn.Cell):
    def __init__(self, formula, dtype):
        super().__init__()
        self.wq, self.wk, self.rope, self.dtype = nn.Dense(8, 64), nn.Dense(8, 32), Rope(grad_formula=formula), dtype
        self.cos, self.sin = rope_tables(64, head_size=32, dtype=ms.float32)

    def construct(self, x, ends):
        count_compilation()
        q, k = self.rope(self.wq(x).astype(self.dtype), self.wk(x).astype(self.dtype), self.cos, self.sin, seq_ends=ends)
        return (q.astype(ms.float32) ** 2).sum() + (k.astype(ms.float32) ** 3).sum()


@pytest.mark.parametrize("formula,dtype", [("exact", "float32"), ("exact", "bfloat16"), ("atb", "float16")])
def test_dynamic_shapes_train_with_one_compilation(graph_mode, formula, dtype):
    """n_tokens and the number of sequences change every step; the losses are those of static graphs.

    The last step has no tokens: its loss is MindSpore's own, a sum over nothing that it leaves unset.
    """
    def train(dynamic):
        ms.set_seed(1)
        net = Projected(formula, getattr(ms, dtype))
        step = nn.TrainOneStepCell(net, nn.SGD(net.trainable_params(), 1e-4))
        if dynamic:
            step.set_inputs(Tensor(shape=[None, 8], dtype=ms.float32), Tensor(shape=[None], dtype=ms.int32))
        compilations.clear()
        rng, losses = np.random.default_rng(8), []
        for lens in ([4], [3, 2, 6], [1], [2, 2], [9, 9, 9, 9], [0]):
            x = rng.standard_normal((sum(lens), 8)).astype(np.float32)
            losses.append(float(step(Tensor(x), Tensor(np.cumsum(lens), ms.int32)).asnumpy()))
        return losses, len(compilations)

    dynamic, once = train(True)
    static, often = train(False)
    assert once == 1 and often > 3
    np.testing.assert_allclose(dynamic[:-1], static[:-1], rtol=1e-5)


def test_dynamic_shapes_give_the_same_bits_and_refusals(graph_mode):
    arrays = random_case(np.random.default_rng(9), [3, 4])
    tensors = [Tensor(a) for a in arrays]
    unknown = lambda t, *shape: Tensor(shape=shape or None, dtype=t.dtype)
    ends = Tensor([3, 7], ms.int32)

    def dynamic():
        cell = Rope()
        cell.set_inputs(**{n: unknown(t, None, None) for n, t in zip(spec.OPS["RopeForward"][0], tensors)}, seq_ends=unknown(ends, None))
        return cell

    cell = dynamic()
    same_bits(cell(*tensors, seq_ends=ends)[0].asnumpy(), reference.rope(*arrays, [3, 4])[0])
    assert cell(*(t[:0] for t in tensors[:2]), *tensors[2:], seq_ends=Tensor([0, 0], ms.int32))[1].shape == (0, 128)
    for changed, text in (({0: tensors[0][:5]}, "n_tokens of 'k' must be the same as 'q' (5, 256), but got (7, 128)"),
                          ({1: tensors[1][:, :100]}, "hidden_size of 'k' must be a positive multiple of head_size 128 (columns of 'cos'), but got 100"),
                          ({3: tensors[3][:2]}, "shape of 'sin' must be the same as 'cos' (7, 128), but got (2, 128)"),
                          ({2: tensors[2][:, :3], 3: tensors[3][:, :3]}, "head_size (columns of 'cos') must be even and at least 2, but got 3")):
        got = [changed.get(i, t) for i, t in enumerate(tensors)]
        with pytest.raises(ValueError) as caught:
            [t.asnumpy() for t in dynamic()(*got, seq_ends=ends)]
        assert str(caught.value).startswith("For 'Rope', the ") and text in str(caught.value)
        with pytest.raises(ValueError) as in_python:
            reference.rope(*(t.asnumpy() for t in got), [3, 4])
        assert str(caught.value) == str(in_python.value)


@pytest.mark.parametrize("ends", [[7, 3], [1, 2, 4], *(pytest.param(e, marks=pytest.mark.slow) for e in ([3, 8], [0, 7]))],
                         ids=str)
def test_refusals_of_values_equal_those_of_numpy(graph_mode, ends):
    arrays = random_case(np.random.default_rng(10), [3, 4], rows=6)
    tensors, messages = [Tensor(a) for a in arrays], []
    for backend in ("native", "numpy"):
        with pytest.raises(ValueError) as caught:
            [t.asnumpy() for t in RopeGrad(backend=backend)(*tensors, seq_ends=Tensor(ends, ms.int32))]
        messages.append(str(caught.value).split("\n")[0])
    assert messages[0] == messages[1]


# ---------------------------------------------------------------- the same source under sanitizers, and on aarch64

def cases():
    """A reduced grid: every operator, dtype pair and kind of head size, lengths that fit and hostile ones."""
    for op in spec.OPS:
        for pair in spec.DTYPE_PAIRS:
            for head in (2, 18, 32, 80, 128):
                for ends in ([5, 9], [7, 3, 4, 30]):
                    yield op, pair, inputs(pair, 9, head, (2, 1), rows=6, seed=head), ends
    yield "RopeGradExact", spec.DTYPE_PAIRS[0], inputs(spec.DTYPE_PAIRS[0], 300, 128, (4, 1)), [300]  # threads
    yield "RopeForward", spec.DTYPE_PAIRS[0], inputs(spec.DTYPE_PAIRS[0], 0, 8, rows=2), [0]


def through_driver(command, flags):
    """Run the driver on all cases and compare with the reference. The driver's buffers are as long as the data and no longer."""
    sent, wants = b"", []
    for op, (x, table), arrays, ends in cases():
        n, rows, head = arrays[0].shape[0], *arrays[2].shape
        header = [list(spec.OPS).index(op), spec.DTYPES.index(x), spec.DTYPES.index(table), n, arrays[0].shape[1], arrays[1].shape[1],
                  rows, head, len(ends), 3, flags]
        sent += np.array(header, np.int64).tobytes() + b"".join(a.tobytes() for a in arrays) + np.array(ends, np.int32).tobytes()
        wants += reference.apply(op, *arrays, ends)
    run = subprocess.run(command, input=sent, capture_output=True)
    assert run.returncode == 0 and not run.stderr, run.stderr.decode()[-3000:]
    at = 0
    for want in wants:
        got = np.frombuffer(run.stdout, want.dtype, want.size, at).reshape(want.shape) if want.size else want
        at += want.nbytes
        if want.dtype == BFLOAT16:
            got, want = ((a.view(np.uint16).astype(np.uint32) << 16).view(np.float32) for a in (got, want))
        same_bits(got, want)
    assert at == len(run.stdout)


def compile_driver(compiler, out, *flags):
    source = REPO / "op_impl/cpu/rope_native.cpp"
    subprocess.run([compiler, "-std=c++17", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off", "-pthread", *flags, source,
                    REPO / "tests/native_driver.cpp", "-o", out], check=True)


@pytest.mark.slow
def test_clean_under_address_and_undefined_behaviour_sanitizers(tmp_path):
    compile_driver("g++", tmp_path / "driver", "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    for path in ("best", "baseline", "streamed avx2"):
        through_driver([tmp_path / "driver"], PATHS[path])


QEMU = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
CROSS = shutil.which("aarch64-linux-gnu-g++")


@pytest.mark.skipif(not (QEMU and CROSS), reason="needs aarch64-linux-gnu-g++ and qemu-aarch64 (Debian: g++-aarch64-linux-gnu, qemu-user)")
def test_aarch64_gives_the_same_bits(tmp_path):
    compile_driver(CROSS, tmp_path / "driver", "-O2", "-static")
    through_driver([QEMU, tmp_path / "driver"], 0)
