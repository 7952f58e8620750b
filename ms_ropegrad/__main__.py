# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
"""The command line: python -m ms_ropegrad COMMAND."""
import argparse
import contextlib
import json
import os
import sys

from . import require_numpy


def _demo(args):
    os.environ.setdefault("GLOG_v", "3")  # errors only, read when mindspore is imported
    require_numpy()
    from . import demo
    try:
        return demo.run(args.text, args.formula, args.no_rope, args.steps, args.seed, args.save)
    except demo.UserError as e:
        print(f"ms_ropegrad demo: error: {e}", file=sys.stderr)
        return 2


def _info(args):
    os.environ.setdefault("GLOG_v", "3")
    require_numpy()
    import mindspore
    import numpy
    from . import __version__, custom, native, opp
    found = {"ms_ropegrad": __version__, "mindspore": mindspore.__version__, "numpy": numpy.__version__, "device": custom.device(),
             "ASCEND_HOME_PATH": os.environ.get("ASCEND_HOME_PATH"), "ASCEND_OPP_PATH": os.environ.get("ASCEND_OPP_PATH")}
    try:
        backend, why = custom.choose()
        found["backend"] = {"name": backend, "why": why, "threads": native.threads() if backend == "native" else None}
    except (RuntimeError, ValueError) as e:
        found["backend"] = {"name": None, "why": str(e), "threads": None}
    ascend = found["ascend"] = opp.state(found["device"])
    if args.json:
        print(json.dumps(found))
    else:
        backend = found["backend"]
        print(f"ms_ropegrad {__version__}, MindSpore {mindspore.__version__}, NumPy {numpy.__version__}, device {found['device']}")
        print(f"CPU backend: {backend['name'] or 'none'}" + (f", {backend['threads']} threads" if backend["threads"] else ""))
        print(f"  {backend['why']}")
        print("Ascend operators: " + (f"{ascend['directory']} ({ascend['named_by']})" if ascend["directory"] else "not found"))
        for line in ascend["problems"] or (() if ascend["directory"] else ascend["searched"]):
            print(f"  {line}")
    return int(not found["backend"]["name"] or found["device"] == "Ascend" and bool(ascend["problems"]))


def _verify_opp(args):
    from . import opp
    problems = opp.verify(args.directory, socs=args.soc, machine=args.machine, ours=not args.any_vendor)
    text = "\n".join([f"{args.directory} is not sound:", *(f"  {p}" for p in problems)]) if problems else f"{args.directory} is sound."
    print(json.dumps({"directory": args.directory, "sound": not problems, "problems": problems}) if args.json else text)
    return int(bool(problems))


def _change_opp(args):
    from . import opp
    try:
        root = opp.install(args.source, args.path) if args.command == "install-opp" else opp.uninstall(args.path)
    except opp.OppError as e:
        print(json.dumps({"directory": None, "error": str(e)}) if args.json else f"ms_ropegrad: error: {e}",
              file=sys.stdout if args.json else sys.stderr)
        return 1
    if args.json:
        print(json.dumps({"directory": str(root), "error": None}))
    elif args.command == "uninstall-opp":
        print(f"Removed {root}.")
    else:
        print(f"Installed {root}." + (f' Before Python starts: source "{root}/bin/set_env.bash"' if args.path else ""))
    return 0


def _number(low):
    def parse(text):
        if not text.isdigit() or not low <= int(text) < 2**31:
            raise argparse.ArgumentTypeError(f"must be an integer of at least {low}, but got {text!r}")
        return int(text)

    return parse


def _add_demo(commands):
    demo = commands.add_parser("demo", help="train a small language model on packed text", formatter_class=argparse.RawTextHelpFormatter)
    demo.add_argument("--text", nargs="+", metavar="FILE", help="UTF-8 text files, one document each\n(default: the topics of pydoc)")
    demo.add_argument("--formula", choices=["exact", "atb"], default="exact",
                      help="backward of Rope: the adjoint, or the vendor's\nformula, to see the difference (default: exact)")
    demo.add_argument("--no-rope", action="store_true", help="the identity instead of Rope, to see what positions give")
    demo.add_argument("--steps", type=_number(1), metavar="N", help="steps (default: as many as 4 minutes take, at most 1600)")
    demo.add_argument("--seed", type=_number(0), default=0, metavar="N", help="of the weights, the split and the packs (default: 0)")
    demo.add_argument("--save", metavar="PATH", help="write a checkpoint (.ckpt) and load it again")
    demo.set_defaults(call=_demo)


def _add_opp(commands):
    def add(name, call, text, *examples):
        command = commands.add_parser(name, help=text, description=text, formatter_class=argparse.RawDescriptionHelpFormatter,
                                      epilog="\n  ".join(["examples:", *(f"python -m ms_ropegrad {name} {e}".rstrip() for e in examples)]))
        command.add_argument("--json", action="store_true", help="print one JSON object")
        command.set_defaults(call=call, command=name)
        return command

    add("info", _info, "versions, what computes on CPU and why, where the Ascend operators are and what is wrong with them", "", "--json")
    verify = add("verify-opp", _verify_opp, "check a vendor directory without CANN; exit code 1 when it is not sound",
                 "build/opp/vendors/ms_ropegrad", "DIR --soc ascend910b", "DIR --machine aarch64 --json")
    verify.add_argument("directory", metavar="DIR", help="the vendor directory itself")
    verify.add_argument("--soc", action="append", default=[], metavar="SOC", help="must serve it, such as ascend910b (repeatable)")
    verify.add_argument("--machine", choices=["x86_64", "aarch64"], help="of its libraries (default: this machine)")
    verify.add_argument("--any-vendor", action="store_true", help="check another vendor's package: only its files against each other")
    install = add("install-opp", _change_opp, "install or upgrade a vendor directory; exit code 1 leaves the earlier version",
                  "build/opp/vendors/ms_ropegrad --path ~/my_ops", "build/opp/vendors/ms_ropegrad")
    install.add_argument("source", metavar="SRC", help="the vendor directory to copy")
    uninstall = add("uninstall-opp", _change_opp, "remove what install-opp installed", "--path ~/my_ops", "")
    for command in (install, uninstall):
        command.add_argument("--path", metavar="DIR", help="DIR/vendors (default: $ASCEND_OPP_PATH/vendors and its load_priority)")


def main(argv=None):
    parser = argparse.ArgumentParser("python -m ms_ropegrad", description="Rotary position embedding and its backward on packed sequences.")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_demo(commands)
    _add_opp(commands)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):
            stream.reconfigure(errors="backslashreplace")  # file names that this locale cannot show
    args = parser.parse_args(argv)
    try:
        return args.call(args)
    except ImportError as e:
        print(f"ms_ropegrad: error: {e}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("Stopped: interrupted.", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
