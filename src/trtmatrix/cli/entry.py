"""The command line's entry: one command is called with its options, and its exit code is the program's."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trtmatrix.cli.options import COMMANDS, make_parser, read_options
from trtmatrix.common.errors import (
    ExitCode,
    TrtMatrixError,
    combine_exit_codes,
    explain_trouble,
    interruptible,
)
from trtmatrix.common.text import printable

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = ["main", "make_parser", "run"]


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
        try:
            Path(file).write_text(str(int(code)))
        except OSError as error:  # a traceback would end with 1, which reads as a surprise
            print(f"trtmatrix: TRTMATRIX_EXIT_CODE_FILE: {error}", file=sys.stderr)
            code = combine_exit_codes({code, ExitCode.MACHINERY})
    sys.exit(int(code))


class _Outlet(io.FileIO):
    """The standard output or error; who reads it may go, which changes nothing of the outcome."""

    trouble = ""
    """Why else something could not be written, as on a full disk."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            pass
        except OSError as error:
            self.trouble = error.strerror or str(error)
        return memoryview(data).nbytes


def _keep_streams() -> list[_Outlet]:
    """Put streams in place of this process's own that no reader's end, and no sign that one lacks, breaks."""
    for number in range(3):  # one that is closed would be given to the next file or pipe, and to processes
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    outlets = []
    for name, number in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name)
        if stream is None:  # it was closed: nobody reads
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - until the end
        elif stream is getattr(sys, f"__{name}__"):
            stream.flush()
            outlets.append(_Outlet(number, "w", closefd=False))
            kept = io.TextIOWrapper(
                io.BufferedWriter(outlets[-1]), encoding=stream.encoding, errors="replace",
                line_buffering=stream.line_buffering or stream.write_through,  # as PYTHONUNBUFFERED makes it
            )  # fmt: skip
            setattr(sys, name, kept)
    return outlets


def run(argv: Sequence[str]) -> ExitCode:
    """Return the exit code of one command line; errors of ours are printed without a traceback."""
    try:
        args = make_parser().parse_args(argv)
        values = vars(args)
    except SystemExit as end:
        return ExitCode.USAGE if end.code else ExitCode.AS_EXPECTED
    network: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    if values.get("offline"):
        from trtmatrix.common.offline import without_network

        network = without_network()
    try:
        with interruptible(), network:
            return find_command(args)()
    except TrtMatrixError as error:
        if values["traceback"]:
            traceback.print_exc()
        print(f"trtmatrix: {printable(str(error))}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        verifies = values["command"] == "bundle verify"
        kept = "nothing was verified" if verifies else "what had ended is kept, the next run goes on"
        print(f"trtmatrix: interrupted; {kept}", file=sys.stderr)
        return ExitCode.INTERRUPTED
    except (OSError, MemoryError) as error:
        if values["traceback"]:
            traceback.print_exc()
        options = [f"--{name}" for name in ("to", "results", "cache") if name in values]
        print(
            f"trtmatrix: trouble of this host: {printable(explain_trouble(error, options))}", file=sys.stderr
        )
        print("  (--traceback shows where)", file=sys.stderr)
        return ExitCode.MACHINERY
    except Exception:  # noqa: BLE001 - the last resort: Python's own exit code 1 would read as a surprise
        traceback.print_exc()
        print("trtmatrix: this is a mistake in trtmatrix itself; please report it", file=sys.stderr)
        return ExitCode.MACHINERY


def find_command(args: argparse.Namespace) -> Callable[[], ExitCode]:
    """Return a command with its options; it is imported only now: --help and list stay light.

    ``bundle make`` is ``make_command`` with ``MakeOptions``, in the module that :data:`COMMANDS` names.
    """
    module = importlib.import_module(f"trtmatrix.{COMMANDS[args.command].module}")
    name = str(args.command).rpartition(" ")[2]
    command: Callable[[object], ExitCode] = getattr(module, f"{name}_command")
    options = read_options(getattr(module, f"{name.capitalize()}Options"), args)
    return lambda: command(options)
