# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
"""Has every error text of the package, its scripts and its C++ sources a row in docs/troubleshooting.md, and every row a text?

The texts are read from the sources, with "…" for what is known only when it happens. A row stands for every text that holds what stands
between its backticks.
"""
import ast
import re

from conftest import REPO

PYTHON = [*(REPO / "ms_ropegrad").glob("*.py"), *(REPO / "scripts").glob("*.py"), REPO / "setup.py"]
SHELL = [*(REPO / "scripts").glob("*.sh")]
CPP = [REPO / "op_impl/cpu/rope_native.cpp", *(REPO / "op_impl/op_host").glob("*.*"), *(REPO / "op_proto").glob("*.cpp")]

# What words a refusal: name -> (the frame, its first argument that fills it).
REFUSAL = "For '…', the {} must be {}, but got {}."
CALLS = {"_must": (REFUSAL, 1), "refuse": (REFUSAL, 1), "refuse_type": (REFUSAL, 1), "not_in_graph": (REFUSAL, 0), "no": ("{} {}", 0),
         "ArgumentTypeError": ("{}", 0)}
CPP_CALLS = {"Refuse": (REFUSAL + "{}", 1), "Must": (REFUSAL, 1)}


def fill(frame, choices):
    """The frame with every choice of its parts."""
    texts = [frame]
    for parts in choices:
        texts = [t.replace("{}", p, 1) for t in texts for p in parts]
    return [t.replace("{}", "…") for t in texts]


def values(node, names):
    """What a string expression can be, known constants of its function (``names``) put in."""
    if isinstance(node, ast.Constant):
        return [str(node.value)]
    if isinstance(node, ast.JoinedStr):
        return fill("{}" * len(node.values), [values(v, {}) for v in node.values])
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return fill("{}{}", [values(node.left, names), values(node.right, names)])
    if isinstance(node, ast.IfExp):
        return values(node.body, names) + values(node.orelse, names)
    return names.get(getattr(node, "id", None), ["…"])


def python_texts(source):
    tree = ast.parse(source)
    inside = {}  # node -> the function it stands in; the outer ones come first
    for function in [tree, *(n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef))]:
        inside.update((n, function) for n in ast.walk(function))
    names = {}  # function -> name -> what it may be
    for node, function in inside.items():
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            names.setdefault(function, {}).setdefault(node.targets[0].id, []).extend(values(node.value, {}))
    parts = {part for node in inside if isinstance(node, ast.JoinedStr) for part in node.values}
    for node, function in inside.items():
        known = names.get(function, {})
        if isinstance(node, ast.Call):
            func = getattr(node.func, "body", node.func)  # (refuse if ... else refuse_type)(...)
            name = getattr(func, "attr", getattr(func, "id", ""))
            stderr = any(k.arg == "file" and "stderr" in ast.unparse(k.value) for k in node.keywords)
            frame, first = CALLS.get(name, ("{}", 0) if stderr or ast.unparse(node.func) == "fails.append" else (None, 0))
            if frame:
                yield from fill(frame, [values(a, known) for a in node.args[first:]])
        elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
            yield from values(node.exc.args[0], known)
        elif isinstance(node, (ast.Constant, ast.JoinedStr)) and node not in parts:
            yield from (v for v in values(node, {}) if re.match(r" [A-Z].{12,}\.$", v))  # a hint that follows a refusal


def shell_texts(source):
    for text in re.findall(r'\bfail "((?:\\.|[^"\\])*)"', source) + re.findall(r'echo "((?:error|usage): (?:\\.|[^"\\])*)" >&2', source, re.I):
        yield re.sub(r"\$\{[^}]*\}|\$\([^)]*\)|\$\w+|\$\*", "…", text.replace("\\$", "$ "))


