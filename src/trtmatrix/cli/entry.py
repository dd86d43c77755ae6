"""The command line's entry: one command is called with its options, and its exit code is the program's."""

from __future__ import annotations

import argparse
import codecs
import contextlib
import importlib
import io
import os
import sys
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trtmatrix.cli.parser import make_parser
from trtmatrix.common.errors import ExitCode, TrtMatrixError, combine_exit_codes, explain_trouble
from trtmatrix.common.interrupts import interruptible

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = ["main", "make_parser", "run"]

KEPT = "what had ended is kept, the next run goes on"
"""What is said where a command is interrupted that goes on from what it has."""

OPTIONS = {
    "run": "RunOptions", "table": "TableOptions", "report": "ReportOptions", "list": "ProjectCommand",
    "doctor": "HostCommand", "publish": "HostCommand", "prepare": "PrepareOptions", "schema": "SchemaOptions",
    "check": "CheckOptions",
}  # fmt: skip
"""The type of a command's options, in ``options``; others have it beside them, such as ``LockOptions``."""

MODULES = {
    "list": "cli.listing", "schema": "cli.listing", "prepare": "cli.listing", "check": "cli.listing",
    "report": "cli.reporting",
    "upgrade": "upgrade.command", "surfaces": "api.read_bindings", "bundle": "bugs.make",
    "bisect": "bugs.bisect", "minimise": "bugs.minimise", "lock": "images.lock", "pack": "images.pack",
    "unpack": "images.unpacker", "merge": "images.merge",
}  # fmt: skip
"""Where a command lies; the others are in ``commands``."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run one command and exit with its code."""
    os.umask(os.umask(0o077) & 0o077)  # what is made here can be used here, whatever the shell says
    outlets = _keep_streams()
    code = run(sys.argv[1:] if argv is None else argv)
    sys.stdout.flush()
    sys.stderr.flush()
    if lost := next((outlet for outlet in outlets if outlet.trouble), None):
        what, less = ("output", "the answer was") if lost.fileno() == 1 else ("error", "messages were")
        text = f"trtmatrix: standard {what} cannot be written: {lost.trouble}; {less} not printed"
        print(text, file=sys.stderr)
        code = combine_exit_codes({code, ExitCode.MACHINERY})
    if file := os.environ.get("TRTMATRIX_EXIT_CODE_FILE"):
        Path(file).write_text(str(int(code)))
    sys.exit(int(code))


class _Outlet(io.FileIO):
    """The standard output or error; who reads it may go, which changes nothing of the outcome."""

    trouble = ""
    """Why else something could not be written, as on a full disk."""

    def write(self, data: ReadableBuffer, /) -> int:
        """Write what can be written."""
        try:
            return super().write(data)
        except BrokenPipeError:
            pass
        except OSError as error:
            self.trouble = error.strerror or str(error)
        return memoryview(data).nbytes


SPELLED = "trtmatrix-spelled"
SIGNS = {
    "·": "-",
    "→": "->",
    "—": "-",
    "†": "+",
    "×": "x",
    "÷": "/",
    "√": "sqrt ",
    "≤": "<=",
    "≥": ">=",
    "−": "-",
}
"""What stands for a sign where the output takes ASCII alone; of other letters, their parts that it has."""


def _spell(error: UnicodeError) -> tuple[str, int]:
    """Write what the output's encoding lacks by what it has."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    letters = error.object[error.start : error.end]
    plain = (
        SIGNS.get(c) or unicodedata.normalize("NFKD", c).encode("ascii", "ignore").decode() for c in letters
    )
    return "".join(text or "?" for text in plain), error.end


codecs.register_error(SPELLED, _spell)


def _keep_streams() -> list[_Outlet]:
    """Put streams in place of this process's own that no reader's end, and no mark that one lacks, breaks."""
    outlets = []
    for name, number in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name)
        if stream is None:  # it was closed: nobody reads
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - until the end
        elif stream is getattr(sys, f"__{name}__"):
            stream.flush()
            outlets.append(_Outlet(number, "w", closefd=False))
            kept = io.TextIOWrapper(
                io.BufferedWriter(outlets[-1]), encoding=stream.encoding, errors=SPELLED,
                line_buffering=stream.line_buffering or stream.write_through,  # as PYTHONUNBUFFERED makes it
            )  # fmt: skip
            setattr(sys, name, kept)
    return outlets


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
    except (OSError, MemoryError) as error:
        if args.traceback:
            _print_traceback()
        print(f"trtmatrix: trouble of this host: {explain_trouble(error, _folders(args))}", file=sys.stderr)
        print("  (--traceback shows where)", file=sys.stderr)
        return ExitCode.MACHINERY
    except Exception:  # noqa: BLE001 - the last resort: Python's own exit code 1 would read as a surprise
        _print_traceback()
        print("trtmatrix: this is a mistake in trtmatrix itself; please report it", file=sys.stderr)
        return ExitCode.MACHINERY


def find_command(args: argparse.Namespace) -> Callable[[], ExitCode]:
    """Return a command with its options; it is imported only now: --help and list stay light."""
    module = importlib.import_module(f"trtmatrix.{MODULES.get(args.command, 'cli.commands')}")
    name: str = getattr(args, "action", args.command)
    command: Callable[[object], ExitCode] = getattr(module, f"{name}_command")
    from trtmatrix.cli import options

    own = getattr(module, f"{name.capitalize()}Options", None)
    kind = getattr(options, OPTIONS[args.command]) if args.command in OPTIONS else own
    typed = args if kind is None else options.read_options(kind, args)
    return lambda: command(typed)


def _folders(args: argparse.Namespace) -> dict[str, Path]:
    """Return the folders that a command writes to, by the options that name them."""
    from trtmatrix.common.paths import default_cache

    usual = {"to": Path(), "results": Path("results"), "cache": default_cache()}
    return {f"--{name}": getattr(args, name) or path for name, path in usual.items() if hasattr(args, name)}


def _network(args: argparse.Namespace) -> contextlib.AbstractContextManager[None]:
    """Return what a command runs in: without a network where ``--offline`` says so."""
    if not getattr(args, "offline", False):
        return contextlib.nullcontext()
    from trtmatrix.common.offline import without_network

    return without_network()


def _print_traceback() -> None:
    import traceback

    traceback.print_exc()
