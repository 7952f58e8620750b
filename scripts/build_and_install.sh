#!/usr/bin/env bash
# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
# From source to an OPP directory that MindSpore finds: checks CANN, builds build/opp/vendors/ms_ropegrad, verifies and installs it.
set -euo pipefail
unset CDPATH # cd would print

usage() {
    cat <<'EOF'
Usage: bash scripts/build_and_install.sh [options]

  --soc SOC[,SOC]      ascend910b (Atlas A2), ascend910_93 (Atlas A3); default: both
  --cann PATH          CANN's toolkit (default: $ASCEND_HOME_PATH, else the usual places); its set_env.sh is sourced
  --install-path DIR   install into DIR/vendors, no root needed (default: $ASCEND_OPP_PATH/vendors and its load_priority)
  --build-only         leave the package in build/opp/vendors/ms_ropegrad
  --wheel              also make dist/ms_ropegrad-*.whl with the package in it
  --clean              remove build/ first
  --help

Environment: PYTHON, the interpreter (default: python3); JOBS, compilers at once (default: one for each CPU).

Examples:
  bash scripts/build_and_install.sh
  bash scripts/build_and_install.sh --soc ascend910b --install-path ~/my_ops
  bash scripts/build_and_install.sh --build-only --wheel
EOF
}

fail() {
    echo "error: $*" >&2
    exit 1
}

repo="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
python="${PYTHON:-python3}"
machine="$(uname -m)"
socs="" cann="" install_path="" build_only="" wheel="" clean=""
while [ $# -gt 0 ]; do
    case "$1" in
    --soc | --cann | --install-path)
        [ -n "${2:-}" ] || fail "$1 needs a value: see --help"
        case "$1" in
        --soc) socs="${socs:+$socs,}$2" ;;
        --cann) cann="$2" ;;
        *) install_path="$2" ;;
        esac
        shift
        ;;
    --build-only) build_only=1 ;;
    --wheel) wheel=1 ;;
    --clean) clean=1 ;;
    --help | -h)
        usage
        exit
        ;;
    *) fail "unknown option $1: see --help" ;;
    esac
    shift
done
[ -z "$build_only" ] || [ -z "$install_path" ] || fail "--build-only and --install-path exclude each other"
build="$repo/build" && package="$build/opp/vendors/ms_ropegrad"

own() { # our own Python code, which needs no other package
    PYTHONPATH="$repo${PYTHONPATH:+:$PYTHONPATH}" PYTHONDONTWRITEBYTECODE=1 "$python" "$@"
}

find_cann() {
    local place
    if [ -n "$cann" ]; then
        [ -d "$cann" ] || fail "--cann $cann is not a directory"
    else
        for place in "${ASCEND_HOME_PATH:-}" /usr/local/Ascend/{cann,ascend-toolkit/latest} "${HOME:-}"/Ascend/{cann,ascend-toolkit/latest}; do
            [ -z "$place" ] || [ ! -d "$place" ] || { cann="$place" && break; }
        done
        [ -n "$cann" ] || fail "CANN not found: install its toolkit (8.3 to 9.1), or name it with --cann PATH"
    fi
    cann="$(cd "$cann" && pwd -P)"
    for place in "$cann/set_env.sh" "$cann/../set_env.sh"; do
        [ -f "$place" ] || continue
        set +eu # it is not ours
        # shellcheck disable=SC1090
        source "$place"
        set -eu
        break
    done
    [ -n "${ASCEND_HOME_PATH:-}" ] || fail "$cann has no set_env.sh that sets ASCEND_HOME_PATH: source CANN's set_env.sh first"
    [ "$(cd "$ASCEND_HOME_PATH" 2>/dev/null && pwd -P)" = "$cann" ] ||
        fail "ASCEND_HOME_PATH is $ASCEND_HOME_PATH, not $cann: start from a shell without another CANN's set_env.sh"
}

