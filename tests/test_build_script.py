# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
"""scripts/build_and_install.sh, CMakeLists.txt and scripts/uninstall.sh against a stand-in toolkit that these tests make.

The stand-in is not CANN: it knows the functions and tools that the build calls, refuses what it does not know, notes each call and
"builds" a prepared package. Whether CANN compiles the operators is not seen here.
"""
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import REPO
from ms_ropegrad import __version__ as version, opp, spec
from vendor import TBE, stand_in, write

MACHINE = platform.machine()
pytestmark = pytest.mark.skipif(not all(map(shutil.which, ("cmake", "make", "g++", "gcc"))), reason="needs cmake, make, g++ and gcc")

# Each function takes exactly the keywords of CANN's; sources must exist; a name that is used must have been made.
ASC_CONFIG = r"""
function(note)
  string(REPLACE ";" " " line "${ARGN}")
  string(REPLACE "${CMAKE_SOURCE_DIR}/" "" line "${line}")
  file(APPEND "$ENV{CALLS}" "${line}\n")
endfunction()
function(refuse_rest what)
  if(ARGN)
    message(FATAL_ERROR "stand-in: ${what} does not know ${ARGN}")
  endif()
endfunction()
function(must_exist)
  foreach(path ${ARGN})
    if(NOT EXISTS "${path}")
      message(FATAL_ERROR "stand-in: ${path} does not exist")
    endif()
  endforeach()
endfunction()
function(run_tool)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status)
  if(status)
    message(FATAL_ERROR "stand-in: ${ARGN} failed")
  endif()
endfunction()

set(ASCEND_AUTOGEN_PATH ${CMAKE_BINARY_DIR}/autogen)
note(units ${ASCEND_COMPUTE_UNIT})

function(npu_op_package name)
  note(npu_op_package ${ARGV})
  cmake_parse_arguments(A "" "TYPE" "CONFIG" ${ARGN})
  refuse_rest(npu_op_package ${A_UNPARSED_ARGUMENTS})
  list(LENGTH A_CONFIG n)
  math(EXPR last "${n} - 2")
  foreach(i RANGE 0 ${last} 2)
    list(GET A_CONFIG ${i} key)
    if(NOT key MATCHES "^(ENABLE_SOURCE_PACKAGE|ENABLE_BINARY_PACKAGE|INSTALL_PATH|VENDOR_NAME|ENABLE_DEFAULT_PACKAGE_NAME_RULE)$")
      message(FATAL_ERROR "stand-in: npu_op_package does not know the key ${key}")
    endif()
  endforeach()
  if(NOT A_TYPE STREQUAL "RUN")
    message(FATAL_ERROR "stand-in: TYPE is ${A_TYPE}")
  endif()
  set_property(GLOBAL PROPERTY package ${name})
endfunction()

function(npu_op_code_gen)
  note(npu_op_code_gen ${ARGV})
  cmake_parse_arguments(A "" "OUT_DIR;PACKAGE" "SRC" ${ARGN})
  refuse_rest(npu_op_code_gen ${A_UNPARSED_ARGUMENTS})
  must_exist(${A_SRC})
  run_tool($ENV{ASCEND_HOME_PATH}/tools/opbuild/op_build ${A_OUT_DIR})
  set_property(GLOBAL PROPERTY generated True)
endfunction()

function(npu_op_library name type)
  note(npu_op_library ${ARGV})
  if(NOT type MATCHES "^(ACLNN|TILING|GRAPH)$")
    message(FATAL_ERROR "stand-in: npu_op_library does not know ${type}")
  endif()
  must_exist(${ARGN})
  add_custom_target(${name} ALL COMMAND compile_host ${name})
endfunction()

function(npu_op_kernel_sources name)
  note(npu_op_kernel_sources ${ARGV})
  cmake_parse_arguments(A "" "OP_TYPE;KERNEL_DIR;KERNEL_FILE" "" ${ARGN})
  refuse_rest(npu_op_kernel_sources ${A_UNPARSED_ARGUMENTS})
  get_property(generated GLOBAL PROPERTY generated)
  if(NOT generated)
    message(FATAL_ERROR "stand-in: npu_op_kernel_sources before npu_op_code_gen")
  endif()
  set_property(GLOBAL APPEND PROPERTY kernels ${A_KERNEL_DIR}/${A_KERNEL_FILE})
endfunction()

function(npu_op_kernel_library name)
  note(npu_op_kernel_library ${ARGV})
  cmake_parse_arguments(A "" "SRC_BASE;TILING_LIBRARY" "" ${ARGN})
  refuse_rest(npu_op_kernel_library ${A_UNPARSED_ARGUMENTS})
  get_property(kernels GLOBAL PROPERTY kernels)
  foreach(file ${kernels})
    must_exist(${A_SRC_BASE}/${file})
  endforeach()
  if(NOT TARGET ${A_TILING_LIBRARY})
    message(FATAL_ERROR "stand-in: there is no ${A_TILING_LIBRARY}")
  endif()
  add_custom_target(${name})
endfunction()

function(npu_op_package_add name)
  note(npu_op_package_add ${ARGV})
  cmake_parse_arguments(A "" "" "LIBRARY" ${ARGN})
  refuse_rest(npu_op_package_add ${A_UNPARSED_ARGUMENTS})
  get_property(package GLOBAL PROPERTY package)
  foreach(target ${A_LIBRARY})
    if(NOT TARGET ${target} OR NOT name STREQUAL package)
      message(FATAL_ERROR "stand-in: there is no ${target} or no package ${name}")
    endif()
  endforeach()
  add_custom_target(binary COMMAND bisheng ${CMAKE_BINARY_DIR}/kernel)
  set(made packages/vendors/${name})
  install(DIRECTORY $ENV{PREPARED}/ DESTINATION ${made} PATTERN kernel EXCLUDE PATTERN ms_ropegrad.version EXCLUDE)
  install(DIRECTORY ${CMAKE_BINARY_DIR}/kernel DESTINATION ${made}/op_impl/ai_core/tbe)
endfunction()
"""
SET_ENV = """export ASCEND_HOME_PATH="{cann}" ASCEND_OPP_PATH="{cann}/opp"
export PATH="{cann}/bin:$PATH" PYTHONPATH="{cann}/python/site-packages${{PYTHONPATH:+:$PYTHONPATH}}"
unset_by_set_env="$not_set"  # CANN's script does not run under set -u
"""
TOOLS = {
    "tools/opbuild/op_build": '[ "$BREAK" != op_build ] && mkdir -p "$1" && [ "$BREAK" = empty ] || touch "$1"/aclnn_rope.cpp "$1"/op_proto.cc',
    "bin/compile_host": '[ "$BREAK" != host ]',
    "bin/bisheng": '[ "$BREAK" != kernel ] && [ -n "$HI_PYTHON" ] && mkdir -p "$1" && cp -r "$PREPARED"/' + TBE + '/kernel/. "$1" && '
                   'if [ "$BREAK" = unsound ]; then rm "$1"/ascend910b/rope_grad/RopeGrad_0.o; fi',
    "bin/cmake": '[ "$1" = --version ] || echo "cmake $*" >>"$CALLS"; [ "$BREAK:$1" != collect:--install ] && exec "$CMAKE" "$@"',
}
CALLED = """cmake -S {clone} -B {build} -DCMAKE_BUILD_TYPE=Release -DASCEND_COMPUTE_UNIT=ascend910b;ascend910_93 -DASCEND_PYTHON_EXECUTABLE={python}
units ascend910b ascend910_93
npu_op_package ms_ropegrad TYPE RUN CONFIG ENABLE_SOURCE_PACKAGE True ENABLE_BINARY_PACKAGE True INSTALL_PATH build/cmake
npu_op_code_gen SRC op_impl/op_host/rope_grad_def.cpp PACKAGE ms_ropegrad OUT_DIR build/cmake/autogen
npu_op_library cust_opapi ACLNN build/cmake/autogen/aclnn_rope.cpp
npu_op_library cust_op_proto GRAPH op_proto/rope_grad_proto.cpp build/cmake/autogen/op_proto.cc
npu_op_library cust_optiling TILING op_impl/op_host/rope_grad_tiling.cpp
npu_op_kernel_sources ascendc_kernels OP_TYPE RopeGrad KERNEL_DIR . KERNEL_FILE rope_grad.cpp
npu_op_kernel_sources ascendc_kernels OP_TYPE RopeGradExact KERNEL_DIR . KERNEL_FILE rope_grad_exact.cpp
npu_op_kernel_sources ascendc_kernels OP_TYPE RopeForward KERNEL_DIR . KERNEL_FILE rope_forward.cpp
npu_op_kernel_library ascendc_kernels SRC_BASE op_impl/op_kernel TILING_LIBRARY cust_optiling
npu_op_package_add ms_ropegrad LIBRARY cust_optiling cust_opapi cust_op_proto ascendc_kernels
cmake --build {build} -j 2
cmake --build {build} --target binary -j 2
cmake --install {build} --prefix {clone}/build/out
"""


