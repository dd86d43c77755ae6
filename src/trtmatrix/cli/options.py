"""The options of all commands: each is declared once, with its type, its default and its help.

A command's options come to it as a frozen dataclass of its own (``RunOptions``), whose fields have the names
of the options: :func:`read_options` fills it.
"""

from __future__ import annotations

import argparse
import math
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeVar, get_type_hints

from trtmatrix import __version__

T = TypeVar("T")

# --- How values are read


def read_size(text: str) -> int:
    """Read ``512m``, ``4g`` or ``4GB`` as bytes, by powers of two; ``ArgumentTypeError`` where it is none."""
    match = re.fullmatch(r"0*([1-9]\d*)\s*([kmgt]?)i?b?", text.strip(), re.IGNORECASE)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no size such as 512m or 4GB")
    return int(match[1]) << {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}[match[2].lower()]


def _path(text: str) -> Path:
    if not text:  # Python would take it for the folder that one is in
        raise argparse.ArgumentTypeError("'' names no file or folder; leave the option out")
    return Path(text)


def _names(text: str, known: Sequence[str] = ()) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:  # an empty variable of a script must not mean all
        raise argparse.ArgumentTypeError(f"{text!r} names nothing; leave the option out for all")
    if known and (wrong := [name for name in names if name not in known]):
        raise argparse.ArgumentTypeError(f"{wrong[0]}: known are {', '.join(known)}")
    return names


def _number(kind: type[float], least: float, what: str, most: float = math.inf) -> Callable[[str], float]:
    """Return what reads an ``int`` or ``float`` of a range; ``ArgumentTypeError`` where it is none."""

    def read(text: str) -> float:
        try:
            value = kind(text) if kind is float or text.isdecimal() else math.nan
        except ValueError:
            value = math.nan
        if not least <= value <= most or value == math.inf:
            raise argparse.ArgumentTypeError(f"{text!r} is no {what}")
        return value

    return read


_seconds = _number(float, 1e-9, "number of seconds")
_factor = _number(float, 1, "factor of 1 or more, such as 1.10")
_count, _upto_100 = _number(int, 1, "number from 1", 10**9), _number(int, 1, "number from 1 to 100", 100)


# --- The options


