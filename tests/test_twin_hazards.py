# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
"""The hazard model: for each class a small kernel that must trip it, and its brother with the missing
piece (EDGE) that must not."""
import functools
import re
from pathlib import Path

import numpy as np
import pytest

import twin

CASES = Path(twin.__file__).parent / "cases"
N = 1024
SEEDS = 50

PRELUDE = """
#include "bench.h"
struct Raw {
  Raw(GM_ADDR x, GM_ADDR y, GM_ADDR z) {
    xg.SetGlobalBuffer((__gm__ half*)x);
    yg.SetGlobalBuffer((__gm__ half*)y);
    zg.SetGlobalBuffer((__gm__ half*)z);
    LocalTensor<half>* tensors[] = {&a, &b, &c};
    for (int i = 0; i < 3; ++i) {
      pipe.InitBuffer(buffers[i], 2048);
      *tensors[i] = buffers[i].Get<half>();
    }
  }
  TPipe pipe;
  TBuf<TPosition::VECCALC> buffers[3];
  GlobalTensor<half> xg, yg, zg;
  LocalTensor<half> a, b, c;
};
template <HardEvent event> void Edge(int32_t id = 0) { SetFlag<event>(id); WaitFlag<event>(id); }
constexpr int32_t kN = 1024;
"""
LOAD_A = "Raw r(x, y, z); DataCopy(r.a, r.xg, kN); Edge<HardEvent::MTE2_V>(); "
STORE_C = " Edge<HardEvent::V_MTE3>(); DataCopy(r.zg, r.c, kN);"

