# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
"""Do the documents and docstrings say what is true? Their links lead somewhere, their examples run here or where this file says."""
import collections
import contextlib
import doctest
import importlib
import io
import re
import runpy
import subprocess
import sys

import pytest
import mindspore as ms

from conftest import REPO

READMES = ("README.md", "README_zh.md")
DOCS = sorted(p.relative_to(REPO).as_posix() for p in (*REPO.glob("*.md"), *REPO.glob("docs/*.md")))
MODULES = ("cells", "lengths", "rotary", "tables", "reference")

# Python blocks that do not run here: document -> the test that runs them.
RUN_BY = {"docs/twin.md": "test_twin_hazards.py"}

# Lines of bash blocks -> the test that runs the script with such arguments, or what a machine must have for them.
COMMANDS = {
    "bash scripts/run_demo.sh": "test_scripts.py",
    "bash scripts/run_tests.sh": "test_scripts.py",
    "bash scripts/build_and_install.sh": "test_build_script.py",
    "bash scripts/uninstall.sh": "test_build_script.py",
    "source ~/my_ops/vendors/ms_ropegrad/bin/set_env.bash": "test_opp.py",
    "python scripts/npu_smoke_test.py": "test_smoke.py",
    "python -m ms_ropegrad info": "test_opp.py",
    "python -m ms_ropegrad verify-opp": "test_opp.py",
    "python -m ms_ropegrad install-opp": "test_opp.py",
    "python -m ms_ropegrad uninstall-opp": "test_opp.py",
    "pip install . 'numpy<2'": "needs the network: scripts/setup_venv.sh runs it with -e",
}


def read(doc):
    return (REPO / doc).read_text(encoding="utf-8")


def blocks(doc, language):
    return re.findall(rf"^```{language}\n(.*?)^```", read(doc), re.S | re.M)


def outside_blocks(doc):
    return re.sub(r"^```.*?^```$", "", read(doc), flags=re.S | re.M)


# ---- Every document ----

def anchors(doc):
    """As GitHub makes them of headings."""
    seen, found = collections.Counter(), set()
    for heading in re.findall(r"^#+ (.*)$", outside_blocks(doc), re.M):
        slug = re.sub(r"[^\w\- ]", "", re.sub(r"\[(.*?)\]\(.*?\)", r"\1", heading).lower()).replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return found


@pytest.mark.parametrize("doc", DOCS)
def test_links_lead_somewhere(doc):
    for target in re.findall(r"\]\(([^()\s]+)\)", re.sub(r"`[^`\n]*`", "", outside_blocks(doc))):
        if target.startswith("https://"):
            continue
        name, _, anchor = target.partition("#")
        path = (REPO / doc).parent / name if name else REPO / doc
        assert path.is_file() or path.is_dir() and not anchor, f"{doc}: {target}"
        if anchor:
            assert anchor in anchors(path.resolve().relative_to(REPO)), f"{doc}: no heading for {target}"


def test_the_index_names_every_document():
    index = read("docs/README.md")
    assert all(f"]({doc.removeprefix('docs/')})" in index for doc in DOCS if doc.startswith("docs/") and doc != "docs/README.md")


@pytest.mark.parametrize("doc, number", [(doc, n) for doc in DOCS if doc not in RUN_BY and doc != "README_zh.md"
                                         for n in range(len(blocks(doc, "python")))])
def test_python_blocks_run(doc, number, tmp_path):
    """As a file of its own; what a print says is the comment behind it."""
    code = blocks(doc, "python")[number]
    (tmp_path / "block.py").write_text(code, encoding="utf-8")
    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(out):
            runpy.run_path(str(tmp_path / "block.py"), run_name="block")
    finally:
        ms.set_context(mode=ms.PYNATIVE_MODE)
    assert out.getvalue().splitlines() == re.findall(r"^print\(.*\) +# (.*)$", code, re.M) != []


def test_what_others_run():
    for doc, test in RUN_BY.items():
        assert blocks(doc, "python") and doc.split("/")[-1] in read(f"tests/{test}")
    lines = {doc: [line for block in blocks(doc, "bash") for part in block.splitlines()
                   for line in re.split(r"\s&&\s", part.split("  #")[0]) if line.strip()] for doc in DOCS}
    for doc, line in ((doc, line.strip()) for doc in DOCS for line in lines[doc]):
        assert any(line.startswith(command) for command in COMMANDS), f"{doc}: nobody runs: {line}"
    for command, test in COMMANDS.items():
        assert any(line.strip().startswith(command) for doc in DOCS for line in lines[doc]), f"no document has: {command}"
        if not test.startswith("needs "):
            assert re.split(r"[ /]", command)[-1].split(".")[0] in read(f"tests/{test}"), (command, test)


def test_files_that_are_named_exist():
    for doc in DOCS:
        for name in re.findall(r"`((?:\w+/)+[\w.]*|README\w*\.md|CONTRIBUTING\.md)`", read(doc)):
            if name.startswith("build/"):  # made by a build
                continue
            assert any((base / name).exists() for base in (REPO, REPO / "ms_ropegrad", REPO / "tests/twin", (REPO / doc).parent)), (doc, name)


# ---- One source of truth ----

def test_the_api_is_that_of_the_docstrings():
    sys.path.insert(0, str(REPO / "docs"))
    try:
        import make_api
        assert make_api.text() == read("docs/api.md"), "run: python docs/make_api.py"
    finally:
        sys.path.remove(str(REPO / "docs"))
    for name in set(re.findall(r"MS_ROPEGRAD_[A-Z]+", "".join(p.read_text(encoding="utf-8") for pattern in (
            "setup.py", "ms_ropegrad/*.py", "scripts/*.sh", "op_impl/cpu/*.cpp") for p in REPO.glob(pattern)))):
        assert name in make_api.TAIL, name


def test_versions():
    """setup.py, both READMEs and docs/versions.md agree."""
    low, high = re.search(r"mindspore>=([\d.]+),<([\d.]+)", read("setup.py")).groups()
    number = lambda version: tuple(map(int, version.split(".")))
    text = read("docs/versions.md")
    assert f"mindspore>={low},<{high}" in text
    tested = re.findall(r"^\| MindSpore (\d+\.\d+\.\d+) \|", text, re.M)
    assert len(tested) >= 3 and all(number(low) <= number(v) < number(high) for v in tested)
    assert {number(v)[:2] for v in tested} >= {number(low), (number(high)[0], number(high)[1] - 1)}  # both ends of the bounds
    for readme in READMES:
        (row,) = re.findall(r"^\| MindSpore \|(.*?)\|", read(readme), re.M)
        assert re.findall(r"\d+\.\d+\.\d+", row) == tested


# ---- The READMEs ----

@pytest.mark.parametrize("readme", READMES)
def test_the_two_commands(readme):
    (block,) = blocks(readme, "bash")
    scripts = [line.split("#")[0].split() for line in block.splitlines()]
    assert scripts == [["bash", "scripts/run_demo.sh"], ["bash", "scripts/run_tests.sh"]]
    assert all((REPO / words[1]).is_file() for words in scripts)
    assert "bash scripts/run_tests.sh" in (REPO / ".ci/run").read_text()


def test_both_languages_say_the_same():
    english, chinese = map(read, READMES)
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
        assert all(v in read(readme) for v in values), out


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
