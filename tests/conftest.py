# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
"""Every test runs in a temporary directory (MindSpore drops rank_0 and kernel_meta there)."""
import os
import shutil
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


@pytest.fixture(params=["pynative", "graph"])
def mode(request):
    """Both execution modes of MindSpore."""
    import mindspore as ms
    ms.set_context(mode=ms.GRAPH_MODE if request.param == "graph" else ms.PYNATIVE_MODE)
    yield request.param
    ms.set_context(mode=ms.PYNATIVE_MODE)


def pytest_collection_modifyitems(items):
    for item in items:
        if item.get_closest_marker("ascend"):
            item.add_marker(pytest.mark.skip(reason="needs an Ascend device"))
