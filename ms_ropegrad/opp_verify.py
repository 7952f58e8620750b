# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
"""Is a vendor package (OPP directory) sound? Checked without CANN: its files against each other, our operators and this machine."""
import hashlib
import json
import os
import platform
import re
import stat
import struct
import zlib
from pathlib import Path

from . import __version__, spec

STAMP = "ms_ropegrad.version"  # in the vendor directory: what it was built from
_ROOT = Path(__file__).resolve().parent.parent
_TBE = "op_impl/ai_core/tbe"
_MACHINES = {62: "x86_64", 183: "aarch64", 0x1029: "Ascend"}


def stamp():
    """What a vendor package must be built from: this version and, in a checkout, these sources."""
    places = [f"{d}/[a-z]*{end}" for d in ("op_impl/op_host", "op_impl/op_kernel", "op_proto") for end in (".cpp", ".h")]
    sources = [p.read_bytes() for place in places for p in sorted(_ROOT.glob(place))]
    return f"{__version__} {zlib.crc32(b''.join(sources)):08x}" if sources else f"{__version__} "


def table():
    """op type -> (inputs, outputs, rows of dtypes) of our operators."""
    rows = [(x, x, t, t, spec.SEQ_ENDS_DTYPE, x, x) for x, t in spec.DTYPE_PAIRS]
    return {op: (*names, rows) for op, names in spec.OPS.items()}


def _bytes(file):
    """Its content; reading a pipe would wait forever."""
    if not stat.S_ISREG(os.stat(file).st_mode):
        raise ValueError("is not a file")
    return Path(file).read_bytes()


def elf(file):
    """(machine, exported names) of a 64-bit ELF file; ValueError says why it is none."""
    data = _bytes(file)
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError("is not a 64-bit ELF file")
    exported = set()
    try:
        machine, at, size, number = (struct.unpack_from(f, data, o)[0] for f, o in (("<H", 18), ("<Q", 40), ("<H", 58), ("<H", 60)))
        sections = [struct.unpack_from("<IIQQQQI", data, at + i * size) for i in range(number)]
        if any(kind != 8 and start + length > len(data) for _, kind, _, _, start, length, _ in sections):  # 8: no bytes in the file
            raise IndexError
        for _, _, _, _, start, length, link in [s for s in sections if s[1] == 11][:1]:  # the dynamic symbols
            for name, info, visibility, section, _, _ in struct.iter_unpack("<IBBHQQ", data[start:start + length]):
                if section and info >> 4 and visibility & 3 in (0, 3):  # defined here, not local, not hidden
                    name += sections[link][4]
                    exported.add(data[name:data.index(b"\0", name)].decode())
    except (struct.error, IndexError, OverflowError, ValueError):
        raise ValueError("is truncated or damaged") from None
    return _MACHINES.get(machine, f"ELF machine {machine:#x}"), exported


def verify(directory, ops=None, socs=(), machine=None, ours=True, here=False):
    """What is wrong with a vendor directory, one line each; nothing when it is sound.

    Args:
        ops: op type -> (inputs, outputs, rows of dtypes), our table if None; with ``ours`` False the package's own ops.
        socs: those it must serve; all that it has are checked.
        machine: x86_64 or aarch64; this one if None.
        ours: also our stamp and SoCs; False for the package of any vendor.
        here: only what an operator needs that is called on one of ``socs``.
    """
    check = _Check(Path(directory), machine or platform.machine())
    try:
        if check.root.is_dir():
            check.all(ops or (table() if ours else None), socs, ours, here)
        else:
            check.no(directory, "is not a directory")
    except OSError as e:  # forbidden, or changed by somebody meanwhile
        check.no(e.filename or directory, f"cannot be read: {e.strerror}")
    return check.problems