# Numbers right in program order, wrong in some order the device is free to take: name -> (body, the edge named in the report)
RACES = {
    "v_read_after_write": (LOAD_A + "Muls(r.b, r.a, half(2), kN); EDGE(PipeBarrier<PIPE_V>();) Adds(r.c, r.b, half(1), "
        "kN);" + STORE_C, "PipeBarrier<PIPE_V>"),
    "v_write_after_read": (LOAD_A + "Muls(r.c, r.a, half(2), kN); EDGE(PipeBarrier<PIPE_V>();) Duplicate(r.a, half(7), "
        "kN);" + STORE_C, "PipeBarrier<PIPE_V>"),
    "v_in_place_after_read": (LOAD_A + "Muls(r.c, r.a, half(2), kN); EDGE(PipeBarrier<PIPE_V>();) Muls(r.a, r.a, "
        "half(7), kN);" + STORE_C, "PipeBarrier<PIPE_V>"),
    "v_write_after_write": (LOAD_A + "Muls(r.c, r.a, half(2), kN); EDGE(PipeBarrier<PIPE_V>();) Duplicate(r.c, half(7), "
        "64);" + STORE_C, "PipeBarrier<PIPE_V>"),
    "v_before_load": ("Raw r(x, y, z); DataCopy(r.a, r.xg, kN); EDGE(Edge<HardEvent::MTE2_V>();) Muls(r.c, r.a, "
        "half(2), kN);" + STORE_C, "MTE2_V"),
    "store_before_v": (LOAD_A + "Muls(r.c, r.a, half(2), kN); EDGE(Edge<HardEvent::V_MTE3>();) DataCopy(r.zg, r.c, "
        "kN);", "V_MTE3"),
    "refill_before_read": (LOAD_A + "Muls(r.c, r.a, half(2), kN); EDGE(Edge<HardEvent::V_MTE2>();) DataCopy(r.a, r.yg, "
        "kN);" + STORE_C, "V_MTE2"),
    "overwrite_before_store": (LOAD_A + "Muls(r.c, r.a, half(2), kN);" + STORE_C + " EDGE(Edge<HardEvent::MTE3_V>();) "
        "Duplicate(r.c, half(7), kN);", "MTE3_V"),
    "refill_before_store": ("Raw r(x, y, z); DataCopy(r.a, r.xg, kN); Edge<HardEvent::MTE2_MTE3>(); DataCopy(r.zg, r.a, kN);"
                            " EDGE(Edge<HardEvent::MTE3_MTE2>();) DataCopy(r.a, r.yg, kN);", "MTE3_MTE2"),
    "overlapping_loads": ("Raw r(x, y, z); DataCopy(r.a, r.xg, kN); EDGE(PipeBarrier<PIPE_MTE2>();) DataCopy(r.a, r.yg, 512);"
                          " Edge<HardEvent::MTE2_MTE3>(); DataCopy(r.zg, r.a, kN);", "PipeBarrier<PIPE_MTE2>"),
    "overlapping_stores": ("Raw r(x, y, z); DataCopy(r.a, r.xg, kN); DataCopy(r.b, r.yg, kN); Edge<HardEvent::MTE2_MTE3>();"
                           " DataCopy(r.zg, r.a, kN); EDGE(PipeBarrier<PIPE_MTE3>();) DataCopy(r.zg[512], r.b, 512);",
                               "PipeBarrier<PIPE_MTE3>"),
    "load_what_was_stored": ("Raw r(x, y, z); DataCopy(r.a, r.xg, kN); Edge<HardEvent::MTE2_MTE3>(); DataCopy(r.yg, r.a, kN);"
                             " EDGE(Edge<HardEvent::MTE3_MTE2>();) DataCopy(r.b, r.yg, kN); "
                                 "Edge<HardEvent::MTE2_MTE3>(1); DataCopy(r.zg, r.b, kN);", "MTE3_MTE2"),
    "scalar_before_load": ("Raw r(x, y, z); DataCopy(r.a, r.xg, kN); EDGE(Edge<HardEvent::MTE2_S>();) Duplicate(r.c, "
        "r.a.GetValue(3), kN);" + STORE_C, "MTE2_S"),
    "scalar_before_v": (LOAD_A + "Muls(r.b, r.a, half(2), kN); EDGE(Edge<HardEvent::V_S>();) Duplicate(r.c, "
        "r.b.GetValue(3), kN);" + STORE_C, "V_S"),
    "v_before_scalar": (LOAD_A + "Edge<HardEvent::V_S>(); r.a.SetValue(0, 9.0f); EDGE(Edge<HardEvent::S_V>();) "
        "Muls(r.c, r.a, half(2), kN);" + STORE_C, "S_V"),
    "refill_before_scalar": ("Raw r(x, y, z); DataCopy(r.a, r.xg, kN); Edge<HardEvent::MTE2_S>(); Duplicate(r.c, "
        "r.a.GetValue(3), kN);"
                             " EDGE(Edge<HardEvent::S_MTE2>();) DataCopy(r.a, r.yg, kN);" + STORE_C, "S_MTE2"),
    "copy_out_before_enque": (LOAD_A + "TQue<TPosition::VECOUT, 1> q; r.pipe.InitBuffer(q, 1, 2048); auto o = "
        "q.AllocTensor<half>(); Muls(o, r.a, half(2), kN);"
                              " EDGE(q.EnQue(o); o = q.DeQue<half>();) DataCopy(r.zg, o, kN); q.FreeTensor(o);", "V_MTE3"),
    "in_place_queue": ("Raw r(x, y, z); TQueBind<TPosition::VECIN, TPosition::VECOUT, 1> q; r.pipe.InitBuffer(q, 2, "
        "512); for (uint64_t i = 0; i < 4; ++i) {"
                       " auto t = q.AllocTensor<half>(); DataCopy(t, r.xg[i * 256], 256); q.EnQue<TPosition::GM, "
                           "TPosition::VECIN>(t); t = q.DeQue<TPosition::GM, TPosition::VECIN, half>();"
                       " Muls(t, t, half(2), 256); EDGE(q.EnQue<TPosition::VECOUT, TPosition::GM>(t); t = "
                           "q.DeQue<TPosition::VECOUT, TPosition::GM, half>();)"
                       " DataCopy(r.zg[i * 256], t, 256); q.FreeTensor(t); }", "V_MTE3"),
    "free_covers_v_only": ("Raw r(x, y, z); TQue<TPosition::VECIN, 1> q; r.pipe.InitBuffer(q, 1, 2048); for (int i = 0; "
        "i < 2; ++i) {"
                           " auto t = q.AllocTensor<half>(); DataCopy(t, i ? r.yg : r.xg, kN); q.EnQue(t); t = "
                               "q.DeQue<half>(); Muls(t, t, half(2), kN);"
                           " Edge<HardEvent::V_MTE3>(i); DataCopy(i ? r.yg : r.zg, t, kN); "
                               "EDGE(Edge<HardEvent::MTE3_V>(i);) q.FreeTensor(t); }", "MTE3_MTE2"),
}
# S reads at once in the twin, so a refill issued later is never early.
SILENT = {"refill_before_scalar"}

