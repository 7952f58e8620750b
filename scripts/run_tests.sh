#!/usr/bin/env bash
# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
# Makes .venv when it is missing, installs the package with the extra "test" and runs pytest: bash scripts/run_tests.sh [pytest args]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup_venv.sh"

setup_venv test

# MindSpore writes rank_0/ and kernel_meta/ into the working directory: run in a temporary one, with paths made absolute.
args=()
paths=0
previous=""
for arg in "$@"; do
    case "$previous" in -k | -m | -p | -o | -n | -r | -W) ;; *)
        path="${arg%%::*}"
        for base in "" "$PWD/" "$repo/"; do
            case "$base$path" in /*) ;; *) continue ;; esac
            [ -e "$base$path" ] || continue
            arg="$base$arg"
            paths=1
            break
        done
        ;;
    esac
    previous="$arg"
    args+=("$arg")
done
[ "$paths" = 1 ] || args+=("$repo/tests")

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cd "$work"
echo "Running pytest in $work."
"$python" -m pytest -c "$repo/setup.cfg" --rootdir "$repo" ${args[@]+"${args[@]}"}
