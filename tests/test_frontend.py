# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
"""Does MindSpore's front end compile training with the Ascend operators? The graph holds them, each input in its place."""
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import mindspore as ms
from mindspore import Tensor, nn

from ms_ropegrad import Rope, RopeGrad, custom, spec

# name: (cell, operator of the forward, its gradient's, dtype of q and k, dtype of the tables)
CASES = {
    "Rope": (Rope, {}, "RopeForward", "RopeGradExact", "float32", "float32"),
    "Rope, lengths and bfloat16": (Rope, {}, "RopeForward", "RopeGradExact", "bfloat16", "float32"),
    "Rope, atb": (Rope, {"grad_formula": "atb"}, "RopeForward", "RopeGrad", "float16", "float16"),
    "RopeGrad": (RopeGrad, {}, "RopeGrad", "RopeGrad", "float16", "float16"),
    "RopeGrad, exact": (RopeGrad, {"formula": "exact"}, "RopeGradExact", "RopeForward", "float16", "float32"),
}


class Net(nn.Cell):
    """q and k have one shape: only their order tells them apart."""

    def __init__(self, op, dtype, as_lengths):
        super().__init__()
        self.wq = nn.Dense(64, 256, has_bias=False)
        self.wk = nn.Dense(64, 256, has_bias=False)
        self.op, self.dtype, self.as_lengths = op, dtype, as_lengths

    def construct(self, x, cos, sin, numbers):
        q, k = self.wq(x).astype(self.dtype), self.wk(x).astype(self.dtype)
        if self.as_lengths:
            q, k = self.op(q, k, cos, sin, q_seq_len=numbers)
        else:
            q, k = self.op(q, k, cos, sin, seq_ends=numbers)
        return (q * q).sum() + (k * k * k).sum()


def compile_all():
    """A training step of each case with the Ascend operators. The target stays CPU: only the front end runs."""
    custom.device = lambda: "Ascend"
    custom.opp.require = lambda op: None  # there is no vendor package here
    ms.set_context(mode=ms.GRAPH_MODE)
    for name, (cell, args, _, _, x, table) in CASES.items():
        net = Net(cell(**args), getattr(ms, x), "lengths" in name)
        step = nn.TrainOneStepCell(net, nn.SGD(net.trainable_params(), 0.1))
        cos, sin = (Tensor(np.full((64, 128), v), getattr(ms, table)) for v in (1, 0))
        step(Tensor(np.ones((11, 64)), ms.float32), cos, sin, Tensor([2, 3, 7, 11], ms.int32))


class Graph:
    """A dumped graph without subgraphs: number -> (operator, inputs, attributes, types of the inputs and outputs)."""

    def __init__(self, path):
        text = path.read_text()
        assert "# Total subgraphs: 1\n" in text
        lines = re.findall(r"^  %(\d+)\([^)]*\) = (\w+)\((.*)\n +: (.*)$", text, re.M)
        self.nodes = {}
        for n, op, line, types in lines:
            args, *rest = re.split(r"\) (?=primitive_attrs|cnode_attrs|\{instance)", line, maxsplit=1)
            self.nodes[n] = op, re.findall(r"%([\w.]+)|I64\((\d+)\)", args), "".join(rest), types

    def operators(self):
        """(operator, number) of every Custom, in the order of the graph."""
        return [(re.search(r'reg_op_name: "(\w+)"', rest)[1], n) for n, (op, _, rest, _) in self.nodes.items() if op == "Custom"]

    def inputs(self, n):
        return [a or int(b) for a, b in self.nodes[n][1]]

    def sources(self, n):
        """Where a value comes from: parameters of the graph, and (number, index) for an output of a Custom."""
        if n not in self.nodes:
            return {n}
        op = self.nodes[n][0]
        inputs = self.inputs(n)
        if op == "TupleGetItem" and self.nodes[inputs[0]][0] == "Custom":
            return {tuple(inputs)}
        return set().union(*(self.sources(i) for i in inputs if isinstance(i, str)))

    def path(self, n):
        """The operators on the way up from a node with one source."""
        return [self.nodes[n][0], *self.path(self.inputs(n)[0])] if n in self.nodes else []