def tool(path, body):
    write(path.parent, path.name, f"#!/bin/bash\n{body}\n")
    path.chmod(0o755)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """The package that the stand-in "builds"."""
    return stand_in(tmp_path_factory.mktemp("prepared") / spec.VENDOR)


@pytest.fixture
def build(tmp_path, prepared):
    """build(*args, **env) runs the script of a clean copy of the sources in an empty HOME, with a stand-in toolkit."""
    clone, cann, home = tmp_path / "clone", tmp_path / "toolkit", tmp_path / "home"
    clone.mkdir()
    for name in ("CMakeLists.txt", "setup.py", "README.md", "op_impl", "op_proto", "scripts", "ms_ropegrad"):
        source = REPO / name
        if source.is_dir():
            shutil.copytree(source, clone / name, ignore=shutil.ignore_patterns("__pycache__", "*.so", "vendors"))
        else:
            shutil.copy(source, clone / name)
    home.mkdir()
    write(cann, "compiler/tikcpp/ascendc_kernel_cmake/asc-config.cmake", ASC_CONFIG)
    write(cann, "compiler/version.info", "Version=8.5.0\n")
    write(cann, "set_env.sh", SET_ENV.format(cann=cann))
    write(cann, "python/site-packages/tbe/tikcpp.py", "")
    write(cann, "opp/vendors/config.ini", "load_priority=other\n")
    write(cann, "opp/vendors/other/version.info", "")
    (cann / f"{MACHINE}-linux").mkdir()
    for name, body in TOOLS.items():
        tool(cann / name, body)

    def run(*args, script="build_and_install.sh", path="/usr/bin:/bin", **env):
        calls = tmp_path / "calls"
        calls.write_text("")
        env = {"PATH": f"{Path(shutil.which('cmake')).parent}:{path}" if path == "/usr/bin:/bin" else path, "HOME": str(home), "PYTHON": sys.executable,
               "CALLS": str(calls), "CMAKE": shutil.which("cmake"), "PREPARED": str(prepared), "BREAK": "", "JOBS": "2", **env}
        done = subprocess.run(["bash", str(clone / "scripts" / script), *map(str, args)], env=env, cwd=home, capture_output=True, text=True)
        done.calls = calls.read_text()
        return done

    run.clone, run.cann, run.home, run.tmp = clone, cann, home, tmp_path
    run.target = cann / "opp/vendors" / spec.VENDOR
    run.ini = lambda: (cann / "opp/vendors/config.ini").read_text()
    return run


