"""The command line: its commands, the parser of their options, and the entry.

Options are fields of each command's own dataclass. One command is called with them, and its exit code is the
program's.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import os
import re
import shlex
import shutil
import sys
import textwrap
import traceback
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from trtmatrix import __version__
from trtmatrix.common.errors import (
    ExitCode,
    TrtMatrixError,
    combine_exit_codes,
    explain_trouble,
    hear_signals,
)
from trtmatrix.common.options import find_options, make_options
from trtmatrix.common.text import printable

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

GROUPS = {
    "files": "files and network", "select": "selection (comma-separated or repeated; default: all)",
    "show": "output", "model": "your own model (instead of the repros; upgrade uses both)", "run": "running",
    "where": "containers (docs/engines.md) and clusters (docs/slurm.md)",
}  # fmt: skip
"""Groups of options that several commands have, or that are many: by title. Others are a command's own."""


class Command(NamedTuple):
    """What a command does, its groups of options, an example, and the module that has it.

    ``bundle make`` is ``make_command`` there, with ``MakeOptions``. ``hides``: options that it refuses, which
    its help leaves out; ``versions``: its help lists those of matrix.yaml.
    """

    text: str
    groups: str = ""
    example: str = ""
    module: str = "cli.commands"
    about: str = ""
    hides: str = ""
    versions: bool = False


COMMANDS: dict[str, Command] = {
    "run": Command("run everything that can be run here and print the tables",
                   "controls files select repros show model run where",
                   "--trt 10.7.0,10.8.0 --repro sdpa-scale"),
    "table": Command("print the tables from stored records",
                     "controls files select repros show model where", "--gpu H200 --full"),
    "upgrade": Command(
        "decide whether to move from one version to another", "upgrade files select repros model",
        "--from 8.6.1 --to 10.8.0 --gpu L4 --code src/", "upgrade.command",
        "Exit codes: 0 go, 10 go with work-arounds, 11 don't, or code given with --code must change first, "
        "12 not\n enough evidence, 2 a mistake in the command or a model's inputs. With --api only the code "
        "decides:\n 0 nothing must change, 11 something must, 12 no code could be scanned. A release whose "
        "API is known\n need not be in matrix.yaml for --api, nor for --code alone.",
        hides="--trt --runtime --python", versions=True),
    "check": Command(
        "find the nodes of a model that versions get wrong, from the file alone", "",
        "my.onnx --trt 8.6.1,10.8.0", about=
        "Exit codes: 0 no node is known to fail (some may be expected to), 1 a node is known to be ignored, "
        "wrong or\n refused at one of the versions, 2 usage."),
    "operators": Command(
        "run ONNX's own tests of its operators on versions, or hold a model against their results",
        "files select where", "--trt 8.6.0", "operators.command",
        "Exit codes: 0 the suite was run or shown, whatever came of it; 3 a version could not be run,\n"
        " or trouble of this host left a case without a result; with a model: 1 an operator went wrong\n"
        " or is refused at one of the versions, or a node is known to fail."),
    "report": Command("write the whole matrix as one page with filters", "files select repros where",
                      "-o report.html"),
    "bundle make": Command("write the archive of a failing cell", "files model",
                           "sdpa-scale/sdpa-tf32@10.7.0#nvidia-l4", "bugs.make"),
    "bundle verify": Command(
        "run an archive by itself, in a fresh container", "", "sdpa-scale-sdpa-tf32-10.7.0.tar.gz",
        "bugs.make", "Nothing in the archive except its script is run or built; see docs/security.md."),
    "bisect": Command("find the version that introduced a failure", "files model",
                      "--case sdpa-scale/sdpa-tf32", "bugs.bisect"),
    "minimise": Command("find the smallest graph that still fails in the same way", "files model",
                        "sdpa-scale/sdpa-tf32@10.7.0#nvidia-l4 --good 10.8.0", "bugs.minimise"),
    "list": Command("list versions, repros and cases", "files select repros", "--repro sdpa-scale"),
    "doctor": Command("show what this host has and what it can run", "files select repros where"),
    "lock": Command("ask the registry which digests the image tags point to", "files select repros",
                    "--update", "images.lock"),
    "pack": Command("write everything that a host without a network needs", "files select repros",
                    "--trt 10.8.0 --to DIR", "images.pack"),
    "merge": Command("add records that were made elsewhere", "files", "records/", "images.merge"),
    "prepare": Command("write the files of a case, to run it by hand", "files", "sdpa-scale/sdpa-tf32"),
    "publish": Command("copy records measured here to where git tracks them", "files select repros where",
                       "--gpu H200"),
    "schema": Command("print the JSON Schema of matrix.yaml, of the site's settings, or of models.yaml"),
}  # fmt: skip
"""Every command; of two words where it has several actions."""

BUNDLE = "make or verify an archive that demonstrates a failure to the maintainers"

DESCRIPTION = """\
Shows what each TensorRT release does to a model on a given GPU. Runs repros on pinned versions and
compares every output with a float64 reference.

Exit codes: 0 as expected, 1 unexpected results, 2 usage or configuration, 3 a failure of the tool or host,
4 nothing was run or shown from a record, 130 interrupted; for upgrade: 0 go, 10 go with work-arounds,
11 don't, 12 not enough evidence; for bundle, bisect and minimise: 0 done (verified, found, smaller),
1 not done (the failure did not come back, no edge was found, nothing smaller fails)
"""


