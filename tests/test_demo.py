# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
"""The demo: its documents, packs and baselines, its checks that must be able to fail, and its command line."""
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import mindspore as ms

from ms_ropegrad import demo
from ms_ropegrad.__main__ import main

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def in_tmp(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def small(in_tmp, monkeypatch):
    """The same job at a size that takes seconds."""
    mode = ms.get_context("mode")
    for name, value in dict(N_TOKENS=64, LONGEST=32, SHORTEST=4, BATCH=17, HEAD_SIZE=16, HIDDEN_SIZE=32, MLP_SIZE=32, N_LAYERS=1).items():
        monkeypatch.setattr(demo, name, value)
    Path("a.txt").write_bytes(b"".join(demo.own_documents())[:3000])
    yield in_tmp
    ms.set_context(mode=mode)


def command(*args):
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen([sys.executable, str(ROOT / "examples/train_packed_lm.py"), *args], env=env, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


# ---- documents and packs ----

def test_documents_do_not_repeat_each_other():
    documents = demo.own_documents()
    paragraphs = [[p for p in d.split(b"\n\n") if len(p) > 200] for d in documents]
    for i, own in enumerate(paragraphs):
        others = {p for j, other in enumerate(paragraphs) if j != i for p in other}
        assert sum(map(len, (p for p in own if p in others))) <= len(documents[i]) / 2
    assert sum(map(len, documents)) > 250_000


@pytest.mark.parametrize("sizes", [[3000] * 30, [50_000], [50, 9000, 40_000], [17] * 400, [300, 5000]])
def test_split(sizes):
    rng = np.random.default_rng(1)
    documents = [rng.bytes(n) for n in sizes]
    train, held = demo.split(documents, rng)
    assert sum(map(len, train + held)) == sum(sizes)
    assert all(any(piece in d for d in documents) for piece in train + held)
    assert not set(train) & set(held)
    assert sum(len(d) - 1 for d in held) >= demo.N_TOKENS and sum(map(len, held)) < 0.4 * sum(sizes)


@pytest.mark.parametrize("sizes", [[40, 5000, 300, 17, 1200], [17] * 200, [257, 258, 272, 273, 513] * 2])
def test_packs(sizes):
    """No padding, no loss, no sequence over a document's border, positions of one document in order."""
    documents = [np.random.default_rng(i).bytes(n) for i, n in enumerate(sizes)]
    covered = [0] * len(documents)
    lists = []
    for tokens, targets, ends in demo.packs(documents, np.random.default_rng(0), 1):
        assert tokens.shape == targets.shape == (demo.N_TOKENS,) and ends.shape == (demo.BATCH,) and ends.dtype == np.int32
        ends = ends[:np.argmax(ends) + 1]
        assert ends[-1] == demo.N_TOKENS and (np.diff(ends, prepend=0) >= 1).all()
        lists.append(ends.tolist())
        for start, end in zip([0, *ends], ends):
            assert end - start <= demo.LONGEST
            data = bytes([*tokens[start:end], targets[end - 1]])
            assert targets[start:end].astype(np.uint8).tobytes() == data[1:]
            owner = [i for i, d in enumerate(documents) if d[covered[i]:covered[i] + len(data)] == data]
            assert owner
            covered[owner[0]] += len(data) - 1
    dropped = sum(sizes) - len(sizes) - sum(covered)
    assert 0 <= dropped < demo.N_TOKENS
    assert len({tuple(e) for e in lists}) == len(lists) or len(set(sizes)) == 1


def test_packs_go_on_over_epochs():
    documents = [bytes(range(100)) * 7]
    assert len(list(demo.packs(documents, np.random.default_rng(0), 512))) == 699


def test_ngram_losses():
    documents = [b"ab" * 500]
    held = [(np.array([97, 98, 97]), np.array([98, 97, 98]), None)]
    unigram, bigram = demo.ngram_losses(documents, held)
    assert unigram == pytest.approx(np.log(2), abs=0.01) and bigram < 0.01
    surprise = demo.ngram_losses(documents, [(np.array([97]), np.array([99]), None)])
    assert all(5 < loss < 20 for loss in surprise)  # unseen, yet finite


# ---- the job ----

def test_small_run(small, capsys):
    assert main(["demo", "--text", "a.txt", "--steps", "3", "--save", "new"]) == 0
    out = capsys.readouterr().out
    assert "Device CPU, GRAPH_MODE" in out and "Graph compilations of the training: 1 " in out
    assert re.search(r"Held-out loss \d\.\d{3} nats/byte; bigram \d\.\d{3}, unigram \d\.\d{3}\n", out)
    assert "3 packs of 64 tokens with 3 different lists" in out
    assert "Saved new.ckpt; loaded again into a new model: equal." in out and Path("new.ckpt").exists()
    errors = re.findall(r"layer \d w[qk] +(\S+) +(\S+)\n", out)
    assert len(errors) == 2 * demo.N_LAYERS and all(float(e) < 1e-4 < 0.01 < float(a) for e, a in errors)
    assert out.splitlines()[-1].startswith("OK (")


def test_checks_of_the_gradients_can_fail(small, capsys, monkeypatch):
    monkeypatch.setattr(demo, "evaluate", lambda *_: 1.0)
    monkeypatch.setattr(demo, "BuiltinRope", WrongPositions)
    assert main(["demo", "--text", "a.txt", "--steps", "1"]) == 1
    assert capsys.readouterr().out.splitlines()[-1].startswith("FAIL: the gradients differ from autodiff by more than 0.0001 (")


class WrongPositions(demo.BuiltinRope):
    """Restarts inside of sequences. (None at their starts would do no harm: only distances matter, and only inside of sequences.)"""

    def construct(self, q, k, cos, sin, q_seq_len=None, seq_ends=None):
        at = demo.ops.arange(q.shape[0]) % 7
        return self.rotate(q, cos[at][:, None], sin[at][:, None]), self.rotate(k, cos[at][:, None], sin[at][:, None])


def _unpadded(packs):
    for i, (tokens, targets, ends) in enumerate(packs):
        yield tokens, targets, np.append(ends, ends[-1:].repeat(i % 2))


@pytest.mark.parametrize("fault, message", [
    ("seq_ends not of one size", "2 compilations instead of 1"),
    ("checkpoint", "the checkpoint differs from the model"),
    ("loss", "the held-out loss is not below the bigram's"),
    ("atb as good as exact", "the check of the gradients does not see the atb formula"),
])
def test_checks_can_fail(small, capsys, monkeypatch, fault, message):
    args = ["--text", "a.txt", "--steps", "3", "--save", "x.ckpt"]
    packs, save = demo.packs, ms.save_checkpoint
    monkeypatch.setattr(demo, "evaluate", lambda *_: 5.0)
    monkeypatch.setattr(demo, "check_gradients", lambda *_: (0.0, 0.0 if fault.startswith("atb") else 1.0))
    if fault == "checkpoint":
        monkeypatch.setattr(ms, "save_checkpoint", lambda model, path: save(demo.LanguageModel(demo.NoRope()), path))
    elif fault.startswith("seq_ends"):
        monkeypatch.setattr(demo, "packs", lambda *args: _unpadded(packs(*args)))
    elif fault == "loss":  # a full run, which the clock cuts after one step
        monkeypatch.setattr(demo, "MINUTES", 0)
        monkeypatch.setattr(demo, "own_documents", lambda: demo.read_documents(["a.txt"]))
        args = []
    assert main(["demo", *args]) == 1
    out = capsys.readouterr().out
    assert out.splitlines()[-1].startswith(f"FAIL: {message} (")
    assert ("Trained: 1 of 1600 steps (the time is over)" in out) == (fault == "loss")


@pytest.mark.parametrize("option, rotate, backward", [
    ([], demo.Rope, "RopeGradExact"), (["--formula", "atb"], demo.Rope, "RopeGrad"), (["--no-rope"], demo.NoRope, None)])
def test_options_reach_the_model(small, monkeypatch, option, rotate, backward):
    class Seen(Exception):
        pass

    def train(model, source, deadline):
        assert len(source) == 5
        for block in model.blocks:
            assert type(block.attention.rotate) is rotate and getattr(block.attention.rotate, "_formula_op", None) == backward
        raise Seen

    monkeypatch.setattr(demo, "train", train)
    with pytest.raises(Seen):
        main(["demo", "--text", "a.txt", "--steps", "5", *option])


# ---- the command line ----

@pytest.mark.parametrize("name, data, message", [
    ("missing.txt", None, "cannot read missing.txt: No such file or directory"),
    (".", None, "cannot read .: Is a directory"),
    ("empty.txt", b"", "empty.txt is empty"),
    ("blank.txt", b" \n\n", "blank.txt is empty"),
    ("a.bin", b"\x7fELF\0\1", "a.bin is not UTF-8 text"),
    ("utf16.txt", "text".encode("utf-16"), "utf16.txt is not UTF-8 text"),
    ("latin.txt", b"caf\xe9", "latin.txt is not UTF-8 text"),
    ("small.txt", b"word " * 100, "the text is too small: 500 bytes in documents of more than 16, but it takes 4096"),
])
def test_text_is_refused_in_one_line(in_tmp, capsys, name, data, message):
    if data is not None:
        Path(name).write_bytes(data)
    assert main(["demo", "--text", name]) == 2
    assert capsys.readouterr().err == f"ms_ropegrad demo: error: {message}\n"


def test_place_of_the_checkpoint_is_refused_at_once(in_tmp, capsys):
    assert main(["demo", "--save", "no/where"]) == 2
    assert capsys.readouterr().err == "ms_ropegrad demo: error: cannot write no/where.ckpt: No such file or directory\n"


@pytest.mark.parametrize("args", [["--steps", "0"], ["--steps", "x"], ["--seed", "-1"], ["--formula", "fast"], ["--text"], ["more"]])
def test_bad_options(args, capsys):
    with pytest.raises(SystemExit) as e:
        main(["demo", *args])
    assert e.value.code == 2 and "error: " in capsys.readouterr().err.splitlines()[-1]


def test_ctrl_c(in_tmp):
    run = command("--steps", "2000", "--save", "cut")
    for line in run.stdout:
        if line.startswith("step 1/"):
            break
    run.send_signal(signal.SIGINT)
    out, err = run.communicate(timeout=60)
    assert run.returncode == 130 and not err
    stopped, saved = out.splitlines()[-2:]
    assert re.fullmatch(r"Stopped: \d+ of 2000 steps \(interrupted\) in \d+ s, \d+ tokens/s, last training loss \d\.\d+ nats/byte", stopped)
    assert saved == "Saved cut.ckpt; loaded again into a new model: equal."


def finished(*args):
    run = command(*args)
    out, err = run.communicate(timeout=900)
    assert run.returncode == 0, out + err
    return out


@pytest.mark.slow
def test_full_run(in_tmp):
    out = finished()
    loss, bigram, unigram = map(float, re.search(r"Held-out loss (\S+) nats/byte; bigram (\S+), unigram (\S+)\n", out).groups())
    assert loss < bigram < unigram
    assert "Graph compilations of the training: 1 " in out


@pytest.mark.slow
def test_only_positions_get_there(in_tmp):
    """After the same short training, with Rope below the bigram's loss, with the identity instead far above Rope's."""
    with_rope, without = (finished("--steps", "300", *option) for option in ([], ["--no-rope"]))
    (loss, bigram), (other, _) = (map(float, re.search(r"Held-out loss (\S+) nats/byte; bigram (\S+),", out).groups())
                                  for out in (with_rope, without))
    assert loss < bigram and other > loss + 0.1
