# Copyright 2026 The ms_ropegrad Authors
# SPDX-License-Identifier: Apache-2.0
"""The command line: python -m ms_ropegrad COMMAND."""
import argparse
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


def _info(_args):
    os.environ.setdefault("GLOG_v", "3")
    require_numpy()
    import mindspore
    import numpy
    from . import __version__, custom, native
    print(f"ms_ropegrad {__version__}, MindSpore {mindspore.__version__}, NumPy {numpy.__version__}, device {custom.device()}")
    try:
        backend, why = custom.choose()
        threads = f", {native.threads()} threads" if backend == "native" else ""
        print(f"CPU backend: {backend}{threads}")
        print(f"  {why}")
    except (RuntimeError, ValueError) as e:
        print(f"CPU backend: none\n  {e}")
        return 1
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


def main(argv=None):
    parser = argparse.ArgumentParser("python -m ms_ropegrad", description="Rotary position embedding and its backward on packed sequences.")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_demo(commands)
    info = commands.add_parser("info", help="versions, and what computes on CPU and why")
    info.set_defaults(call=_info)
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
