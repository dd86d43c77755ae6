"""The options of all commands, as argparse knows them."""

from __future__ import annotations

import argparse
import math
import re
from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from trtmatrix import __version__

DESCRIPTION = """\
Shows what each TensorRT release does to a model on a given GPU. Runs repros on pinned versions and
compares every output with a float64 reference.

Exit codes: 0 as expected, 1 unexpected results, 2 usage or configuration, 3 a failure of the tool or host,
4 nothing was run or shown from a record, 130 interrupted; for upgrade: 0 go, 10 go with work-arounds,
11 don't, 12 not enough evidence; for bundle, bisect and minimise: 0 done (verified, found, smaller),
1 not done (the failure did not come back, no edge was found, nothing smaller fails)
"""

UPGRADE_CODES = """\
Exit codes: 0 go, 10 go with work-arounds, 11 don't, or code given with --code must change first, 12 not
enough evidence. With --api only the code decides: 0 nothing must change, 11 something must, 12 no code
could be scanned. A release whose API is known need not be in matrix.yaml for --api, nor for --code alone."""
CHECK_CODES = """\
Exit codes: 0 no node is known to fail (some may be feared to), 1 a node is known to be ignored, wrong or
refused at one of the versions, 2 usage."""
VERIFY = (
    "Run an archive by itself, in a container without a network, and say whether its failure comes back. "
    "Nothing in it except its script is run or built; see docs/security.md."
)
SIZE = re.compile(r"(\d+)\s*([kmgt]?)i?b?", re.IGNORECASE)

Group = argparse._ActionsContainer  # noqa: SLF001 - a parser, or a group of its options


class _Parser(ArgumentParser):
    """A parser whose mistakes are one line and the remedy."""

    def error(self, message: str) -> NoReturn:
        """Tell what is wrong with the command line."""
        nox = " (leave out the --, which nox alone wants)" if "arguments: -- " in message else ""
        self.exit(2, f"trtmatrix: {message}{nox}\n  all options: {self.prog} --help\n")


class _Help(argparse.RawDescriptionHelpFormatter):
    """Help that ends with the default of each option that has one and does not say it."""

    def _get_help_string(self, action: argparse.Action) -> str:
        told, value = action.help or "", action.default
        if not action.option_strings or "default" in told or value in (None, False, [], argparse.SUPPRESS):
            return told
        if isinstance(value, int) and value >= 1 << 30:
            return f"{told} (default: {value >> 30}g)"
        return f"{told} (default: {value})".strip().replace("%", "%%")


def make_parser() -> ArgumentParser:
    """Return the parser of all commands."""
    parser = _Parser(prog="python -m trtmatrix", description=DESCRIPTION, formatter_class=_Help)
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    for name, text, adders in COMMANDS:
        command = commands.add_parser(
            name, help=text, description=f"{text[0].upper()}{text[1:]}.", formatter_class=_Help,
            epilog=f"Example: python -m trtmatrix {name} {EXAMPLES[name]}".strip(),
        )  # fmt: skip
        command.set_defaults(traceback=False)
        for add in adders:
            add(command)
        _flag(command, "--traceback", "show where an error came from")
    return parser