class _Models(argparse.Action):
    """Takes one model; a command that takes several has them all in ``models`` once there is a second."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, value: object,
        option: str | None = None,
    ) -> None:  # fmt: skip
        first, several = namespace.model, getattr(namespace, "models", None)
        if (first or several) and several is None:
            parser.error(f"{option} {value}: one model at a time")
        namespace.model = None if first or several else value
        if first or several:
            namespace.models = [*(several or []), *([first] if first else []), value]


class Option(NamedTuple):
    """What argparse is told of an option."""

    names: list[str]
    settings: dict[str, Any]


def opt(words: str, text: str | None = None, **more: Any) -> Option:  # noqa: ANN401 - what argparse takes
    """Return an option by its names and, last, what stands for its value; without any it is a flag."""
    *names, last = words.split()
    if last.startswith("-"):
        flag = {} if more else {"action": "store_true"}
        return Option([*names, last], {"help": text, **flag, **more})
    return Option(names, {"help": text, "metavar": last, **more})


LIST: Mapping[str, Any] = {"action": "append", "default": []}
NAMES: Mapping[str, Any] = {"action": "extend", "default": [], "type": _names}
JSON = opt("--json", "print JSON")
FULL = opt("--full", "print every row with all figures")
TRACEBACK = opt("--traceback", "show where an error came from")
CONTROLS = opt(
    "--no-controls", "leave out controls that are not selected", action="store_false", dest="controls"
)
MATRIX = opt("--matrix FILE", "the versions", type=_path, default=Path("matrix.yaml"))
REPROS = opt("--repros DIR", "the repro scripts", type=_path, default=Path("repros"))
GOOD = opt("--good VERSION", "a version that is right; smaller models must also be right there")
CELL = opt("cell CELL", "a cell as the page (report) and --json show it: REPRO/CASE@VERSION#GPU")
TRIAL_SECONDS = opt("--seconds S", "time limit for one run of the archive", type=_seconds, default=1800)

GROUPS: dict[str, tuple[str, list[Option]]] = {
    "files": ("files and network", [
        MATRIX, REPROS,
        opt("--results DIR", "the stored records", type=_path, default=Path("results")),
        opt("--cache DIR", "prepared cases, environments, outputs (TRTMATRIX_CACHE, else ~/.cache/trtmatrix)",
            type=_path),
        opt("--offline", "use no network; find images by their ID"),
        opt("--registry HOST/PATH", "a mirror to use instead of nvcr.io/nvidia (TRTMATRIX_REGISTRY, else "
            "registry: in matrix.yaml)", default="")]),
    "select": ("selection (comma-separated or repeated; default: all)", [
        opt("--trt VERSION", "versions by name, or a product's name: 10.7.0,10.8.0 or onnxruntime", **NAMES),
        opt("--repro REPRO", "repros by name", **NAMES),
        opt("--case CASE", "cases by name or pattern: 'sdpa-*' or sdpa-scale/explicit-tf32", **NAMES),
        opt("--gpu GPU", "GPUs by name, in this host or not: L4, 'NVIDIA H200'", **NAMES),
        opt("--runtime RUNTIME", "container, wheels, or host (interpreters that have TensorRT)",
            **{**NAMES, "type": partial(_names, known=("container", "wheels", "host"))}),
        opt("--python PATH", "with --runtime host: an interpreter that has TensorRT (default: this one)",
            dest="pythons", **LIST)]),
    "show": ("output", [
        opt("--output -o FILE", "also write the tables as .md, .html, .json, .xml (JUnit) or .txt; may be "
            "repeated", type=_path, **LIST),
        FULL, JSON]),
    "model": ("your own model (instead of the repros; upgrade uses both)", [
        opt("--model FILE.onnx", type=_path, action=_Models),
        opt("--inputs NPZ|DIR", "its inputs: one .npz with one array per input, or a folder of such files, "
            "one per sample (default: random, from the graph's shapes)", type=_path),
        opt("--precision", "the precision that TensorRT may use", choices=["tf32", "fp32", "fp16"],
            default="tf32"),
        opt("--atol A", "accept |a - b| <= A + R |b|, element by element", type=float),
        opt("--rtol R", type=float),
        opt("--profile INPUT=MIN:OPT:MAX", "shapes of a dynamic input, such as ids=1x16:4x128:8x512, or "
            "values of an input that sets a shape, such as k=1:3:5 (default: taken from the inputs)",
            **LIST)]),
    "where": ("containers (docs/engines.md) and clusters (docs/slurm.md)", [
        opt("--engine", "container engine (TRTMATRIX_ENGINE, else auto: Docker, else Podman)",
            choices=["auto", "docker", "podman", "apptainer", "pyxis"], default=""),
        opt("--image VERSION=REFERENCE|FILE", "use this image for a version: a reference, or a file (.tar "
            "from docker save; .sif for apptainer; .sqsh for pyxis); may be repeated", dest="images", **LIST),
        opt("--executor", "this host (default), or the cluster described by the site's settings",
            choices=["local", "slurm"], default="local"),
        opt("--site FILE", "the site's settings (TRTMATRIX_SITE, else slurm.yaml beside matrix.yaml)",
            type=_path)]),
    "run": ("running", [
        opt("--plan", "print what would be started and why, without starting it"),
        opt("--rerun", "also run cells that have a current record"),
        opt("--rebuilds K", "build and run at least K engines of each cell, to see how much builds vary (1 "
            "to 100); a case of several processes runs K processes, which share one engine", type=_upto_100,
            default=1),
        opt("--no-confirm", "accept every result at once; by default an unexpected result of a shared "
            "process is run again alone", action="store_false", dest="confirm"),
        opt("--isolation", "what cells share: a warm process (default), a container with one process per "
            "cell, or nothing", choices=["worker", "process", "container"], default="worker"),
        opt("--pull", "which missing images to pull or build: those of versions named by --trt (default), "
            "all or none", choices=["named", "all", "never"], default="named"),
        opt("--locked", "refuse images that are not in matrix.lock"),
        opt("--keep", "which pulled images to keep after their last cell (default: all)",
            choices=["none", "all"], default="all"),
        opt("--memory SIZE", "memory limit of a container", type=read_size, default=32 << 30),
        opt("--output-size SIZE", "how much a cell may write", type=read_size, default=2 << 30)]),
    "upgrade": ("the move", [
        opt("--from VERSION", "the version in use", dest="before", required=True),
        opt("--to VERSION", "the version to move to", dest="after", required=True),
        opt("--models FILE|DIR", "many models in one report: models.yaml, a folder, or .onnx files; may be "
            "repeated (docs/upgrade.md)", type=_path, **LIST),
        opt("--tag TAG", "of these only the models with this tag", **NAMES),
        opt("--code DIR|FILE", "find uses of what changes, in Python, notebooks, shell and Dockerfiles; may "
            "be repeated. Exit code 11 if something must change", type=_path, **LIST),
        opt("--api", "only print how the two APIs differ and, with --code, where that is used"),
        opt("--check FILE.py", "your own acceptance test of the model's outputs: see docs/acceptance.md",
            type=_path),
        opt("--explain", "find the first layer of the model that goes wrong, if any does"),
        opt("--no-run", "decide from stored records; run nothing"),
        opt("--max-slowdown FACTOR", "how many times the latency, memory, engine size, build time or time an "
            "item may be what it was", type=_factor, default=1.1),
        opt("--no-performance", "leave latency, throughput, memory, engine size and build time out"),
        opt("--full", "print the whole report instead of one screen"),
        opt("--baseline REPORT.json", "the last accepted report: exit code 0 unless something is worse than "
            "in it (docs/ci.md)", type=_path),
        opt("--output -o FILE", "also write the report as .html, .md, .json or .xml (JUnit), or the uses in "
            "code as .sarif; may be repeated", type=_path, **LIST),
        JSON]),
    "bisect": ("what to look for, and where", [
        opt("--case CASE", "REPRO/CASE, or CASE if only one repro has it", dest="wanted_case"),
        opt("--exec COMMAND", "instead of a case: a shell command to run for each version ({version}, "
            "{image} are replaced); exit codes: 0 good, 1 to 124, 126 and 127 bad, 125 cannot say, 128 and "
            "above ends the search", dest="shell_command"),
        opt("--good VERSION", "a version that is right (default: found by search)"),
        opt("--bad VERSION", "a version that fails (default: found by search)"),
        opt("--gpu GPU", "a GPU by name (default: the one in this host)", dest="wanted_gpu"),
        opt("--product", choices=["tensorrt", "tensorrt-rtx", "onnxruntime"], default="tensorrt"),
        opt("--image IMAGE", "images, oldest first, instead of matrix.yaml's versions", nargs="+",
            action="extend", default=[]),
        opt("--rebuilds K", "engines to build before a version counts as good (default: 3)", type=_count),
        opt("--no-run", "use stored records; run nothing"),
        opt("--pull", "pull or build images that are not here"),
        opt("--output -o FILE.md", "also write the report", type=_path),
        JSON]),
}  # fmt: skip
"""Options that several commands have, or that are many: by title."""


class Command(NamedTuple):
    """What a command does, its groups of options, its own ones, an example, and the module that has it."""

    text: str
    groups: str = ""
    own: tuple[Option, ...] = ()
    example: str = ""
    module: str = "cli.commands"
    about: str = ""


COMMANDS: dict[str, Command] = {
    "run": Command("run everything that can be run here and print the tables",
                   "files select show model run where", (CONTROLS,),
                   "--trt 10.7.0,10.8.0 --repro sdpa-scale"),
    "table": Command("print the tables from stored records",
                     "files select show model where", (CONTROLS,), "--gpu H200 --full"),
    "upgrade": Command(
        "decide whether to move from one version to another", "files select model upgrade", (),
        "--from 8.6.1 --to 10.8.0 --gpu L4 --code src/", "upgrade.command",
        "Exit codes: 0 go, 10 go with work-arounds, 11 don't, or code given with --code must change first, "
        "12 not\n enough evidence, 2 a mistake in the command or a model's inputs. With --api only the code "
        "decides:\n 0 nothing must change, 11 something must, 12 no code could be scanned. A release whose "
        "API is known\n need not be in matrix.yaml for --api, nor for --code alone."),
    "check": Command(
        "find the nodes of a model that versions get wrong, from the file alone", "",
        (opt("file MODEL.onnx", "your model; its weights are not needed", type=_path),
         opt("--trt VERSION", "releases of TensorRT, comma-separated (default: all in matrix.yaml)", **NAMES),
         opt("--full", "print everything that was found instead of one screen"), JSON, MATRIX, REPROS),
        "my.onnx --trt 8.6.1,10.8.0", about=
        "Exit codes: 0 no node is known to fail (some may be expected to), 1 a node is known to be ignored, "
        "wrong or\n refused at one of the versions, 2 usage."),
    "operators": Command(
        "run ONNX's own tests of its operators on versions, or hold a model against their results",
        "files where",
        (opt("file MODEL.onnx", "say which operators of this model went wrong or were refused, with what the "
             "static check finds; nothing is run", type=_path, nargs="?"),
         *(option for option in GROUPS["select"][1] if option.names[0] not in {"--repro", "--case"}),
         opt("--case CASE", "tests of onnx, or operators, by name or pattern: 'test_clip*' or GridSample",
             dest="which", **NAMES),
         opt("--limit N", "run at most N cases, taken evenly from all of them", type=_count, default=0),
         opt("--workers N", "processes that run cases side by side (default: by cores and memory)",
             type=_number(int, 1, "number from 1 to 256", 256), default=0),
         opt("--seconds S", "time limit of a case; twice as much where it is run again alone", type=_seconds,
             default=30.0),
         opt("--write DIR", "write model, inputs and expected outputs of the chosen cases; nothing is run",
             type=_path),
         opt("--rerun", "also run versions that have a record of this suite"),
         opt("--no-run", "show stored records; run nothing", action="store_false", dest="run"),
         opt("--output -o FILE", "also write .html, .md or .json; may be repeated", type=_path, **LIST), FULL,
         JSON),
        "--trt 8.6.0", "operators.command",
        "Exit codes: 0 the suite was run or shown, whatever came of it; 3 a version could not be run,\n"
        " or trouble of this host left a case without a result; with a model: 1 an operator went wrong\n"
        " or is refused at one of the versions, or a node is known to fail."),
    "report": Command(
        "write the whole matrix as one page with filters", "files select where",
        (opt("--output -o FILE", ".html, .md, .json, .xml or .txt; may be repeated (default: report.html)",
             type=_path, **LIST),), "-o report.html"),
    "bundle make": Command(
        "write the archive of a failing cell", "files model",
        (CELL, opt("--to FILE", "where to write (default: ./REPRO-CASE-VERSION.tar.gz)", type=_path),
         opt("--yes", "do not ask; needed if stdin is not a terminal"),
         opt("--no-verify", "do not run the archive afterwards"), TRIAL_SECONDS, JSON),
        "sdpa-scale/sdpa-tf32@10.7.0#nvidia-l4", "bugs.make"),
    "bundle verify": Command(
        "run an archive by itself, in a fresh container", "",
        (opt("file FILE", type=_path),
         opt("--image IMAGE", "run it in this image instead of the recorded one", default=""),
         opt("--trust", "run it outside containers, with your rights, if its failure was seen that way"),
         TRIAL_SECONDS, JSON), "sdpa-scale-sdpa-tf32-10.7.0.tar.gz", "bugs.make",
        "Nothing in the archive except its script is run or built; see docs/security.md."),
    "bisect": Command("find the version that introduced a failure", "files model bisect", (),
                      "--case sdpa-scale/sdpa-tf32", "bugs.bisect"),
    "minimise": Command(
        "find the smallest graph that still fails in the same way", "files model",
        (CELL, GOOD, opt("--to DIR", "where to write (default: ./minimised-CASE-VERSION)", type=_path),
         opt("--steps N", "try at most N smaller models", type=_count, default=200),
         opt("--seconds S", "stop after S seconds", type=_seconds, default=3600), JSON),
        "sdpa-scale/sdpa-tf32@10.7.0#nvidia-l4 --good 10.8.0", "bugs.minimise"),
    "list": Command("list versions, repros and cases", "files select", (JSON,), "--repro sdpa-scale"),
    "doctor": Command("show what this host has and what it can run", "files select where", (JSON,)),
    "lock": Command(
        "ask the registry which digests the image tags point to", "files select",
        (opt("--update", "write the result to matrix.lock (default: only show it)"), JSON), "--update",
        "images.lock"),
    "pack": Command(
        "write everything that a host without a network needs", "files select",
        (opt("--to DIR", "where to write; new or empty", type=_path, required=True),
         opt("--for-python X.Y", "a Python version of the other host, for its wheels; may be repeated "
             "(default: this one's)", **LIST),
         opt("--records", "pack all local records, for merge")), "--trt 10.8.0 --to DIR", "images.pack"),
    "unpack": Command(
        "check a pack and load it, on a host without a network", "",
        (opt("folder DIR", "the folder of the pack", type=_path),
         opt("--into DIR", "where to write the suite (default: ./trtmatrix)", type=_path),
         opt("--check", "check every byte; load nothing"),
         opt("--python PATH", "the Python to run the suite with"), opt("--no-images", "load no images"),
         opt("--no-venv", "create no environment")), "DIR", "images.pack"),
    "merge": Command(
        "add records that were made elsewhere", "files",
        (opt("files FILE", "records: .json files, folders, packs of records", nargs="+", type=_path),),
        "records/", "images.merge"),
    "prepare": Command(
        "write the files of a case, to run it by hand", "files",
        (opt("which REPRO/CASE"), opt("--to DIR", "where to write (default: ./CASE)", type=_path)),
        "sdpa-scale/sdpa-tf32"),
    "publish": Command("copy records measured here to where git tracks them", "files select where", (),
                       "--gpu H200"),
    "schema": Command("print the JSON Schema of matrix.yaml, of the site's settings, or of models.yaml", "",
                      (opt("--site", "print the schema of slurm.yaml (docs/slurm.md)"),
                       opt("--models", "print the schema of models.yaml (docs/upgrade.md)"))),
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


# --- The parser


class _Parser(argparse.ArgumentParser):
    """A parser whose mistakes are one line and the remedy."""

    def error(self, message: str) -> NoReturn:
        nox = " (leave out the --, which nox alone wants)" if "arguments: -- " in message else ""
        if wrong := re.match(r"argument command: invalid choice: '(.*?)'", message):
            meant = get_close_matches(wrong[1], COMMANDS, 1)
            message = f"there is no command {wrong[1]}" + (f"; perhaps you meant {meant[0]}" if meant else "")
        self.exit(2, f"trtmatrix: {message}{nox}\n  all options: {self.prog} --help\n")

    def format_help(self) -> str:
        """Return the help; that of ``upgrade`` names the versions that the project's matrix.yaml has."""
        told = super().format_help()
        if not self.prog.endswith(" upgrade"):
            return told
        try:
            text = Path("matrix.yaml").read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return f"{told}\nVersions: those of matrix.yaml, which is not in this folder\n"
        names = re.findall(r"""^ *- *version: *["']?([a-z0-9.-]+)""", text, re.MULTILINE)
        return told + "\n" + textwrap.fill(f"Versions in matrix.yaml: {', '.join(names)}", 100) + "\n"


