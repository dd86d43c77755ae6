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
    written = "a case's folder, as written by: python -m trtmatrix prepare <repro>/<case> --to DIR"
    parser.add_argument("--files", type=Path, required=True, help=written)
    parser.add_argument("--product", default="tensorrt", choices=["tensorrt", "tensorrt-rtx", "onnxruntime"])
    repeated = "build and run K engines, one after another"
    parser.add_argument("--builds", type=int, default=1, metavar="K", help=repeated)
    args = parser.parse_args()
    if not (args.files / "case.json").is_file():
        parser.error("%s holds no case: write one with python -m trtmatrix prepare" % args.files)
    if args.builds < 1:
        parser.error("--builds is %d: build at least 1 engine" % args.builds)
    params, files = CaseFiles(args.files).params, str(args.files)
    spec = {"product": args.product, "repro": repro, "params": params, "files": files, "builds": args.builds}
    result = run_and_measure(spec)
    print(json.dumps(strict(result), indent=1, sort_keys=True))
    sys.exit(0 if result["ended"] in {"ran", "built"} else 1)
