"""The command line: options, exit codes, and nothing else."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from trtmatrix import __version__
from trtmatrix.cli.bugs import add_bisect_options, add_bundle_options, add_minimise_options
from trtmatrix.cli.hosts import (
    add_engine_options,
    add_lock_options,
    add_merge_options,
    add_network_options,
    add_pack_options,
    add_pin_options,
    add_slurm_options,
    add_unpack_options,
    read_size,
)
from trtmatrix.common.errors import ExitCode, TrtMatrixError
from trtmatrix.common.interrupts import interruptible

Command = Callable[[argparse.Namespace], ExitCode]

DESCRIPTION = """\
What each TensorRT release does to a model on a given GPU. Repros run over pinned versions and are
judged against a float64 reference.

exit codes: 0 all as expected, 1 a surprise, 2 usage or configuration, 3 the machinery failed,
4 nothing was executed and nothing served from the store, 130 interrupted; of upgrade: 0 go, 10 go with
work-arounds, 11 don't, 12 not enough evidence; of bundle, bisect and minimise: 0 done (verified, found,
smaller), 1 not (the failure does not come back, no edge, nothing smaller)
"""


KEPT = "what had ended is kept, the next run goes on"
"""What is said where a command is interrupted that goes on from what it has."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run one command and exit with its code."""
    code = run(sys.argv[1:] if argv is None else argv)
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # the reader had seen enough: that changes nothing of the outcome
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if file := os.environ.get("TRTMATRIX_EXIT_CODE_FILE"):
        Path(file).write_text(str(int(code)))
    sys.exit(int(code))


