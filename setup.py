# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
import os
import re
import shutil
import sys
import zlib
from pathlib import Path

from setuptools import Distribution, Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

here = Path(__file__).parent
version = re.search(r'__version__ = "(.+)"', (here / "ms_ropegrad/__init__.py").read_text()).group(1)
source = "op_impl/cpu/rope_native.cpp"
stamp = f"{version} {zlib.crc32((here / source).read_bytes()):08x}"  # ms_ropegrad/native.py compares it


class BuildNative(build_ext):
    """A plain shared library, no Python module: one file name for every Python."""

    def get_ext_filename(self, name):
        return os.path.join(*name.split(".")[:-1], "librope_native.so")

    def get_export_symbols(self, ext):
        return []


class BuildWithVendor(build_py):
    """With MS_ROPEGRAD_VENDOR, a vendor directory of the Ascend operators, as package data: build_and_install.sh --wheel."""

    def run(self):
        super().run()
        vendor, copy = os.environ.get("MS_ROPEGRAD_VENDOR"), Path(self.build_lib) / "ms_ropegrad/vendors"
        shutil.rmtree(copy, ignore_errors=True)  # of an earlier build
        if vendor and not getattr(self, "editable_mode", False):
            sys.path.insert(0, str(here))
            from ms_ropegrad.opp_verify import verify
            problems = verify(vendor)
            if problems:
                raise SystemExit(f"MS_ROPEGRAD_VENDOR={vendor} is not sound: " + "; ".join(problems))
            shutil.copytree(vendor, copy / "ms_ropegrad")  # a wheel holds no links: their files


def wheel_commands():
    """A wheel's tag names the platform, but no Python: nothing in it is compiled for one."""
    try:
        base = Distribution().get_command_class("bdist_wheel")
    except Exception:  # no wheel package: no wheel
        return {}
    return {"bdist_wheel": type("BuildWheel", (base,), {"get_tag": lambda self: ("py3", "none", base.get_tag(self)[2])})}


native = Extension(
    "ms_ropegrad.librope_native", [source], depends=["ms_ropegrad/__init__.py"], language="c++",
    optional=True,  # without a compiler the package uses NumPy: python -m ms_ropegrad info
    define_macros=[("ROPE_STAMP", f'"{stamp}"')],
    extra_compile_args=["-std=c++17", "-O2", "-g0", "-ffp-contract=off", "-fvisibility=hidden", "-pthread"], extra_link_args=["-pthread"])

setup(
    name="ms_ropegrad",
    version=version,
    description="Rotary position embedding and its backward on packed sequences: MindSpore operators for Ascend and CPU",
    long_description=(here / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    packages=["ms_ropegrad"],
    ext_modules=[native],
    cmdclass={"build_ext": BuildNative, "build_py": BuildWithVendor, **wheel_commands()},
    python_requires=">=3.9",
    # MindSpore's binaries were built against NumPy 1.x; 2.10 does not say so and dies with NumPy 2 in "numpy.core.multiarray
    # failed to import".
    install_requires=["mindspore>=2.7,<2.11", "numpy>=1.20,<2"],
    extras_require={"test": ["pytest>=7", "hypothesis>=6", "setuptools", "wheel"], "bench": ["torch"]},
)
