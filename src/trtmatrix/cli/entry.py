"""The command line's entry: one command is called with its options, and its exit code is the program's."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from trtmatrix.cli.options import parse
from trtmatrix.common.errors import (
    ExitCode,
    TrtMatrixError,
    combine_exit_codes,
    explain_trouble,
    hear_signals,
)
from trtmatrix.common.text import printable


def main(argv: Sequence[str] | None = None) -> None:
    """Run one command and exit with its code."""
    os.umask(os.umask(0o077) & 0o077)  # what is made here can be used here, whatever the shell says
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    code = run(sys.argv[1:] if argv is None else argv)
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python would try again at its own end
        if not isinstance(error, BrokenPipeError):  # who reads may go: the code stays what it is
            print(f"trtmatrix: standard output cannot be written: {error.strerror}", file=sys.stderr)
            code = combine_exit_codes({code, ExitCode.MACHINERY})
    if file := os.environ.get("TRTMATRIX_EXIT_CODE_FILE"):
        Path(file).write_text(str(int(code)))
    sys.exit(int(code))


def run(argv: Sequence[str]) -> ExitCode:
    """Return the exit code of one command line; errors of ours are printed without a traceback."""
    try:
        command, options, given = parse(argv)
    except SystemExit as end:
        return ExitCode.USAGE if end.code else ExitCode.AS_EXPECTED
    network: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    if "project.offline" in given:
        from trtmatrix.common.offline import without_network

        network = without_network()
    hear_signals()
    try:
        with network:
            return command(options)
    except KeyboardInterrupt:
        print("trtmatrix: interrupted; what had ended is kept, the next run goes on", file=sys.stderr)
        return ExitCode.INTERRUPTED
    except Exception as error:  # noqa: BLE001 - Python's own exit code 1 would read as a surprise
        ours = isinstance(error, (TrtMatrixError, OSError, MemoryError))
        if given["traceback"] or not ours:
            traceback.print_exc()
        print(f"trtmatrix: {printable(_explain(error, options))}", file=sys.stderr)
        return error.exit_code if isinstance(error, TrtMatrixError) else ExitCode.MACHINERY


def _explain(error: Exception, options: object) -> str:
    """Say what went wrong, and what mends that."""
    if isinstance(error, TrtMatrixError):
        return str(error)
    if isinstance(error, (OSError, MemoryError)):
        names = ["--to"] * hasattr(options, "to") + ["--results", "--cache"] * hasattr(options, "project")
        return f"trouble of this host: {explain_trouble(error, names)}\n  (--traceback shows where)"
    return "this is a mistake in trtmatrix itself; please report it"
