# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
"""Train a small language model on packed text; --help tells the options. The job is ms_ropegrad/demo.py: read it there."""
import sys

from ms_ropegrad.__main__ import main

sys.exit(main(["demo", *sys.argv[1:]]))
