# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
# Sourced by run_demo.sh and run_tests.sh: setup_venv [EXTRA] makes the virtual environment, installs the package and sets $python.
# Environment: PYTHON, the interpreter to make it with (3.10-3.12: MindSpore 2.10 has no others);
# MS_ROPEGRAD_VENV, where it is (default: .venv in the repository).

repo="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"

fail() {
    echo "error: $*" >&2
    exit 1
}

find_python() {
    local candidate version
    for candidate in ${PYTHON:+"$PYTHON"} ${PYTHON:-python3.11 python3.12 python3.10 python3}; do
        version="$("$candidate" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)" || continue
        case "$version" in 3.10 | 3.11 | 3.12) base_python="$candidate"; return ;; esac
        [ -z "${PYTHON:-}" ] || fail "PYTHON=$PYTHON is Python $version, but MindSpore 2.10 needs 3.10, 3.11 or 3.12"
    done
    [ -z "${PYTHON:-}" ] || fail "PYTHON=$PYTHON does not run"
    fail "no Python 3.10, 3.11 or 3.12 found: install python3.11, or set PYTHON to one"
}

setup_venv() {
    local extra="${1:-}" venv="${MS_ROPEGRAD_VENV:-$repo/.venv}" stamp want base_python parent free_mb
    mkdir -p "$(dirname "$venv")" || fail "cannot make the directory of $venv"
    venv="$(cd "$(dirname "$venv")" && pwd)/$(basename "$venv")"
    python="$venv/bin/python"
    stamp="$venv/.ms_ropegrad${extra:+-$extra}"
    want="$repo $(cat "$repo/setup.py" "$repo/ms_ropegrad/__init__.py" "$repo"/op_impl/cpu/*.cpp | cksum)"
    if [ -x "$python" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$want" ]; then
        echo "Using $venv."
        return
    fi
    if [ ! -x "$python" ]; then
        find_python
        parent="$(dirname "$venv")"
        free_mb="$(($(df -Pk "$parent" | awk 'NR == 2 { print $4 }') / 1024))"
        [ "$free_mb" -ge 4096 ] || fail "$parent has $free_mb MB free, but the installation needs 4096"
        echo "Making $venv with $base_python ($("$base_python" --version))."
        "$base_python" -c 'import venv, ensurepip' 2>/dev/null ||
            fail "$base_python has no venv module: install it (Debian: apt-get install python3-venv)"
        "$base_python" -m venv "$venv" || {
            rm -rf "$venv"
            fail "$base_python -m venv $venv failed"
        }
    fi
    echo "Installing ms_ropegrad${extra:+[$extra]} and MindSpore into $venv; the first time takes minutes."
    local log="$venv/pip.log"
    rm -f "$log"
    # 'numpy<2' again, so that pip replaces a NumPy 2 that is there already.
    "$python" -m pip install --quiet --disable-pip-version-check --log "$log" -e "$repo${extra:+[$extra]}" 'numpy<2' || {
        tail -n 5 "$log" >&2
        fail "pip failed (is the network there?); its log is $log"
    }
    echo "$want" >"$stamp"
}
