# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
import re
from pathlib import Path

from setuptools import setup

here = Path(__file__).parent
version = re.search(r'__version__ = "(.+)"', (here / "ms_ropegrad/__init__.py").read_text()).group(1)

setup(
    name="ms_ropegrad",
    version=version,
    description="Rotary position embedding and its backward on packed sequences: MindSpore operators for Ascend and CPU",
    long_description=(here / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    packages=["ms_ropegrad"],
    python_requires=">=3.9",
    # MindSpore's binaries were built against NumPy 1.x; 2.10 does not say so and dies with NumPy 2 in "numpy.core.multiarray
    # failed to import".
    install_requires=["mindspore>=2.7,<2.11", "numpy>=1.20,<2"],
    extras_require={"test": ["pytest>=7", "hypothesis>=6"]},
)
