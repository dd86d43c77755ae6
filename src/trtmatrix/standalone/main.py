"""The command line of an archive's repro.py."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn

from trtmatrix.standalone.casefiles import CaseFiles
from trtmatrix.standalone.running import Run, run_builds, run_processes
from trtmatrix.standalone.telling import CANNOT_SAY, conclude, last_words, print_figures
from trtprobe.backends.base import Backend
from trtprobe.files import write_json


class Parser(argparse.ArgumentParser):
    """One that ends in 125 on bad usage: to git bisect any smaller number but 0 is a bad version."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and end."""
        self.print_usage(sys.stderr)
        self.exit(CANNOT_SAY, f"CANNOT SAY: {message}\n")


KINDS = {"fails": list, "files": dict, "figures": dict, "rules": dict}
"""What expected.json must hold here."""


def main(case: dict[str, Any], run: Run, product: type[Backend]) -> int:
    """Run the case and say whether the failure came back; returns the exit code."""
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = Path(__file__).resolve().parent
    parser.add_argument("--files", type=Path, default=here, help="where model.onnx and the rest are")
    parser.add_argument("--out", type=Path, help="a folder for result.json")
    parser.add_argument("--builds", type=int, default=case["builds"], metavar="K", help="engines to build")
    parser.add_argument("--seconds", type=float, default=case["seconds"], help="limit of one build and run")
    parser.add_argument("--save-outputs", action="store_true", help="as outputs-K.npz into --out")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.builds < 1 or (args.save_outputs and not args.out):
        parser.error("--builds counts from 1, and --save-outputs needs --out DIR")
    if not (args.files / "model.onnx").is_file():
        parser.error(f"{args.files} holds no model.onnx: name the unpacked archive by --files")
    try:
        if args.out:
            args.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"--out cannot be made: {error}")
    if args.out and not os.access(str(args.out), os.W_OK):
        parser.error(f"--out {args.out}: it cannot be written to")
    if args.child:
        files = CaseFiles(args.files, case["params"])
        run_builds(run, product, files, args.builds, args.child, args.out if args.save_outputs else None)
        return 0
    for stop in (signal.SIGINT, signal.SIGTERM):
        signal.signal(stop, lambda number, _: sys.exit(128 + number))
    try:
        expected = read_expected(args.files)
    except (OSError, ValueError) as error:
        parser.error(f"{args.files / 'expected.json'} cannot be used: {error}")
    result = run_processes(sys.argv[1:], case["processes"], args.seconds * args.builds)
    return tell(result, expected, args.out)


def read_expected(folder: Path) -> dict[str, Any]:
    """Return what was recorded; tells which files are not those that it was recorded with.

    ``ValueError`` where it is none of an archive's.
    """
    path = folder / "expected.json"
    if not path.is_file():
        print("there is no expected.json: it is run, and nothing can be said of what comes out")
        return {}
    expected: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    for key, kind in KINDS.items():
        if not isinstance(expected, dict) or not isinstance(expected.get(key), kind):
            raise ValueError(f"it lacks {key!r}, or that is no {kind.__name__}")  # noqa: TRY004 - of the file, not of an argument
    for name, digest in expected["files"].items():
        if not (folder / name).is_file():
            print(f"{name} is not there")
        elif hashlib.sha256((folder / name).read_bytes()).hexdigest() != digest:
            print(f"{name} is not the file that this was recorded with")
    return expected


def tell(result: dict[str, Any], expected: dict[str, Any], out: Path) -> int:
    """Print the figures and the conclusion, and write ``result.json`` where a folder is given."""
    for key, where in (("library", "observed"), ("gpu", "engine"), ("driver", "observed")):
        recorded = expected.get("environment", {}).get(key)
        if result[where].get(key) or recorded:
            print(f"{key:8} {result[where].get(key)} (recorded: {recorded})")
    code, verdict, why = CANNOT_SAY, "", f"{result['ended']} {result['detail']}"
    if expected:
        for number, build in enumerate(result.get("builds", [result]), 1):
            print(f"engine {number}")
            print_figures(build["measurements"], expected)
        code, verdict, why = conclude(result, expected)
    result.update(verdict=verdict, exit_code=code, why=why)
    if out:
        try:
            write_json(out / "result.json", result)
        except OSError as error:
            print(last_words(code, verdict, why))
            code, verdict, why = CANNOT_SAY, "", f"{out / 'result.json'} cannot be written: {error}"
    print(last_words(code, verdict, why))
    return code
