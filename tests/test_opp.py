# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
"""Vendor packages: does verify name each damage, does an install leave the old or the new version however it ends, what does the user
read when the op is not there? On the real package that MindSpore ships, and on a stand-in of ours."""
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
import mindspore as ms
from mindspore import Tensor

from conftest import REPO
from ms_ropegrad import Rope, __main__, custom, opp, opp_verify, spec
from vendor import REAL, TBE, copy_real, library, stand_in, write

MACHINE = platform.machine()
OTHER = {"x86_64": 183}.get(MACHINE, 62)
NAME = REAL.name
INFO = f"{TBE}/config/ascend910b/aic-ascend910b-ops-info.json"
INDEX = f"{TBE}/kernel/config/ascend910b/binary_info_config.json"
OPAPI = "op_api/lib/libcust_opapi.so"
PROTO = f"op_proto/lib/linux/{MACHINE}/libcust_opsproto_rt2.0.so"
TILING = f"{TBE}/op_tiling/lib/linux/{MACHINE}/libcust_opmaster_rt2.0.so"
LINK = f"{TBE}/op_tiling/liboptiling.so"
KERNEL = sorted(str(p.relative_to(REAL)) for p in REAL.glob(f"{TBE}/kernel/ascend910b/*/*.o"))[0]
DESCRIBED = KERNEL[:-1] + "json"
HEADER = "op_api/include/aclnn_all_finite.h"


# ---- verify ----

def edit(name, change):
    """A damage: the bytes of a file, changed."""
    def damage(root):
        before = (root / name).read_bytes()
        after = change(before)
        assert after != before
        (root / name).write_bytes(after)
    return damage


def swap(old, new):
    return lambda data: data.replace(old, new)


def as_json(change):
    def apply(data):
        content = json.loads(data)
        return json.dumps(change(content) or content).encode()
    return apply


def remove(name):
    return lambda root: shutil.rmtree(root / name) if (root / name).is_dir() else (root / name).unlink()


def machine(number):
    return lambda data: data[:18] + number.to_bytes(2, "little") + data[20:]


def relink(target):
    def damage(root):
        (root / LINK).unlink()
        (root / LINK).symlink_to(str(target).format(root=root))
    return damage


