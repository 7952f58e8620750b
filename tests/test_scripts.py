# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
"""The set-up commands: what they do, and the one line they fail with. Interpreters are stubs here; continuous integration runs the real."""
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
INSTALLED = ("setup.py", "ms_ropegrad/__init__.py", "op_impl/cpu/rope_native.cpp")  # a change of these installs again
SCRIPTS = sorted(p for d in ("scripts", ".ci") for p in (ROOT / d).iterdir() if p.suffix == ".sh" or p.name == "run")

# An interpreter of a given version: notes how it is called, makes a venv that holds itself, and fails where told.
STUB = """#!/bin/bash
echo "$*" >>"$CALLS"
case "$*" in
*version_info*) echo "${VERSION:-3.11}" ;;
--version) echo "Python ${VERSION:-3.11}" ;;
*"import venv"*) [ "$BREAK" != venv ] ;;
*"-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" && [ "$BREAK" != make ] ;;
*"-m pip "*) while [ "$1" != --log ]; do shift; done; echo "could not find mindspore" >"$2"; [ "$BREAK" != pip ] ;;
*) pwd >>"$CALLS"; printf '<%s>\\n' "$@"; exit 7 ;;
esac
"""


def names(path):
    return path.name


@pytest.fixture
def call(tmp_path):
    """Run a script of a copy of the repository, with spaces in its path, with the stub as PYTHON or in PATH."""
    repo, bin_dir = tmp_path / "a clone", tmp_path / "my bin"
    shutil.copytree(ROOT / "scripts", repo / "scripts")
    for name in INSTALLED:
        (repo / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, repo / name)
    (repo / "tests").mkdir()
    (repo / "tests" / "test_a.py").write_text("")
    bin_dir.mkdir()
    stub = bin_dir / "python3.11"
    stub.write_text(STUB)
    stub.chmod(0o755)
    calls = tmp_path / "calls"

    def run(script, *args, **env):
        calls.write_text("")
        env = {"PATH": f"{bin_dir}:/usr/bin:/bin", "CALLS": str(calls), "PYTHON": str(stub), "HOME": str(tmp_path), **env}
        done = subprocess.run(["bash", str(repo / "scripts" / script), *args], env=env, cwd=tmp_path, text=True, capture_output=True)
        done.calls = calls.read_text()
        return done

    run.repo, run.bin_dir, run.tmp_path = repo, bin_dir, tmp_path
    return run


@pytest.mark.parametrize("path", SCRIPTS, ids=names)
def test_syntax(path):
    subprocess.run(["bash", "-n", str(path)], check=True)
    text = path.read_text()
    assert text.startswith("#!/usr/bin/env bash\n") and "\nset -euo pipefail\n" in text or path.name == "setup_venv.sh"


@pytest.mark.skipif(not shutil.which("shellcheck"), reason="shellcheck is not installed")
@pytest.mark.parametrize("path", SCRIPTS, ids=names)
def test_shellcheck(path):
    done = subprocess.run(["shellcheck", "-x", "-s", "bash", "-P", "SCRIPTDIR", str(path)], text=True, capture_output=True)
    assert done.returncode == 0, done.stdout


def test_demo_sets_up_once_and_passes_arguments(call):
    first = call("run_demo.sh", "--text", "my book.txt")
    assert "Making " in first.stdout and "Installing " in first.stdout
    assert f"-e {call.repo} numpy<2" in first.calls
    shown = f"<{call.repo}/examples/train_packed_lm.py>\n<--text>\n<my book.txt>\n"
    assert first.stdout.endswith(shown) and first.returncode == 7  # the exit code of the job
    assert first.calls.endswith(f"{call.tmp_path}\n")  # relative paths stay the user's

    second = call("run_demo.sh")
    assert second.stdout.startswith(f"Using {call.repo}/.venv.") and "pip" not in second.calls

    for name in INSTALLED:  # other requirements or another library: installed again, not made again
        with (call.repo / name).open("a") as f:
            f.write("#\n")
        third = call("run_demo.sh")
        assert "Installing " in third.stdout and "Making " not in third.stdout


def test_tests_run_outside_of_the_repository(call):
    done = call("run_tests.sh", "-m", "slow", "-k", "tests")
    assert f"-e {call.repo}[test] numpy<2" in done.calls and done.returncode == 7
    assert done.stdout.endswith(f"<-m>\n<pytest>\n<-c>\n<{call.repo}/setup.cfg>\n<--rootdir>\n<{call.repo}>\n"
                                f"<-m>\n<slow>\n<-k>\n<tests>\n<{call.repo}/tests>\n")
    work = done.calls.splitlines()[-1]
    assert not work.startswith(str(call.repo)) and not Path(work).exists()  # it is removed


@pytest.mark.parametrize("arg", ["tests/test_a.py", "tests/test_a.py::test_b", "{repo}/tests/test_a.py"])
def test_tests_take_paths(call, arg):
    done = call("run_tests.sh", "-q", arg.format(repo=call.repo))
    path = f"{call.repo}/tests/test_a.py" + arg[arg.find("::"):] * ("::" in arg)
    assert done.stdout.endswith(f"<-q>\n<{path}>\n")


def test_the_place_of_the_environment_can_be_chosen(call):
    done = call("run_demo.sh", MS_ROPEGRAD_VENV="my venv")
    assert f"Making {call.tmp_path}/my venv" in done.stdout and (call.tmp_path / "my venv/bin/python").exists()
    assert not (call.repo / ".venv").exists()


def test_a_python_in_path_is_found(call):
    (call.bin_dir / "python3.11").rename(call.bin_dir / "python3.12")
    assert "with python3.12 " in call("run_demo.sh", PYTHON="", VERSION="3.12", PATH=bare_path(call)).stdout


