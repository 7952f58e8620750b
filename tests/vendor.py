# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
"""Vendor packages for tests: the real one that MindSpore ships, and a stand-in of ours (no CANN made it: its kernels are empty)."""
import json
import os
import platform
import shutil
import struct
import subprocess
from pathlib import Path

import mindspore

from ms_ropegrad import opp_verify, spec

REAL = Path(mindspore.__file__).parent / "lib/plugin/ascend/custom_ascendc_910b"
TBE = "op_impl/ai_core/tbe"


def write(root, name, content):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    data = content if isinstance(content, bytes) else (content if isinstance(content, str) else json.dumps(content)).encode()
    path.write_bytes(data)


def empty_elf(machine):
    return b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 1, machine, 1, 0, 0, 0, 0, 64, 0, 0, 64, 0, 0)


def library(path, symbols, strings=()):
    code = "".join(f'void {s}() {{}}\n' for s in symbols) + "".join(f'const char* s{i} = "{s}";\n' for i, s in enumerate(strings))
    path.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([os.environ.get("CC", "gcc"), "-shared", "-fPIC", "-x", "c", "-", "-o", str(path)], input=code, text=True, check=True)


def stand_in(root, socs=spec.SOCS, stamp=None):
    """What a build of our operators should give, written down from the operator table."""
    root, machine = Path(root), platform.machine()
    ops = opp_verify.table()
    camel = lambda name: "".join(w.title() if i else w for i, w in enumerate(name.split("_")))
    write(root, "version.info", "custom_opp_compiler_version=9.1.0\n")
    write(root, opp_verify.STAMP, stamp or opp_verify.stamp() + "\n")
    write(root, "framework/tensorflow/npu_supported_ops.json", {op: {} for op in ops})
    proto = ""
    for op, (inputs, outputs, _) in ops.items():
        parameters = [f"const aclTensor *{n}" for n in (*map(camel, inputs), *(camel(o) + "Out" for o in outputs))]
        parameters += ["uint64_t *workspaceSize", "aclOpExecutor **executor"]
        write(root, f"op_api/include/aclnn_{spec.op_file(op)}.h", f"aclnnStatus aclnn{op}GetWorkspaceSize(\n    " + ",\n    ".join(parameters) + ");\n")
        proto += f"REG_OP({op})" + "".join(f".INPUT({n}, X)" for n in inputs) + "".join(f".OUTPUT({n}, X)" for n in outputs)
        proto += f".OP_END_FACTORY_REG({op});\n"
        for end in ("py", "cpp"):
            write(root, f"{TBE}/{spec.VENDOR}_impl/dynamic/{spec.op_file(op)}.{end}", "\n")
    write(root, "op_proto/inc/op_proto.h", proto)
    library(root / "op_api/lib/libcust_opapi.so", [f"aclnn{op}{end}" for op in ops for end in ("", "GetWorkspaceSize")])
    library(root / f"op_proto/lib/linux/{machine}/libcust_opsproto_rt2.0.so", [], ops)
    library(root / f"{TBE}/op_tiling/lib/linux/{machine}/libcust_opmaster_rt2.0.so", [], ops)
    (root / f"{TBE}/op_tiling/liboptiling.so").symlink_to(f"lib/linux/{machine}/libcust_opmaster_rt2.0.so")
    for soc in socs:
        info, index = {}, {}
        for op, (inputs, outputs, rows) in ops.items():
            sides = [("input", i, n) for i, n in enumerate(inputs)] + [("output", i, n) for i, n in enumerate(outputs)]
            info[op] = {f"{side}{i}": {"name": n, "dtype": ",".join(column)} for (side, i, n), column in zip(sides, zip(*rows))}
            index[op], listed = {"binaryList": []}, []
            for number, row in enumerate(rows):
                name = f"{soc}/{spec.op_file(op)}/{op}_{number}"
                tensors = [{"name": n, "dtype": d} for (_, _, n), d in zip(sides, row)]
                write(root, f"{TBE}/kernel/{name}.o", empty_elf(0x1029))
                write(root, f"{TBE}/kernel/{name}.json", {"binFileName": f"{op}_{number}", "binFileSuffix": ".o", "supportInfo": {
                    "inputs": tensors[:len(inputs)], "outputs": tensors[len(inputs):]}})
                index[op]["binaryList"].append({"binPath": f"{name}.o", "jsonPath": f"{name}.json"})
                listed.append({"binInfo": {"jsonFilePath": f"{name}.json"}})
            write(root, f"{TBE}/kernel/config/{soc}/{spec.op_file(op)}.json", {"binList": listed})
        write(root, f"{TBE}/kernel/config/{soc}/binary_info_config.json", index)
        write(root, f"{TBE}/config/{soc}/aic-{soc}-ops-info.json", info)
    return root


def copy_real(root):
    return Path(shutil.copytree(REAL, root, symlinks=True))