def cpp_parts(source, start):
    """The arguments of the call whose ``(`` stands at ``start``: their string literals, "…" for the rest."""
    tokens, depth, parts, part = re.compile(r'"((?:\\.|[^"\\])*)"|([(){}])|(,)|[^\s"(){},]+'), 0, [], ""
    for m in tokens.finditer(source, start):
        depth += (m[2] in ("(", "{")) - (m[2] in (")", "}")) if m[2] else 0
        if depth == 0 or m[3] and depth == 1:
            parts.append(part)
            part = ""
            if depth == 0:
                return parts
        elif m[1] is not None:
            part += m[1]
        elif m[0] != "+" and not m[2] and not m[3]:
            part += "…"


def cpp_texts(source):
    source = re.sub(r"//.*", "", source).replace("std::string(", "(")
    source = re.sub(r'Of\("(\w+)", [^)]*\)', r""" "\1 of '…'" """, source)
    source = re.sub(r"\bname\([^)]*\)", """ "'…'" """, source)
    for name, (frame, first) in CPP_CALLS.items():
        for m in re.finditer(rf"\b{name}\((?!Op op|const RopeOp)", source):  # not where it is defined
            parts = cpp_parts(source, m.end() - 1)
            yield from fill(frame, [[p] for p in parts[first:]])
    yield from re.findall(r'return "([a-z][^"]* [^"]*)";', source, re.I)
    yield from (p + "…" for p in re.findall(r'invalid_argument\(\("([^"]+)', source))


def texts():
    """text -> the file it stands in."""
    found = {}
    for files, read in ((PYTHON, python_texts), (SHELL, shell_texts), (CPP, cpp_texts)):
        for path in sorted(files):
            for text in read(path.read_text(encoding="utf-8")):
                text = re.sub("…+", "…", text.replace("{}", "…"))
                if re.search(r"[a-z]{2}", text.replace(fill(REFUSAL, [])[0], "")):  # words, not only those that frame the parts
                    found.setdefault(text, path.name)
    return found


def rows(name):
    """What stands between backticks in the first column of the tables (of the section of messages)."""
    text = (REPO / "docs" / name).read_text(encoding="utf-8").split("## Messages of MindSpore")[0]
    cells = [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| `")]
    return [row for cell in cells for row in re.findall(r"`+ ?(.+?) ?`+", cell)]


def holds(row, text):
    """A row that begins as refusals do is a whole text."""
    return row == text if row.startswith("For '") else re.search(".*".join(map(re.escape, row.split("…"))), text) is not None


def test_the_texts_are_found():
    """One of each kind of source and of wording, so that a collector that sees nothing cannot pass."""
    found = texts()
    for text in ("For '…', the rank of '…' must be 2, but got … with shape ….", "For '…', the sum of 'q_seq_len' must be n_tokens …, but got … from ….",
                 " Pass a Tensor in the call.", "the text is too small: … bytes in documents of more than …, but it takes …",
                 "For '…', ASCEND_OPP_PATH is not set: source set_env.sh of CANN before Python starts.", "… is a dangling link",
                 "must be an integer of at least …, but got …", "no Python 3.10, 3.11 or 3.12 found: install python3.11, or set PYTHON to one",
                 "the heads of q and k together are not in [2, 2^31)", "For '…', the platform information must be given to tiling, but got none."):
        assert any(text in f for f in found), text
    by_file = set(found.values())
    assert {"checks.py", "opp_verify.py", "lengths.py", "build_and_install.sh", "setup_venv.sh", "rope_native.cpp", "rope_shape.h"} <= by_file
    assert len(found) > 180


def test_every_text_has_its_row():
    known = rows("troubleshooting.md") + rows("ascend.md")
    missing = [f"{file}: {text}" for text, file in texts().items() if not any(holds(row, text) for row in known)]
    assert not missing, "add to docs/troubleshooting.md:\n" + "\n".join(missing)


def test_every_row_has_its_text():
    found = texts()
    given = rows("troubleshooting.md")
    assert len(given) == len(set(given)) > 100
    for row in given:
        assert row.startswith("For '") or set(re.findall(r"[A-Za-z_]{2,}", row)) - {"must", "be", "but", "got"}, f"too vague: {row}"
        assert any(holds(row, text) for text in found), f"nothing says: {row}"
