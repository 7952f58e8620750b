#!/usr/bin/env bash
# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
# Removes what build_and_install.sh installed: bash scripts/uninstall.sh [--install-path DIR]
set -euo pipefail
unset CDPATH # cd would print

repo="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
usage() { echo "Usage: bash scripts/uninstall.sh [--install-path DIR] (default: \$ASCEND_OPP_PATH and its load_priority)"; }
args=()
case "$#:${1:-}" in
0:) ;;
1:--help | 1:-h)
    usage
    exit
    ;;
2:--install-path | 2:--path) args=("--path=$2") ;;
*)
    usage >&2
    exit 2
    ;;
esac
export PYTHONPATH="$repo${PYTHONPATH:+:$PYTHONPATH}" PYTHONDONTWRITEBYTECODE=1
"${PYTHON:-python3}" -m ms_ropegrad uninstall-opp ${args[@]+"${args[@]}"}