# Faults of another kind: name -> (detector, body); a trailing * in the detector: also caught without the hazard model
FAULTS = {
    "never_written": ("uninitialised", "Raw r(x, y, z); EDGE(DataCopy(r.a, r.xg, kN);) Edge<HardEvent::MTE2_V>(); "
        "Muls(r.c, r.a, half(2), kN);" + STORE_C),
    "stale_rows": ("uninitialised", "Raw r(x, y, z); TQue<TPosition::VECIN, 1> q; r.pipe.InitBuffer(q, 1, 2048); for "
        "(int i = 0; i < 2; ++i) { auto t = q.AllocTensor<half>();"
                   " int32_t n = i ? 512 : kN; EDGE(n = kN;) DataCopy(t, r.xg, static_cast<uint32_t>(n)); q.EnQue(t); t "
                       "= q.DeQue<half>(); Muls(r.c, t, half(2), kN); PipeBarrier<PIPE_V>(); q.FreeTensor(t); "
                       "}" + STORE_C),
    "use_after_free": ("use-after-free*", "Raw r(x, y, z); TQue<TPosition::VECIN, 1> q; r.pipe.InitBuffer(q, 1, 2048); "
        "auto t = q.AllocTensor<half>(); DataCopy(t, r.xg, kN); q.EnQue(t);"
                       " t = q.DeQue<half>(); EDGE(Muls(r.c, t, half(2), kN);) q.FreeTensor(t); NOEDGE(Muls(r.c, t, "
                           "half(2), kN);)" + STORE_C),
    "freed_twice": ("use-after-free*", "TPipe p; TQue<TPosition::VECIN, 1> q; p.InitBuffer(q, 1, 2048); auto t = "
        "q.AllocTensor<half>(); q.FreeTensor(t); NOEDGE(q.FreeTensor(t);)"),
    "set_twice": ("double-set*", "TPipe p; SetFlag<HardEvent::MTE2_V>(0); EDGE(WaitFlag<HardEvent::MTE2_V>(0); "
        "Edge<HardEvent::V_MTE2>();) SetFlag<HardEvent::MTE2_V>(0); WaitFlag<HardEvent::MTE2_V>(0);"),
    "set_may_overtake_wait": ("double-set", "Raw r(x, y, z); for (int i = 0; i < 2; ++i) { EDGE(if (i) "
        "Edge<HardEvent::V_MTE2>();) DataCopy(i ? r.a : r.b, r.xg, kN); Edge<HardEvent::MTE2_V>(); }"),
    "wait_without_set": ("wait-without-set*", "TPipe p; EDGE(SetFlag<HardEvent::V_MTE2>(3);) WaitFlag<HardEvent::V_MTE2>(3);"),
    "wait_of_another_id": ("wait-without-set*", "TPipe p; int32_t id = 1; EDGE(id = 2;) SetFlag<HardEvent::V_MTE2>(2); "
        "WaitFlag<HardEvent::V_MTE2>(id);"),
    "flag_left_set": ("flag-left-set*", "TPipe p; SetFlag<HardEvent::V_MTE2>(0); EDGE(WaitFlag<HardEvent::V_MTE2>(0);)"),
    "event_id_8": ("event-id*", "TPipe p; int32_t id = 8; EDGE(id = 7;) SetFlag<HardEvent::V_MTE2>(id); "
        "WaitFlag<HardEvent::V_MTE2>(id);"),
    "enque_beyond_depth": ("queue-depth*", "TPipe p; TQue<TPosition::VECIN, 1> q; p.InitBuffer(q, 2, 32); auto s = "
        "q.AllocTensor<half>(); auto t = q.AllocTensor<half>(); q.EnQue(s);"
                           " EDGE(s = q.DeQue<half>(); q.FreeTensor(s);) q.EnQue(t); t = q.DeQue<half>(); q.FreeTensor(t);"),
    "alloc_without_free": ("no-free-buffer*", "TPipe p; TQue<TPosition::VECIN, 1> q; p.InitBuffer(q, 1, 32); "
        "[[maybe_unused]] auto s = q.AllocTensor<half>(); EDGE(q.FreeTensor(s);) auto t = q.AllocTensor<half>(); "
        "q.FreeTensor(t);"),
    "deque_empty": ("empty-queue*", "TPipe p; TQue<TPosition::VECIN, 1> q; p.InitBuffer(q, 1, 32); EDGE(auto s = "
        "q.AllocTensor<half>(); q.EnQue(s);) auto t = q.DeQue<half>(); q.FreeTensor(t);"),
    "never_freed": ("not-freed*", "TPipe p; TQue<TPosition::VECIN, 1> q; p.InitBuffer(q, 1, 32); [[maybe_unused]] auto "
        "s = q.AllocTensor<half>(); EDGE(q.FreeTensor(s);)"),
    "ninth_buffer": ("event-ids*", "TPipe p; TQue<TPosition::VECIN, 9> q; p.InitBuffer(q, 9, 32); int n = 9; EDGE(n = "
        "8;) LocalTensor<half> t[9];"
                     " for (int i = 0; i < n; ++i) { t[i] = q.AllocTensor<half>(); q.EnQue(t[i]); } for (int i = 0; i < "
                         "n; ++i) { t[i] = q.DeQue<half>(); } for (int i = 0; i < n; ++i) q.FreeTensor(t[i]);"),
    "deque_of_another_event": ("queue*", "TPipe p; TQueBind<TPosition::VECIN, TPosition::VECOUT, 1> q; p.InitBuffer(q, "
        "1, 32); auto t = q.AllocTensor<half>();"
                               " EDGE(q.EnQue<TPosition::GM, TPosition::VECIN>(t);) NOEDGE(q.EnQue(t);) t = "
                                   "q.DeQue<TPosition::GM, TPosition::VECIN, half>(); q.FreeTensor(t);"),
    "depth_zero": ("empty-queue*", "Raw r(x, y, z); TQue<TPosition::VECIN, 0> q; r.pipe.InitBuffer(q, 2, 2048); for "
        "(int i = 0; i < 3; ++i) { LocalTensor<half> t; q.AllocTensor(t); DataCopy(t, r.xg, kN);"
                   " EDGE(q.EnQue(t);) q.DeQue(t); Muls(r.c, t, half(2), kN); PipeBarrier<PIPE_V>(); q.FreeTensor(t); "
                       "}" + STORE_C),
    "shift_in_place": ("overlap*", LOAD_A + "Muls(r.c, r.a, half(2), kN); PipeBarrier<PIPE_V>(); uint8_t n = 4; EDGE(n "
        "= 1;) Adds(r.a[128], r.a, half(1), 128, n, {1, 1, 8, 8});" + STORE_C),
}