def read_size(text: str) -> int:
    """Read ``512m``, ``4g`` or ``4GB`` as bytes, by powers of two; ``ArgumentTypeError`` where it is none."""
    match = SIZE.fullmatch(text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no size such as 512m or 4GB")
    return int(match[1]) << {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}[match[2].lower()]


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1")
    return int(text)


def _rebuilds(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 100:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 to 100")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds")
    return value


def _option(
    group: Group,
    names: str,
    metavar: str | None,
    text: str | None = None,
    **more: Any,  # noqa: ANN401 - what argparse takes
) -> None:
    """Add an option with one value."""
    group.add_argument(*names.split(), metavar=metavar, help=text, **more)


def _repeated(
    group: Group,
    names: str,
    metavar: str,
    text: str,
    **more: Any,  # noqa: ANN401 - what argparse takes
) -> None:
    """Add an option that may be repeated."""
    group.add_argument(*names.split(), action="append", default=[], metavar=metavar, help=text, **more)


def _flag(group: Group, name: str, text: str) -> None:
    group.add_argument(name, action="store_true", help=text)


def _no_controls(text: str) -> Callable[[ArgumentParser], None]:
    return lambda parser: _flag(parser, "--no-controls", text)


def _json(parser: ArgumentParser) -> None:
    _flag(parser, "--json", "print JSON")


def _files(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("files")
    _option(group, "--matrix", "FILE", "the versions", type=Path, default=Path("matrix.yaml"))
    _option(group, "--repros", "DIR", "the repro scripts", type=Path, default=Path("repros"))
    _option(group, "--results", "DIR", "the stored records", type=Path, default=Path("results"))
    cache = "prepared cases, environments, outputs (TRTMATRIX_CACHE, else ~/.cache/trtmatrix)"
    _option(group, "--cache", "DIR", cache, type=Path)
    group = parser.add_argument_group("network")
    _flag(group, "--offline", "use no network; find images by their ID")
    mirror = "a mirror to use instead of nvcr.io/nvidia (TRTMATRIX_REGISTRY, else registry: in matrix.yaml)"
    _option(group, "--registry", "HOST/PATH", mirror)


def _select(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("selection (comma-separated or repeated; default: all)")
    for name, metavar, text in (
        ("--trt", "VERSION", "versions by name, or a product's name: 10.7.0,10.8.0 or onnxruntime"),
        ("--repro", "REPRO", "repros by name"),
        ("--case", "CASE", "cases by name or pattern: 'sdpa-*' or sdpa-scale/explicit-tf32"),
        ("--gpu", "GPU", "GPUs by name, in this host or not: L4, 'NVIDIA H200'"),
        ("--runtime", "RUNTIME", "container, wheels, or host (interpreters that have TensorRT)"),
    ):
        _option(group, name, metavar, text, action="extend", type=_names, default=[])
    python = "with --runtime host: an interpreter that has TensorRT (default: this one)"
    _repeated(group, "--python", "PATH", python)


def _show(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("output")
    text = "also write the tables as .md, .html, .json, .xml (JUnit) or .txt; may be repeated"
    _repeated(group, "--output -o", "FILE", text, type=Path)
    _flag(group, "--full", "print every row with all figures")
    _json(parser)


def _model(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("your own model (instead of the repros; upgrade uses both)")
    _option(group, "--model", "FILE.onnx", type=Path)
    inputs = (
        "its inputs: one .npz with one array per input, or a folder of such files, one per sample "
        "(default: random, from the graph's shapes)"
    )
    _option(group, "--inputs", "NPZ|DIR", inputs, type=Path)
    precision = "the precision that TensorRT may use"
    _option(group, "--precision", None, precision, choices=["tf32", "fp32", "fp16"], default="tf32")
    _option(group, "--atol", "A", "accept |a - b| <= A + R |b|, element by element", type=float)
    _option(group, "--rtol", "R", type=float)
    _repeated(
        group, "--profile", "INPUT=MIN:OPT:MAX",
        "shapes of a dynamic input, such as ids=1x16:4x128:8x512, or values of an input that sets a shape, "
        "such as k=1:3:5 (default: taken from the inputs)",
    )  # fmt: skip


def _where(parser: ArgumentParser) -> None:
    """Add what starts containers, and whose GPUs are meant: this host's, or through Slurm a cluster's."""
    group = parser.add_argument_group("containers (docs/engines.md)")
    engines = ["auto", "docker", "podman", "apptainer", "pyxis"]
    engine = "container engine (TRTMATRIX_ENGINE, else auto: Docker, or Podman if there is no Docker)"
    _option(group, "--engine", None, engine, choices=engines)
    _repeated(
        group, "--image", "VERSION=REFERENCE|FILE",
        "use this image for a version: a reference, or a file (.tar from docker save; .sif for "
        "apptainer; .sqsh for pyxis); may be repeated", dest="own_images",
    )  # fmt: skip
    group = parser.add_argument_group("where")
    executor = "this host (default), or the cluster described by the site's settings (docs/slurm.md)"
    _option(group, "--executor", None, executor, choices=["local", "slurm"], default="local")
    site = "the site's settings (TRTMATRIX_SITE, else slurm.yaml beside matrix.yaml)"
    _option(group, "--site", "FILE", site, type=Path)


def _run(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("running")
    _flag(group, "--plan", "print what would be started, without starting it")
    _flag(group, "--stale", "print why each cell would or would not be run, without running it")
    _flag(group, "--rerun", "also run cells that have a current record")
    rebuilds = (
        "build and run at least K engines of each cell, to see how much builds vary (1 to 100); a case "
        "of several processes runs K processes, which share one engine"
    )
    _option(group, "--rebuilds", "K", rebuilds, type=_rebuilds, default=1)
    _flag(
        group, "--no-confirm",
        "accept every result at once; by default an unexpected result of a shared process is run again alone",
    )  # fmt: skip
    shared = "what cells share: a warm process (default), a container with one process per cell, or nothing"
    isolations = ["worker", "process", "container"]
    _option(group, "--isolation", None, shared, choices=isolations, default="worker")
    pull = "which missing images to pull or build: those of versions named by --trt (default), all or none"
    _option(group, "--pull", None, pull, choices=["named", "all", "never"], default="named")
    _flag(group, "--locked", "refuse images that are not in matrix.lock")
    keep = "which pulled images to keep after their last cell (default: all)"
    _option(group, "--keep", None, keep, choices=["none", "locked", "all"], default="all")
    _option(group, "--memory", "SIZE", "memory limit of a container", type=read_size, default=32 << 30)
    _option(group, "--output-size", "SIZE", "how much a cell may write", type=read_size, default=2 << 30)


def _upgrade(parser: ArgumentParser) -> None:
    parser.epilog = f"{UPGRADE_CODES}\n\n{parser.epilog}"
    group = parser.add_argument_group("the move")
    _option(group, "--from", "VERSION", "the version in use", dest="before", required=True)
    _option(group, "--to", "VERSION", "the version to move to", dest="after", required=True)
    code = (
        "find uses of what changes, in Python, notebooks, shell and Dockerfiles; may be repeated. "
        "Exit code 11 if something must change"
    )
    _repeated(group, "--code", "DIR|FILE", code, type=Path)
    api = "only print how the two APIs differ and, with --code, where that is used"
    _flag(group, "--api", api)
    check = "your own acceptance test of the model's outputs: see docs/acceptance.md"
    _option(group, "--check", "FILE.py", check, type=Path)
    _flag(group, "--explain", "find the first layer of the model that goes wrong, if any does")
    _flag(group, "--no-run", "decide from stored records; run nothing")
    slow = "how many times the latency, memory, engine size or build time may be what it was"
    _option(group, "--max-slowdown", "FACTOR", slow, type=_factor, default=1.1)
    _flag(group, "--no-performance", "leave latency, memory, engine size and build time out")
    _flag(group, "--full", "print the whole report instead of one screen")
    output = "also write the report as .html, .md or .json, or the uses in code as .sarif; may be repeated"
    _repeated(group, "--output -o", "FILE", output, type=Path)


def _factor(text: str) -> float:
    if not math.isfinite(factor := float(text)) or factor < 1:
        raise argparse.ArgumentTypeError("a factor of 1 or more is wanted, such as 1.10")
    return factor


def _report(parser: ArgumentParser) -> None:
    text = ".html, .md or .json; may be repeated (default: report.html)"
    _repeated(parser, "--output -o", "FILE", text, type=Path)


def _bundle(parser: ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="make|verify")
    make = actions.add_parser("make", help="write the archive of a failing cell")
    _files(make)
    _model(make)
    _option(make, "cell", "CELL", "a cell as the tables print it: REPRO/CASE@VERSION#GPU")
    _option(make, "--to", "FILE", "where to write (default: ./REPRO-CASE-VERSION.tar.gz)", type=Path)
    _flag(make, "--yes", "do not ask; needed if stdin is not a terminal")
    _flag(make, "--no-verify", "do not run the archive afterwards")
    text = "run an archive by itself, in a fresh container"
    verify = actions.add_parser("verify", help=text, description=VERIFY)
    _option(verify, "file", "FILE", type=Path)
    _option(verify, "--image", "IMAGE", "run it in this image instead of the recorded one", default="")
    _flag(verify, "--trust", "run it outside containers, with your rights, if its failure was seen that way")
    for command in (make, verify):
        seconds = "time limit for one run of the archive"
        _option(command, "--seconds", "S", seconds, type=_seconds, default=1800.0)
        _json(command)
        _flag(command, "--traceback", "show where an error came from")


def _bisect(parser: ArgumentParser) -> None:
    what = parser.add_argument_group("what to look for")
    case = "REPRO/CASE, or CASE if only one repro has it"
    _option(what, "--case", "CASE", case, dest="wanted_case")
    shell = (
        "instead of a case: a shell command to run for each version ({version}, {image} are replaced); exit "
        "codes: 0 good, 1 to 124, 126 and 127 bad, 125 cannot say, 128 and above ends the search"
    )
    _option(what, "--exec", "COMMAND", shell, dest="shell_command")
    where = parser.add_argument_group("where")
    _option(where, "--good", "VERSION", "a version that is right (default: found by search)")
    _option(where, "--bad", "VERSION", "a version that fails (default: found by search)")
    _option(where, "--gpu", "GPU", "a GPU by name (default: the one in this host)", dest="wanted_gpu")
    products = ["tensorrt", "tensorrt-rtx", "onnxruntime"]
    _option(where, "--product", None, default="tensorrt", choices=products)
    _repeated(where, "--image", "IMAGE", "images, oldest first, instead of matrix.yaml's versions", nargs="+")
    how = parser.add_argument_group("how")
    rebuilds = "engines to build before a version counts as good (default: 3)"
    _option(how, "--rebuilds", "K", rebuilds, type=_count)
    _flag(how, "--no-run", "use stored records; run nothing")
    _flag(how, "--pull", "pull or build images that are not here")
    _option(how, "--output -o", "FILE.md", "also write the report", type=Path)


def _minimise(parser: ArgumentParser) -> None:
    _option(parser, "cell", "CELL", "a cell as the tables print it: REPRO/CASE@VERSION#GPU")
    _option(parser, "--good", "VERSION", "a version that is right; smaller models must also be right there")
    _option(parser, "--to", "DIR", "where to write (default: ./minimised-CASE)", type=Path)
    _option(parser, "--steps", "N", "try at most N smaller models (default: 200)", type=_count, default=200)
    _option(parser, "--seconds", "S", "stop after S seconds (default: 3600)", type=_seconds, default=3600.0)


def _check(parser: ArgumentParser) -> None:
    parser.epilog = f"{CHECK_CODES}\n\n{parser.epilog}"
    _option(parser, "file", "MODEL.onnx", "your model; its weights are not needed", type=Path)
    versions = "releases of TensorRT, comma-separated (default: all in matrix.yaml)"
    _option(parser, "--trt", "VERSION", versions, action="extend", type=_names, default=[])
    _flag(parser, "--full", "print everything that was found instead of one screen")
    _json(parser)
    _option(parser, "--matrix", "FILE", "the versions", type=Path, default=Path("matrix.yaml"))
    _option(parser, "--repros", "DIR", "where the rules are", type=Path, default=Path("repros"))


def _surfaces(parser: ArgumentParser) -> None:
    _option(parser, "--to", "DIR", "where to write (default: into the package)", type=Path)


def _lock(parser: ArgumentParser) -> None:
    _flag(parser, "--update", "write the result to matrix.lock (default: only show it)")


def _pack(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("the pack")
    _option(group, "--to", "DIR", "where to write; new or empty", type=Path, required=True)
    pythons = "a Python version of the other host, for its wheels; may be repeated (default: this one's)"
    _repeated(group, "--for-python", "X.Y", pythons)
    _flag(group, "--records", "pack only records, for merge")


def _unpack(parser: ArgumentParser) -> None:
    _option(parser, "folder", "DIR", "the folder of the pack", type=Path)
    _option(parser, "--into", "DIR", "where to write the suite (default: ./trtmatrix)", type=Path)
    _flag(parser, "--check", "check every byte; load nothing")
    _option(parser, "--python", "PATH", "the Python to run the suite with")
    _flag(parser, "--no-images", "load no images")
    _flag(parser, "--no-venv", "create no environment")


def _merge(parser: ArgumentParser) -> None:
    _option(parser, "files", "FILE", "records: .json files, folders, packs of records", nargs="+", type=Path)


def _prepare(parser: ArgumentParser) -> None:
    _option(parser, "which", "REPRO/CASE")
    _option(parser, "--to", "DIR", "where to write (default: ./CASE)", type=Path)


def _schema(parser: ArgumentParser) -> None:
    _flag(parser, "--site", "print the schema of slurm.yaml (docs/slurm.md)")


EXAMPLES = {
    "run": "--trt 10.7.0,10.8.0 --repro sdpa-scale", "table": "--gpu H200 --full",
    "upgrade": "--from 8.6.1 --to 10.8.0 --gpu L4 --code src/", "report": "-o report.html",
    "check": "my.onnx --trt 8.6.1,10.8.0",
    "bundle": "make sdpa-scale/sdpa-tf32@10.7.0#l4", "bisect": "--case sdpa-scale/sdpa-tf32",
    "minimise": "sdpa-scale/sdpa-tf32@10.7.0#l4 --good 10.8.0", "surfaces": "", "list": "--repro sdpa-scale",
    "doctor": "--no-controls", "lock": "--update", "pack": "--trt 10.8.0 --to DIR", "unpack": "DIR",
    "merge": "records/", "prepare": "sdpa-scale/sdpa-tf32", "publish": "--gpu H200", "schema": "",
}  # fmt: skip
"""What help shows of each command."""

COMMANDS: tuple[tuple[str, str, tuple[Callable[[ArgumentParser], None], ...]], ...] = (
    ("run", "run everything that can be run here and print the tables",
     (_files, _select, _show, _model, _run, _where,
      _no_controls("leave out controls that are not selected"))),
    ("table", "print the tables from stored records",
     (_files, _select, _show, _model, _no_controls("leave out controls that are not selected"), _where)),
    ("upgrade", "decide whether to move from one version to another",
     (_files, _select, _model, _upgrade, _json)),
    ("check", "find the nodes of a model that versions get wrong, from the file alone", (_check,)),
    ("report", "write the whole matrix as one page with filters", (_files, _select, _report, _where)),
    ("bundle", "make or verify an archive that demonstrates a failure to the maintainers", (_bundle,)),
    ("bisect", "find the version that introduced a failure", (_files, _model, _bisect, _json)),
    ("minimise", "find the smallest graph and shapes that still fail in the same way",
     (_files, _model, _minimise, _json)),
    ("surfaces", "read the APIs of new releases from NVIDIA's own bindings", (_files, _surfaces)),
    ("list", "list versions, repros and cases", (_files, _select, _json)),
    ("doctor", "show what this host has and what it can run",
     (_files, _select, _json, _no_controls("only inspect the host; run no controls"), _where)),
    ("lock", "ask the registry which digests the image tags point to", (_files, _select, _lock, _json)),
    ("pack", "write everything that a host without a network needs", (_files, _select, _pack)),
    ("unpack", "check a pack and load it, on a host without a network", (_unpack,)),
    ("merge", "add records that were made elsewhere", (_files, _merge, _json)),
    ("prepare", "write the files of a case, to run it by hand", (_files, _prepare)),
    ("publish", "copy records measured here to where git tracks them", (_files, _select, _where)),
    ("schema", "print the JSON Schema of matrix.yaml, or of the site's settings", (_schema,)),
)  # fmt: skip
"""Each command's name, what it does, and what adds its options."""
