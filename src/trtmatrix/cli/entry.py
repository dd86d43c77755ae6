"""The command line's entry: one command is called with its options, and its exit code is the program's."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from trtmatrix.cli.parser import make_parser
from trtmatrix.common.errors import ExitCode, TrtMatrixError, explain_os_error
from trtmatrix.common.interrupts import interruptible

__all__ = ["main", "make_parser", "run"]

KEPT = "what had ended is kept, the next run goes on"
"""What is said where a command is interrupted that goes on from what it has."""

OPTIONS = {
    "run": "RunOptions", "table": "TableOptions", "report": "ReportOptions", "list": "ProjectCommand",
    "doctor": "HostCommand", "publish": "HostCommand", "prepare": "PrepareOptions", "schema": "SchemaOptions",
}  # fmt: skip
"""The type of the options (in ``options``) of each command that has one; the others get argparse's own."""

MODULES = {
    "list": "cli.listing", "schema": "cli.listing", "prepare": "cli.listing", "report": "cli.reporting",
    "upgrade": "upgrade.command", "surfaces": "api.read_bindings", "bundle": "bugs.make",
    "bisect": "bugs.bisect", "minimise": "bugs.minimise", "lock": "images.lock", "pack": "images.pack",
    "unpack": "images.unpacker", "merge": "images.merge",
}  # fmt: skip
"""Where a command lies; the others are in ``commands``."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run one command and exit with its code."""
    if sys.stdout is None:  # it was closed: nobody reads
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - until the end
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a mark that the terminal lacks ends nothing
    code = run(sys.argv[1:] if argv is None else argv)
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # the reader had seen enough: that changes nothing of the outcome
        _drop_output()
    except OSError as error:
        code = _tell_lost(error)
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
            return find_command(args)()
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
        _drop_output()
        return ExitCode.AS_EXPECTED
    except OSError as error:
        if args.traceback:
            _print_traceback()
        return _tell_refused(error, args)
    except Exception:  # noqa: BLE001 - the last resort: Python's own exit code 1 would read as a surprise
        _print_traceback()
        print("trtmatrix: this is a mistake in trtmatrix itself; please report it", file=sys.stderr)
        return ExitCode.MACHINERY


def find_command(args: argparse.Namespace) -> Callable[[], ExitCode]:
    """Return a command with its options; it is imported only now: --help and list stay light."""
    module = importlib.import_module(f"trtmatrix.{MODULES.get(args.command, 'cli.commands')}")
    command: Callable[[object], ExitCode] = getattr(module, f"{args.command}_command")
    if args.command not in OPTIONS:
        return lambda: command(args)
    from trtmatrix.cli import options

    typed = options.read_options(getattr(options, OPTIONS[args.command]), args)
    return lambda: command(typed)


def _tell_refused(error: OSError, args: argparse.Namespace) -> ExitCode:
    """Tell what the system refused: the output, or a file."""
    try:
        if (
            error.errno and not error.filename
        ):  # a write's: of the output, if that refuses an empty line as well
            os.write(sys.stdout.fileno(), b"\n")
    except OSError as lost:
        return _tell_lost(lost)
    from trtmatrix.common.paths import default_cache

    usual = {"to": Path(), "results": Path("results"), "cache": default_cache()}
    folders = {f"--{n}": getattr(args, n) or path for n, path in usual.items() if hasattr(args, n)}
    print(f"trtmatrix: {explain_os_error(error, folders)}", file=sys.stderr)
    print("  (--traceback shows where)", file=sys.stderr)
    return ExitCode.MACHINERY


def _tell_lost(error: OSError) -> ExitCode:
    """Tell that standard output takes nothing; what was left to be written is dropped."""
    _drop_output()
    why = error.strerror or error
    print(f"trtmatrix: standard output cannot be written: {why}; the answer was not printed", file=sys.stderr)
    return ExitCode.MACHINERY


def _drop_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _network(args: argparse.Namespace) -> contextlib.AbstractContextManager[None]:
    """Return what a command runs in: without a network where ``--offline`` says so."""
    if not getattr(args, "offline", False):
        return contextlib.nullcontext()
    from trtmatrix.common.offline import without_network

    return without_network()


def _print_traceback() -> None:
    import traceback

    traceback.print_exc()
