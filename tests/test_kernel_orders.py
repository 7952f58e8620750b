# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
"""The kernel under the hazard model, its pipes run out of program order wherever no edge forbids it: no report, same bits."""
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kernel_on_twin as kernel
from ms_ropegrad import spec

SEEDS = 50


def mixed(combo, head_size=64, q_heads=3, k_heads=1):
    """Sequences empty, crossing tiles and cores, longer than the table, and too short for all tokens."""
    return kernel.Case(*combo, [-2, 5, 5, 6, 40, 41, 90, 118], 130, q_heads, k_heads, head_size, 30)


def agrees_in_every_order(case, cores, ub, seeds=SEEDS):
    want = case.run(cores, ub)[:2]
    for seed in range(seeds):
        for name, a, b in zip("qk", case.run(cores, ub, seed=seed), want):
            kernel.same_bits(f"{name}, seed {seed}", a, b)


@pytest.mark.parametrize("combo", kernel.COMBOS, ids="-".join)
def test_fifty_orders(combo):
    case = mixed(combo)
    case.check(3, 24576)
    agrees_in_every_order(case, 3, 24576)


@pytest.mark.slow
@pytest.mark.parametrize("shape, ub", [((96, 2, 5), 40000), ((128, 1, 1), 65536), ((192, 4, 1), 65536), ((256, 2, 2),
    65536), ((64, 31, 32), kernel.UB)])
@pytest.mark.parametrize("combo", kernel.COMBOS, ids="-".join)
def test_fifty_orders_of_other_shapes(combo, shape, ub):
    case = mixed(combo, *shape)
    case.check(5, ub)
    agrees_in_every_order(case, 5, ub)


@st.composite
def problems(draw):
    combo = draw(st.sampled_from(kernel.COMBOS))
    n_tokens = draw(st.integers(0, 70))
    numbers = st.lists(st.integers(-5, 80), min_size=1, max_size=12)
    ends = draw(st.one_of(numbers.map(sorted), numbers, st.lists(st.integers(-2**31, 2**31 - 1), min_size=1, max_size=5)))
    case = kernel.Case(*combo, ends, n_tokens, draw(st.integers(1, 5)), draw(st.integers(1, 5)),
        draw(st.sampled_from(spec.HEAD_SIZES)),
                       draw(st.integers(1, 30)), draw(st.integers(0, 99)))
    return case, draw(st.integers(1, 8)), draw(st.sampled_from((65536, 98304, kernel.UB)))


@pytest.mark.slow
@given(problems())
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
def test_fifty_orders_of_anything(problem):
    case, cores, ub = problem
    if (np.diff(case.ends.astype(np.int64)) >= 0).all():
        case.check(cores, ub)
    agrees_in_every_order(case, cores, ub)


@pytest.mark.slow
def test_the_operators_own_tests_in_fifty_orders():
    tests = kernel.REPO / "tests"
    paths = os.pathsep.join((str(tests), str(kernel.REPO), os.environ.get("PYTHONPATH", "")))
    runs = [subprocess.Popen([sys.executable, "-m", "pytest", "-q", "-p", "every_order", "-p", "no:cacheprovider",
                              str(tests / "test_kernel.py")], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             env={**os.environ, "PYTHONPATH": paths, "EVERY_ORDER": f"{i}/2"}) for i in range(2)]
    for run in runs:
        said = run.communicate()[0]
        assert run.returncode == 0, said[-3000:]
        assert int(re.search(r"(\d+) checks", said)[1]) > 500