@pytest.fixture(scope="module")
def graphs(tmp_path_factory):
    """The graphs of all cases after the front end's last pass, from one process that compiles and runs nothing."""
    out = tmp_path_factory.mktemp("frontend")
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parent.parent), "MS_DEV_PRECOMPILE_ONLY": "1",
           "MS_DEV_SAVE_GRAPHS": "1", "MS_DEV_SAVE_GRAPHS_PATH": str(out)}
    run = subprocess.run([sys.executable, __file__], cwd=out, env=env, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert not (out / "custom_kernel_meta").exists()  # nothing was generated for a device
    paths = sorted(out.rglob("*_validate_*.ir"), key=lambda p: int(p.stem.split("_")[-1]))
    assert len(paths) == len(CASES)
    return dict(zip(CASES, map(Graph, paths)))


@pytest.mark.parametrize("case", CASES)
def test_training_step_holds_the_operators_with_their_inputs_in_order(graphs, case):
    _, _, forward, backward, x, table = CASES[case]
    graph = graphs[case]
    ops = graph.operators()
    assert [op for op, _ in ops] == [forward, backward]  # data flows downwards: the forward comes first
    first, second = (n for _, n in ops)

    q, k, *rest = graph.inputs(first)
    assert graph.sources(q) == {"para1_inputs0", "para5_wq.weight"}
    assert graph.sources(k) == {"para1_inputs0", "para6_wk.weight"}
    assert rest[:2] == ["para2_inputs1", "para3_inputs2"]
    assert graph.sources(rest[2]) == {"para4_inputs3"}
    assert any("CumSum" in op for op in graph.path(rest[2])) == ("lengths" in case)

    q_grad, k_grad, *same = graph.inputs(second)
    assert graph.sources(q_grad) == {(first, 0)}  # d(sum q^2) = 2q, d(sum k^3) = 3k^2: each gradient comes from its own output
    assert graph.sources(k_grad) == {(first, 1)}
    assert same == rest

    for weight, i in (("para5_wq.weight", 0), ("para6_wk.weight", 1)):
        update = next(n for n, (op, *_) in graph.nodes.items() if op == "SGD" and graph.inputs(n)[0] == weight)
        assert graph.sources(graph.inputs(update)[1]) == {"para1_inputs0", (second, i)}

    for n in first, second:  # no casts around: the operators take these dtypes themselves
        kinds = re.findall(r"Tensor\[(\w+)\]", graph.nodes[n][3])
        assert [d.lower() for d in kinds] == [x, x, table, table, "int32"] + [x] * (len(kinds) - 5)


@pytest.mark.parametrize("op", spec.OPS)
@pytest.mark.parametrize("grad_op", spec.OPS)
def test_ascend_operator_is_the_right_custom(monkeypatch, op, grad_op):
    monkeypatch.setattr(custom, "device", lambda: "Ascend")
    monkeypatch.setattr(custom.opp, "require", lambda op: None)
    prim = custom.primitive(op, grad_op)
    assert prim is custom.primitive(op, grad_op)  # one per device, operator and gradient
    inputs, outputs = spec.OPS[op]
    assert (prim.func, prim.func_type, prim.reg_op_name) == (op, "aot", op)
    assert (prim.input_names, prim.output_names) == (list(inputs), list(outputs))
    assert prim.reg_info["dtype_format"] == custom.reg_info(op)["dtype_format"]
    shapes = [(11, 256), (11, 128), (64, 128), (64, 128), (4,)]
    assert prim.out_shape(*shapes) == prim.out_dtype(*shapes) == tuple(shapes[:2])
    assert list(inspect.signature(prim.bprop).parameters)[5:] == ["out", "dout"]


def test_bprop_calls_the_gradient_operator_and_its_adjoint(monkeypatch):
    called = []

    def primitive(op, grad_op, backend):
        return lambda *inputs: called.append((op, grad_op, inputs)) or inputs[:2]

    bprop = custom._bprop("RopeGradExact")
    monkeypatch.setattr(custom, "primitive", primitive)
    q, k, cos, sin, ends, g_q, g_k = (Tensor([i, i], ms.float32) for i in range(7))
    grads = bprop(q, k, cos, sin, ends, (q, k), (g_q, g_k))
    (op, second, inputs), = called
    assert (op, second) == ("RopeGradExact", "RopeForward")
    assert [int(t[0]) for t in inputs] == [5, 6, 2, 3, 4]
    assert [int(t[0]) for t in grads] == [5, 6, 0, 0, 0]


if __name__ == "__main__":
    compile_all()
