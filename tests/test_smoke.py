# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
"""scripts/npu_smoke_test.py on CPU: does it run every operator, and would it see a wrong one?"""
import json
import os
import subprocess
import sys

import numpy as np
import pytest

from conftest import REPO
from ms_ropegrad import opp, spec

sys.path.insert(0, str(REPO / "scripts"))
import npu_smoke_test as smoke  # noqa: E402  graph mode reads its source by this name


def test_cases_cover_the_operator_table():
    cases = list(smoke.cases())
    assert {c[:3] for c in cases} == {(op, *pair) for op in spec.OPS for pair in spec.DTYPE_PAIRS}
    assert {(c[0], c[3]) for c in cases} == {(op, head) for op in spec.OPS for head in spec.HEAD_SIZES}
    assert {c[4] for c in cases} == set(smoke.SHAPES) and set(smoke.cases(small=True)) == {c for c in cases if c[4] != "long"}
    (q, k, cos, sin), ends = smoke.inputs("bfloat16", "float32", 64, "grouped heads, empty sequences")
    assert q.shape == (200, 256) and k.shape == (200, 64) and ends[-1] == 200 and cos.shape == sin.shape == (131, 64)
    assert not np.array_equal(sin[:, :32], sin[:, 32:]) and not (q.view(np.uint32) & 0xffff).any()


@pytest.mark.parametrize("dtype, want, got, expected", [
    ("float16", [1.0], [1.0009765625], (1, 1)),
    ("float16", [6e-8, 0.0], [-6e-8, 0.0], (1, 2)),  # the smallest number, through both zeros
    ("float16", [0.0], [-0.0], (1, 0)),
    ("float16", [np.nan, np.inf], [np.nan, np.inf], (0, 0)),
    ("float16", [65504.0], [np.inf], (1, 1)),
    ("float32", [1.0, 2.0], [np.nextafter(np.float32(1), np.float32(2)), 2.0], (1, 1)),
    ("bfloat16", [1.0, -1.0], [1.0078125, -1.015625], (2, 2)),  # held in float32
])
def test_compare(dtype, want, got, expected):
    arrays = [[np.array(a, "float32" if dtype == "bfloat16" else dtype)] for a in (got, want)]
    assert smoke.compare(*arrays, dtype) == expected


def test_compare_refuses_another_shape_or_dtype():
    for other in (np.zeros(3, np.float16), np.zeros(2, np.float32)):
        with pytest.raises(ValueError, match="but expected float16 \\(2,\\)"):
            smoke.compare([other], [np.zeros(2, np.float16)], "float16")


@pytest.fixture
def few(monkeypatch):
    """One case of each operator, bfloat16 and a grouped one among them."""
    chosen = [("RopeGrad", "float16", "float16", 128, "document"), ("RopeGradExact", "bfloat16", "float32", 64, "one token"),
              ("RopeForward", "float32", "float32", 128, "grouped heads, empty sequences")]
    monkeypatch.setattr(smoke, "cases", lambda small=False: iter(chosen))


@pytest.fixture(autouse=True)
def _mode():
    yield
    smoke.ms.set_context(mode=smoke.ms.PYNATIVE_MODE)


def main(*args):
    status = smoke.main(["--device", "CPU", "--small", "--report", "report.json", *args])
    with open("report.json", encoding="utf-8") as f:
        return status, json.load(f)


def test_a_pass(few, capsys):
    status, report = main()
    assert (status, report["passed"], report["failed"]) == (0, 6, 0)
    assert report["environment"]["device"] == "CPU" and set(report["environment"]["vendor_package"]) >= {"directory", "problems"}
    rows = report["modes"]["graph"]
    assert [(r["op"], r["direct"]["different"], "gradient" in r) for r in rows] == [
        ("RopeGrad", 0, False), ("RopeGradExact", 0, True), ("RopeForward", 0, False)]
    assert [r["direct"]["elements"] for r in rows] == [2 * 11 * 128, 2 * 64, 200 * 5 * 128]
    out = capsys.readouterr().out
    assert out.count("pass ") == 6 and "FAIL" not in out and "6 passed, 0 failed\n" in out


