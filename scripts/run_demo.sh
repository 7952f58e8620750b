#!/usr/bin/env bash
# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
# Makes .venv when it is missing, installs the package and trains the demo: bash scripts/run_demo.sh [options; --help tells them]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup_venv.sh"

setup_venv ""
# MindSpore writes rank_0/ into the working directory when something fails, so it is the user's: --text and --save are relative to it.
exec "$python" "$repo/examples/train_packed_lm.py" "$@"
