"""How fast is it? Each goal, measured against its plain alternative in one run.

``python -m bench.speed`` measures what this host allows, prints the table and fails where a goal is missed;
``--write`` keeps bench/speed.json and docs/speed.md, with rows that were measured elsewhere before.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from bench.speed.bench import Bench
from bench.speed.cells import measure_again, measure_harness, measure_worker
from bench.speed.gpu import measure_gpu
from bench.speed.light import measure_records, measure_start
from bench.speed.machine import ROOT
from bench.speed.operators import measure_operators
from bench.speed.page import render_page, render_rows
from bench.speed.pulls import measure_pull
from bench.speed.rows import CannotMeasure, Row, merge, parse_rows, to_json
from bench.speed.searches import measure_searches
from bench.speed.whole import measure_whole

KINDS = {
    "gpu": (measure_gpu, "an NVIDIA GPU and the image of a TensorRT version"),
    "whole": (measure_whole, "--records: what a run of all cells of a TensorRT version left"),
    "operators": (measure_operators, "records of `trtmatrix operators` at a version of TensorRT"),
    "search": (measure_searches, "an NVIDIA GPU and images of TensorRT 8.5.3.1 and 8.6.0"),
    "worker": (measure_worker, "Docker and the test image"),
    "again": (measure_again, "Docker and the test image"),
    "harness": (measure_harness, "Docker and the test image"),
    "pull": (measure_pull, "Docker, the test image and docker-registry"),
    "records": (measure_records, "nothing but time"),
    "start": (measure_start, "nothing"),
}
NEEDS = {kind: needs for kind, (_, needs) in KINDS.items()}
JSON = ROOT / "bench" / "speed.json"
PAGE = ROOT / "docs" / "speed.md"


def main(argv: Sequence[str] | None = None) -> int:
    """Measure; 1 where a goal was missed, a row failed, or one that was named cannot be measured."""
    args = _arguments(argv)
    signal.signal(signal.SIGTERM, _interrupt)
    rows = [row for file in args.merge for row in parse_rows(file.read_text(encoding="utf-8"))]
    troubles: list[str] = []

    def tell(row: Row) -> None:
        rows[:] = merge(rows, [row], [*KINDS])
        if args.to:
            args.to.write_text(to_json(rows), encoding="utf-8")
        if args.write:
            write(rows)

    if not args.merge:
        folder = Path(tempfile.mkdtemp(prefix="trtmatrix-speed-", dir=args.folder))
        os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
        try:
            bench = Bench(
                folder=folder, tell=tell, quick=args.quick, seconds=args.seconds, versions=tuple(args.trt),
                repros=tuple(args.repro),
                cache=args.cache and args.cache.resolve(), records=args.records and args.records.resolve(),
            )  # fmt: skip
            troubles = measure(bench, args.only)
        finally:
            if not args.keep:
                shutil.rmtree(folder, ignore_errors=True)
    elif args.write:
        write(rows)
    print(render_rows(rows))
    missed = [f"{r.name}: {goal.text}, was {goal.measured}" for r in rows for goal in r.goals if not goal.met]
    print("\n".join([*missed, *troubles]) or "all goals were met", file=sys.stderr)
    return 1 if missed or troubles else 0


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Clean up as at Ctrl-C."""
    del number, frame
    raise KeyboardInterrupt


def measure(bench: Bench, only: Sequence[str]) -> list[str]:
    """Measure rows, and tell of those that cannot be; returns what went wrong."""
    troubles = []
    for kind, (function, _) in KINDS.items():
        if only and kind not in only:
            continue
        bench.say(kind)
        try:
            function(bench)
        except CannotMeasure as error:
            bench.say(f"{kind} is left out: {error}")
            troubles += [f"{kind}: {error}"] if only else []
        except RuntimeError as error:
            bench.say(f"{kind} failed: {error}")
            troubles.append(f"{kind} failed: {str(error).splitlines()[0]}")
    return troubles


def write(rows: Sequence[Row]) -> None:
    """Keep rows beside those that were measured before, and render the page of all."""
    old = parse_rows(JSON.read_text(encoding="utf-8")) if JSON.is_file() else []
    merged = merge(old, rows, [*KINDS])
    JSON.write_text(to_json(merged), encoding="utf-8")
    PAGE.write_text(render_page(merged, NEEDS), encoding="utf-8")


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.speed", description=__doc__)
    add = parser.add_argument
    add("--only", nargs="+", action="extend", choices=[*KINDS], default=[], metavar="NAME",
        help=f"rows to measure: {', '.join(KINDS)}")  # fmt: skip
    add("--quick", action="store_true", help="fewer cells and repetitions")
    add("--write", action="store_true", help="keep bench/speed.json and docs/speed.md")
    add("--trt", action="append", default=[], metavar="VERSION", help="the version of the row gpu")
    add(
        "--repro",
        action="append",
        default=[],
        metavar="REPRO",
        help="only these repros' cases in the row gpu",
    )
    add("--seconds", type=float, default=540.0, help="wall time of the row gpu for each version (540)")
    add("--cache", type=Path, metavar="DIR", help="the row gpu's prepared cases, kept for the next time")
    add("--records", type=Path, metavar="DIR", help="what one run left, for the row whole")
    add("--keep", action="store_true", help="leave the scratch projects, with the records of their runs")
    add("--folder", type=Path, metavar="DIR", help="where scratch projects lie while they are measured")
    add("--to", type=Path, metavar="FILE", help="write the rows measured now there too, as they come")
    add("--merge", type=Path, action="append", default=[], metavar="FILE",
        help="measure nothing: take rows that --to wrote, of another host say")  # fmt: skip
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