class _Parser(argparse.ArgumentParser):
    """A parser whose mistakes are one line and the remedy; ``versions``: its help lists them."""

    versions = False

    def format_help(self) -> str:
        """Return the help; only here are versions read."""
        text = super().format_help()
        return f"{text}\n{_list_versions()}".rstrip() + "\n" if self.versions else text

    def error(self, message: str) -> NoReturn:
        nox = " (leave out the --, which nox alone wants)" if "arguments: -- " in message else ""
        if wrong := re.match(r"argument command: invalid choice: '(.*?)'", message):
            meant = get_close_matches(wrong[1], COMMANDS, 1)
            message = f"there is no command {wrong[1]}" + (f"; perhaps you meant {meant[0]}" if meant else "")
        self.exit(2, f"trtmatrix: {message}{nox}\n  all options: {self.prog} --help\n")


def _list_versions() -> str:
    """Return the versions that this folder's matrix.yaml has for --from and --to, or nothing without one."""
    from trtmatrix.plan.context import read_matrix

    file, found = Path("matrix.yaml"), dict[str, list[str]]()
    try:
        for version in read_matrix(file).versions:
            found.setdefault(version.product.value, []).append(version.name)
    except (TrtMatrixError, OSError):
        return ""
    lines = [f"Versions of {file} for --from and --to, which are of one product:"]
    width = max(shutil.get_terminal_size().columns - 2, 40)
    for product, names in found.items():
        lines += textwrap.wrap(
            f"{product}: {', '.join(names)}", width, initial_indent=" ", subsequent_indent="   ",
            break_on_hyphens=False, break_long_words=False,
        )  # fmt: skip
    return "\n".join(lines)


def parse(argv: Sequence[str]) -> tuple[Callable[[Any], ExitCode], Any, Mapping[str, Any]]:
    """Return the command that is asked for, its options, and all that was given, by its place in them.

    ``SystemExit`` where a command line only asks for help, or is wrong.
    Only the module of the command that is asked for is imported: ``--help`` and ``list`` stay light.
    """
    style = argparse.RawDescriptionHelpFormatter
    parser = _Parser(prog="python -m trtmatrix", description=DESCRIPTION, formatter_class=style)
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(required=True, metavar="command")
    bundle = commands.add_parser("bundle", help=BUNDLE, description=f"{BUNDLE.capitalize()}.")
    actions = bundle.add_subparsers(required=True, metavar="make|verify")
    command: Any = None
    kind: type = object
    for name, one in COMMANDS.items():
        first, _, second = name.partition(" ")
        last, example = second or first, f"Example: python -m trtmatrix {name} {one.example}".strip()
        made = (actions if second else commands).add_parser(
            last, help=one.text, description=f"{one.text[0].upper()}{one.text[1:]}.", formatter_class=style,
            epilog=f"{one.about}\n\n{example}".strip(),
        )  # fmt: skip
        if [*argv[: len(name.split())]] == name.split():
            module = importlib.import_module(f"trtmatrix.{one.module}")
            command, kind = getattr(module, f"{last}_command"), getattr(module, f"{last.capitalize()}Options")
            made.versions = one.versions
            _add_options(made, kind, one.groups.split(), one.hides.split())
    given = vars(parser.parse_args(argv))
    try:
        return command, make_options(kind, given), given
    except argparse.ArgumentTypeError as error:
        several = " ".join(f"--models {shlex.quote(str(file))}" for file in given.get("model.model") or ())
        parser.error(f"{error}; several: {several}" if several and hasattr(kind, "models") else str(error))


def _add_options(
    parser: argparse.ArgumentParser, kind: type, groups: Sequence[str], hidden: Sequence[str]
) -> None:
    """Add the options that are a command's own, and those of its groups; of two of a name its own."""
    places: dict[str, Any] = dict.fromkeys(["", "controls", "upgrade"], parser)
    places |= {name: parser.add_argument_group(GROUPS[name]) for name in groups if name in GROUPS}
    places["repros"] = places.get("select")
    parser.add_argument("--traceback", action="store_true", help="show where an error came from")
    found = [*find_options(kind)]
    own = {names[0] for group, names, _ in found if not group}
    for group, names, settings in found:
        if not group or (group in groups and names[0] not in own):
            unseen = {"help": argparse.SUPPRESS} if names[0] in hidden else {}
            places[group].add_argument(*names, **{**settings, **unseen})


def main(argv: Sequence[str] | None = None) -> None:
    """Run one command and exit with its code."""
    os.umask(os.umask(0o077) & 0o077)  # what is made here can be used here, whatever the shell says
    outlets = _keep_streams()
    code = run(sys.argv[1:] if argv is None else argv)
    sys.stdout.flush()
    sys.stderr.flush()
    if lost := next((outlet for outlet in outlets if outlet.trouble), None):
        what = "output" if lost.fileno() == 1 else "error"
        print(f"trtmatrix: standard {what} cannot be written: {lost.trouble}", file=sys.stderr)
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
    hear_signals()
    try:
        command, options, given = parse(argv)
    except SystemExit as end:
        return ExitCode.USAGE if end.code else ExitCode.AS_EXPECTED
    network: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    if "project.offline" in given:
        from trtmatrix.common.offline import without_network

        network = without_network()
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
