# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
"""The project's kernel with one fault made on purpose at a time. Each mutant changes the real source, compiles, and must be
caught by the detector it names: `hazard` ones leave every number right in plain program order and are found by the hazard
model alone; `limit` ones break a rule of the device; `numbers` ones are wrong against the reference."""
import re
from typing import NamedTuple

import numpy as np
import pytest

import kernel_on_twin as kernel
import twin

SOURCE = kernel.REPO / "op_impl/op_kernel"
SEEDS = 50

GRAD = ("RopeGrad", "float16", "float16")             # half arithmetic, nothing cast
GRAD_CAST = ("RopeGrad", "bfloat16", "bfloat16")      # q, k and tables cast to float
EXACT_CAST = ("RopeGradExact", "bfloat16", "bfloat16")
EXACT = ("RopeGradExact", "float32", "float32")
FORWARD = ("RopeForward", "float32", "float32")


def mixed(combo):
    """Several tiles, tables and sequences a core; sequences empty, longer than the table, and too short for all tokens."""
    return kernel.Case(*combo, [-2, 5, 5, 6, 40, 41, 90, 118], 130, 3, 1, 64, 30)


def many_sequences(combo):
    return kernel.Case(*combo, np.arange(1, 3001) * 2 // 3, 2000, 1, 1, 64, 4)


def growing(combo):
    """Sequences repeat rows of those before, in one run of tables on one core."""
    return kernel.Case(*combo, np.cumsum([1, 2, 3, 4, 2, 5, 1]), 18, 1, 1, 64, 8)


def wide(combo):
    return kernel.Case(*combo, [2, 3], 3, 255, 1, 64, 4)


class Mutant(NamedTuple):
    combo: tuple
    detector: str
    edits: tuple              # (text of op_impl/op_kernel, its replacement), ...
    says: str = ""            # a part of the report
    case: callable = mixed
    ub: int = 24576           # that tiling sees: small, so that small cases have many tiles
    silent: bool = False      # hazards: no order the twin tries gives a wrong number


V = "PipeBarrier<PIPE_V>();"
SET, WAIT = "    SetFlag<HardEvent::S_MTE2>(read_);\n", "    WaitFlag<HardEvent::S_MTE2>(read_);\n"
ARRIVE = ("    SetFlag<HardEvent::MTE2_S>(arrived_);\n", "    if (arriving_) WaitFlag<HardEvent::MTE2_S>(arrived_);\n")
FREE_IN = "      in_.FreeTensor(in);\n"
X_COPIED = "      Cast(x, in, RoundMode::CAST_NONE, elements);\n"
FREE_TABLE = "      if (!more || next.opensTable) tables_.FreeTensor(table_);\n"
Y = "    LocalTensor<X> y = out_.template DeQue<X>();\n"
OUT = "    LocalTensor<X> out = out_.template AllocTensor<X>();\n"
FREE_OUT = "    out_.FreeTensor(y);\n"
OUT_QUEUE = "  TQue<TPosition::VECOUT, kRopeBuffers> out_;\n"
IN_QUEUES = "  TQue<TPosition::VECIN, kRopeBuffers> in_, tables_;\n"
BOTH_WAYS = "TQueBind<TPosition::VECIN, TPosition::VECOUT, kRopeBuffers>"

HAZARDS = {
    "no barrier after zeroing tables": Mutant(EXACT_CAST, "race", ((f"    {V}\n    if constexpr (kCastT)",
        "    if constexpr (kCastT)"),), "PIPE_V", silent=True),
    "no barrier before rows are repeated again": Mutant(EXACT, "race", ((f"      if (held > 0) {V}  // the next copies read "
        "these rows\n", ""),), "PIPE_V", growing),
    "no barrier after repeating rows": Mutant(EXACT, "race", ((f"RepeatRows(tile);\n    {V}", "RepeatRows(tile);"),), "PIPE_V", growing, 65536),
    "no barrier after casting tables": Mutant(GRAD_CAST, "race", ((f"used);\n      {V}\n    }} else",
        "used);\n    } else"),), "PIPE_V"),
    "no barrier after the coefficient": Mutant(GRAD, "race", ((f"tile.tableRows);\n      {V}", "tile.tableRows);"),),
        "PIPE_V"),
    "no barrier after casting x": Mutant(EXACT_CAST, "race", ((f"{FREE_IN}      {V}\n", FREE_IN),), "PIPE_V"),
    "no barrier before x is overwritten": Mutant(FORWARD, "race", ((f"      {V}\n      if constexpr (op == "
        f"RopeOp::kForward)", "      if constexpr (op == RopeOp::kForward)"),), "PIPE_V"),
    "no barrier before the halves meet": Mutant(EXACT, "race", ((f"      {V}\n      AddSwapped<op",
        "      AddSwapped<op"),), "PIPE_V"),
    "no barrier before casting y": Mutant(EXACT_CAST, "race", ((f"      {V}\n      Cast(out, y",
        "      Cast(out, y"),), "PIPE_V"),
    "no barrier before zeroing the result": Mutant(GRAD, "race", ((f"      {V}\n      ZeroInvalid(out",
        "      ZeroInvalid(out"),), "PIPE_V"),
    "no edge from the store to V": Mutant(GRAD, "race", (
        (OUT_QUEUE, f"  {BOTH_WAYS} out_;\n"), ("out_.EnQue(out)", "out_.template EnQue<TPosition::VECOUT, "
            "TPosition::GM>(out)"),
        (Y, Y.replace("DeQue<X>", "DeQue<TPosition::VECOUT, TPosition::GM, X>"))), "MTE3->V"),
    "no edge from V to the next load": Mutant(GRAD, "race", (
        (IN_QUEUES, f"  {BOTH_WAYS} in_;\n  TQue<TPosition::VECIN, kRopeBuffers> tables_;\n"),
        ("in_.EnQue(x)", "in_.template EnQue<TPosition::GM, TPosition::VECIN>(x)"),
        ("in_.template DeQue<X>", "in_.template DeQue<TPosition::GM, TPosition::VECIN, X>")), "V->MTE2"),
    "x used after FreeTensor": Mutant(EXACT_CAST, "use-after-free", ((X_COPIED + FREE_IN, FREE_IN + X_COPIED),)),
    "tables used after FreeTensor": Mutant(GRAD, "use-after-free", (("      Compute(tile);\n" + FREE_TABLE,
        FREE_TABLE + "      Compute(tile);\n"),)),
    "result stored after FreeTensor": Mutant(GRAD, "use-after-free", ((Y, Y + FREE_OUT),
        ("    Copy<false>(tile, y);\n" + FREE_OUT, "    Copy<false>(tile, y);\n"))),
    "stale rows of the tables": Mutant(GRAD, "uninitialised", (("      ZeroInvalid(table_, ",
        "      if (false) ZeroInvalid(table_, "), ("      ZeroInvalid(table_[all]",
        "      if (false) ZeroInvalid(table_[all]")), "since AllocTensor", silent=True),
    "wait without set": Mutant(GRAD, "wait-without-set", ((SET, ""),), silent=True),
    "flag set twice": Mutant(GRAD, "double-set", ((WAIT, ""),), case=many_sequences, silent=True),
    "flag of another id": Mutant(GRAD, "wait-without-set", ((WAIT, WAIT.replace("read_", "(read_ + 1)")),), silent=True),
    "stored before it is computed": Mutant(GRAD, "race", ((OUT, OUT + "    out_.EnQue(out);\n"),
        ("    out_.EnQue(out);\n  }\n", "  }\n")), "V->MTE3"),
    "computed before it is loaded": Mutant(GRAD, "race", (("    in_.EnQue(x);\n", ""),
        ("in_.template AllocTensor<X>();\n", "in_.template AllocTensor<X>();\n    in_.EnQue(x);\n")), "MTE2->V"),
    "tables used before they are loaded": Mutant(GRAD, "race", (("    tables_.EnQue(table);\n", ""),
        ("    tile.valid = tile.segments", "    tables_.EnQue(table);\n    tile.valid = tile.segments")), "MTE2->V"),
    "window refilled while it is read": Mutant(GRAD, "race", ((SET + WAIT, ""),), "S->MTE2", many_sequences, silent=True),
    "window read before it is filled": Mutant(GRAD, "race", tuple((line, "") for line in ARRIVE), "MTE2->S"),
    "two cores write one token": Mutant(GRAD, "gm-race", (("(core < tiling.unitsRest ? 1 : 0)",
        "(core < tiling.unitsRest ? 1 : core == 1 ? 2 : 0)"),), "two cores", silent=True),
}

LIMITS = {
    "positions past the table": Mutant(GRAD, "gm-bounds", (("Least(end - token, d_.maxSeqLen - position)",
        "end - token"),), "GM argument 2"),
    "a token too many": Mutant(GRAD, "gm-bounds", (("tokenEnd_ = tile.token + left / perToken;",
        "tokenEnd_ = tile.token + left / perToken + 1;"),), "GM argument 0"),
    "strides for gaps": Mutant(GRAD, "gm-bounds", (("(heads - part) * blocks", "heads * blocks"),), ub=65536),
    "x never freed": Mutant(GRAD, "no-free-buffer", (("      in_.FreeTensor(in);\n    }\n    const uint64_t valid",
        "    }\n    const uint64_t valid"),)),
    "result never freed": Mutant(GRAD, "no-free-buffer", ((FREE_OUT, ""),)),
    "tables never freed": Mutant(GRAD, "no-free-buffer", ((FREE_TABLE, ""),)),
    "misaligned in UB": Mutant(GRAD, "alignment", (("DataCopy(table[(row + held) * size_]", "DataCopy(table[(row + held) * size_ + 1]"),)),
    "UB overflow": Mutant(GRAD, "ub-overflow", (("tile = d_.tileTokens * d_.tileHeads * size_",
        "tile = 16 * d_.tileTokens * d_.tileHeads * size_"),)),
    "ninth buffer": Mutant(GRAD, "event-ids", (("InitBuffer(in_, kRopeBuffers", "InitBuffer(in_, 9"),), "V_MTE2"),
    "count not a multiple of 32 B": Mutant(GRAD, "limit", (("count = (all - held) * size_;\n        if",
        "count = (all - held) * size_ - 1;\n        if"),), "32 B"),
    "blockCount 4096": Mutant(GRAD, "limit", (("DataCopyParams(static_cast<uint16_t>(tile.rows)",
        "DataCopyParams(static_cast<uint16_t>(tile.rows + 4095)"),), "blockCount"),
    "repeat 256": Mutant(GRAD, "limit", (("kMaxRepeats = 255", "kMaxRepeats = 256"),), "repeatTime", wide, twin.twin.UB_SIZE),
    "overlapping shift": Mutant(EXACT, "overlap", (("Mul(dst[x], src[x], table[t], mask,",
        "Mul(dst[x], src[x + kPerBlock], table[t], mask - kPerBlock,"),)),
    "window too small": Mutant(GRAD, "ub-bounds", (("kEnds = kRopeEndsWindow / 4", "kEnds = kRopeEndsWindow / 2"),),
        case=many_sequences),
    "queue too shallow": Mutant(GRAD, "queue-depth", ((IN_QUEUES, "  TQue<TPosition::VECIN, 1> in_, tables_;\n"),)),
}

NUMBERS = {
    "wrong stride": Mutant(GRAD, "numbers", (("tableStride = byHead ? headBlocks : 0", "tableStride = 0"),
        (" * kPerBlock;\n          const uint32_t t", " * kPerBlock;\n          [[maybe_unused]] const uint32_t t")),
        ub=65536),
    "off-by-one row": Mutant(GRAD, "numbers", (("position = token - start_,", "position = token - start_ + 1,"),)),
    "rows of another sequence": Mutant(GRAD, "numbers", (("      from = row;\n", "      from = row > 0 ? row - 1 : 0;\n"),), case=growing),
    "rows not repeated": Mutant(GRAD, "numbers", (("if (held > 0) {", "if (false) {"),), case=growing),
    "swapped sin halves": Mutant(FORWARD, "numbers", (("MulTable(x, x, sin, tile, 0, half_, half_)",
        "MulTable(x, x, sin, tile, 0, 0, half_)"), ("MulTable(x, x, sin, tile, half_, 0, half_)",
        "MulTable(x, x, sin, tile, half_, half_, half_)"))),
    "wrong head count": Mutant(GRAD, "numbers", (("headEnd_ = static_cast<uint32_t>(heads_)", "headEnd_ = d_.qHeads"),)),
    "dropped tail": Mutant(GRAD, "numbers", ((" + (core < tiling.unitsRest ? 1 : 0)", ""),)),
    "wrong rounding mode": Mutant(EXACT_CAST, "numbers", (("CAST_RINT", "CAST_TRUNC"),)),
    "cos for sin": Mutant(GRAD, "numbers", (("sinGm_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(sin))",
        "sinGm_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(sin ? cos : cos))"),)),
    "k for q": Mutant(GRAD, "numbers", (("load ? q_ : qOut_", "load ? k_ : qOut_"),),
        case=lambda combo: kernel.Case(*combo, [50, 130], 130, 2, 2, 64, 80)),
    "plus for minus": Mutant(EXACT, "numbers", (("AddSwapped<op == RopeOp::kForward>",
        "AddSwapped<op != RopeOp::kForward>"),)),
    "tail not zeroed": Mutant(GRAD, "numbers", (("      ZeroInvalid(out, ", "      if (false) ZeroInvalid(out, "),)),
    "sampled search off by one": Mutant(GRAD, "numbers", (("low += (first - 1) * stride + 1",
        "low += first * stride + 1"),), case=many_sequences),
    "half a tile of heads": Mutant(EXACT_CAST, "numbers", (("AddSwapped<op == RopeOp::kForward>(y, x, tile.rows * "
        "tile.heads)", "AddSwapped<op == RopeOp::kForward>(y, x, tile.rows * tile.heads / 2)"),)),
}


def mutate(mutant, folder):
    sources = {path.name: path.read_text() for path in SOURCE.iterdir()}
    changed = dict(sources)
    for old, new in mutant.edits:
        pattern = re.compile(r"\s+".join(map(re.escape, old.split())))  # however the lines are broken
        found = {name: len(pattern.findall(text)) for name, text in changed.items()}
        assert sum(found.values()) == 1, f"the kernel no longer holds exactly one {old!r}"
        holder = max(found, key=found.get)
        changed[holder] = pattern.sub(lambda _: new.strip(), changed[holder])
    assert changed != sources
    for name, text in changed.items():
        (folder / name).write_text(text)
    return kernel.build(*mutant.combo, source_dir=folder)


def launch(mutant, mutated, **options):
    """(whether the numbers are right, detectors, errors)."""
    case = mutant.case(mutant.combo)
    q, k, report = case.run(3, mutant.ub, kernel=mutated, errors="return", **options)
    right = True
    for got, want in zip((q, k), case.expected()):
        try:
            kernel.same_bits("", got, want)
        except AssertionError:
            right = False
    return right, report.detectors, "\n".join(report.errors)


pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", HAZARDS)
def test_hazard(name, tmp_path):
    mutant = HAZARDS[name]
    mutated = mutate(mutant, tmp_path)
    right, detectors, _ = launch(mutant, mutated, plain=True)
    assert right and not detectors, "a simulator that only computes must see nothing wrong"
    _, detectors, errors = launch(mutant, mutated)
    assert mutant.detector in detectors and mutant.says in errors, errors
    if mutant.detector == "race" and not mutant.silent:
        assert not all(launch(mutant, mutated, seed=seed)[0] for seed in range(SEEDS)), "no order shows it"


@pytest.mark.parametrize("name", LIMITS)
def test_limit(name, tmp_path):
    mutant = LIMITS[name]
    ub_size = mutant.ub if mutant.detector == "ub-overflow" else kernel.UB  # the others have room
    _, detectors, errors = launch(mutant, mutate(mutant, tmp_path), check=False, ub_size=ub_size)
    assert detectors == {mutant.detector} and mutant.says in errors, errors


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers(name, tmp_path):
    mutant = NUMBERS[name]
    right, _, errors = launch(mutant, mutate(mutant, tmp_path), check=False)
    assert not right and not errors, errors


@pytest.mark.parametrize("combo", {mutant.combo for table in (HAZARDS, LIMITS, NUMBERS) for mutant in table.values()})
@pytest.mark.parametrize("case, ub", [(mixed, 24576), (mixed, 65536), (many_sequences, 24576), (wide, twin.twin.UB_SIZE)])
def test_unmutated_kernel_is_clean_on_the_same_cases(combo, case, ub):
    for seed in (None, *range(10)):
        case(combo).check(3, ub, seed=seed)