def run(argv: Sequence[str]) -> ExitCode:
    """Return the exit code of one command line; errors of ours are printed without a traceback."""
    try:
        args = make_parser().parse_args(argv)
    except SystemExit as end:
        return ExitCode.USAGE if end.code else ExitCode.AS_EXPECTED
    try:
        with interruptible(), _network(args):
            return _command(args.command)(args)
    except TrtMatrixError as error:
        if args.traceback:
            _print_traceback()
        print(f"trtmatrix: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        verifies = (args.command, getattr(args, "action", "")) == ("bundle", "verify")
        kept = "nothing was verified" if verifies else KEPT
        print(f"trtmatrix: interrupted; {kept}", file=sys.stderr)
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.AS_EXPECTED
    except Exception:  # noqa: BLE001 - the last resort: Python's own exit code 1 would read as a surprise
        _print_traceback()
        print("trtmatrix: this is a mistake in trtmatrix itself; please report it", file=sys.stderr)
        return ExitCode.MACHINERY


def _network(args: argparse.Namespace) -> contextlib.AbstractContextManager[None]:
    """Return what a command runs in: without a network where ``--offline`` says so."""
    if not getattr(args, "offline", False):
        return contextlib.nullcontext()
    from trtmatrix.common.offline import without_network

    return without_network()


def _print_traceback() -> None:
    import traceback

    traceback.print_exc()


MODULES = {
    "list": "cli.listing", "schema": "cli.listing", "upgrade": "upgrade.upgrading", "report": "cli.reporting",
    "surfaces": "api.read_bindings", "bundle": "bugs.make", "bisect": "bugs.bisect",
    "minimise": "bugs.minimise", "lock": "images.lock", "pack": "images.pack",
    "unpack": "images.unpacker", "merge": "images.merge",
}  # fmt: skip
"""Where a command lies that needs little of the program; the others are in ``commands``."""


def _command(name: str) -> Command:
    """Import a command's module only when it is called: --help and list stay light."""
    module = importlib.import_module(f"trtmatrix.{MODULES.get(name, 'cli.commands')}")
    command: Command = getattr(module, f"{name}_command")
    return command


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="python -m trtmatrix", description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--version", action="version", version=__version__)
    common = _common()
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    for name, text, parents in (
        ("run", "run what can be run here and print the tables", [common, _select(), _show(), _model()]),
        ("table", "print the tables from stored records", [common, _select(), _show(), _model()]),
        ("upgrade", "say whether to move from one version to another", [common, _select(), _model()]),
        ("report", "write the whole matrix as one page with filters", [common, _select()]),
        ("bundle", "make or verify an archive that shows a failure to its maintainers", []),
        ("bisect", "find the version that a failure came in with", [common, _model()]),
        (
            "minimise",
            "find the smallest graph and shapes that still fail in the same way",
            [common, _model()],
        ),
        ("surfaces", "read the APIs of new releases from NVIDIA's own bindings", [common]),
        ("list", "list versions, repros and cases", [common, _select()]),
        ("doctor", "say what was found here and what that lets run", [common, _select()]),
        ("lock", "ask the registry which digests the images' tags stand for", [common, _select()]),
        ("pack", "write all that a host without a network needs", [common, _select()]),
        ("unpack", "check a pack and load it, on a host without a network", []),
        ("merge", "take in records that were made elsewhere", [common]),
        ("prepare", "write a case's files, to run it by hand", [common]),
        ("publish", "copy records measured here to where git sees them", [common, _select()]),
        ("remeasure", "measure kept outputs again where a defect was added since", [common, _select()]),
        ("schema", "print the JSON Schema of matrix.yaml, or of a site's settings", []),
    ):
        command = commands.add_parser(name, help=text, description=text.capitalize() + ".", parents=parents)
        command.set_defaults(traceback=False)
        command.add_argument("--traceback", action="store_true", help="show where an error came from")
    _add_run_options(commands.choices["run"])
    _add_upgrade_options(commands.choices["upgrade"])
    _add_report_options(commands.choices["report"])
    add_bundle_options(commands.choices["bundle"], common, _model())
    add_bisect_options(commands.choices["bisect"])
    add_minimise_options(commands.choices["minimise"])
    add_lock_options(commands.choices["lock"])
    add_pack_options(commands.choices["pack"])
    add_unpack_options(commands.choices["unpack"])
    add_merge_options(commands.choices["merge"])
    commands.choices["surfaces"].add_argument(
        "--to", type=Path, metavar="DIR", help="where to write (default: into the package)"
    )
    commands.choices["schema"].add_argument(
        "--site", action="store_true", help="that of slurm.yaml (docs/slurm.md)"
    )
    prepare = commands.choices["prepare"]
    prepare.add_argument("which", metavar="REPRO/CASE")
    prepare.add_argument("--to", type=Path, metavar="DIR", help="where to write (default: ./CASE)")
    _add_flags(commands.choices)
    for name in ("run", "doctor", "table", "report", "publish"):
        add_engine_options(commands.choices[name])
        add_slurm_options(commands.choices[name])
    return parser


def _add_flags(commands: Mapping[str, argparse.ArgumentParser]) -> None:
    """Add the options that several commands share."""
    for name in ("run", "table", "list", "doctor", "upgrade", "bisect", "minimise", "lock", "merge"):
        commands[name].add_argument("--json", action="store_true", help="print JSON")
    for name, text in (
        ("run", "run and show no controls but those selected"),
        ("table", "show no controls but those selected"),
        ("doctor", "only look, run no controls"),
    ):
        commands[name].add_argument("--no-controls", action="store_true", help=text)


def _common() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False)
    files = parser.add_argument_group("files")
    files.add_argument("--matrix", type=Path, default=Path("matrix.yaml"), metavar="FILE")
    files.add_argument("--repros", type=Path, default=Path("repros"), metavar="DIR")
    files.add_argument("--results", type=Path, default=Path("results"), metavar="DIR")
    files.add_argument(
        "--cache", type=Path, metavar="DIR",
        help="prepared cases, environments, outputs (TRTMATRIX_CACHE, else ~/.cache/trtmatrix)",
    )  # fmt: skip
    add_network_options(parser)
    return parser


def _select() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False)
    group = parser.add_argument_group("selection (comma-separated or repeated; default: all)")
    for option, metavar, text in (
        ("--trt", "VERSION", "versions by name, or a product's name: 10.7.0,10.8.0 or onnxruntime"),
        ("--repro", "REPRO", "repros by name"),
        ("--case", "CASE", "cases by name or pattern: 'sdpa-*' or sdpa-scale/explicit-tf32"),
        ("--gpu", "GPU", "GPUs by name, of this host or not: L4, 'NVIDIA H200'"),
        ("--runtime", "RUNTIME", "container, wheels, or host (interpreters that have TensorRT)"),
    ):
        group.add_argument(option, action="extend", type=_names, default=[], metavar=metavar, help=text)
    group.add_argument(
        "--python", action="append", default=[], metavar="PATH",
        help="with --runtime host: an interpreter that has TensorRT (default: this one)",
    )  # fmt: skip
    return parser


def _show() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False)
    group = parser.add_argument_group("output")
    group.add_argument(
        "--output", "-o", action="append", type=Path, default=[], metavar="FILE",
        help="also write the tables as .md, .html, .json, .xml (JUnit) or .txt; may be repeated",
    )  # fmt: skip
    group.add_argument("--full", action="store_true", help="print every row with its figures")
    group.add_argument("--all-rows", action="store_true", help="print rows without evidence too")
    return parser