def files(root):
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def test_from_source_to_an_installed_package(build, prepared):
    done = build("--cann", build.cann)
    assert done.returncode == 0, done.stderr
    assert done.calls == CALLED.format(clone=build.clone, build=build.clone / "build/cmake", python=sys.executable)
    assert opp.verify(build.target) == [] and files(build.target) == files(prepared) == files(build.clone / "build/opp/vendors/ms_ropegrad")
    assert build.ini() == "load_priority=ms_ropegrad,other\n" and list(build.home.iterdir()) == []
    assert done.stdout.splitlines()[0] == f"CANN 8.5.0 in {build.cann}" and done.stdout.endswith(f"Installed {build.target}.\n")
    assert sorted(p.name for p in build.clone.iterdir()) == sorted([
        "CMakeLists.txt", "README.md", "build", "ms_ropegrad", "op_impl", "op_proto", "scripts", "setup.py"])

    # Reinstalling is the same call.
    again = build("--cann", build.cann, "--clean", "--soc", "ascend910b, ascend910_93,", "--soc", "ascend910b", CDPATH=str(build.clone))
    assert again.returncode == 0 and again.calls == done.calls and build.ini() == "load_priority=ms_ropegrad,other\n"

    removed = build(script="uninstall.sh", ASCEND_OPP_PATH=str(build.cann / "opp"))
    assert removed.stdout == f"Removed {build.target}.\n" and not build.target.exists() and build.ini() == "load_priority=other\n"


