# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
"""What Huawei has published about speed on Atlas A2: the rows that the model is calibrated on, and those it is tested on.

Nothing here was measured by this project. The constants are computed from the rows marked "fit" by closed formulas, and nothing else is
tuned; rows marked "test" are only predicted.
"""
from typing import NamedTuple

_EXAMPLES = "asc-devkit, examples/01_simd_cpp_api/05_best_practices"
ADD = f"{_EXAMPLES}/00_vector_compute/add_high_performance/README_en.md"
COPY = f"{_EXAMPLES}/04_memory_access/data_copy/README_en.md"
BANK = f"{_EXAMPLES}/04_memory_access/bank_conflict_ub/README_en.md"
GUIDE = "asc-devkit, docs/zh/guide/算子实践参考"
INI = "CANN, platform_config/Ascend910B4.ini"

CORES = 48            # ADD, "Example Configuration"
CLOCK = 1.85          # GHz; ADD, "Performance Comparison Summary"
COUNTER = 0.05        # GHz of GetSystemCycle on A2; asc-devkit, docs/zh/api, GetSystemCycle
ADD_ELEMENTS = 8192 * 8192  # half; ADD, "Example Description"
COPY_BYTES = 12288 * 12288 * 2  # COPY, "Optimization Point 1"


class Row(NamedTuple):
    name: str
    what: str
    value: float      # as printed
    use: str          # fit or test
    where: str


# The names say the experiment: A Add sample, case; C data copy sample, scenario; B bank conflict sample, scenario.
ROWS = [
    Row("A1.aiv", "1 core, 8 KB copies, serial, us", 6909.14, "fit", f"{ADD}, Case 1"),
    Row("A2.aiv", "48 cores, 8 KB copies, serial, us", 297.14, "fit", f"{ADD}, Case 2"),
    Row("A3.aiv", "48 cores, 32 KB copies, serial, us", 261.5, "test", f"{ADD}, Case 3"),
    Row("A4.aiv", "48 cores, 32 KB copies, double buffer, us", 257.56, "fit", f"{ADD}, Case 4"),
    Row("C1.mte2", "read, copies of 128 B, us", 548.161, "fit", f"{COPY}, Scenario 1"),
    Row("C2.mte2", "read, copies of 64 x 128 B, us", 220.772, "test", f"{COPY}, Scenario 2"),
    Row("C3.mte2", "read, copies of 64 x 2048 B, us", 202.657, "test", f"{COPY}, Scenario 3"),
    Row("C5.aiv", "the same, 4 times, no reuse in L2, us", 816.05, "test", f"{COPY}, Scenario 5"),
    Row("C6.aiv", "the same, 3 of 4 times from L2, us", 354.56, "test", f"{COPY}, Scenario 6"),
    Row("C7.mte2", "48 cores read the same 6.3 MB in the same order, us", 474.717, "fit", f"{COPY}, Scenario 7"),
    Row("B1", "1000 Adds of 64 repeats, no bank conflict, counter", 2390, "fit", f"{BANK}, Scenario 1"),
    Row("B2", "the same, sources in one bank, counter", 4167, "test", f"{BANK}, Scenario 2"),
    Row("B3", "the same, sources in one bank group, counter", 4167, "fit", f"{BANK}, Scenario 3"),
    Row("B4", "the same, target in a source's bank, counter", 2389, "test", f"{BANK}, Scenario 4"),
    Row("B7", "the same, conflict in every second repeat, counter", 3584, "test", f"{BANK}, Scenario 7"),
    Row("B8", "the same, one block read again, no conflict, counter", 2389, "test", f"{BANK}, Scenario 8"),
    Row("A1.vec", "16384 Adds of 32 repeats, conflict, us", 761.65, "test", f"{ADD}, Case 1"),
    Row("A3.vec", "86 Adds of 128 repeats, conflict, us", 12.845, "test", f"{ADD}, Case 3"),
    Row("A6.vec", "86 Adds of 127 repeats, no conflict, us", 6.954, "test", f"{ADD}, Case 6"),
    Row("A1.launch", "Task Duration - aiv_time, 1 core, us", 6909.6 - 6909.14, "fit", f"{ADD}, Case 1"),
    Row("A3.launch", "Task Duration - aiv_time, 48 cores, us", 268.5 - 261.5, "test", f"{ADD}, Case 3"),
    Row("A4.launch", "Task Duration - aiv_time, 48 cores, us", 264.02 - 257.56, "fit", f"{ADD}, Case 4"),
    Row("A6.launch", "Task Duration - aiv_time, 48 cores, us", 184.52 - 178.49, "test", f"{ADD}, Case 6"),
]
# Published rows that the model has nothing to say about: L2 bypass (A5.aiv, A6.aiv; the kernel keeps L2 on), copies that are not
# aligned (C4; the kernel has none), staggered re-reads by all cores (C8), reads against writes in one bank (B5), scalar loops (A0).

