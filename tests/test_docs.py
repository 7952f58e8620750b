# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
"""Do the documents and docstrings say what is true? Their examples run here."""
import doctest
import importlib
import os
import re
import subprocess
import sys

import pytest
import mindspore as ms

from conftest import REPO

READMES = ("README.md", "README_zh.md")
MODULES = ("cells", "lengths", "rotary", "tables", "reference")


def blocks(readme, language):
    return re.findall(rf"```{language}\n(.*?)```", (REPO / readme).read_text(encoding="utf-8"), re.S)


@pytest.mark.parametrize("readme", READMES)
def test_python_blocks_run(readme, tmp_path):
    (code,) = blocks(readme, "python")
    assert len(code.strip().splitlines()) <= 15
    path = tmp_path / "usage.py"
    path.write_text(code, encoding="utf-8")
    run = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, env=dict(os.environ, GLOG_v="3"))
    assert (run.returncode, run.stdout) == (0, "(11, 256) (11, 128)\n"), run.stderr


@pytest.mark.parametrize("readme", READMES)
def test_the_two_commands(readme):
    (block,) = blocks(readme, "bash")
    scripts = [line.split("#")[0].split() for line in block.splitlines()]
    assert scripts == [["bash", "scripts/run_demo.sh"], ["bash", "scripts/run_tests.sh"]]
    assert all((REPO / words[1]).is_file() for words in scripts)
    assert "bash scripts/run_tests.sh" in (REPO / ".ci/run").read_text()


def test_both_languages_say_the_same():
    english, chinese = ((REPO / r).read_text(encoding="utf-8") for r in READMES)
    strip = lambda code: [re.sub(r"#.*", "", line).rstrip() for line in code.splitlines()]
    for language in ("python", "bash"):
        assert [strip(b) for b in blocks("README.md", language)] == [strip(b) for b in blocks("README_zh.md", language)]
    assert english.count("\n## ") == chinese.count("\n## ") and english.count("\n|") == chinese.count("\n|")
    numbers = lambda text: sorted(set(re.findall(r"\d+\.\d+", text)))
    assert numbers(english) == numbers(chinese)
    assert len(english.splitlines()) < 150
    assert not re.search(r"\b[A-Z]+_TABLE\b|TODO|TBD", english + chinese)


def test_numbers_of_the_vendors_formula():
    out = subprocess.run([sys.executable, str(REPO / "benchmarks/atb_vs_exact.py")], capture_output=True, text=True, check=True).stdout
    values = re.findall(r"\d+\.\d+", out)
    assert len(values) == 3
    for readme in READMES:
        assert all(v in (REPO / readme).read_text(encoding="utf-8") for v in values), out


def test_files_that_are_named_exist():
    for doc in (*READMES, "CONTRIBUTING.md", *(f"docs/{p.name}" for p in (REPO / "docs").glob("*.md"))):
        for name in re.findall(r"`((?:\w+/)+[\w.]*|README\w*\.md|CONTRIBUTING\.md)`", (REPO / doc).read_text(encoding="utf-8")):
            if name.startswith("build/"):  # made by a build
                continue
            assert any((base / name).exists() for base in (REPO, REPO / "ms_ropegrad", REPO / "tests/twin", (REPO / doc).parent)), (doc, name)


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name):
    ms.set_context(mode=ms.PYNATIVE_MODE)
    module = importlib.import_module(f"ms_ropegrad.{name}")
    result = doctest.testmod(module)
    assert result.attempted and not result.failed


def test_every_public_name_has_its_docstring():
    import ms_ropegrad
    for name in ms_ropegrad.__all__:
        value = getattr(ms_ropegrad, name)
        assert value.__doc__, name
        if callable(value):
            for part in ("Raises:", "Supported Platforms:\n        ``Ascend`` ``CPU``", "Examples:\n"):
                assert part in value.__doc__, (name, part)


def test_every_source_file_has_its_licence():
    tracked = subprocess.run(["git", "ls-files"], cwd=REPO, capture_output=True, text=True)
    if tracked.returncode:
        pytest.skip("not a git checkout")
    for name in tracked.stdout.split():
        if name.endswith((".py", ".cpp", ".h", ".sh", "CMakeLists.txt")) and (REPO / name).exists():
            head = (REPO / name).read_text(encoding="utf-8")[:400]
            assert "Copyright 2026 The ms_ropegrad Authors" in head and "SPDX-License-Identifier: Apache-2.0" in head, name