def test_into_any_directory_for_one_soc(build):
    shutil.rmtree(build.cann / "opp")  # not touched
    write(build.cann, "compiler/version.info", "Version=9.2.0\n")
    write(build.cann, "python/site-packages/tbe/tikcpp.py", "import none_such\n")
    path = "-my ops 目录"
    done = build("--install-path", path, "--soc", "ascend910b", ASCEND_HOME_PATH=str(build.cann))
    root = build.home / path / "vendors/ms_ropegrad"
    assert done.returncode == 0 and "-DASCEND_COMPUTE_UNIT=ascend910b -D" in done.calls, done.stderr
    assert (f"note: {sys.executable} may not load CANN's kernel compiler (ModuleNotFoundError: No module named 'none_such'): "
            "if kernels fail, pip install what CANN's manual lists.\n") in done.stdout
    assert "note: CANN 9.2.0 is later than 9.1; nobody has tried it.\n" in done.stdout
    assert opp.verify(root) == [] and (root / "bin/set_env.bash").exists() and not (build.cann / "opp").exists()
    assert build("--install-path", path, script="uninstall.sh").stdout == f"Removed {root}.\n" and not root.exists()
    wrong, asked = build("--paths", path, script="uninstall.sh"), build("--help", script="uninstall.sh")
    assert wrong.returncode == 2 and asked.returncode == 0 and wrong.stderr == asked.stdout and asked.stdout.startswith("Usage: ")


# what the stand-in breaks -> (a line that the user reads, the last line)
FAILURES = {
    "op_build": ("op_build", "Configuring for ascend910b,ascend910_93 failed; its log is {log}"),
    "empty": ("op_build wrote no aclnn_", "Configuring for ascend910b,ascend910_93 failed; its log is {log}"),
    "host": ("Error", "Compiling host libraries failed; its log is {log}"),
    "kernel": ("Error", "Compiling kernels failed; its log is {log}"),
    "collect": ("", "Collecting failed; its log is {log}"),
    "unsound": ("kernel/ascend910b/rope_grad/RopeGrad_0.o is missing", "the build gave a package that is not sound; its log is {log}"),
}


@pytest.fixture
def installed(build, prepared):
    """An earlier version, and what must not change."""
    opp.install(prepared, build.cann / "opp")
    (build.cann / "opp/vendors/config.ini").write_text("load_priority=ms_ropegrad,other\n")
    write(build.target, "version.info", "custom_opp_compiler_version=8.3.0\n")
    return files(build.cann / "opp")


@pytest.mark.parametrize("name", FAILURES)
def test_a_failed_build_leaves_the_earlier_version(build, installed, name):
    said, last = FAILURES[name]
    done = build("--cann", build.cann, BREAK=name)
    assert done.returncode == 1 and said in " ".join(done.stderr.split()), done.stderr  # CMake breaks lines
    assert done.stderr.splitlines()[-1].startswith("error: " + last.format(log=build.clone / "build/build.log"))
    assert files(build.cann / "opp") == installed and not (build.clone / "build/opp/vendors/ms_ropegrad").exists()


# a change of CMakeLists.txt -> what the stand-in says
MISTAKES = {
    ("npu_op_package_add(", "npu_op_pack("): 'Unknown CMake command "npu_op_pack"',
    ("OUT_DIR", "OUTPUT"): "npu_op_code_gen does not know OUTPUT",
    ("ENABLE_BINARY_PACKAGE", "BINARY"): "npu_op_package does not know the key BINARY",
    ("cust_optiling cust_opapi", "cust_opapis"): "there is no cust_opapis",
    ("  TILING_LIBRARY", "  TILING"): "npu_op_kernel_library does not know TILING",
    ("rope_grad_tiling.cpp", "tiling.cpp"): "tiling.cpp does not exist",
    ("rope_forward.cpp", "forward.cpp"): "forward.cpp does not exist",
}