def _model() -> argparse.ArgumentParser:
    """Return the options about the user's own model."""
    parser = argparse.ArgumentParser(add_help=False)
    group = parser.add_argument_group("your own model (instead of the repros; upgrade: beside them)")
    group.add_argument("--model", type=Path, metavar="FILE.onnx")
    group.add_argument(
        "--inputs", type=Path, metavar="NPZ|DIR",
        help="its inputs: one .npz with an array an input, or a folder of such files, a sample each "
        "(default: drawn from the graph's shapes)",
    )  # fmt: skip
    group.add_argument("--precision", choices=["tf32", "fp32", "fp16"], default="tf32")
    group.add_argument(
        "--atol", type=float, metavar="A", help="accept |a - b| <= A + R |b|, element by element"
    )
    group.add_argument("--rtol", type=float, metavar="R")
    group.add_argument(
        "--profile", action="append", default=[], metavar="INPUT=MIN:OPT:MAX",
        help="shapes of a dynamic input, such as ids=1x16:4x128:8x512, or values of what decides a shape, "
        "such as k=1:3:5 (default: taken from the inputs)",
    )  # fmt: skip
    return parser


def _add_upgrade_options(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Exit codes: 0 go, 10 go with work-arounds, 11 don't, or code named by --code must change first, "
        "12 not enough evidence. With --api code alone decides: 0 nothing must change, 11 something must, 12 "
        "no code could be looked at. A release whose API is known need not be in matrix.yaml for --api, nor "
        "for --code alone."
    )
    group = parser.add_argument_group("the move")
    group.add_argument("--from", dest="before", required=True, metavar="VERSION", help="what you run now")
    group.add_argument(
        "--to", dest="after", required=True, metavar="VERSION", type=_version_or_any,
        help="what you think of running, or 'any': the newest version with nothing against it, and the "
        "nearest one that fixes what --repro names",
    )  # fmt: skip
    group.add_argument(
        "--code", action="append", type=Path, default=[], metavar="DIR|FILE",
        help="look for uses of what changes: Python, notebooks, shell, Dockerfiles; may be repeated. "
        "Exit code 11 where something must change",
    )  # fmt: skip
    group.add_argument(
        "--api",
        action="store_true",
        help="print the difference of the two APIs, with --code where it is used, and nothing else",
    )
    group.add_argument(
        "--check", type=Path, metavar="FILE.py",
        help="your own acceptance of the model's outputs: see docs/acceptance.md",
    )  # fmt: skip
    group.add_argument(
        "--explain",
        action="store_true",
        help="look for the model's first layer that goes wrong, where one does",
    )
    group.add_argument("--no-run", action="store_true", help="decide from stored records, run nothing")
    group.add_argument(
        "--output", "-o", action="append", type=Path, default=[], metavar="FILE",
        help="also write the report as .html, .md or .json, the uses in code as .sarif; may be repeated",
    )  # fmt: skip


def _add_report_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--output", "-o", action="append", type=Path, default=[], metavar="FILE",
        help=".html, .md or .json; may be repeated (default: report.html)",
    )  # fmt: skip


def _add_run_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("running")
    group.add_argument("--plan", action="store_true", help="print what would be started, start nothing")
    group.add_argument(
        "--stale", action="store_true", help="print why each cell would be run or not, start nothing"
    )
    group.add_argument("--rerun", action="store_true", help="run cells that have a current record too")
    group.add_argument(
        "--rebuilds", type=_rebuilds, default=1, metavar="K",
        help="build and run at least K engines of each cell, to see how much luck is in it (1 to 100); of a "
        "case of several processes so many processes, which share an engine",
    )  # fmt: skip
    group.add_argument(
        "--no-confirm", action="store_true",
        help="believe at once; without it what does not come out as it must beside others is run again alone",
    )  # fmt: skip
    group.add_argument(
        "--isolation", choices=["worker", "process", "container"], default="worker",
        help="what cells share: a warm process (default), a container with a fresh process for each, nothing",
    )  # fmt: skip
    group.add_argument(
        "--pull", choices=["named", "all", "never"], default="named",
        help="which missing images to pull or build: those of versions named by --trt (default), all, none",
    )  # fmt: skip
    add_pin_options(group)
    group.add_argument(
        "--memory", type=read_size, default=32 << 30, metavar="SIZE", help="memory of a container (32g)"
    )
    group.add_argument(
        "--output-size",
        type=read_size,
        default=2 << 30,
        metavar="SIZE",
        help="what a cell may write (2g)",
    )


def _version_or_any(text: str) -> str:
    return "any" if text.lower() == "any" else text


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _rebuilds(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 100:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 to 100")
    return int(text)