class _Check:
    def __init__(self, root, machine):
        self.root, self.machine, self.problems = root, machine, []

    def no(self, what, why):
        line = "".join(c if c.isprintable() else " " for c in f"{what} {why}")
        self.problems.append(line if len(line) < 1000 else line[:1000] + " ...")

    def read(self, name, parse):
        """parse(path) of a file in the package, or None and a problem."""
        try:
            return parse(self.root / name)
        except FileNotFoundError:
            self.no(name, "is a dangling link" if (self.root / name).is_symlink() else "is missing")
        except OSError as e:
            self.no(name, f"cannot be read: {e.strerror}")
        except json.JSONDecodeError as e:
            self.no(name, f"is not JSON: {e}")
        except UnicodeDecodeError:
            self.no(name, "is not UTF-8 text")
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as e:
            self.no(name, str(e) if type(e) is ValueError else f"has not the form of such a file: {e!r}")
        return None

    def text(self, name):
        return self.read(name, lambda p: _bytes(p).decode())

    def json(self, name, parse):
        return self.read(name, lambda p: parse(json.loads(_bytes(p).decode())))

    def elf(self, name, machine):
        found = self.read(name, elf)
        if found and found[0] != machine:
            self.no(name, f"is for {found[0]}, but must be for {machine}")
        return found

    def all(self, ops, socs, ours, here):
        if not here:
            self.permissions()
            version = self.text("version.info")
            if version is not None and not re.search(r"^custom_opp_compiler_version=\S", version, re.M):
                self.no("version.info", "names no custom_opp_compiler_version")
        if ours:
            built = self.text(STAMP)
            if built is not None and not built.startswith(stamp()):
                self.no("it", f"is stale: built from '{built.strip()}', but this is '{stamp().strip()}'")
        found = sorted(p.name for p in self.root.glob(f"{_TBE}/config/*"))
        if ours or socs:
            for name in (s for s in socs or found[:1] or spec.SOCS[:1] if s not in found):
                self.no("it", f"is not built for {name}, only for {', '.join(found) or 'nothing'}")
        for name in (n for n in found if ours and n not in spec.SOCS):
            self.no("it", f"is built for {name}, but the operators are for {', '.join(spec.SOCS)}")
        for name in (n for n in found if n in socs or not (here and socs)):
            given = self.soc(name, ops)
            ops = ops or given
        if not ops:
            return self.no(f"{_TBE}/config", "has no operators")
        self.libraries(ops)
        for op, (inputs, outputs, _) in ops.items():
            self.header(op, inputs, outputs)
        if not here:
            self.for_graphs(ops)

    def for_graphs(self, ops):
        """What only GE and other frameworks read."""
        proto = self.text("op_proto/inc/op_proto.h")
        for op, (inputs, outputs, _) in ops.items():
            given = proto and re.search(rf"REG_OP\({op}\)(.*?)OP_END_FACTORY_REG\({op}\)", proto, re.S)
            if proto is not None and (not given or re.findall(r"\.(?:INPUT|OUTPUT)\((\w+)", given[1]) != [*inputs, *outputs]):
                self.no("op_proto/inc/op_proto.h", f"must register {op} with {', '.join((*inputs, *outputs))} in this order")
            for suffix in ("py", "cpp"):
                if not list(self.root.glob(f"{_TBE}/*_impl/dynamic/**/{spec.op_file(op)}.{suffix}")):
                    self.no(f"{_TBE}/<vendor>_impl/dynamic/{spec.op_file(op)}.{suffix}", "is missing: no source package")
        lists = sorted(self.root.glob("framework/*/npu_supported_ops.json"))
        for file in lists or [self.root / "framework/<framework>/npu_supported_ops.json"]:
            file = str(file.relative_to(self.root))
            found = self.json(file, set)
            for op in (op for op in ops if found is not None and op not in found):  # CANN writes other names, too
                self.no(file, f"does not name {op}")

    def permissions(self):
        for path in (self.root, *self.root.rglob("*")):
            name, mode = path.relative_to(self.root), path.lstat().st_mode
            if stat.S_ISLNK(mode) and path != self.root:
                if os.path.isabs(os.readlink(path)):
                    self.no(name, "is an absolute link: it breaks when the package moves")
                elif os.path.commonpath([os.path.realpath(self.root), os.path.realpath(path)]) != os.path.realpath(self.root):
                    self.no(name, "is a link out of the package")
            elif stat.S_ISREG(mode):
                if not mode & 0o400:
                    self.no(name, "is not readable")
            elif not path.is_dir():
                self.no(name, "is neither a file nor a directory")
            elif path.stat().st_mode & 0o700 != 0o700:
                self.no(name, "is not the owner's to enter and remove")

    def names(self, file, found, ops):
        if found is not None and set(found) != set(ops):
            self.no(file, f"has the operators {', '.join(sorted(found)) or 'none'}, but must have {', '.join(sorted(ops))}")

    def soc(self, name, ops):
        """The operators of a SoC and their kernels. Returns the operators that its ops-info gives."""
        file = f"{_TBE}/config/{name}/aic-{name}-ops-info.json"
        given = self.json(file, lambda content: {_name(op): _signature(info) for op, info in content.items()})
        if given is None:
            return None
        ops = ops or given
        self.names(file, given, ops)
        for op in (op for op in ops if op in given):
            for what, must, got in zip(("inputs", "outputs", "dtypes"), ops[op], given[op]):
                if list(must) != list(got):
                    self.no(file, f"has the {what} {_show(got)} for {op}, but they must be {_show(must)}")
        kernels, config = f"{_TBE}/kernel", f"{_TBE}/kernel/config/{name}"
        index = self.json(f"{config}/binary_info_config.json", lambda content: {
            op: {b["jsonPath"]: b["binPath"] for b in entry["binaryList"]} for op, entry in content.items()})
        self.names(f"{config}/binary_info_config.json", index, ops)
        for op in (op for op in ops if op in (index or ())):
            rows = [self.kernel(f"{kernels}/{j}", f"{kernels}/{b}") for j, b in index[op].items()]
            for row in (r for r in ops[op][2] if r not in rows and None not in rows):
                self.no(f"{config}/binary_info_config.json", f"has no kernel of {op} for {', '.join(row)}")
            file = f"{config}/{spec.op_file(op)}.json"
            listed = self.json(file, lambda content: {b["binInfo"]["jsonFilePath"] for b in content["binList"]})
            if listed is not None and listed != set(index[op]):
                self.no(file, "lists other kernels than binary_info_config.json")
        return given

    def kernel(self, described, binary):
        """Check a kernel. Returns its row of dtypes."""
        self.elf(binary, "Ascend")
        found = self.json(described, lambda c: (c["binFileName"] + c["binFileSuffix"], c.get("sha256", ...), tuple(
            _name(t["dtype"]) for side in ("inputs", "outputs") for t in c["supportInfo"][side])))
        if not found:
            return None
        if found[0] != Path(binary).name:
            self.no(described, f"describes {found[0]}, but is listed for {Path(binary).name}")
        elif found[1] is not ... and (self.root / binary).is_file() and found[1] != hashlib.sha256((self.root / binary).read_bytes()).hexdigest():
            self.no(binary, "is not the file whose sha256 its JSON gives")
        return found[2]

    def libraries(self, ops):
        opapi = self.elf("op_api/lib/libcust_opapi.so", self.machine)
        for name in (f"aclnn{op}{end}" for op in ops for end in ("", "GetWorkspaceSize")):
            if opapi and name not in opapi[1]:
                self.no("op_api/lib/libcust_opapi.so", f"does not export {name}")
        tiling = f"{_TBE}/op_tiling/lib/linux/{self.machine}/libcust_opmaster_rt2.0.so"
        for file in (f"op_proto/lib/linux/{self.machine}/libcust_opsproto_rt2.0.so", tiling):
            content = self.elf(file, self.machine) and (self.root / file).read_bytes()
            for op in (op for op in ops if content and op.encode() + b"\0" not in content):
                self.no(file, f"does not register {op}")
        link = f"{_TBE}/op_tiling/liboptiling.so"
        content = self.read(link, _bytes)  # a link, or a copy as in wheels
        if content is not None and (self.root / tiling).is_file() and content != (self.root / tiling).read_bytes():
            self.no(link, f"is not {tiling}")

    def header(self, op, inputs, outputs):
        """The parameters that MindSpore counts: inputs, outputs, the size of the workspace and the executor."""
        file = f"op_api/include/aclnn_{spec.op_file(op)}.h"
        text = self.text(file)
        if text is None:
            return
        found = re.search(rf"aclnnStatus\s+aclnn{op}GetWorkspaceSize\((.*?)\);", text, re.S)
        got = [re.sub(r"\bconst\b|\s", "", p) for p in found[1].split(",")] if found else []
        camel = lambda name: re.sub(r"_(\w)", lambda m: m[1].upper(), name)
        # CANN names outputs xOut, or out when there is one.
        ends = ["out"] if len(outputs) == 1 and "aclTensor*out" in got else [f"{camel(o)}Out" for o in outputs]
        must = [f"aclTensor*{n}" for n in (*map(camel, inputs), *ends)] + ["uint64_t*workspaceSize", "aclOpExecutor**executor"]
        if got != must:
            self.no(file, f"has the parameters {', '.join(got) or 'none'} for aclnn{op}, but they must be {', '.join(must)}")


def _signature(info):
    """(inputs, outputs, rows of dtypes) of an operator in ops-info."""
    count = lambda kind: [info[f"{kind}{i}"] for i in range(sum(bool(re.fullmatch(rf"{kind}\d+", k)) for k in info))]
    inputs, outputs = count("input"), count("output")
    rows = list(zip(*(t["dtype"].split(",") for t in inputs + outputs)))
    return tuple(_name(t["name"]) for t in inputs), tuple(_name(t["name"]) for t in outputs), rows


def _name(value):
    if type(value) is not str or not value.isidentifier():
        raise TypeError(value)
    return value


def _show(value):
    return ", ".join("(" + ", ".join(v) + ")" if isinstance(v, tuple) else v for v in value) or "none"