class _Help(argparse.RawDescriptionHelpFormatter):
    """Help that ends with the default of each option that has one and does not say it."""

    def _get_help_string(self, action: argparse.Action) -> str:
        told, value = action.help or "", action.default
        if not action.option_strings or "default" in told or isinstance(value, bool) or value in (
            None, "", 0, [], argparse.SUPPRESS,
        ):  # fmt: skip
            return told
        shown = f"{value >> 30}g" if isinstance(value, int) and value >= 1 << 30 else value
        return f"{told} (default: {shown})".strip().replace("%", "%%")


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands; ``command`` of what it parses is a key of :data:`COMMANDS`."""
    parser = _Parser(prog="python -m trtmatrix", description=DESCRIPTION, formatter_class=_Help)
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(required=True, metavar="command")
    actions = None
    for name, command in COMMANDS.items():
        first, _, second = name.partition(" ")
        if second and actions is None:
            bundle = commands.add_parser(first, help=BUNDLE, description=f"{BUNDLE.capitalize()}.")
            actions = bundle.add_subparsers(required=True, metavar="make|verify")
        example = f"Example: python -m trtmatrix {name} {command.example}".strip()
        made = (actions if second and actions else commands).add_parser(
            second or first, help=command.text, formatter_class=_Help,
            description=f"{command.text[0].upper()}{command.text[1:]}.",
            epilog=f"{command.about}\n\n{example}".strip(),
        )  # fmt: skip
        made.set_defaults(command=name)
        for option in (*command.own, TRACEBACK):
            made.add_argument(*option.names, **option.settings)
        for title, options in (GROUPS[word] for word in command.groups.split()):
            group = made.add_argument_group(title)
            for option in options:
                group.add_argument(*option.names, **option.settings)
    return parser


def read_options(kind: type[T], args: argparse.Namespace) -> T:
    """Return a command's options from what was parsed: each field has the name of its option.

    A field of a dataclass is read in the same way; what a command has no option for keeps its default.
    """
    from trtmatrix.suite.cells import Selection

    values, types, found = vars(args), get_type_hints(kind), dict[str, Any]()
    if kind is Selection:
        names = {"versions": "trt", "repros": "repro", "cases": "case", "gpus": "gpu", "runtimes": "runtime"}
        values = {field: values.get(option, []) for field, option in names.items()}
    for name in (field.name for field in fields(kind)):  # type: ignore[arg-type] # a dataclass
        wanted = types[name]
        if isinstance(wanted, type) and is_dataclass(wanted):
            found[name] = read_options(wanted, args)
        elif name in values:
            value = values[name]
            enum = isinstance(wanted, type) and issubclass(wanted, Enum)
            found[name] = wanted(value) if enum else tuple(value) if isinstance(value, list) else value
    return kind(**found)