def test_the_stand_in_takes_no_mistake(build, prepared):
    env = {**os.environ, "ASCEND_HOME_PATH": str(build.cann), "CALLS": os.devnull, "PREPARED": str(prepared), "BREAK": "",
           "PATH": f"{build.cann}/bin:{os.environ['PATH']}", "CMAKE": shutil.which("cmake")}
    configure = lambda: subprocess.run(["cmake", "-S", str(build.clone), "-B", str(build.tmp / "b")], env=env, capture_output=True, text=True)
    right = (build.clone / "CMakeLists.txt").read_text()
    assert configure().returncode == 0
    for (old, new), said in MISTAKES.items():
        assert old in right
        (build.clone / "CMakeLists.txt").write_text(right.replace(old, new))
        done = configure()
        assert done.returncode and said in " ".join(done.stderr.split()), (new, done.stderr)  # CMake breaks lines


def drop(name):
    return lambda b: shutil.rmtree(b.cann / name) if (b.cann / name).is_dir() else (b.cann / name).unlink()


def put(name, text):
    return lambda b: write(b.cann, name, text)


def fake(name, body):
    return lambda b: tool(b.cann / "bin" / name, body)


CONFIG = "compiler/tikcpp/ascendc_kernel_cmake/asc-config.cmake"
# what is wrong -> (how, more arguments, the one line)
CHECKS = {
    "no such toolkit": (None, ["--cann", "/none"], "--cann /none is not a directory"),
    "8.2": (put("compiler/version.info", "Version=8.2.RC1\n"), [], "{cann} is CANN 8.2.RC1, but the build needs 8.3 or later: upgrade CANN"),
    "no version": (drop("compiler/version.info"), [], "{cann}/compiler/version.info names no version: install CANN's toolkit, not only its runtime"),
    "strange version": (put("compiler/version.info", "Version=master\n"), [], "{cann} is of the unknown version master: 8.3 to 9.1 are known to have "
                        "what the build calls"),
    "no asc-config.cmake": (drop(CONFIG), [], "{cann}/" + CONFIG + " is missing: install the whole toolkit of CANN 8.3 or later"),
    "no op_build": (drop("tools/opbuild/op_build"), [], "{cann}/tools/opbuild/op_build is missing: install the whole toolkit"),
    "no bisheng": (drop("bin/bisheng"), [], "bisheng, CANN's kernel compiler, is neither in PATH nor in {cann}/{machine}-linux/ccec_compiler/bin: "
                   "install the whole toolkit"),
    "another architecture": (drop(f"{MACHINE}-linux"), [], "{cann} is not for {machine} (no {machine}-linux in it): install CANN for this machine"),
    "another machine": (None, [], "CANN runs on x86_64 and aarch64, but this machine is riscv64"),
    "no set_env.sh": (drop("set_env.sh"), [], "{cann} has no set_env.sh that sets ASCEND_HOME_PATH: source CANN's set_env.sh first"),
    "another CANN's environment": (put("set_env.sh", "export ASCEND_HOME_PATH=/usr\n"), [], "ASCEND_HOME_PATH is /usr, not {cann}: start from a shell "
                                   "without another CANN's set_env.sh"),
    "no OPP": (put("set_env.sh", 'export ASCEND_HOME_PATH="$CANN" PATH="$CANN/bin:$PATH" PYTHONPATH="$CANN/python/site-packages"\n'), [],
               "ASCEND_OPP_PATH is not set: source CANN's set_env.sh, or give --install-path DIR"),
    "old cmake": (fake("cmake", "echo cmake version 3.10.2"), [], "cmake is 3.10.2, but the build needs 3.16 or later: pip install cmake"),
    "full disk": (fake("df", "echo head; echo /dev/a 1 1 102400 1% /"), [], "{clone} has 100 MB free, but the build needs 512"),
    "unknown SoC": (None, ["--soc", "Ascend910B1"], "--soc Ascend910B1 is not one of ascend910b,ascend910_93 (Atlas A2 is ascend910b, Atlas A3 "
                    "ascend910_93)"),
    "a SoC of two": (None, ["--soc", "ascend910b,*"], "--soc * is not one of ascend910b,ascend910_93 (Atlas A2 is ascend910b, Atlas A3 "
                     "ascend910_93)"),
    "no SoC": (None, ["--soc", " ,"], "--soc names no SoC: ascend910b,ascend910_93"),
    "unknown option": (None, ["--socs=a"], "unknown option --socs=a: see --help"),
    "no value": (None, ["--install-path"], "--install-path needs a value: see --help"),
    "two ways": (None, ["--build-only", "--install-path", "/tmp"], "--build-only and --install-path exclude each other"),
    "a file as target": (None, ["--install-path", "/dev/null/ops"], "/dev/null cannot be written by {user}: become its owner, or give --install-path DIR"),
}