def test_the_wrong_formula_is_seen(few, monkeypatch):
    monkeypatch.setattr(smoke, "FORMULA", {"RopeGrad": "exact", "RopeGradExact": "atb"})
    right = smoke.expected
    other = {"RopeGrad": "RopeGradExact", "RopeGradExact": "RopeGrad", "RopeForward": "RopeForward"}
    monkeypatch.setattr(smoke, "expected", lambda op, *rest: right(other[op], *rest))
    status, report = main("--mode", "pynative")
    assert (status, report["passed"], report["failed"]) == (1, 1, 2)
    assert report["modes"]["pynative"][0]["direct"]["different"] > 1000


@pytest.mark.parametrize("way", ["direct", "gradient"])
def test_one_wrong_bit_is_seen(few, monkeypatch, way):
    right = smoke.computed

    def wrong(*args):
        results = dict(zip(("direct", "gradient"), right(*args)))
        if results[way] is not None:
            results[way] = [a.copy() for a in results[way]]
            results[way][1].view(np.uint16).flat[-1] ^= 1
        return results["direct"], results["gradient"]

    monkeypatch.setattr(smoke, "computed", wrong)
    status, report = main("--mode", "pynative")
    assert status == 1 and report["failed"] == (3 if way == "direct" else 1)
    assert report["modes"]["pynative"][1][way]["different"] == 1


def test_the_report_is_there_when_a_case_kills_the_process(few, monkeypatch):
    right, seen = smoke.computed, []

    def killed(*args):
        seen.append(args)
        if len(seen) == 3:
            raise SystemExit
        return right(*args)

    monkeypatch.setattr(smoke, "computed", killed)
    with pytest.raises(SystemExit):
        main("--mode", "pynative")
    with open("report.json", encoding="utf-8") as f:
        assert len(json.load(f)["modes"]["pynative"]) == 2


def test_a_place_for_the_report_is_needed_first(monkeypatch, capsys):
    monkeypatch.setattr(smoke, "run", None)
    assert smoke.main(["--device", "CPU", "--report", "none/report.json"]) == 2
    assert capsys.readouterr().err == "cannot write none/report.json: No such file or directory\n"


@pytest.mark.slow
def test_help_in_a_clone_that_is_not_installed(tmp_path):
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run([sys.executable, REPO / "scripts/npu_smoke_test.py", "--help"], env=env, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and "--report" in done.stdout


def test_an_operator_that_raises_does_not_end_the_report(few, monkeypatch, capsys):
    right = smoke.computed

    def fails(op, *rest):
        if op == "RopeGradExact":
            raise RuntimeError("EZ3003 no kernel\nand more")
        return right(op, *rest)

    monkeypatch.setattr(smoke, "computed", fails)
    status, report = main("--mode", "graph")
    assert (status, report["passed"], report["failed"]) == (1, 2, 1)
    assert report["modes"]["graph"][1]["error"].startswith("RuntimeError: EZ3003 no kernel")
    assert "FAIL graph: RopeGradExact, bfloat16, float32, 64, one token: RuntimeError: EZ3003 no kernel" in capsys.readouterr().out


def test_without_a_device_or_a_package(monkeypatch, capsys):
    def refuse(op):
        raise opp.OppError(f"For '{op}', no vendor package")

    assert smoke.main(["--device", "Ascend", "--report", "none.json"]) == 2 or smoke.ms.get_context("device_target") == "Ascend"
    monkeypatch.setattr(smoke.ms, "set_context", lambda **kwargs: None)
    monkeypatch.setattr(opp, "require", refuse)
    capsys.readouterr()
    assert smoke.main(["--report", "none.json"]) == 2
    assert capsys.readouterr().err == "nothing can run on Ascend: For 'RopeGrad', no vendor package\n"


@pytest.mark.slow
def test_everything_on_cpu():
    status = smoke.main(["--device", "CPU", "--report", "report.json"])
    with open("report.json", encoding="utf-8") as f:
        report = json.load(f)
    assert (status, report["passed"]) == (0, 2 * len(list(smoke.cases()))) and report["seconds_graph"] > 0