_at = {row.name: row.value for row in ROWS}
_add_bytes = 3 * 2 * ADD_ELEMENTS
_share = _add_bytes / (_at["A4.aiv"] * 1000) / CORES                      # bytes/ns of one core of 48
_vector_start = _at["B1"] / 1000 / COUNTER * CLOCK - 64                   # cycles
_conflict = (_at["B3"] - _at["B1"]) / 1000 / COUNTER * CLOCK / 64         # cycles of a repeat, on top
_add_vector = (_vector_start + 32 * (1 + _conflict)) / CLOCK              # ns of one Add of the sample's cases 1 and 2
_loop = {case: _at[f"A{case}.aiv"] * 1000 / (ADD_ELEMENTS / 4096 / cores) for case, cores in ((1, 1), (2, CORES))}
_start = _loop[2] - 3 * 8192 / _share - _add_vector                       # ns


class Constant(NamedTuple):
    name: str
    value: float
    unit: str
    source: str


CONSTANTS = [
    Constant("HBM stream, reads and writes", _share * CORES / 1000, "TB/s", "A4.aiv: bytes over time of the double-buffered Add"),
    Constant("HBM, nominal: the lower bound", 1.6, "TB/s", f"{GUIDE}, L2-Cache切分.md"),
    Constant("one core's copies, at most", 2 * 8192 / (_loop[1] - _start - _add_vector), "B/ns", "A1.aiv: the serial loop on one core"),
    Constant("start of a copy on an idle pipe", _start, "ns", "A2.aiv: the serial loop on 48 cores"),
    Constant("a copy behind another, at least", _at["C1.mte2"] * 1000 / (COPY_BYTES / 128 / CORES), "ns", "C1.mte2: time over number of copies"),
    Constant("start of a vector instruction", _vector_start, "cycles", "B1"),
    Constant("a repeat without conflict", 1, "cycles", f"{BANK}: 64 repeats, Scenario 1; ADD: 128 half a cycle"),
    Constant("a bank conflict of a repeat, more", _conflict, "cycles", "B3 - B1"),
    Constant("a scalar access or issue", 1233742.494 * 1000 / ADD_ELEMENTS / 3, "ns", f"{ADD}, Case 0: 3 accesses an element"),
    Constant("L2 read, peak", 5.2, "TB/s", f"{COPY}, Optimization Point 3"),
    Constant("all cores read the same rows in the same order", 6144 * 512 * 2 * CORES / _at["C7.mte2"] / 1e6, "TB/s", "C7.mte2"),
    Constant("launch", (CORES * _at["A1.launch"] - _at["A4.launch"]) / (CORES - 1), "us", "A1.launch, A4.launch: the line through both"),
    Constant("launch, for each core", (_at["A4.launch"] - _at["A1.launch"]) / (CORES - 1), "us", "A1.launch, A4.launch"),
]
(HBM, NOMINAL, CORE_RATE, COPY_START, COPY_FLOOR, VECTOR_START, REPEAT, CONFLICT, SCALAR, L2, SAME_ROWS, LAUNCH,
 LAUNCH_CORE) = (c.value for c in CONSTANTS)


class Device(NamedTuple):
    name: str
    cores: int
    clock: float      # GHz
    hbm: float        # TB/s that a stream reaches
    hbm_best: float   # the most that is said of it: the band's fast end
    nominal: float
    source: str


DEVICES = [
    Device("910B1", CORES, CLOCK, HBM, HBM, NOMINAL, "the rows above"),
    # A stream reaches the same part of the nominal bandwidth as on the device of the rows above.
    Device("910B4", 40, 1.5, 0.8 * HBM / NOMINAL, 1.137, 0.8,
           f"{INI} (vector_core_cnt, cube_freq); 0.8 TB/s: public performance models of Huawei (HWConf, ASCEND910B4); 1.137 TB/s is also quoted"),
]
