"""The options of the commands about one failure: bundle, bisect, minimise."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_bundle_options(
    parser: argparse.ArgumentParser, common: argparse.ArgumentParser, model: argparse.ArgumentParser
) -> None:
    """Add ``bundle make CELL`` and ``bundle verify FILE``."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="make|verify")
    make = actions.add_parser("make", help="write the archive of a failing cell", parents=[common, model])
    make.add_argument("cell", metavar="CELL", help="as tables print it: REPRO/CASE@VERSION#GPU")
    make.add_argument(
        "--to", type=Path, metavar="FILE", help="where to write (default: ./REPRO-CASE-VERSION.tar.gz)"
    )
    make.add_argument("--yes", action="store_true", help="do not ask; needed where stdin is no terminal")
    make.add_argument("--no-verify", action="store_true", help="do not run the archive afterwards")
    verify = actions.add_parser(
        "verify", help="run an archive from itself alone, in a fresh container",
        description="Run an archive where nothing else of ours is, in a container without network or in a "
        "fresh environment, and say whether its failure comes back. An archive is code: read it first.",
    )  # fmt: skip
    verify.add_argument("file", type=Path, metavar="FILE")
    for command in (make, verify):
        command.add_argument(
            "--seconds",
            type=_positive,
            default=1800.0,
            metavar="S",
            help="time limit of a run of the archive",
        )
        command.add_argument("--json", action="store_true", help="print JSON")
        command.add_argument("--traceback", action="store_true", help="show where an error came from")


def add_bisect_options(parser: argparse.ArgumentParser) -> None:
    """Add those of ``bisect``."""
    what = parser.add_argument_group("what is looked for")
    what.add_argument(
        "--case", dest="wanted_case", metavar="CASE", help="REPRO/CASE, or CASE where one repro alone has it"
    )
    what.add_argument(
        "--exec", dest="shell_command", metavar="COMMAND",
        help="instead of a case: a shell command run for each version ({version}, {image} are put in): exit "
        "code 0 good, 1 to 124, 126 and 127 bad, 125 cannot say, 128 and above ends the search",
    )  # fmt: skip
    where = parser.add_argument_group("where")
    where.add_argument("--good", metavar="VERSION", help="a version that is right (default: looked for)")
    where.add_argument("--bad", metavar="VERSION", help="a version that fails (default: looked for)")
    where.add_argument(
        "--gpu", dest="wanted_gpu", metavar="GPU", help="a GPU by name (default: the one here)"
    )
    where.add_argument("--product", default="tensorrt", choices=["tensorrt", "tensorrt-rtx", "onnxruntime"])
    where.add_argument(
        "--image", action="append", nargs="+", default=[], metavar="IMAGE",
        help="instead of matrix.yaml's versions: images, oldest first",
    )  # fmt: skip
    how = parser.add_argument_group("how")
    how.add_argument(
        "--rebuilds", type=_count, metavar="K",
        help="engines built before a version counts as good (default: 3); with --exec so many runs (1)",
    )  # fmt: skip
    how.add_argument("--no-run", action="store_true", help="from stored records alone, run nothing")
    how.add_argument("--pull", action="store_true", help="pull or build images that are not here")
    how.add_argument("--output", "-o", type=Path, metavar="FILE.md", help="also write the report")


def add_minimise_options(parser: argparse.ArgumentParser) -> None:
    """Add those of ``minimise``."""
    parser.add_argument("cell", metavar="CELL", help="as tables print it: REPRO/CASE@VERSION#GPU")
    parser.add_argument(
        "--good", metavar="VERSION",
        help="a version that is right: what is left must be right there, too",
    )  # fmt: skip
    parser.add_argument("--to", type=Path, metavar="DIR", help="where to write (default: ./minimised-CASE)")
    parser.add_argument(
        "--steps", type=_count, default=200, metavar="N", help="smaller models tried at most (default: 200)"
    )
    parser.add_argument(
        "--seconds", type=_positive, default=3600.0, metavar="S", help="stop after so long (default: 3600)"
    )


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1")
    return int(text)


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds")
    return value
