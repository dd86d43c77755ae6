"""``python repros/<name>.py --files DIR``: one case by hand, without the harness."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from trtprobe.cell import run_and_measure
from trtprobe.files import CaseFiles, strict


def main(repro: str) -> None:
    """Run the case in ``--files`` with the product found here and print what was measured."""
    parser = argparse.ArgumentParser(prog="python " + repro)
    parser.add_argument(
        "--files", type=Path, required=True,
        help="a case's folder, as written by: python -m trtmatrix prepare <repro>/<case> --to DIR",
    )  # fmt: skip
    parser.add_argument("--product", default="tensorrt", choices=["tensorrt", "tensorrt-rtx", "onnxruntime"])
    parser.add_argument(
        "--builds", type=int, default=1, metavar="K", help="build and run K engines, one after another"
    )
    args = parser.parse_args()
    if not (args.files / "case.json").is_file():
        parser.error("%s holds no case: write one with python -m trtmatrix prepare" % args.files)
    if args.builds < 1:
        parser.error("--builds is %d: build at least 1 engine" % args.builds)
    spec = {
        "product": args.product, "repro": repro, "params": CaseFiles(args.files).params,
        "files": str(args.files), "keep_outputs": False,
        "builds": args.builds,
    }  # fmt: skip
    result = run_and_measure(spec)
    print(json.dumps(strict(result), indent=1, sort_keys=True))
    sys.exit(0 if result["ended"] in {"ran", "built"} else 1)