def bare_path(call):
    """The stub's directory with the tools that the scripts use, and no other Python."""
    for tool in ("bash", "mkdir", "dirname", "basename", "cksum", "cat", "df", "awk", "rm", "cp", "tail", "pwd"):
        (call.bin_dir / tool).symlink_to(shutil.which(tool))
    return str(call.bin_dir)


@pytest.mark.parametrize("env, message", [
    ({"VERSION": "3.9"}, "is Python 3.9, but MindSpore 2.10 needs 3.10, 3.11 or 3.12"),
    ({"VERSION": "3.13"}, "is Python 3.13, but MindSpore 2.10 needs 3.10, 3.11 or 3.12"),
    ({"PYTHON": "/nowhere/python3"}, "PYTHON=/nowhere/python3 does not run"),
    ({"BREAK": "venv"}, "has no venv module: install it (Debian: apt-get install python3-venv)"),
    ({"BREAK": "make"}, "-m venv {repo}/.venv failed"),
    ({"BREAK": "pip"}, "pip failed (is the network there?); its log is {repo}/.venv/pip.log"),
])
@pytest.mark.parametrize("script", ["run_demo.sh", "run_tests.sh"])
def test_failures(call, script, env, message):
    done = call(script, **env)
    assert done.returncode == 1
    *before, last = done.stderr.splitlines()
    assert last.startswith("error: ") and last.endswith(message.format(repo=call.repo))
    assert before == (["could not find mindspore"] if env.get("BREAK") == "pip" else [])
    again = call(script)  # nothing half-made is taken for done
    assert "Installing " in again.stdout and again.returncode == 7


def test_no_python(call):
    path = bare_path(call)
    (call.bin_dir / "python3.11").unlink()
    done = call("run_demo.sh", PYTHON="", PATH=path)
    assert done.stderr == "error: no Python 3.10, 3.11 or 3.12 found: install python3.11, or set PYTHON to one\n"


def test_disk(call):
    df = call.bin_dir / "df"
    df.write_text("#!/bin/sh\necho head; echo /dev/a 1 1 2048000 1% /\n")
    df.chmod(0o755)
    done = call("run_demo.sh")
    assert done.stderr == f"error: {call.repo} has 2000 MB free, but the installation needs 4096\n" and done.returncode == 1


@pytest.mark.parametrize("lacking, asked", [([], ""), (["g++"], "update -qq\ninstall -y -qq g++\n"),
                                            (["cmake", "make", "shellcheck"], "update -qq\ninstall -y -qq cmake make shellcheck\n"),
                                            (["aarch64-linux-gnu-g++", "qemu-aarch64"],
                                             "update -qq\ninstall -y -qq g++-aarch64-linux-gnu qemu-user\n"),
                                            (["venv"], "update -qq\ninstall -y -qq python3.11 python3.11-venv\n")])
def test_ci_installs_what_is_missing(call, lacking, asked):
    shutil.copytree(ROOT / ".ci", call.repo / ".ci")
    (call.repo / "scripts/run_tests.sh").write_text('echo "suite $*"\n')
    path = bare_path(call)
    tools = {"apt-get": f'echo "$*" >>"{call.tmp_path}/asked"', "id": "echo 0",
             **{name: ":" for name in ("g++", "cmake", "make", "shellcheck", "aarch64-linux-gnu-g++", "qemu-aarch64") if name not in lacking}}
    for name, body in tools.items():
        (call.bin_dir / name).write_text(f"#!/bin/bash\n{body}\n")
        (call.bin_dir / name).chmod(0o755)
    done = call("../.ci/run", PATH=path, BREAK=" ".join(lacking))
    asked_file = call.tmp_path / "asked"
    assert (asked_file.read_text() if asked_file.exists() else "") == asked
    assert done.stdout.endswith("suite \nsuite -m slow\n") and done.returncode == 0


# ---- NumPy 2 ----

def test_setup_refuses_numpy_2(monkeypatch):
    from packaging.requirements import Requirement
    setuptools = pytest.importorskip("setuptools")
    given = {}
    monkeypatch.setattr(setuptools, "setup", given.update)
    runpy.run_path(str(ROOT / "setup.py"))
    numpy = [r.specifier for r in map(Requirement, given["install_requires"]) if r.name == "numpy"]
    assert len(numpy) == 1 and numpy[0].contains("1.26.4") and not numpy[0].contains("2.0.0")


@pytest.mark.parametrize("code, expected", [
    ("from ms_ropegrad import reference; print('fine')", "fine"),
    ("from ms_ropegrad import Rope", "ImportError: ms_ropegrad needs numpy < 2, as MindSpore does, but got 2.1.0: pip install 'numpy<2'"),
    ("from ms_ropegrad import lengths", "ImportError: ms_ropegrad needs numpy < 2, as MindSpore does, but got 2.1.0: pip install 'numpy<2'"),
    ("from ms_ropegrad.__main__ import main; sys.exit(main(['demo']))",
     "ms_ropegrad: error: ms_ropegrad needs numpy < 2, as MindSpore does, but got 2.1.0: pip install 'numpy<2'"),
])
def test_numpy_2_is_named(code, expected, tmp_path):
    before = "import atexit, sys, numpy; numpy.__version__ = '2.1.0'; atexit.register(lambda: print('mindspore' in sys.modules));"
    done = subprocess.run([sys.executable, "-c", before + code], env={**os.environ, "PYTHONPATH": str(ROOT)}, cwd=tmp_path,
                          text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.stdout.splitlines()[-2:] == [expected, "False"]  # said before mindspore is imported
