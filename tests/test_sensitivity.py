# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
"""Would the suite notice? Deliberate faults in a copy of the package, each of which test_reference.py must fail on."""
import os
import shutil
import subprocess
import sys

import pytest

from conftest import REPO

FAULTS = {
    "none": ("", ""),
    "no half swap": ("np.multiply(x[:, :, h:], turned[:, :, :h], out=other[:, :, :h])\n    np.multiply(x[:, :, :h],",
                     "np.multiply(x[:, :, :h], turned[:, :, :h], out=other[:, :, :h])\n    np.multiply(x[:, :, h:],"),
    "sin halves swapped": ("np.concatenate((sin[:, h:], -sin[:, :h])", "np.concatenate((sin[:, :h], -sin[:, h:])"),
    "sign": ("np.concatenate((sin[:, h:], -sin[:, :h])", "np.concatenate((-sin[:, h:], sin[:, :h])"),
    "position off by one": ("pos[~valid] = 0", "pos[~valid] = 0\n    pos = np.minimum(pos + 1, max_seq_len - 1)"),
    "no restart": (" - np.repeat(np.cumsum(counts) - counts, counts)", ""),
    "forward with its own gradient's halves": ("np.concatenate((-sin[:, :h], sin[:, h:])", "np.concatenate((-sin[:, h:], sin[:, :h])"),
    "no rounding after the add": ("if half_way else coef)", "if False else coef)"),
    "double rounding": ("return (coef", "half_way = True\n        return (coef"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_fails_the_suite(fault, tmp_path):
    shutil.copytree(REPO / "ms_ropegrad", tmp_path / "ms_ropegrad", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("conftest.py", "oracle.py", "test_reference.py"):
        shutil.copy(REPO / "tests" / name, tmp_path / name)
    path, (old, new) = tmp_path / "ms_ropegrad/reference.py", FAULTS[fault]
    source = path.read_text()
    assert fault == "none" or source.count(old) == 1
    path.write_text(source.replace(old, new) if old else source)
    # Only the copy is importable: neither the repository nor the installed package.
    env = dict(os.environ, PYTHONPATH=str(tmp_path), PYTHONDONTWRITEBYTECODE="1")
    run = subprocess.run([sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "test_reference.py", "-k", "not memory"],
                         cwd=tmp_path, env=env, capture_output=True, text=True)
    assert run.returncode == (0 if fault == "none" else 1), run.stdout[-2000:]