def half(data):
    return data[:len(data) // 2]


def instead(name, make):
    """A damage: something else in the place of a file."""
    def damage(root):
        (root / name).unlink()
        make(root / name)
    return damage


# damage -> (how, what verify says: all of it)
DAMAGES = {
    "no version": (remove("version.info"), ["version.info is missing"]),
    "empty version": (edit("version.info", lambda _: b""), ["version.info names no custom_opp_compiler_version"]),
    "version of no value": (edit("version.info", lambda _: b"custom_opp_compiler_version=\nx=1"), ["version.info names no .*"]),
    "no kernel": (remove(KERNEL), [f"{KERNEL} is missing"]),
    "no kernel json": (remove(DESCRIBED), [f"{DESCRIBED} is missing"]),
    "truncated kernel": (edit(KERNEL, half), [f"{KERNEL} is truncated or damaged", f"{KERNEL} is not the file whose sha256 its JSON gives"]),
    "truncated kernel json": (edit(DESCRIBED, half), [f"{DESCRIBED} is not JSON: .*"]),
    "wrong hash": (edit(DESCRIBED, as_json(lambda c: c.update(sha256="0" * 64))), [f"{KERNEL} is not the file whose sha256 its JSON gives"]),
    "hash of another type": (edit(DESCRIBED, as_json(lambda c: c.update(sha256=None))), [f"{KERNEL} is not the file .*"]),
    "changed kernel": (edit(KERNEL, lambda d: d[:200] + bytes([d[200] ^ 1]) + d[201:]), [f"{KERNEL} is not the file whose sha256 its JSON gives"]),
    "host code as kernel": (edit(KERNEL, machine(62)), [f"{KERNEL} is for x86_64, but must be for Ascend", f"{KERNEL} is not the file .*"]),
    "kernel of another name": (edit(DESCRIBED, as_json(lambda c: c.update(binFileName="AllFinite_0"))),
                               [f"{DESCRIBED} describes AllFinite_0.o, but is listed for {Path(KERNEL).name}"]),
    "kernel json of another form": (edit(DESCRIBED, lambda _: b"[1]"), [f"{DESCRIBED} has not the form of such a file: .*"]),
    "kernel not listed": (edit(INDEX, as_json(lambda c: c["AllFinite"]["binaryList"].pop() and c)), [
        f"{INDEX} has no kernel of AllFinite for float16, bool", f"{TBE}/kernel/config/ascend910b/all_finite.json lists other kernels than .*"]),
    "no index": (remove(INDEX), [f"{INDEX} is missing"]),
    "no list of kernels": (remove(f"{TBE}/kernel/config/ascend910b/all_finite.json"), [".*all_finite.json is missing"]),
    "op renamed in the index": (edit(INDEX, swap(b'"AllFinite"', b'"AllFinit"')), [
        f"{INDEX} has the operators AllFinit, but must have AllFinite"]),
    "op renamed in ops-info": (edit(INFO, swap(b'"AllFinite"', b'"AllFinit"')), [f"{INFO} has the operators AllFinit, but must have AllFinite"]),
    "truncated ops-info": (edit(INFO, half), [f"{INFO} is not JSON: .*"]),
    "ops-info of another form": (edit(INFO, as_json(lambda c: [1])), [f"{INFO} has not the form of such a file: .*"]),
    "ops-info that is not UTF-8": (edit(INFO, lambda d: b"\xff" + d), [f"{INFO} is not UTF-8 text"]),
    "ops-info of great depth": (edit(INFO, lambda _: b"[" * 10 ** 6), [f"{INFO} has not the form of such a file: .*"]),
    "ops-info with a great number": (edit(INFO, swap(b'"all"', b"9" * 10 ** 5)), [f"{INFO} .*"]),
    "ops-info with a line break in a name": (edit(INFO, swap(b"gradient", b"g\\n\\ud800")), [f"{INFO} has not the form of such a file: .*"]),
    "directory as ops-info": (instead(INFO, Path.mkdir), [f"{INFO} is not a file"]),
    "no ops-info": (remove(INFO), [f"{INFO} is missing"]),
    "input renamed": (edit(INFO, swap(b"gradient", b"grad")), [f"{INFO} has the inputs grad for AllFinite, but they must be gradient"]),
    "output renamed": (edit(INFO, swap(b"is_finite", b"finite")), [f"{INFO} has the outputs finite for AllFinite, but they must be is_finite"]),
    "dtypes in another order": (edit(INFO, swap(b"float16,float32", b"float32,float16")), [f"{INFO} has the dtypes .*"]),
    "no header": (remove(HEADER), [f"{HEADER} is missing"]),
    "header without a parameter": (edit(HEADER, swap(b"    const aclTensor *gradient,\n", b"")), [f"{HEADER} has the parameters aclTensor\\*out, .*"]),
    "header of another op": (edit(HEADER, swap(b"AllFinite", b"IsFinite")), [f"{HEADER} has the parameters none for aclnnAllFinite, .*"]),
    "empty graph header": (edit("op_proto/inc/op_proto.h", lambda _: b""), ["op_proto/inc/op_proto.h must register AllFinite .*"]),
    "graph header of another op": (edit("op_proto/inc/op_proto.h", swap(b"gradient", b"x")), ["op_proto/inc/op_proto.h must register AllFinite .*"]),
    "no libcust_opapi.so": (remove(OPAPI), [f"{OPAPI} is missing"]),
    "truncated libcust_opapi.so": (edit(OPAPI, half), [f"{OPAPI} is truncated or damaged"]),
    "pipe as libcust_opapi.so": (instead(OPAPI, os.mkfifo), [f"{OPAPI} is neither a file nor a directory", f"{OPAPI} is not a file"]),
    "link to itself as libcust_opapi.so": (instead(OPAPI, lambda p: p.symlink_to(p.name)), [f"{OPAPI} cannot be read: .*"]),
    "text as libcust_opapi.so": (edit(OPAPI, lambda _: b"version https://git-lfs"), [f"{OPAPI} is not a 64-bit ELF file"]),
    "libcust_opapi.so of another machine": (edit(OPAPI, machine(OTHER)), [f"{OPAPI} is for \\w+, but must be for {MACHINE}"]),
    "libcust_opapi.so without a second symbol": (edit(OPAPI, swap(b"\0aclnnAllFiniteGetWorkspaceSize\0", b"\0aclnnAllFiniteGetWorkspaceSizX\0")), [
        f"{OPAPI} does not export aclnnAllFiniteGetWorkspaceSize"]),
    "libcust_opapi.so without a symbol": (edit(OPAPI, swap(b"\0aclnnAllFinite\0", b"\0aclnnAllFinitX\0")), [f"{OPAPI} does not export aclnnAllFinite"]),
    "no infer shape": (remove(PROTO), [f"{PROTO} is missing"]),
    "infer shape of another machine": (edit(PROTO, machine(OTHER)), [f"{PROTO} is for .*, but must be for {MACHINE}"]),
    "infer shape of another op": (edit(PROTO, swap(b"AllFinite\0", b"IsFinite_\0")), [f"{PROTO} does not register AllFinite"]),
    "no tiling": (remove(TILING), [f"{TILING} is missing"]),
    "tiling for another machine": (lambda root: (root / TILING).parent.rename((root / TILING).parent.parent / "riscv64"), [f"{TILING} is missing"]),
    "tiling of another op": (edit(TILING, swap(b"AllFinite\0", b"IsFinite_\0")), [f"{TILING} does not register AllFinite", f"{LINK} is not .*"]),
    "no liboptiling.so": (remove(LINK), [f"{LINK} is missing"]),
    "dangling liboptiling.so": (relink("lib/linux/none.so"), [f"{LINK} is a dangling link"]),
    "absolute liboptiling.so": (relink("{root}/" + TILING), [f"{LINK} is an absolute link: .*"]),
    "another liboptiling.so": (edit(LINK, half), [f"{LINK} is not {TILING}"]),
    "no source": (remove(f"{TBE}/{NAME}_impl/dynamic/all_finite.cpp"), [".*all_finite.cpp is missing: no source package"]),
    "no entry": (remove(f"{TBE}/{NAME}_impl/dynamic/all_finite.py"), [".*all_finite.py is missing: no source package"]),
    "no framework": (remove("framework"), ["framework/<framework>/npu_supported_ops.json is missing"]),
    "framework of another op": (edit("framework/plugin/npu_supported_ops.json", swap(b"AllFinite", b"A")), ["framework/plugin/npu_supported_ops.json does not name AllFinite"]),
    "link out of the package": (lambda root: (root / "op_api/up").symlink_to("../.."), ["op_api/up is a link out of the package"]),
    "links in a circle": (lambda root: (root / "op_api/down").symlink_to("../op_api"), []),
    "file name of other bytes": (lambda root: Path(os.fsdecode(bytes(root / "a") + b"\n\xff")).symlink_to("/"), ["a   is an absolute link: .*"]),
    "locked directory": (lambda root: (root / TBE / "config").chmod(0o500), [f"{TBE}/config is not the owner's to enter and remove"]),
    "unreadable file": (lambda root: (root / OPAPI).chmod(0o200), [
        f"{OPAPI} is not readable"] + [f"{OPAPI} cannot be read: .*"] * (os.getuid() > 0)),
    "nothing": (lambda root: shutil.rmtree(root), [".* is not a directory"]),
    "empty": (lambda root: [shutil.rmtree(root), root.mkdir()], ["version.info is missing", f"{TBE}/config has no operators"]),
}


def matches(problems, patterns):
    return len(problems) == len(patterns) and all(re.fullmatch(p, q) for p, q in zip(patterns, problems))


# The parts of each JSON that verify reads: a value of another type in one of them must be named.
JSONS = {
    INFO: "/AllFinite(/(in|out)put0(/(name|dtype))?)?",
    INDEX: "/AllFinite(/binaryList(/[0-9]+(/(bin|json)Path)?)?)?",
    f"{TBE}/kernel/config/ascend910b/all_finite.json": "/binList(/[0-9]+(/binInfo(/jsonFilePath)?)?)?",
    DESCRIBED: "/(binFileName|binFileSuffix|sha256|supportInfo(/(in|out)puts(/[0-9]+(/dtype)?)?)?)",
    "framework/plugin/npu_supported_ops.json": "",
}
VALUES = [None, 1, "x", [], {}, [None], {"a": None}, True, 1.5, ""]


def parts(value, path=()):
    """Every path in a JSON value."""
    yield path
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from parts(inner, (*path, key))


def check_json(name, read, root):
    content, said = json.loads((REAL / name).read_text()), []
    for path in parts(content):
        must = re.fullmatch(f"({read})?", "".join(f"/{k}" for k in path))
        for value in VALUES if must or read is None else ():
            changed = json.loads(json.dumps([content]))
            at = changed
            for key, following in zip((0, *path), path):
                at = at[key]
            at[path[-1] if path else 0] = value
            (root / name).write_text(json.dumps(changed[0]))
            problems = opp.verify(root, ours=False)
            assert all("\n" not in p for p in problems) and (problems or not must), (path, value)
            said += problems
    return said


@pytest.mark.parametrize("name", JSONS)
def test_json_of_other_types(name, tmp_path):
    root = copy_real(tmp_path / "real")
    for soc in ("ascend310p", "ascend910_93", "ascend950"):
        shutil.rmtree(root / TBE / "config" / soc)
    assert len(check_json(name, JSONS[name], root)) >= 9


@pytest.mark.slow
@pytest.mark.parametrize("name", JSONS)
def test_any_part_of_json_of_other_types(name, tmp_path):
    check_json(name, None, copy_real(tmp_path / "real"))


def test_elf_garbage(tmp_path):
    """Truncated anywhere, other bytes anywhere in its headers: a ValueError of ours or an answer, never another error."""
    data, file, rng = (REAL / OPAPI).read_bytes(), tmp_path / "a.so", np.random.default_rng(0)
    at, size, number = (int.from_bytes(data[o:o + n], "little") for o, n in ((40, 8), (58, 2), (60, 2)))
    cases = [data[:n] for n in (*range(70), *range(70, len(data), 301))]
    cases += [data[:o] + b * n + data[o + n:] for o in (*range(64), *range(at, at + size * number, 4)) for n in (1, 8) for b in (b"\0", b"\x7f", b"\xff")]
    for _ in range(100):
        bytes_ = np.frombuffer(data, np.uint8).copy()
        bytes_[rng.integers(0, len(data), 20)] = rng.integers(0, 256, 20)
        cases.append(bytes_.tobytes())
    # 65535 times the same table of a million symbols: read once.
    head = b"\x7fELF\2\1\1" + bytes(33) + (64).to_bytes(8, "little") + bytes(12) + b"\xff\xff" + bytes(2)
    cases.append(head + bytes(4) + (11).to_bytes(4, "little") + bytes(24) + (2 ** 22).to_bytes(8, "little") + bytes(2 ** 22))
    refused = 0
    for case in cases:
        file.write_bytes(case)
        try:
            machine_, names = opp_verify.elf(file)
            assert isinstance(machine_, str) and all(isinstance(n, str) for n in names)
        except ValueError as e:
            refused += str(e) in ("is not a 64-bit ELF file", "is truncated or damaged")
    assert len(cases) // 5 < refused < len(cases)


def test_the_real_package_is_sound():
    assert opp.verify(REAL, ours=False) == []
    assert opp.verify(REAL, ours=False, socs=["ascend910b", "ascend910_93"]) == []
    dtypes = [(d, "bool") for d in ("float16", "float32", "bfloat16")]
    assert opp.verify(REAL, {"AllFinite": (("gradient",), ("is_finite",), dtypes)}, ours=False) == []


@pytest.mark.parametrize("name", DAMAGES)
def test_each_damage_is_named_alone(name, tmp_path):
    damage, expected = DAMAGES[name]
    root = copy_real(tmp_path / "größe 包")
    damage(root)
    problems = opp.verify(root, ours=False)
    (tmp_path / "größe 包" / TBE / "config").exists() and (tmp_path / "größe 包" / TBE / "config").chmod(0o700)
    assert matches(problems, expected), problems


@pytest.mark.parametrize("args, said", [
    ({"socs": ["ascend310b"]}, "it is not built for ascend310b, only for " + ", ".join(sorted(p.name for p in (REAL / TBE / "config").iterdir()))),
    ({"ops": {"AllFinite": (("x",), ("is_finite",), [])}}, "has the inputs gradient for AllFinite, but they must be x"),
    ({"ops": {"AllFinite": (("gradient",), ("is_finite",), [("int8", "bool")])}}, "but they must be \\(int8, bool\\)"),
    ({"ops": {"AllFinite": (("gradient",), ("is_finite",), []), "RopeGrad": ((), (), [])}}, "must have AllFinite, RopeGrad"),
    ({"machine": {"x86_64": "aarch64"}.get(MACHINE, "x86_64")}, f"libcust_opapi.so is for {MACHINE}, but must be for"),
    ({"ours": True}, "it is built for ascend310p, but the operators are for ascend910b, ascend910_93"),
])
def test_what_is_asked_for_is_checked(args, said):
    assert any(re.search(said, p) for p in opp.verify(REAL, **{"ours": False, **args}))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A stand-in of our package, made once."""
    if not shutil.which("gcc"):
        pytest.skip("no C compiler")
    return stand_in(tmp_path_factory.mktemp("made") / spec.VENDOR)


@pytest.fixture
def ours(made, tmp_path):
    return Path(shutil.copytree(made, tmp_path / "made" / spec.VENDOR, symlinks=True))


GRAD = "RopeGradExact"
OURS = {
    "sound": (lambda root: None, []),
    "no stamp": (remove(opp.STAMP), ["ms_ropegrad.version is missing"]),
    "older": (edit(opp.STAMP, lambda _: b"0.0.9 00000000\n"), [r"it is stale: built from '0.0.9 00000000', but this is '.*'"]),
    "other sources": (edit(opp.STAMP, lambda d: d.split()[0] + b" 00000000\n"), ["it is stale: .*"]),
    "another SoC": (lambda root: shutil.copytree(root / TBE / "config/ascend910b", root / TBE / "config/ascend910"), [
        "it is built for ascend910, .*", ".*aic-ascend910-ops-info.json is missing"]),
    "q and k changed places": (edit(INFO, as_json(lambda c: c[GRAD].update(input0=c[GRAD]["input1"], input1=c[GRAD]["input0"]))), [
        f"{INFO} has the inputs rope_k_grad, rope_q_grad, cos, .* for {GRAD}, but they must be rope_q_grad, rope_k_grad, cos, sin, seq_ends"]),
    "an int64 input": (edit(INFO, swap(b"int32", b"int64")), [f"{INFO} has the dtypes .*int64.* for {op}, .*" for op in spec.OPS]),
    "an op less": (edit(INFO, as_json(lambda c: c.pop(GRAD) and c)), [f"{INFO} has the operators RopeForward, RopeGrad, but must have .*"]),
    "outputs in the header changed places": (edit("op_api/include/aclnn_rope_forward.h", lambda d: d.replace(b"ropeQOut", b"x").replace(
        b"ropeKOut", b"ropeQOut").replace(b"x,", b"ropeKOut,", 1)), ["op_api/include/aclnn_rope_forward.h has the parameters .*"]),
    "an attribute in the header": (edit("op_api/include/aclnn_rope_grad.h", swap(b"uint64_t *w", b"int64_t mode,\n uint64_t *w")), [
        ".* has the parameters .*"]),
    "no bfloat16 kernel": (edit(INDEX, as_json(lambda c: c[GRAD]["binaryList"].pop(1) and c)), [
        f"{INDEX} has no kernel of {GRAD} for bfloat16, bfloat16, bfloat16, bfloat16, int32, bfloat16, bfloat16", ".*lists other kernels.*"]),
}


@pytest.mark.parametrize("name", OURS)
def test_our_package_against_our_table(name, ours):
    damage, expected = OURS[name]
    damage(ours)
    problems = opp.verify(ours)
    assert matches(problems, expected), problems


def test_a_package_for_one_soc_is_sound_for_it(tmp_path):
    root = stand_in(tmp_path / spec.VENDOR, socs=["ascend910b"])
    assert opp.verify(root) == [] == opp.verify(root, socs=["ascend910b"])
    assert opp.verify(root, socs=["ascend910_93"]) == ["it is not built for ascend910_93, only for ascend910b"]


# ---- install and uninstall ----

def tree(root):
    """Every path of a directory with its content, its type and its permissions."""
    return {str(p.relative_to(root)): (os.readlink(p) if p.is_symlink() else p.read_bytes() if p.is_file() else None, oct(p.lstat().st_mode))
            for p in sorted(root.rglob("*"))}


def installed(source, root):
    """Is source what root holds, but for what an installation adds and leaves out?"""
    name = lambda p: not p.startswith(("bin", "scripts")) and "__pycache__" not in p
    content = lambda t: {p: v[0] for p, v in t.items() if name(p)}
    return content(tree(source)) == content(tree(root))


BEFORE, AFTER = "load_priority=vendor_a,vendor_b\n# kept\n", f"load_priority={NAME},vendor_a,vendor_b\n# kept\n"


def put(source, path=None):
    return opp.install(source, path, NAME, ours=False)


@pytest.fixture
def older(tmp_path):
    root = copy_real(tmp_path / "older")
    (root / "version.info").write_text("custom_opp_compiler_version=8.5.0\n")
    return root


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An $ASCEND_OPP_PATH with two other vendors."""
    home = tmp_path / "CANN 安装" / "opp"
    for name in ("vendor_a", "vendor_b"):
        write(home, f"vendors/{name}/version.info", name)
    write(home, "vendors/config.ini", BEFORE)
    monkeypatch.setenv("ASCEND_OPP_PATH", str(home))
    return home


def ini(home):
    return (home / "vendors/config.ini").read_text()


def test_into_a_directory_and_out_of_it(older, tmp_path):
    path = tmp_path / "my ops 目录" / "deep"
    for source in (older, REAL, REAL, older):  # install, upgrade, again, downgrade: one call
        root = put(source, path)
        assert root == path / "vendors" / NAME and installed(source, root) and opp.verify(root, ours=False) == []
        assert [p.name for p in (path / "vendors").iterdir()] == [NAME]  # no config.ini, nothing left
    assert not list(root.rglob("__pycache__"))
    assert opp.uninstall(path, NAME) == root
    assert list(path.iterdir()) == []
    with pytest.raises(opp.OppError, match="nothing to uninstall"):
        opp.uninstall(path, NAME)


def test_set_env_finds_itself(tmp_path):
    path = tmp_path / "my 'ops' $x 目录"
    root = put(REAL, path)
    show = f'source "$1" && source "$1" && printf "%s\\n" "$ASCEND_CUSTOM_OPP_PATH" "$LD_LIBRARY_PATH"'
    run = lambda **env: subprocess.run(["bash", "-euc", show, "-", str(root / "bin/set_env.bash")], env={"PATH": os.environ["PATH"], **env},
                                       capture_output=True, text=True, check=True).stdout.splitlines()
    assert run() == [f"{root}:{root}", f"{root}/op_api/lib:{root}/op_api/lib"]
    assert run(ASCEND_CUSTOM_OPP_PATH="/a:/b", LD_LIBRARY_PATH="/c")[0] == f"{root}:{root}:/a:/b"


def test_into_cann_and_out_of_it(home, older):
    before = tree(home)
    for source in (older, REAL):
        root = put(source)
        assert root == home / "vendors" / NAME and installed(source, root) and not (root / "bin").exists()
        assert ini(home) == AFTER
    assert opp.uninstall(None, NAME) == root
    assert tree(home) == before


# config.ini before, installed, uninstalled: CANN and MindSpore read its first line alone, so load_priority stands there.
@pytest.mark.parametrize("before, after, removed", [
    (None, "NAME", None),
    ("", "NAME", None),
    ("load_priority=\n", "NAME", None),
    ("load_priority = b , a\n", "NAME,b,a", "b,a"),
    ("load_priority=b,NAME,a\nx=1", "NAME,b,a\nx=1", "b,a\nx=1"),
    ("x=1\nload_priority=b", "NAME,b\nx=1\n", "b\nx=1\n"),
    ("load_priority=NAME_2,a\n", "NAME,NAME_2,a", "NAME_2,a"),
    ("load_priority=a,,a,b,NAME,NAME\nload_priority=c\n", "NAME,a,b,c", "a,b,c"),
    ("load_priority=a,b\r\nx=1\r\n", "NAME,a,b\nx=1\r\n", "a,b\nx=1\r\n"),
    ("\ufeffload_priority=a\n", "NAME,a", "a"),
    ("load_priority=größe 包\n# 中文\x0b\u2028\n", "NAME,größe 包\n# 中文\x0b\u2028\n", "größe 包\n# 中文\x0b\u2028\n"),
    (b"load_priority=a\n# \xe4\xff\n", b"NAME,a\n# \xe4\xff\n", b"a\n# \xe4\xff\n"),
])
def test_load_priority(tmp_path, monkeypatch, before, after, removed):
    def content(text, prefix=b""):
        text = text.encode() if isinstance(text, str) else text
        return text and prefix + text.replace(b"NAME", NAME.encode()) + b"\n" * bool(prefix and b"\n" not in text)

    file = tmp_path / "opp/vendors/config.ini"
    monkeypatch.setenv("ASCEND_OPP_PATH", str(tmp_path / "opp"))
    if before is not None:
        write(file.parent, file.name, content(before))
        file.chmod(0o640)
    put(REAL)
    assert file.read_bytes() == content(after, b"load_priority=") and opp.priority(file.parent)[0] == NAME
    assert file.stat().st_mode & 0o777 == (0o640 if before else 0o644)
    opp.uninstall(None, NAME)
    assert (file.read_bytes() if file.exists() else None) == content(removed, b"load_priority=")


def loop(path):
    path.symlink_to(path.name)


# what is where -> (how, in the directory given by --path; arguments of install in that directory; what is said)
PLACES = {
    "source is not there": (None, ("none", "ops"), "none is not a directory"),
    "source is a file": (Path.touch, ("here", "ops"), "here is not a directory"),
    "target in the source": (None, ("real", "real/a/b"), "/real/a/b/vendors lies in real, which it shall copy"),
    "target in the source, by a link": (lambda p: p.symlink_to("real"), ("real", "here/a"), "/here/a/vendors lies in real, which"),
    "source is all vendors": (lambda p: shutil.copytree(p.parent / "real", p / "vendors"), ("here/vendors", "here"), "here/vendors lies in here/vendors"),
    "target is a file": (Path.touch, ("real", "here"), "here/vendors is unchanged: Not a directory"),
    "vendors is a file": (lambda p: write(p, "vendors", ""), ("real", "here"), "here/vendors is unchanged: File exists"),
    "target is a link to itself": (loop, ("real", "here"), "here/vendors is unchanged: Too many levels of symbolic links"),
    "vendors is a dangling link": (lambda p: [p.mkdir(), (p / "vendors").symlink_to("none")], ("real", "here"), "is unchanged: File exists"),
    "a colon": (None, ("real", "a:b"), "/a:b/vendors has a colon"),
    "something else of our name": (lambda p: write(p, f"vendors/{NAME}/.git/config", ""), ("real", "here"), f"/{NAME} is no vendor package"),
    "nothing given": (None, ("real", ""), "ASCEND_OPP_PATH is not set: source set_env.sh of CANN, or give a directory"),
}


@pytest.mark.parametrize("name", PLACES)
def test_places_that_cannot_be(name, tmp_path, monkeypatch):
    make, (source, path), said = PLACES[name]
    copy_real(tmp_path / "real")
    make and make(tmp_path / "here")
    monkeypatch.delenv("ASCEND_OPP_PATH", raising=False)
    before = tree(tmp_path)
    with pytest.raises(opp.OppError) as e:
        put(source, path)
    assert said in str(e.value) and "\n" not in str(e.value) and tree(tmp_path) == before
    if make and "source" not in name:
        with pytest.raises(opp.OppError):
            opp.uninstall(path, NAME)
        assert tree(tmp_path) == before


@pytest.mark.parametrize("path, root", [
    ("ops", "ops"), ("ops//./", "ops"), ("none/../ops", "ops"), ("{tmp}/ops/", "ops"), ("link/ops", "link/ops"), ("link/../other", "other"),
    ("-ops", "-ops")])
def test_places_that_can_be(path, root, tmp_path):
    (tmp_path / "real place").mkdir()
    (tmp_path / "link").symlink_to("real place")
    root = tmp_path / root / "vendors" / NAME
    for _ in range(2):
        assert put(REAL, path.format(tmp=tmp_path)) == root and installed(REAL, root)
    root.rename(tmp_path / "moved")
    root.symlink_to(tmp_path / "moved")  # a link is replaced and removed, not what it names
    assert put(REAL, path.format(tmp=tmp_path)) == root and not root.is_symlink() and installed(REAL, tmp_path / "moved")
    assert put(root, path.format(tmp=tmp_path)) == root and installed(REAL, root)  # onto itself
    assert opp.uninstall(path.format(tmp=tmp_path), NAME) == root and not root.parent.exists() and not (tmp_path / "none").exists()


@pytest.mark.parametrize("make, said", [
    (lambda p: p.mkdir(), "Is a directory"), (lambda p: p.symlink_to("/none/of/it"), "No such file"),
])
def test_a_config_that_cannot_be_written(home, make, said):
    (home / "vendors/config.ini").unlink()
    make(home / "vendors/config.ini")
    before = tree(home)
    with pytest.raises(opp.OppError, match="/vendors is unchanged: " + said):
        put(REAL)
    assert tree(home) == before and opp.search() == {}


def test_others_can_read_what_root_installs_under_a_umask(tmp_path, monkeypatch):
    monkeypatch.setenv("ASCEND_OPP_PATH", str(tmp_path))
    before = os.umask(0o077)
    try:
        root = put(REAL)
    finally:
        os.umask(before)
    assert all(p.stat().st_mode & 0o044 == 0o044 for p in (root.parent, *root.parent.rglob("*")))


def test_no_place(monkeypatch, tmp_path):
    monkeypatch.delenv("ASCEND_OPP_PATH", raising=False)
    for call in (lambda: put(REAL), lambda: opp.uninstall(None, NAME)):
        with pytest.raises(opp.OppError, match="ASCEND_OPP_PATH is not set: source set_env.sh of CANN, or give a directory"):
            call()


@pytest.mark.parametrize("damage", ["no kernel", "libcust_opapi.so of another machine"])
def test_a_damaged_package_is_refused_and_the_earlier_one_kept(home, older, tmp_path, damage):
    put(older)
    before = tree(home)
    bad = copy_real(tmp_path / "bad")
    DAMAGES[damage][0](bad)
    with pytest.raises(opp.OppError, match="is not installed: .*" + DAMAGES[damage][1][0].replace("\\w+", "")[:30]):
        put(bad)
    assert tree(home) == before


def test_a_failure_at_each_step_keeps_the_earlier_version(home, older, monkeypatch):
    put(older)
    before = tree(home)

    def fails(*args, **kwargs):
        raise OSError(28, "No space left on device", "x")

    for module, name in ((opp.tempfile, "mkdtemp"), (opp.shutil, "copytree"), (opp, "_swap"), (opp, "_exchange"), (opp, "_set_priority"),
                         (opp.os, "replace")):
        with monkeypatch.context() as m:
            m.setattr(module, name, fails)
            with pytest.raises(opp.OppError, match="is unchanged: No space left on device"):
                put(REAL)
        assert tree(home) == before, name
    put(REAL)
    assert installed(REAL, home / "vendors" / NAME)


def test_without_an_exchange_of_names(home, older, monkeypatch):
    """File systems that cannot exchange two names get two renames."""
    def refuses(*args):
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(opp, "_exchange", refuses)
    put(older)
    root = put(REAL)
    assert installed(REAL, root) and sorted(p.name for p in root.parent.iterdir()) == sorted([NAME, "vendor_a", "vendor_b", "config.ini"])
    monkeypatch.setattr(opp, "_set_priority", refuses)
    with pytest.raises(opp.OppError):
        put(older)
    assert installed(REAL, root)
    stage = root.parent / f".{NAME}.killed"  # killed between the two renames
    stage.mkdir()
    root.rename(stage / "earlier")
    with pytest.raises(opp.OppError):
        put(older)
    assert installed(REAL, root) and not stage.exists()


def lock(root):
    for p in (*root.rglob("*"), root):
        if not p.is_symlink():
            p.chmod(0o550 if p.is_dir() else 0o440)


def test_permissions_of_what_is_installed(tmp_path, older):
    for p in older.rglob("*"):
        p.chmod(0o777 if p.is_dir() or p.suffix == ".so" else 0o666)
    root = put(older, tmp_path)
    modes = {(p.is_dir(), oct(p.stat().st_mode & 0o777)) for p in (root, *root.rglob("*"))}
    assert modes == {(True, "0o755"), (False, "0o644"), (False, "0o755")}  # nobody else writes


# What the tests below run in a second process: an installation, or with no source an uninstallation; a signal at its n-th system call.
CALL = """
import os, signal, sys
source, name, last, number = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
count = 0
def hook(event, args):
    global count
    if event.split(".")[0] in ("open", "os", "shutil", "tempfile", "fcntl", "ctypes"):
        count += 1
        if count == last:
            os.kill(os.getpid(), number)
from ms_ropegrad import opp
sys.addaudithook(hook)
opp.install(source, None, name, ours=False) if source else opp.uninstall(None, name)
print(count)
"""
WHOLE = sorted([NAME, "vendor_a", "vendor_b", "config.ini"])


def run(code, *args, **kwargs):
    return subprocess.run([sys.executable, "-c", code, *map(str, args)], capture_output=True, text=True, **kwargs)


def listed(home):
    return sorted(p.name for p in (home / "vendors").iterdir())


def check_killed(home, before, after, points):
    """Kill -9 a call at points among its system calls: what was there or what shall be is whole, and the next call repairs."""
    root, seen = home / "vendors" / NAME, []

    def set_up():
        put(before or REAL)
        before or opp.uninstall(None, NAME)

    set_up()
    for point in points(int(run(CALL, after or "", NAME, 0, 9).stdout)):
        set_up()
        assert run(CALL, after or "", NAME, point, 9).returncode == -signal.SIGKILL, point
        there = before or after if root.exists() else None
        if before and after:
            there = after if installed(after, root) else before
        assert not there or installed(there, root) and opp.verify(root, ours=False) == [], point
        assert ini(home) in (BEFORE, AFTER) if not (before and after) else ini(home) == AFTER, point
        assert not (ini(home) == AFTER and there is None), point
        seen.append(there is after)
    assert seen == sorted(seen) and {False, True} == set(seen)  # the earlier until one point, the other from it on
    put(REAL)
    assert listed(home) == WHOLE and ini(home) == AFTER and installed(REAL, root)


def at_some(total):
    return [1, 2, 5, *range(10, total, max(total // 6, 1)), *range(total - 4, total + 1)]


def test_killed_upgrades(home, older):
    check_killed(home, older, REAL, at_some)


def test_killed_first_installs(home):
    check_killed(home, None, REAL, at_some)


def test_killed_uninstalls(home):
    check_killed(home, REAL, None, at_some)


@pytest.mark.slow
@pytest.mark.parametrize("before, after", [("older", REAL), (None, REAL), (REAL, None)])
def test_killed_at_each_step(home, older, before, after):
    check_killed(home, older if before == "older" else before, after, lambda total: range(1, total + 1, 11))


def test_installs_and_uninstalls_at_once(home, older, tmp_path):
    """In any order of the calls, each ends well or finds nothing to uninstall, and what is there is whole."""
    path = tmp_path / "a place that comes and goes"
    code = CALL.replace("None, name", "None if last else number, name").replace("int, sys", "eval, sys")
    calls = [subprocess.Popen([sys.executable, "-c", code, str(source), NAME, "0" if place else "-1", repr(place)], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
             for place in ("", str(path)) for source in (REAL, older, "", REAL, older, "")]
    for call in calls:
        _, err = call.communicate()
        assert call.returncode == 0 or err.splitlines()[-1].endswith("nothing to uninstall"), err
    for vendors, rest in ((home / "vendors", WHOLE), (path / "vendors", [NAME])):
        if (vendors / NAME).exists():
            assert sorted(p.name for p in vendors.iterdir()) == rest
            assert installed(REAL, vendors / NAME) or installed(older, vendors / NAME)
        assert not vendors.exists() or not list(vendors.glob(".*"))
    assert ini(home) == (AFTER if (home / "vendors" / NAME).exists() else BEFORE)


def test_an_install_waits_for_another(home):
    import fcntl
    held = os.open(home / "vendors", os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    call = subprocess.Popen([sys.executable, "-c", CALL, str(REAL), NAME, "0", "0"], stdout=subprocess.PIPE)
    with pytest.raises(subprocess.TimeoutExpired):
        call.wait(0.6)
    assert not (home / "vendors" / NAME).exists()
    os.close(held)
    assert call.wait() == 0 and installed(REAL, home / "vendors" / NAME)


def test_an_interrupted_install(home, older):
    """Ctrl-C at points among the system calls of the command: what was staged is removed, unless the removal is interrupted."""
    put(older)
    code = CALL.replace("opp.install(source, None, name, ours=False) if source else opp.uninstall(None, name)", """
install = opp.install
opp.install = lambda source, path: install(source, path, name, ours=False)
from ms_ropegrad import __main__
status = __main__.main(["install-opp", source])
if status:
    sys.exit(status)
""")
    total, seen = int(run(code, older, NAME, 0, signal.SIGINT).stdout.split()[-1]), []
    for point in range(total // 5, total, total // 5):
        done = run(code, REAL, NAME, point, signal.SIGINT)
        seen.append(installed(REAL, home / "vendors" / NAME))
        assert done.stderr == "Stopped: interrupted.\n" and done.returncode == 130, (point, done.stderr)
        assert (seen[-1] and set(WHOLE) <= set(listed(home)) or installed(older, home / "vendors" / NAME) and listed(home) == WHOLE), point
        assert ini(home) == AFTER
    assert seen == sorted(seen) and False in seen


USER = """import fcntl, os, sys; from ms_ropegrad import opp
if os.getuid() == 0:  # an interpreter that only root may start has loaded all it needs by now
    os.setgroups([]), os.setgid(65534), os.setuid(65534)
call, *args = sys.argv[1:]
try:
    print(opp.install(*args, ours=False) if call == "install" else opp.uninstall(*args))
except opp.OppError as e:
    sys.exit(f"error: {e}")
"""


@pytest.fixture
def user(tmp_path):
    """A directory of a user who is not root, and the real package where he can read it."""
    place = Path(tempfile.mkdtemp(prefix="Zuhause ü "))  # pytest's own directories are root's alone
    copy_real(place / NAME)
    if os.getuid() == 0:
        for p in (place, *place.rglob("*")):
            os.chown(p, 65534, 65534, follow_symlinks=False)
    yield place
    shutil.rmtree(place)


def test_without_root(user):
    source, path = user / NAME, user / "ops"
    root = path / "vendors" / NAME
    for _ in range(2):
        done = run(USER, "install", source, path, NAME)
        assert done.stdout == f"{root}\n" and installed(source, root), done.stderr
        lock(root)  # as CANN's installer does: replaced and removed all the same
    assert {p.stat().st_uid for p in (root, *root.rglob("*"))} == {user.stat().st_uid} != {0}
    assert run(USER, "uninstall", path, NAME).stdout == f"{root}\n" and not root.exists()


def test_a_read_only_target(user):
    source, path = user / NAME, user / "ops"
    root = path / "vendors" / NAME
    assert run(USER, "install", source, path, NAME).returncode == 0
    root.parent.chmod(0o555)
    before = tree(path)
    for call in (["install", source], ["uninstall"]):
        done = run(USER, *call, path, NAME)
        assert done.returncode == 1
        assert done.stderr.startswith(f"error: {root.parent} is unchanged: Permission denied: {root.parent}/.{NAME}."), done.stderr
        assert tree(path) == before
    done = run(USER, "install", source, "/proc/nowhere", NAME)
    assert done.returncode == 1 and done.stderr.startswith("error: /proc/nowhere/vendors is unchanged: ")


def test_a_full_disk(older, tmp_path):
    """A file system with room for one version only."""
    code = """import subprocess, sys; from ms_ropegrad import opp
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", sys.argv[3]], check=True)
opp.install(sys.argv[1], sys.argv[3], sys.argv[4], ours=False)
try:
    opp.install(sys.argv[2], sys.argv[3], sys.argv[4], ours=False)
except opp.OppError as e:
    print(e)
print(opp.verify(f"{sys.argv[3]}/vendors/{sys.argv[4]}", ours=False), open(f"{sys.argv[3]}/vendors/{sys.argv[4]}/version.info").read())
subprocess.run(["ls", "-A", f"{sys.argv[3]}/vendors"])
"""
    mount = tmp_path / "full"
    mount.mkdir()
    if subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", str(mount)], capture_output=True).returncode:
        pytest.skip("cannot mount a file system here")
    done = subprocess.run(["unshare", "-m", sys.executable, "-uc", code, str(older), str(REAL), str(mount), NAME], capture_output=True, text=True)
    said, whole, _, left = done.stdout.splitlines()
    assert said.startswith(f"{mount}/vendors is unchanged: ") and "No space left on device" in said, done
    assert whole == "[] custom_opp_compiler_version=8.5.0" and left == NAME


# ---- The op on Ascend without a sound package ----

@pytest.fixture
def cann(ours, tmp_path, monkeypatch):
    """As on an Ascend machine with our package named by the variable: ours is the directory."""
    monkeypatch.setenv("ASCEND_OPP_PATH", str(tmp_path / "cann/opp"))
    monkeypatch.setenv("ASCEND_CUSTOM_OPP_PATH", f"/none:{ours}:{REAL}")
    monkeypatch.setattr(opp, "soc", lambda: "ascend910b")
    monkeypatch.setattr(custom, "device", lambda: "Ascend")
    monkeypatch.setattr(custom, "_built", {})
    return ours


def refusal(op="RopeGrad"):
    """What the user of the operator reads."""
    with pytest.raises(opp.OppError) as e:
        custom.primitive(op, spec.ADJOINT[op])
    text = str(e.value)
    assert text.startswith(f"For '{op}', ") and "\n" not in text
    return text


def test_a_sound_package_is_used(cann):
    for op in spec.OPS:
        assert custom.primitive(op, spec.ADJOINT[op]).func == op


def test_no_package(cann, monkeypatch):
    monkeypatch.setenv("ASCEND_CUSTOM_OPP_PATH", f"/none:{REAL}")
    text = refusal()
    assert f"Searched: /none (ASCEND_CUSTOM_OPP_PATH): not a directory; {REAL} (ASCEND_CUSTOM_OPP_PATH): has no aclnnRopeGrad. " in text
    assert "Fix: build it (bash scripts/build_and_install.sh)" in text
    monkeypatch.delenv("ASCEND_CUSTOM_OPP_PATH")
    assert f"load_priority of {os.environ['ASCEND_OPP_PATH']}/vendors/config.ini name no directory" in refusal()


def test_the_user_of_a_cell_reads_it_in_both_modes(cann, mode, monkeypatch):
    monkeypatch.delenv("ASCEND_CUSTOM_OPP_PATH")
    x, table = (Tensor(np.ones((n, 128)), ms.float16) for n in (11, 64))
    with pytest.raises(opp.OppError, match="^For 'RopeForward', no vendor package has aclnnRopeForward. Searched: "):
        Rope()(x, x, table, table, seq_ends=Tensor([2, 11], ms.int32))


def test_load_priority_is_searched_after_the_variable(cann, tmp_path, monkeypatch):
    vendors = tmp_path / "cann/opp/vendors"
    write(vendors, "config.ini", f"load_priority=gone,{spec.VENDOR}\n")
    monkeypatch.setenv("ASCEND_CUSTOM_OPP_PATH", "")
    assert f"{vendors}/gone ({vendors}/config.ini): not a directory; " in refusal()
    shutil.move(cann, vendors / spec.VENDOR)
    assert opp.find("RopeGrad")[:2] == (vendors / spec.VENDOR, str(vendors / "config.ini"))
    custom.primitive("RopeGrad", "RopeGrad")


BROKEN = {
    "another SoC": (lambda root: [shutil.rmtree(root / TBE / d / "ascend910b") for d in ("config", "kernel/config", "kernel")],
                    "it is not built for ascend910b, only for ascend910_93"),
    "another machine": (edit(OPAPI, machine(OTHER)), f"op_api/lib/libcust_opapi.so is for .*, but must be for {MACHINE}"),
    "no symbol": (lambda root: library(root / OPAPI, ["aclnnRopeGrad"]), "does not export aclnnRopeGradGetWorkspaceSize \\(and 4 more: .*verify-opp"),
    "older": (edit(opp.STAMP, lambda _: b"0.0.9 0\n"), "it is stale: built from '0.0.9 0', but this is '"),
    "no kernel": (remove(f"{TBE}/kernel/ascend910b/rope_grad/RopeGrad_0.o"), "RopeGrad_0.o is missing"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_package(cann, name):
    BROKEN[name][0](cann)
    text = refusal()
    assert re.search(rf"the vendor package {cann} \(ASCEND_CUSTOM_OPP_PATH\) cannot be used: .*{BROKEN[name][1]}.*Fix: ", text), text


def test_the_old_910_is_named(cann, monkeypatch):
    monkeypatch.setattr(opp, "soc", lambda: "ascend910")
    assert "it is not built for ascend910, only for ascend910_93, ascend910b" in refusal()


def test_another_vendor_with_our_operator(cann, tmp_path, monkeypatch):
    thief = tmp_path / "customize"
    library(thief / OPAPI, ["aclnnRopeGrad"])
    monkeypatch.setenv("ASCEND_CUSTOM_OPP_PATH", f"{thief}:{cann}")
    assert f"{thief} (ASCEND_CUSTOM_OPP_PATH) is another vendor's and has an aclnnRopeGrad too. Fix: name ms_ropegrad before it." in refusal()
    custom.primitive("RopeForward", "RopeGradExact")  # which that vendor has not


def test_named_too_late(cann, tmp_path):
    """MindSpore loads custom libraries once, then libopapi.so: a process that has loaded it, but not ours."""
    code = """import ctypes, os, sys; from ms_ropegrad import opp
opp.soc = lambda: "ascend910b"
for library in sys.argv[2:]:
    ctypes.CDLL(library)
os.environ["ASCEND_CUSTOM_OPP_PATH"] = sys.argv[1]
try:
    opp.require("RopeGrad")
    print("fine")
except opp.OppError as e:
    print(e)
"""
    cann_s, other, env = tmp_path / "lib64 ü/libopapi.so", tmp_path / "other" / OPAPI, {**os.environ, "ASCEND_CUSTOM_OPP_PATH": ""}
    library(cann_s, ["aclnnInit"])
    library(other, ["aclnnOther"])
    fine = lambda *libraries, **more: run(code, cann, *libraries, env={**env, **more}).stdout == "fine\n"
    assert fine() and fine(other) and fine(cann / OPAPI, cann_s) and fine(other, cann / OPAPI, cann_s)
    assert fine(cann_s, ASCEND_CUSTOM_OPP_PATH=f"/none:{cann}/") and not fine(cann_s, ASCEND_CUSTOM_OPP_PATH=f"{cann}_2:/none")
    for libraries in ([cann_s], [other, cann_s]):
        assert run(code, cann, *libraries, env=env).stdout == (
            f"For 'RopeGrad', {cann} (ASCEND_CUSTOM_OPP_PATH) was named too late: MindSpore loads custom libraries once, at the first operator. "
            "Fix: set ASCEND_CUSTOM_OPP_PATH before Python starts, or import ms_ropegrad before the first operator if a wheel holds it.\n")
    upgraded = code.replace("os.environ[", f"opp.install({str(cann)!r}, {str(tmp_path / 'ops')!r}); os.environ[")
    opp.install(cann, tmp_path / "ops")  # replaced while the process runs that has loaded it
    root = tmp_path / "ops/vendors" / spec.VENDOR
    assert run(upgraded, root, root / OPAPI, cann_s, env=env).stdout == "fine\n"


def test_what_the_call_does_not_need_is_not_refused(cann):
    """As CANN's installer leaves directories; another SoC; what only GE's online compilation and other frameworks read."""
    for damage in (remove("version.info"), remove("framework"), remove("op_proto/inc/op_proto.h"), remove(f"{TBE}/{spec.VENDOR}_impl"),
                   remove(f"{TBE}/kernel/ascend910_93"), lambda root: (root / "op_api").chmod(0o550)):
        damage(cann)
    custom.primitive("RopeGrad", "RopeGrad")
    remove(LINK)(cann)
    with pytest.raises(opp.OppError, match="liboptiling.so is missing"):
        opp.require("RopeGrad")


def test_cann_that_mindspore_cannot_use(cann, monkeypatch):
    monkeypatch.setenv("ASCEND_OPP_PATH", "/home/opp_user/cann/opp/")
    assert "MindSpore cuts ASCEND_OPP_PATH=/home/opp_user/cann/opp/ at its first 'opp'" in refusal()
    monkeypatch.delenv("ASCEND_OPP_PATH")
    assert "ASCEND_OPP_PATH is not set: source set_env.sh of CANN before Python starts." in refusal()


# ---- The package bundled in a wheel ----

def test_bundled(made, tmp_path):
    site = tmp_path / "site packages"
    shutil.copytree(REPO / "ms_ropegrad", site / "ms_ropegrad", ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    mine = site / "ms_ropegrad/vendors" / spec.VENDOR

    def path(value=None):
        env = {k: v for k, v in os.environ.items() if k != "ASCEND_CUSTOM_OPP_PATH"}
        env.update({"PYTHONPATH": str(site), **({} if value is None else {"ASCEND_CUSTOM_OPP_PATH": str(value)})})
        done = run("import os, ms_ropegrad, importlib; importlib.reload(ms_ropegrad); print(os.environ.get('ASCEND_CUSTOM_OPP_PATH'))", env=env)
        assert done.stderr == ""
        return done.stdout.strip()

    assert path() == "None"  # there is none
    shutil.copytree(made, mine, symlinks=True)
    assert path() == path("") == str(mine)
    assert path(f"/a:{REAL}") == f"{mine}:/a:{REAL}"
    assert path(f"/a:{made}") == f"/a:{made}"  # the user's choice
    assert path(mine) == str(mine)
    edit(f"ms_ropegrad/vendors/{spec.VENDOR}/{OPAPI}", machine(OTHER))(site)
    assert path() == "None"
    (mine / OPAPI).write_text("")
    assert path() == "None"


# ---- The command line ----

@pytest.fixture
def cli(capsys):
    def call(*args):
        try:
            status = __main__.main([str(a) for a in args])
        except SystemExit as e:
            status = e.code
        return status, *capsys.readouterr()
    return call


def test_verify_opp(cli, ours):
    assert cli("verify-opp", ours) == (0, f"{ours} is sound.\n", "")
    assert cli("verify-opp", REAL, "--any-vendor", "--soc", "ascend310p")[0] == 0
    status, out, _ = cli("verify-opp", ours, "--soc", "ascend950", "--json")
    assert status == 1 and json.loads(out) == {"directory": str(ours), "sound": False,
                                               "problems": ["it is not built for ascend950, only for ascend910_93, ascend910b"]}
    remove(LINK)(ours)
    assert cli("verify-opp", ours) == (1, f"{ours} is not sound:\n  {LINK} is missing\n", "")
    status, out, _ = cli("verify-opp", ours, "--machine", {"x86_64": "aarch64"}.get(MACHINE, "x86_64"))
    assert status == 1 and out.count("but must be for") == 1 and out.count("is missing") == 3


def test_install_and_uninstall_opp(cli, ours, home, tmp_path):
    root = tmp_path / "my ops/vendors" / spec.VENDOR
    assert cli("install-opp", ours, "--path", tmp_path / "my ops") == (
        0, f'Installed {root}. Before Python starts: source "{root}/bin/set_env.bash"\n', "")
    assert cli("uninstall-opp", "--path", tmp_path / "my ops", "--json") == (0, json.dumps({"directory": str(root), "error": None}) + "\n", "")
    status, out, err = cli("uninstall-opp", "--path", tmp_path / "my ops")
    assert (status, out) == (1, "") and err.startswith("ms_ropegrad: error: ") and err.endswith("is not there: nothing to uninstall\n")
    root = home / "vendors" / spec.VENDOR
    assert cli("install-opp", ours) == (0, f"Installed {root}.\n", "")
    assert ini(home) == "load_priority=ms_ropegrad,vendor_a,vendor_b\n# kept\n"
    status, out, _ = cli("install-opp", REAL, "--json")
    assert status == 1 and "ms_ropegrad.version is missing" in json.loads(out)["error"] and installed(ours, root)
    assert cli("uninstall-opp") == (0, f"Removed {root}.\n", "")


def test_help_has_examples(cli):
    for name in ("info", "verify-opp", "install-opp", "uninstall-opp"):
        status, out, _ = cli(name, "--help")
        assert status == 0 and f"examples:\n  python -m ms_ropegrad {name}" in out
    assert cli("install-opp")[0] == 2


def test_info_names_the_package(cli, ours, monkeypatch):
    monkeypatch.setenv("ASCEND_CUSTOM_OPP_PATH", f"{REAL}:{ours}")
    assert f"Ascend operators: {ours} (ASCEND_CUSTOM_OPP_PATH)\n" in cli("info")[1]
    remove(LINK)(ours)
    assert f"Ascend operators: {ours} (ASCEND_CUSTOM_OPP_PATH)\n  {LINK} is missing\n" in cli("info")[1]
    found = json.loads(cli("info", "--json")[1])
    assert found["device"] == "CPU" and found["ascend"] == {
        "directory": str(ours), "named_by": "ASCEND_CUSTOM_OPP_PATH", "problems": [f"{LINK} is missing"],
        "searched": [f"{REAL} (ASCEND_CUSTOM_OPP_PATH): has no aclnnRopeGrad"]}
    monkeypatch.setenv("ASCEND_CUSTOM_OPP_PATH", str(REAL))
    assert cli("info")[1].endswith(f"Ascend operators: not found\n  {REAL} (ASCEND_CUSTOM_OPP_PATH): has no aclnnRopeGrad\n")
    monkeypatch.setattr(custom, "device", lambda: "Ascend")
    monkeypatch.setenv("ASCEND_OPP_PATH", "")
    status, out, _ = cli("info")
    assert status == 1 and "ASCEND_OPP_PATH is not set" in out


def test_commands_for_packages_need_neither_numpy_nor_mindspore(made, tmp_path):
    code = "import sys; sys.modules['numpy'] = sys.modules['mindspore'] = None; from ms_ropegrad.__main__ import main; sys.exit(main(sys.argv[1:]))"
    for args in (["verify-opp", made], ["install-opp", made, "--path", tmp_path], ["uninstall-opp", "--path", tmp_path]):
        done = run(code, *args)
        assert done.returncode == 0, done.stderr
