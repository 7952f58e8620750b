# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
"""docs/api.md from the signatures and docstrings of the package: python docs/make_api.py. A test compares."""
import inspect
import re
import sys
import textwrap
from pathlib import Path

SECTIONS = ("Args", "Inputs", "Outputs", "Returns", "Raises", "Supported Platforms", "Examples")
CLASSES = ("RotaryEmbedding", "Rope", "RopeGrad")
FUNCTIONS = ("rope", "rope_grad", "rope_tables", "check_lengths")
HEAD = """<!-- Copyright 2026 The ms_ropegrad Authors -->
<!-- SPDX-License-Identifier: Apache-2.0 -->
<!-- Made from the docstrings by python docs/make_api.py: change them, not this file. -->
# API

`from ms_ropegrad import NAME`. To look things up; [quick_start.md](quick_start.md) is to read.

| name | what it is |
|---|---|
"""
TAIL = """## Environment variables

| variable | |
|---|---|
| MS_ROPEGRAD_BACKEND | what computes on CPU: `auto` (default), `native` or `numpy`; `backend=` of the Cells comes first |
| MS_ROPEGRAD_THREADS, OMP_NUM_THREADS | threads of the native library, in this order; else one for each CPU of the process. NumPy heeds only the second |
| MS_ROPEGRAD_LIBRARY | another native library than the one in the package |
| MS_ROPEGRAD_VENV, PYTHON | of the scripts: where the virtual environment is, and the interpreter to make it with |
| MS_ROPEGRAD_VENDOR | of setup.py: a vendor directory to put into the wheel ([ascend.md](ascend.md)) |
| ASCEND_CUSTOM_OPP_PATH, ASCEND_OPP_PATH | where MindSpore looks for the Ascend operators ([ascend.md](ascend.md)) |
"""


def signature(function, name):
    def show(p):
        if p.default is p.empty:
            return p.name
        value = repr(p.default)
        return f"{p.name}={value if value[0] in chr(39) + '-0123456789' or value in ('None', 'True', 'False') else 'mindspore.' + str(p.default).lower()}"

    parts = []
    for p in inspect.signature(function).parameters.values():
        if p.kind is p.KEYWORD_ONLY and "*" not in parts:
            parts.append("*")
        if p.name != "self":
            parts.append(show(p))
    return textwrap.fill(f"{name}({', '.join(parts)})", 110, subsequent_indent=" " * (len(name) + 1), break_long_words=False)


def inline(text):
    """The roles and literals of a docstring in Markdown."""
    text = re.sub(r":(?:class|func):`(?:\w+\.)*(\w+)`", lambda m: f"[`{m[1]}`](#{'' if m[1][0].isupper() else 'function-'}{m[1].lower()})", text)
    text = re.sub(r"``(.+?)``", r"`\1`", text)
    return re.sub(r"(`(?:\]\(\S+\))?) ([.,;:)])", r"\1\2", text)  # docstrings need the blank, Markdown does not


def paragraphs(text):
    """Lines joined; math, warnings and lists as Markdown has them."""
    out = []
    for block in re.split(r"\n\n(?=\S|    \w+: |    \w+ = )", text.strip()):
        if block.startswith(".. math::"):
            lines = [line.strip() for line in re.split(r"\n\s*\n", block.partition("::")[2].strip())]
            out += [f"```math\n{line}\n```" for line in lines]
        elif block.startswith(".. warning::"):
            out.append("> **Warning.** " + inline(" ".join(block.partition("::")[2].split())))
        elif block.startswith("=====") or "\n    " in "\n" + block and not block.startswith("- "):  # a table or indented: as it is
            out.append("```text\n" + inspect.cleandoc(block) + "\n```")
        else:
            items = re.split(r"\n(?=- )", block)
            out.append("\n".join(inline(" ".join(item.split())) for item in items))
    return "\n\n".join(out)


def entries(text):
    """name (type): text, one a bullet."""
    out = []
    for entry in re.split(r"\n(?=\S)", text.strip()):
        name, _, rest = " ".join(entry.split()).partition(": ")
        name, _, kind = name.partition(" (")
        out.append(f"- **{name}**" + (f" ({kind[:-1]})" if kind else "") + f": {inline(rest)}")
    return "\n".join(out)


def parts(doc):
    """(the text before the sections, section -> its text)."""
    pieces = re.split(rf"^({'|'.join(SECTIONS)}):\n", inspect.cleandoc(doc), flags=re.M)
    return pieces[0], {name: inspect.cleandoc(text) for name, text in zip(pieces[1::2], pieces[2::2])}


def page(title, calls, doc):
    text, sections = parts(doc)
    out = [f"### {title}", "```text\n" + "\n".join(calls) + "\n```", paragraphs(text)]
    for name, body in sections.items():
        if name in ("Args", "Raises"):
            out += [f"**{name}**", entries(body)]
        elif name == "Examples":
            out.append(f"```pycon\n{body}\n```")
        elif name != "Supported Platforms":
            out += [f"**{name}**", paragraphs(body)]
    return "\n\n".join(out)


def summary(doc):
    text = " ".join(parts(doc)[0].split())
    return inline(text[:text.index(".", text.index(" ")) + 1] if "." in text else text)


def functions(module):
    return [f for name, f in vars(module).items() if inspect.isfunction(f) and f.__module__ == module.__name__
            and re.search(r"\n +Examples:", f.__doc__ or "")]


def text():
    import ms_ropegrad
    from ms_ropegrad import lengths, reference
    pages, index = [], []

    def add(title, anchor, calls, doc, name):
        pages.append(page(title, calls, doc))
        index.append(f"| [`{name}`](#{anchor}) | {summary(doc)} |")

    pages.append("## Cells")
    for name in CLASSES:
        cls = getattr(ms_ropegrad, name)
        call = signature(cls.construct, "")
        outputs = re.findall(r"\*\*(\w+)\*\*", parts(cls.__doc__)[1]["Outputs"])
        add(name, name.lower(), [signature(cls.__init__, name), f"  {call} -> ({', '.join(outputs)})"], cls.__doc__, name)
    pages.append("## Functions")
    for name in FUNCTIONS:
        function = getattr(ms_ropegrad, name)
        add(f"Function {name}", f"function-{name}", [signature(function, name)], function.__doc__, name)
    for module in (lengths, reference):
        short = module.__name__.split(".")[-1]
        pages.append(f"## {short}\n\n{paragraphs(inspect.cleandoc(module.__doc__))}")
        index.append(f"| [`{short}`](#{short}) | {summary(module.__doc__)} |")
        pages.extend(page(f"{short}.{f.__name__}", [signature(f, f"{short}.{f.__name__}")], f.__doc__) for f in functions(module))
    return HEAD + "\n".join(index) + "\n\n" + "\n\n".join(pages) + "\n\n" + TAIL


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))
    Path(__file__).with_name("api.md").write_text(text(), encoding="utf-8")