@pytest.mark.parametrize("name", CHECKS)
def test_checks_before_the_build(build, installed, name):
    how, args, line = CHECKS[name]
    if how:
        how(build)
    env = {"CANN": str(build.cann)}
    if name == "another machine":
        tool(build.tmp / "uname/uname", "echo riscv64")
        env["path"] = f"{build.tmp}/uname:/usr/bin:/bin"
    done = build(*([] if "--cann" in args else ["--cann", build.cann]), *args, **env)
    user = subprocess.run(["id", "-un"], capture_output=True, text=True).stdout.strip()
    assert done.stderr == "error: " + line.format(cann=build.cann, machine=MACHINE, clone=build.clone, python=sys.executable, user=user) + "\n"
    assert done.returncode == 1 and done.calls == "" and not (build.clone / "build").exists()
    assert files(build.cann / "opp").items() >= {k: v for k, v in installed.items()}.items()


@pytest.mark.parametrize("missing, line", [
    ("make", "make is missing: install it (Debian: apt-get install make; openEuler: dnf install make)"),
    ("g++", "g++ is missing: install it (Debian: apt-get install g++; openEuler: dnf install gcc-c++)"),
    ("cmake", "cmake is missing: install it (Debian: apt-get install cmake; openEuler: dnf install cmake)"),
    ("python3", "python3 is no Python of 3.9 or later: set PYTHON to one"),
])
def test_missing_tools(build, missing, line):
    tools = build.tmp / "tools"
    tools.mkdir()
    for name in ("bash", "dirname", "uname", "sed", "head", "id", "df", "awk", "make", "g++", "python3"):
        if name != missing:
            (tools / name).symlink_to(shutil.which(name))
    if missing == "cmake":
        (build.cann / "bin/cmake").unlink()
    done = build("--cann", build.cann, path=str(tools), PYTHON="python3")
    assert done.stderr == f"error: {line}\n" and done.returncode == 1


@pytest.mark.skipif(Path("/usr/local/Ascend").exists(), reason="CANN may be here")
def test_no_cann_and_the_usual_places(build):
    done = build()
    assert done.stderr == "error: CANN not found: install its toolkit (8.3 to 9.1), or name it with --cann PATH\n"
    place = build.home / "Ascend/ascend-toolkit/latest"
    place.parent.mkdir(parents=True)
    place.symlink_to(build.cann)
    (build.cann / "opp/vendors/config.ini").unlink()
    done = build("--build-only")
    assert done.returncode == 0 and done.stdout.endswith(f"Built {build.clone}/build/opp/vendors/ms_ropegrad\n"), done.stderr
    assert not build.target.exists()