check_cann() {
    local version major minor
    version="$(sed -n 's/^Version=//p' "$cann/compiler/version.info" 2>/dev/null | head -n 1)" || true
    [ -n "$version" ] || fail "$cann/compiler/version.info names no version: install CANN's toolkit, not only its runtime"
    IFS=. read -r major minor _ <<<"$version"
    case "$major$minor" in *[!0-9]* | "")
        fail "$cann is of the unknown version $version: 8.3 to 9.1 are known to have what the build calls"
        ;;
    esac
    [ "$((major * 100 + minor))" -ge 803 ] || fail "$cann is CANN $version, but the build needs 8.3 or later: upgrade CANN"
    [ "$((major * 100 + minor))" -le 901 ] || echo "note: CANN $version is later than 9.1; nobody has tried it."
    [ -d "$cann/$machine-linux" ] || fail "$cann is not for $machine (no $machine-linux in it): install CANN for this machine"
    [ -f "$cann/compiler/tikcpp/ascendc_kernel_cmake/asc-config.cmake" ] ||
        fail "$cann/compiler/tikcpp/ascendc_kernel_cmake/asc-config.cmake is missing: install the whole toolkit of CANN 8.3 or later"
    [ -x "$cann/tools/opbuild/op_build" ] || fail "$cann/tools/opbuild/op_build is missing: install the whole toolkit"
    command -v bisheng >/dev/null || [ -x "$cann/$machine-linux/ccec_compiler/bin/bisheng" ] ||
        [ -x "$cann/compiler/ccec_compiler/bin/bisheng" ] ||
        fail "bisheng, CANN's kernel compiler, is neither in PATH nor in $cann/$machine-linux/ccec_compiler/bin: install the whole toolkit"
    echo "CANN $version in $cann"
}

check_tools() {
    local tool version major minor said
    for tool in make g++ cmake; do
        command -v "$tool" >/dev/null ||
            fail "$tool is missing: install it (Debian: apt-get install $tool; openEuler: dnf install ${tool/g++/gcc-c++})"
    done
    version="$(cmake --version | sed -n '1s/^cmake version //p')"
    IFS=. read -r major minor _ <<<"$version"
    [ "$((major * 100 + minor))" -ge 316 ] || fail "cmake is $version, but the build needs 3.16 or later: pip install cmake"
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null ||
        fail "$python is no Python of 3.9 or later: set PYTHON to one"
    # Which of them compiles depends on CANN's version, so this is no error yet.
    said="$("$python" -c 'import asc_op_compile_base.asc_op_compiler' 2>&1)" || said="$("$python" -c 'import tbe.tikcpp' 2>&1)" ||
        echo "note: $python may not load CANN's kernel compiler (${said##*$'\n'}): if kernels fail, pip install what CANN's manual lists."
    [ -z "$wheel" ] || "$python" -c 'import setuptools, wheel, pip' 2>/dev/null ||
        fail "--wheel needs pip, setuptools and wheel: $python -m pip install setuptools wheel"
}

check_places() {
    local soc known free target asked
    known="$(own -c 'from ms_ropegrad import spec; print(",".join(spec.SOCS))')"
    socs="${socs:-$known}"
    read -r -a asked <<<"${socs//,/ }"
    socs=""
    for soc in ${asked[@]+"${asked[@]}"}; do
        case ",$known," in *",$soc,"*) ;; *) fail "--soc $soc is not one of $known (Atlas A2 is ascend910b, Atlas A3 ascend910_93)" ;; esac
        case ",$socs," in *",$soc,"*) ;; *) socs="${socs:+$socs,}$soc" ;; esac
    done
    [ -n "$socs" ] || fail "--soc names no SoC: $known"
    [ -w "$repo" ] || fail "$repo cannot be written by $(id -un), but the build needs a place: clone it where you can write"
    free="$(($(df -Pk "$repo" | awk 'NR == 2 { print $4 }') / 1024))"
    [ "$free" -ge 512 ] || fail "$repo has $free MB free, but the build needs 512"
    [ -z "$build_only" ] || return 0
    if [ -z "$install_path" ] && [ -z "${ASCEND_OPP_PATH:-}" ]; then
        fail "ASCEND_OPP_PATH is not set: source CANN's set_env.sh, or give --install-path DIR"
    fi
    target="${install_path:-$ASCEND_OPP_PATH}/vendors"
    while [ ! -e "$target" ]; do target="$(dirname -- "$target")"; done
    if [ ! -d "$target" ] || [ ! -w "$target" ]; then
        fail "$target cannot be written by $(id -un): become its owner, or give --install-path DIR"
    fi
}

