# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
"""A pytest plugin (-p every_order): every check of the kernel against the reference is made in fifty orders of its pipes too.
EVERY_ORDER=i/n takes the i-th of n shares of the checks, so that n processes can do it."""
import os

import kernel_on_twin as kernel

SEEDS = 50
_share, _shares = map(int, os.environ.get("EVERY_ORDER", "0/1").split("/"))
_once = kernel.Case.check
_checks = 0


def _check(self, cores=40, ub=kernel.UB, **options):
    global _checks
    report = _once(self, cores, ub, **options)
    _checks += 1
    if _checks % _shares == _share:
        want = self.expected()
        for seed in range(SEEDS):
            for name, a, b in zip("qk", self.run(cores, ub, **{**options, "seed": seed}), want):
                kernel.same_bits(f"{name}, seed {seed}", a, b)
    return report


kernel.Case.check = _check


def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line(f"{_checks} checks")
