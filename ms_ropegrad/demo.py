# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
"""A GRAPH_MODE training on packed real text: what `python -m ms_ropegrad demo` and examples/train_packed_lm.py run.

A byte-level language model (decoder only, 2 q heads and 1 k head) learns the documents that every Python ships. They are packed
without padding: every step takes N_TOKENS tokens in sequences of ever other lengths, and one graph takes them all.
"""
import math
import os
import signal
import time
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import numpy as np
import mindspore as ms
from mindspore import Tensor, nn, ops
from mindspore.common.initializer import Normal
from mindspore.dataset import GeneratorDataset
from mindspore.train import Callback, Model

from . import custom, spec
from .cells import Rope
from .lengths import ends_from_lengths
from .tables import rope_tables

N_TOKENS = 512  # tokens of a step
LONGEST, SHORTEST = 256, 16  # tokens of a sequence; only at a step's edges a document is cut shorter
BATCH = N_TOKENS // SHORTEST + 1  # the most sequences N_TOKENS can hold: seq_ends is padded to it
HEAD_SIZE, N_HEADS, N_LAYERS, MLP_SIZE = 128, 2, 2, 512
HIDDEN_SIZE = N_HEADS * HEAD_SIZE
HELD_PACKS = 128  # at most: the user's text may be large
STEPS, MINUTES = 1600, 3.75  # whichever ends first
PEAK_LR, WARM_UP = 3e-3, 0.05
TOLERANCE = 1e-4  # gradients in float32 that differ in the order of their sums

_compilations = []


class UserError(Exception):
    """Told to the user in one line."""


def say(*words):
    print(*words, flush=True)


# ---- documents ----

def own_documents():
    """The topics of pydoc, without those that mostly repeat longer ones and would leak into the held-out part."""
    from pydoc_data.topics import topics
    seen, documents = set(), []
    for text in sorted(topics.values(), key=lambda t: (-len(t), t)):
        paragraphs = [p for p in text.split("\n\n") if len(p) > 60]
        if sum(len(p) for p in paragraphs if p in seen) * 3 <= len(text):
            seen.update(paragraphs)
            documents.append(text.encode())
    return documents


def read_documents(paths):
    documents = []
    for path in paths:
        try:
            data = Path(path).read_bytes()
        except OSError as e:
            raise UserError(f"cannot read {path}: {e.strerror}") from e
        if not data.strip():
            raise UserError(f"{path} is empty")
        try:
            if "\0" in data.decode():
                raise ValueError
        except ValueError:
            raise UserError(f"{path} is not UTF-8 text") from None
        documents.append(data)
    return documents