step() { # step WHAT COMMAND...: quiet, with a log
    local what="$1"
    shift
    echo "$what ..."
    "$@" >>"$build/build.log" 2>&1 || {
        grep -m 5 -E -A 3 '[Ee]rror' "$build/build.log" >&2 || true
        tail -n 5 "$build/build.log" >&2
        fail "$what failed; its log is $build/build.log"
    }
}

build_package() {
    local stage="$build/opp/.stage/ms_ropegrad" soc want=()
    # Always anew: CANN's functions do not copy a kernel's source a second time.
    rm -rf "$build/cmake" "$build/out" "$build/opp/.stage"
    mkdir -p "$build/opp/.stage" "$build/opp/vendors"
    : >"$build/build.log"
    unset ASCEND_CUSTOM_OPP_PATH
    export HI_PYTHON="${HI_PYTHON:-$python}" # CANN's kernel compiler would take python3
    step "Configuring for $socs" cmake -S "$repo" -B "$build/cmake" -DCMAKE_BUILD_TYPE=Release "-DASCEND_COMPUTE_UNIT=${socs//,/;}" \
        "-DASCEND_PYTHON_EXECUTABLE=$python"
    step "Compiling host libraries" cmake --build "$build/cmake" -j "${JOBS:-$(nproc)}"
    step "Compiling kernels" cmake --build "$build/cmake" --target binary -j "${JOBS:-$(nproc)}"
    step "Collecting" cmake --install "$build/cmake" --prefix "$build/out"
    cp -a "$build/out/packages/vendors/ms_ropegrad" "$stage" || fail "the build gave no $build/out/packages/vendors/ms_ropegrad"
    own -c 'from ms_ropegrad import opp_verify; print(opp_verify.stamp())' >"$stage/ms_ropegrad.version"
    for soc in ${socs//,/ }; do want+=(--soc "$soc"); done
    own -m ms_ropegrad verify-opp "$stage" "${want[@]}" >&2 || fail "the build gave a package that is not sound; its log is $build/build.log"
    rm -rf "$package"
    mv "$stage" "$package"
    rmdir "$build/opp/.stage"
    echo "Built $package"
}

make_wheel() {
    local made
    echo "Making a wheel ..."
    rm -rf "$build/wheel"
    MS_ROPEGRAD_VENDOR="$package" "$python" -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation \
        -w "$build/wheel" "$repo" ||
        fail "the wheel could not be made"
    mkdir -p "$repo/dist"
    for made in "$build"/wheel/*.whl; do
        mv "$made" "$repo/dist"
        echo "Made $repo/dist/${made##*/}"
    done
}

case "$machine" in x86_64 | aarch64) ;; *) fail "CANN runs on x86_64 and aarch64, but this machine is $machine" ;; esac
case "$repo" in *[[:space:]]*) fail "the path $repo has a space, which CANN's make files cannot take: move the clone" ;; esac
find_cann
check_cann
check_tools
check_places
exec 9<"$repo"
! command -v flock >/dev/null || flock -n 9 || fail "another build runs in $repo: wait for it"
[ -z "$clean" ] || rm -rf "$build"
build_package
[ -z "$wheel" ] || make_wheel
if [ -z "$build_only" ]; then
    own -m ms_ropegrad install-opp "$package" ${install_path:+"--path=$install_path"} ||
        fail "not installed; the earlier version, if any, still works"
fi
