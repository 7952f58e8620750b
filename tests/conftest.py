# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
"""Every test runs in a temporary directory (MindSpore drops rank_0 and kernel_meta there)."""
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def _temporary_cwd(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = os.pathsep.join(p for p in (str(REPO), os.environ.get("PYTHONPATH")) if p)
    monkeypatch.setenv("PYTHONPATH", path)  # for tests that start a second process
    yield
    shutil.rmtree(tmp_path / "rank_0", ignore_errors=True)


def build_native(directory):
    """Build the native library as setup.py does, outside the source tree."""
    subprocess.run([sys.executable, "setup.py", "-q", "build_ext", "--build-lib", directory, "--build-temp", directory / "temp"],
                   cwd=REPO, check=True, capture_output=True)
    return directory / "ms_ropegrad/librope_native.so"


@pytest.fixture(scope="session", autouse=True)
def native_library(tmp_path_factory):
    """A clean clone has no native library, or an older one: build it for this session."""
    from ms_ropegrad import native
    if native.status()[0] is None and shutil.which("g++"):
        os.environ["MS_ROPEGRAD_LIBRARY"] = str(build_native(tmp_path_factory.mktemp("native")))


@pytest.fixture(params=["native", "numpy"])
def backend(request, monkeypatch):
    """Both CPU implementations; numpy is slow (pytest -m slow) outside test_cells.py."""
    from ms_ropegrad import native
    if request.param == "native" and native.status()[0] is None:
        pytest.skip(native.status()[1])
    monkeypatch.setenv("MS_ROPEGRAD_BACKEND", request.param)
    return request.param


@pytest.fixture(params=["pynative", "graph"])
def mode(request):
    """Both execution modes of MindSpore."""
    import mindspore as ms
    ms.set_context(mode=ms.GRAPH_MODE if request.param == "graph" else ms.PYNATIVE_MODE)
    yield request.param
    ms.set_context(mode=ms.PYNATIVE_MODE)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if getattr(item, "callspec", None) and item.callspec.params.get("backend") == "numpy" and item.module.__name__ != "test_cells":
            item.add_marker(pytest.mark.slow)
        if item.get_closest_marker("ascend"):
            item.add_marker(pytest.mark.skip(reason="needs an Ascend device"))