def test_another_build_in_the_same_clone(build):
    import fcntl
    held = os.open(build.clone, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    done = build("--cann", build.cann, "--clean")
    os.close(held)
    assert done.stderr == f"error: another build runs in {build.clone}: wait for it\n" and done.returncode == 1


def test_a_space_in_the_path_of_the_clone(build):
    moved = build.tmp / "my clone"
    build.clone.rename(moved)
    done = subprocess.run(["bash", str(moved / "scripts/build_and_install.sh")], capture_output=True, text=True)
    assert done.stderr == f"error: the path {moved} has a space, which CANN's make files cannot take: move the clone\n" and done.returncode == 1


def test_help(build):
    done = build("--help")
    assert done.returncode == 0 and all(o in done.stdout for o in ("--soc", "--cann", "--install-path", "--build-only", "--wheel", "--clean", "Examples:"))


# ---- The wheel ----

@pytest.fixture
def wheel(build):
    for name in ("setuptools", "wheel", "pip"):
        pytest.importorskip(name)

    python = build.tmp / "bin/python"  # makes wheels without the native library, which takes longer
    tool(python, f'case "$*" in *"pip wheel"*) export CC=false CXX=false ;; esac; exec {sys.executable} "$@"')
    return lambda: (build("--cann", build.cann, "--build-only", "--wheel", PYTHON=str(python)), sorted((build.clone / "dist").glob("*.whl")))


def test_a_wheel_with_the_package(build, wheel, tmp_path):
    done, made = wheel()
    assert done.returncode == 0 and len(made) == 1, done
    path = made[0]
    assert done.stdout.endswith(f"{path}\n"), done
    assert path.name == f"ms_ropegrad-{version}-py3-none-linux_{MACHINE}.whl"  # any Python, this machine
    site = tmp_path / "site"
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", str(site), str(path)], check=True)
    mine = site / "ms_ropegrad/vendors/ms_ropegrad"
    env = {**{k: v for k, v in os.environ.items() if k != "ASCEND_CUSTOM_OPP_PATH"}, "PYTHONPATH": str(site)}
    code = "import os, ms_ropegrad; from ms_ropegrad import opp; print(os.environ['ASCEND_CUSTOM_OPP_PATH']); print(opp.verify(opp.find('RopeGrad')[0]))"
    assert subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True).stdout == f"{mine}\n[]\n"
    assert not (mine / TBE / "op_tiling/liboptiling.so").is_symlink()  # wheels hold no links
    build_lib = subprocess.run([sys.executable, "setup.py", "-q", "build_py"], cwd=build.clone, capture_output=True, text=True)
    assert build_lib.returncode == 0 and list((build.clone / "build").glob("lib*/ms_ropegrad/opp.py"))
    assert not list((build.clone / "build").glob("lib*/ms_ropegrad/vendors"))  # not taken over from the build before


def test_no_wheel_with_an_unsound_package(build, tmp_path):
    (tmp_path / "empty").mkdir()
    done = subprocess.run([sys.executable, "setup.py", "-q", "build_py"], cwd=build.clone, env={**os.environ, "MS_ROPEGRAD_VENDOR": str(tmp_path / "empty")},
                          capture_output=True, text=True)
    assert done.returncode == 1 and "is not sound: version.info is missing; " in done.stderr


# ---- The document ----

def test_each_message_of_the_document_is_ours():
    text = (REPO / "docs/ascend.md").read_text(encoding="utf-8")
    ours = "".join((REPO / name).read_text(encoding="utf-8") for name in (
        "ms_ropegrad/opp.py", "ms_ropegrad/opp_verify.py", "scripts/build_and_install.sh"))
    table = text.split("## Troubleshooting")[1].split("## First run")[0]
    messages = [m for line in table.splitlines()[6:] if line.startswith("| ") for m in line.split("|")[1].split("`")[1::2]]
    assert len(messages) > 12
    for message in messages:
        parts = {"but must be for aarch64": ["but must be for "], "is unchanged: Permission denied": ["is unchanged: "],
                 "does not export aclnn": ["does not export ", "aclnn{op}"]}.get(message, [message])
        assert message == "EZ3003" or all(part in ours for part in parts), message


def test_the_document_names_what_is_there():
    text = (REPO / "docs/ascend.md").read_text(encoding="utf-8")
    script = (REPO / "scripts/build_and_install.sh").read_text(encoding="utf-8")
    for soc in spec.SOCS:
        assert f"`{soc}`" in text
    for line in (line for line in text.splitlines() if line.startswith("bash scripts/")):
        words = line.split("#")[0].split("&&")[0].split()
        assert (REPO / words[1]).is_file()
        assert all(word in script for word in words if word.startswith("--"))