# Two cores: z is shared.
CORES = {
    "two_cores_write": "Raw r(x, y, z); int64_t i = 0; EDGE(i = GetBlockIdx() * 512;) DataCopy(r.a, r.xg, 512); "
        "Edge<HardEvent::MTE2_MTE3>(); DataCopy(r.zg[static_cast<uint64_t>(i)], r.a, 512);",
    "read_what_another_writes": "Raw r(x, y, z); const uint64_t i = static_cast<uint64_t>(GetBlockIdx()) * 512; "
        "uint64_t j = 512; EDGE(j = i;) DataCopy(r.a, r.zg[j], 512); Edge<HardEvent::MTE2_MTE3>(); DataCopy(r.zg[i], "
        "r.a, 512);",
    "one_byte_shared": "Raw r(x, y, z); const uint64_t i = static_cast<uint64_t>(GetBlockIdx()); DataCopy(r.a, r.xg, "
        "512); Edge<HardEvent::MTE2_MTE3>(); uint32_t n = 514; EDGE(n = 512;) DataCopyPad(r.zg[i * 256], r.a, {1, n, 0, "
        "0, 0});",
}

ALL = {**{name: body for name, (body, _) in RACES.items()}, **{name: body for name, (_, body) in FAULTS.items()}, **CORES}


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    """Two sources, one with every EDGE and one without, so that all cases cost two compilations."""
    cache = tmp_path_factory.getbasetemp() / "twin"
    folder = tmp_path_factory.mktemp("hazards")
    for kind, macros in (("clean", "#define EDGE(...) __VA_ARGS__\n#define NOEDGE(...)\n"), ("trip",
        "#define EDGE(...)\n#define NOEDGE(...) __VA_ARGS__\n")):
        cases = "\n".join(f"CASE({name}) {{ {body} }}" for name, body in ALL.items())
        (folder / f"{kind}.cpp").write_text(macros + PRELUDE + cases + "\n")

    @functools.lru_cache(None)
    def build(name, kind):
        return twin.build([folder / f"{kind}.cpp"], name, include_dirs=[CASES], out_dir=cache)
    return build