def split(documents, rng):
    """Hold out whole documents, about a tenth of the bytes; the end of the longest when they are too few or too long for that."""
    documents = [d for d in documents if len(d) > SHORTEST]
    size, least = sum(map(len, documents)), 8 * N_TOKENS
    if size < least:
        raise UserError(f"the text is too small: {size} bytes in documents of more than {SHORTEST}, but it takes {least}")
    want = max(size // 10, N_TOKENS + len(documents))  # every document's first byte has nothing to be predicted from
    train, held, got = [], [], 0
    for i in rng.permutation(len(documents)):
        short = got < want and len(documents[i]) <= size // 5
        got += len(documents[i]) if short else 0
        (held if short else train).append(documents[i])
    if got < want:
        longest = train.pop(max(range(len(train)), key=lambda i: len(train[i])))
        train.append(longest[:got - want])
        held.append(longest[got - want:])
    return train, held


# ---- packing ----

def packs(documents, rng, epochs):
    """
    Yield (tokens, targets, seq_ends): N_TOKENS tokens without padding; seq_ends repeats the last end up to BATCH.

    A document of at most LONGEST tokens is one sequence; a longer one, or one cut at the end of a pack, goes on as a new
    sequence later. Every byte is a target once an epoch; only what does not fill the very last pack is dropped.
    """
    tokens, targets, lengths = [], [], []
    for _ in range(epochs):
        left = np.array([len(d) - 1 for d in documents])
        cut = None
        while left.any():
            i = rng.choice(len(left), p=left / left.sum()) if cut is None else cut
            n = left[i] if left[i] <= LONGEST else rng.integers(LONGEST // 4, LONGEST - SHORTEST + 1)
            room = N_TOKENS - sum(lengths)
            cut, n = (i, room) if n > room else (None, n)
            data = np.frombuffer(documents[i], np.uint8, n + 1, len(documents[i]) - 1 - left[i]).astype(np.int32)
            tokens.append(data[:-1])
            targets.append(data[1:])
            lengths.append(n)
            left[i] -= n
            if n == room:
                ends = ends_from_lengths(np.array(lengths))
                yield np.concatenate(tokens), np.concatenate(targets), np.pad(ends, (0, BATCH - len(ends)), "edge")
                tokens, targets, lengths = [], [], []


def ngram_losses(documents, held_packs):
    """Cross-entropy in nats a byte of the documents' unigrams and bigrams, on the targets that the model is judged by."""
    pairs = np.zeros(256 * 256)
    for document in documents:
        data = np.frombuffer(document, np.uint8).astype(np.uint16)
        pairs += np.bincount(data[:-1] * 256 + data[1:], minlength=256 * 256)
    pairs = pairs.reshape(256, 256)
    unigram = (pairs.sum(0) + 0.01) / (pairs.sum() + 2.56)
    bigram = (pairs + unigram) / (pairs.sum(1, keepdims=True) + 1)
    before, byte = (np.concatenate(x) for x in list(zip(*held_packs))[:2])
    return -np.log(unigram[byte]).mean(), -np.log(bigram[before, byte]).mean()


# ---- model ----

@ops.constexpr(check=False)
def _count_compilation():
    """Runs when a graph is compiled, not when it is run."""
    _compilations.append(time.time())


class BuiltinRope(nn.Cell):
    """The same rotation from MindSpore's own operators and autodiff, to check against."""

    def construct(self, q, k, cos, sin, q_seq_len=None, seq_ends=None):
        at = ops.arange(q.shape[0])
        start = ops.where(at[:, None] >= seq_ends[None, :], seq_ends[None, :], ops.zeros_like(seq_ends)[None, :]).max(1)
        cos, sin = cos[at - start][:, None], sin[at - start][:, None]
        return self.rotate(q, cos, sin), self.rotate(k, cos, sin)

    def rotate(self, x, cos, sin):
        y = x.reshape(x.shape[0], -1, HEAD_SIZE)
        half = HEAD_SIZE // 2
        return (y * cos + ops.cat((-y[..., half:], y[..., :half]), -1) * sin).reshape(x.shape)


class NoRope(nn.Cell):
    def construct(self, q, k, cos, sin, q_seq_len=None, seq_ends=None):
        return q, k


def linear(n_in, n_out, scale=1.0):
    return nn.Dense(n_in, n_out, Normal(scale / math.sqrt(n_in)), has_bias=False)


class Attention(nn.Cell):
    def __init__(self, rotate):
        super().__init__()
        self.wq = linear(HIDDEN_SIZE, HIDDEN_SIZE)
        self.wk = linear(HIDDEN_SIZE, HEAD_SIZE)
        self.wv = linear(HIDDEN_SIZE, HEAD_SIZE)
        self.wo = linear(HIDDEN_SIZE, HIDDEN_SIZE, 0.5)
        self.rotate = rotate
        self.cos, self.sin = rope_tables(N_TOKENS, HEAD_SIZE, dtype=ms.float32)

    def construct(self, x, mask, seq_ends):
        n = x.shape[0]
        q, k = self.rotate(self.wq(x), self.wk(x), self.cos, self.sin, seq_ends=seq_ends)
        q = q.reshape(n, N_HEADS, HEAD_SIZE).transpose(1, 0, 2).reshape(-1, HEAD_SIZE)
        score = ops.matmul(q, k.transpose(1, 0)).reshape(N_HEADS, n, n) / math.sqrt(HEAD_SIZE)
        y = ops.matmul(ops.softmax(score + mask, -1).reshape(-1, n), self.wv(x))
        return self.wo(y.reshape(N_HEADS, n, HEAD_SIZE).transpose(1, 0, 2).reshape(n, -1))


class Block(nn.Cell):
    def __init__(self, rotate):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm((HIDDEN_SIZE,)), nn.LayerNorm((HIDDEN_SIZE,))
        self.attention = Attention(rotate)
        self.up, self.down = linear(HIDDEN_SIZE, MLP_SIZE), linear(MLP_SIZE, HIDDEN_SIZE, 0.5)

    def construct(self, x, mask, seq_ends):
        x = x + self.attention(self.norm1(x), mask, seq_ends)
        return x + self.down(ops.relu(self.up(self.norm2(x))))


class LanguageModel(nn.Cell):
    """(tokens, targets, seq_ends) -> mean loss in nats a byte. ``rotate`` is called as :class:`Rope` is."""

    def __init__(self, rotate):
        super().__init__()
        self.embedding = nn.Embedding(256, HIDDEN_SIZE, embedding_table=Normal(1.0))
        self.blocks = nn.CellList([Block(rotate) for _ in range(N_LAYERS)])
        self.norm = nn.LayerNorm((HIDDEN_SIZE,))
        self.head = linear(HIDDEN_SIZE, 256, 0.5)

    def construct(self, tokens, targets, seq_ends):
        _count_compilation()
        at = ops.arange(tokens.shape[0])
        sequence = (at[:, None] >= seq_ends[None, :]).astype(ms.int32).sum(1)
        seen = ops.logical_and(sequence[:, None] == sequence[None, :], at[:, None] >= at[None, :])
        mask = (1 - seen.astype(ms.float32)) * -1e9
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, mask, seq_ends)
        return ops.cross_entropy(self.head(self.norm(x)), targets)


# ---- training ----

class Progress(Callback):
    """The learning rate's schedule, the lines of progress and the end: by steps, by the clock or by an interrupt."""

    def __init__(self, optimizer, n_steps, deadline):
        super().__init__()
        self.optimizer, self.n_steps, self.deadline = optimizer, n_steps, deadline
        self.step, self.loss, self.losses, self.reason = 0, math.nan, [], ""
        self.start = self.first_end = self.shown = time.time()

    def on_train_step_begin(self, run_context):
        # Warm-up and cosine over the share of the run that is done, so that a run cut by the clock anneals fully too.
        done = max(self.step / self.n_steps, (time.time() - self.start) / max(self.deadline - self.start, 1e-9))
        warm_up = min(1, (self.step + 1) / (WARM_UP * self.n_steps))
        rate = PEAK_LR * warm_up * (1 + math.cos(math.pi * min(done, 1))) / 2
        self.optimizer.learning_rate.set_data(Tensor(rate, ms.float32))

    def on_train_step_end(self, run_context):
        self.losses.append(float(run_context.original_args().net_outputs.asnumpy()))
        self.step += 1
        now = time.time()
        if self.step == 1:
            self.first_end = now
            say(f"First step after {now - self.start:.1f} s, most of it compilation.")
        if self.step in (1, self.n_steps) or now - self.shown > 10:
            self.loss, self.losses, self.shown = float(np.mean(self.losses)), [], now
            say(f"step {self.step}/{self.n_steps}  loss {self.loss:.3f} nats/byte  {self.speed():.0f} tokens/s")
        if self.step < self.n_steps and now > self.deadline:
            self.reason = "the time is over"
        if self.reason:
            run_context.request_stop()

    def interrupt(self, *_):
        if self.reason:  # the second does not wait
            stop_now()
        self.reason = "interrupted"

    def speed(self):
        return (self.step - 1) * N_TOKENS / max(time.time() - self.first_end, 1e-9)

    def summary(self):
        loss = float(np.mean(self.losses)) if self.losses else self.loss
        return (f"{self.step} of {self.n_steps} steps" + (f" ({self.reason})" if self.reason else "") +
                f" in {time.time() - self.start:.0f} s, {self.speed():.0f} tokens/s, last training loss {loss:.3f} nats/byte")


def stop_now(*_):
    say("Stopped: interrupted.")
    os._exit(130)  # a KeyboardInterrupt inside a compilation would come out as a page of MindSpore's errors


@contextmanager
def on_interrupt(handler):
    """Ctrl-C comes as SIGINT, or as the SIGTERM that MindSpore makes of it once a graph has run."""
    before = {s: signal.signal(s, handler) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for s, old in before.items():
            signal.signal(s, old)


def train(model, source, deadline=math.inf):
    """Train on the packs of ``source``, one a step; Ctrl-C ends it after the step."""
    optimizer = nn.AdamWeightDecay(model.trainable_params(), PEAK_LR, beta2=0.98, weight_decay=0.1)
    dataset = GeneratorDataset(source, ["tokens", "targets", "seq_ends"], shuffle=False)
    progress = Progress(optimizer, len(source), deadline)
    with on_interrupt(progress.interrupt):
        Model(model, optimizer=optimizer).train(1, dataset, callbacks=[progress], dataset_sink_mode=False)
    return progress


def evaluate(model, source):
    model.set_train(False)
    return float(np.mean([model(*map(Tensor, pack)).asnumpy() for pack in source]))


def check_gradients(model, pack):
    """Gradients of wq and wk by Rope, by Rope with formula atb and by built-in operators: print and return the worst error."""
    def gradients(rotate):
        net = LanguageModel(rotate)
        ms.load_param_into_net(net, {p.name: p for p in model.get_parameters()})
        weights = [w.weight for b in net.blocks for w in (b.attention.wq, b.attention.wk)]
        return [g.asnumpy() for g in ms.grad(net, None, ms.ParameterTuple(weights))(*map(Tensor, pack))]

    truth, exact, atb = gradients(BuiltinRope()), gradients(Rope()), gradients(Rope(grad_formula="atb"))
    say("Gradients against autodiff of built-in operators, max error / max value:     exact       atb")
    worst = [0.0, 0.0]
    for i, want in enumerate(truth):
        errors = [float(np.abs(g - want).max() / np.abs(want).max()) for g in (exact[i], atb[i])]
        worst = [max(w, e) if e == e else math.inf for w, e in zip(worst, errors)]
        say(f"  layer {i // 2} {'wk' if i % 2 else 'wq'} {errors[0]:>68.1e} {errors[1]:>9.1e}")
    return worst


def save(model, path):
    ms.save_checkpoint(model, str(path))
    saved, new = ms.load_checkpoint(str(path)), LanguageModel(Rope())
    missing = sum(map(len, ms.load_param_into_net(new, saved)))
    same = all(np.array_equal(a.asnumpy(), b.asnumpy()) for a, b in zip(model.get_parameters(), new.get_parameters()))
    say(f"Saved {path}; loaded again into a new model: {'equal' if same and not missing else 'FAIL, it differs'}.")
    return same and not missing


@on_interrupt(stop_now)
def run(text=None, formula="exact", no_rope=False, steps=None, seed=0, save_to=None):
    """The job of the command line; returns the exit code."""
    begin = time.time()
    if save_to is not None:
        save_to = Path(save_to if str(save_to).endswith(".ckpt") else f"{save_to}.ckpt")  # as MindSpore names it
        try:  # now, not after the training
            new = not save_to.exists()
            save_to.open("ab").close()
            if new:
                save_to.unlink()
        except OSError as e:
            raise UserError(f"cannot write {save_to}: {e.strerror}") from e
    rng = np.random.default_rng(seed)
    documents, held = split(read_documents(text) if text else own_documents(), rng)
    held_packs = list(islice(packs(held, np.random.default_rng(seed), 1), HELD_PACKS))
    n_steps = steps or STEPS
    source = list(islice(packs(documents, rng, n_steps * N_TOKENS // (sum(map(len, documents)) - len(documents)) + 2), n_steps))
    unigram, bigram = ngram_losses(documents, held_packs)

    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_seed(seed)
    model = LanguageModel(NoRope() if no_rope else Rope(grad_formula=formula))
    backend = custom.primitive("RopeForward", spec.FORMULAS[formula]).func_type
    say(f"Device {custom.device()}, GRAPH_MODE, MindSpore {ms.__version__}; "
        + ("no rotation (Rope is the identity)" if no_rope else f"Rope: ops.Custom {backend}, backward {formula}"))
    say(f"{sum(p.size for p in model.get_parameters())} parameters; {len(documents)} documents of {sum(map(len, documents))} bytes "
        f"to train on, {len(held)} of {sum(map(len, held))} held out")
    lists = {tuple(dict.fromkeys(ends.tolist())) for _, _, ends in source}
    say(f"{len(source)} packs of {N_TOKENS} tokens with {len(lists)} different lists of lengths, such as "
        + ", ".join(str(np.diff(sorted(set(ends.tolist())), prepend=0).tolist()) for _, _, ends in source[:3]))

    compiled = len(_compilations)
    progress = train(model, source, math.inf if steps else begin + 60 * MINUTES)
    compiled = len(_compilations) - compiled
    stopped = progress.reason == "interrupted"
    say(f"{'Stopped' if stopped else 'Trained'}: {progress.summary()}")
    fails = []
    if save_to is not None and not save(model, save_to):
        fails.append("the checkpoint differs from the model")
    if stopped:
        return 130
    say(f"Graph compilations of the training: {compiled} (the evaluation compiles a graph of its own, the check below three)")
    if compiled != 1:
        fails.append(f"{compiled} compilations instead of 1")
    loss = evaluate(model, held_packs)
    say(f"Held-out loss {loss:.3f} nats/byte; bigram {bigram:.3f}, unigram {unigram:.3f}")
    if not (steps or text or no_rope or formula == "atb") and not loss < bigram:  # the others promise nothing
        fails.append("the held-out loss is not below the bigram's")
    if not no_rope:
        exact, atb = check_gradients(model, held_packs[0])
        if not exact < TOLERANCE:
            fails.append(f"the gradients differ from autodiff by more than {TOLERANCE}")
        if not atb > 10 * TOLERANCE:
            fails.append("the check of the gradients does not see the atb formula")
    say(f"{'FAIL: ' + '; '.join(fails) if fails else 'OK'} ({time.time() - begin:.0f} s in all)")
    return 1 if fails else 0