def launch(kernel, blocks=1, **options):
    rng = np.random.default_rng(5)
    x, y = (rng.integers(1, 50, N).astype(np.float16) for _ in range(2))
    z = np.zeros(N, np.float16)
    return kernel.run([x, y, z], blocks=blocks, **options), z


@pytest.mark.parametrize("name", RACES)
def test_race(kernel, name):
    """Reported once, though program order gives the right numbers; and out of order some seed gives wrong ones."""
    edge = RACES[name][1]
    report, right = launch(kernel(name, "clean"))
    report, z = launch(kernel(name, "trip"), errors="return")
    assert report.detectors == {"race"} and (z == right).all()
    first, second = report.errors[0].split("\n")
    access = r"[\w>< -]+ at (trip\.cpp|bench\.h):\d+ \((S|V|MTE2|MTE3)\)"
    assert re.match(rf"race: {access} (reads|writes) (UB|GM argument \d) bytes \[\d+, \d+\), core 0$", first), first
    assert re.match(rf"  which {access} (reads|writes): .* missing", second) and edge in second, second
    if name not in SILENT:
        assert any((launch(kernel(name, "trip"), errors="return", seed=seed)[1] != right).any() for seed in range(SEEDS))


@pytest.mark.parametrize("name", FAULTS)
def test_fault(kernel, name):
    detector = FAULTS[name][0].rstrip("*")
    report, _ = launch(kernel(name, "trip"), errors="return")
    assert report.detectors == {detector} and all(len(error.split("\n")) == 2 for error in report.errors), report.errors
    report, _ = launch(kernel(name, "trip"), errors="return", check=False)
    assert report.detectors == ({detector} if FAULTS[name][0].endswith("*") else set())


@pytest.mark.parametrize("name", CORES)
def test_cores_share_nothing(kernel, name):
    report, _ = launch(kernel(name, "trip"), blocks=2, errors="return")
    assert report.detectors == {"gm-race"}
    assert "core 0)" in report.errors[0] and report.errors[0].split("\n")[0].endswith("core 1")
    launch(kernel(name, "clean"), blocks=2)


@pytest.mark.parametrize("name", [*RACES, *FAULTS])
def test_clean_brother_in_any_order(kernel, name):
    _, right = launch(kernel(name, "clean"))
    for seed in range(SEEDS):
        assert (launch(kernel(name, "clean"), seed=seed)[1] == right).all()


def test_byte_ranges_are_exact(kernel):
    report, _ = launch(kernel("v_write_after_write", "trip"), errors="return")
    assert "writes UB bytes [4096, 4224)" in report.errors[0]  # 64 halves at the start of c
    report, _ = launch(kernel("one_byte_shared", "trip"), blocks=2, errors="return")
    assert "GM argument 2 bytes [512, 514)" in report.errors[0]


def test_the_example_of_the_document(tmp_path):
    """docs/twin.md's kernel runs as printed, and without its first EnQue and DeQue gives the report as printed."""
    text = (Path(__file__).resolve().parent.parent / "docs" / "twin.md").read_text()
    source, python = re.search(r"```cpp\n(.*?)```", text, re.S)[1], re.search(r"```python\n(.*?)```", text, re.S)[1]
    wanted = re.search(r"<!-- twin-report -->\n```\n(.*?)\n```", text, re.S)[1]
    Path("scale.cpp").write_text(source)
    exec(python, {})
    lines = [line for line in source.splitlines() if "in.EnQue(a)" not in line and "in.DeQue" not in line]
    Path("scale.cpp").write_text("\n".join(lines))
    with pytest.raises(twin.TwinError) as caught:
        exec(python, {})
    assert wanted in caught.value.errors[0]
