"""What every command starts from: the project's files as read, and what was selected of them."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

from trtmatrix.common.errors import ConfigError, UsageError, shorten
from trtmatrix.common.paths import Project, default_cache
from trtmatrix.launchers.lock import MACHINES, Lock, pin_matrix
from trtmatrix.launchers.references import parse_reference, read_file, with_own_images
from trtmatrix.plan.lockfile import REMEDY, parse_matrix_lock
from trtmatrix.suite.cells import Selection, select_cases, select_repros, select_versions
from trtmatrix.suite.digest import Code
from trtmatrix.suite.image_names import ENGINE, SUFFIXES
from trtmatrix.suite.matrix import Matrix, parse_matrix
from trtmatrix.suite.repro_files import LoadedRepro, read_repros
from trtmatrix.suite.repros import Repro

RUNTIMES = ("container", "wheels", "host")


@dataclass(frozen=True, kw_only=True)
class Context:
    """The project as read, and what the user selected of it.

    ``controls``: these go along. ``code``: digests of this program's own code. The images of ``matrix`` are
    known by ``lock`` (matrix.lock). ``offline``: no connection is ever opened. ``engine``: which one is meant
    (:data:`trtmatrix.suite.image_names.SUFFIXES`). ``told``: warnings that were
    shown, which are not shown again by a command of many runs.
    """

    project: Project
    matrix: Matrix
    repros: dict[str, LoadedRepro]
    selection: Selection
    pythons: tuple[str, ...]
    controls: bool = True
    code: Code = field(default_factory=Code)
    lock: Lock = field(default_factory=Lock)
    offline: bool = False
    engine: str = "auto"
    told: set[str] = field(default_factory=set, compare=False)

    @property
    def plain_repros(self) -> list[Repro]:
        """The repros without their modules."""
        return [loaded.repro for loaded in self.repros.values()]


def open_context(args: argparse.Namespace) -> Context:
    """Read matrix.yaml and the repros, check the selection; all mistakes are told. Nothing is written."""
    project = Project(
        matrix=args.matrix, repros=args.repros, results=args.results,
        cache=(args.cache or default_cache()).resolve(),
    )  # fmt: skip
    selection = _selection(args)
    problems: list[str] = []
    matrix, lock, loaded = None, Lock(), []
    try:
        matrix = read_matrix(project.matrix)
    except ConfigError as error:
        problems += error.problems
    try:
        lock = read_lock(project.lock)
    except ConfigError as error:
        problems += error.problems
    try:
        loaded = read_repros(project.repros)
    except ConfigError as error:
        problems += error.problems
    if matrix is None or problems:
        raise ConfigError(problems)
    repros = {item.repro.id: item for item in loaded}
    engine = _engine(args)
    matrix = replace(matrix, registry=_registry(args, matrix))
    matrix = pin_matrix(_with_own_images(args, matrix, engine, project), lock, own_platform())
    context = Context(
        project=project, matrix=matrix, repros=repros, selection=selection,
        pythons=tuple(getattr(args, "python", []) or [sys.executable]),
        controls=not getattr(args, "no_controls", False), code=loaded[0].code,
        lock=lock, offline=getattr(args, "offline", False), engine=engine,
    )  # fmt: skip
    select_versions(matrix, selection)
    select_cases(select_repros(context.plain_repros, selection), selection)
    return context


def read_matrix(path: Path) -> Matrix:
    """Read matrix.yaml; :class:`ConfigError` where it is not there or has mistakes."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            [
                f"{path}: cannot be read: {error}; run this in the project's folder, "
                "or name the file by --matrix"
            ]
        ) from error
    return parse_matrix(text, str(path))


def read_lock(path: Path) -> Lock:
    """Read matrix.lock; an empty one where there is none, :class:`ConfigError` where it has mistakes."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Lock()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([f"{path}: cannot be read: {error}", f"{path}: {REMEDY}"]) from error
    return parse_matrix_lock(text, str(path))


def own_platform() -> str:
    """Return what this host runs, as registries name it: ``linux/amd64``."""
    machine = os.uname().machine
    return f"linux/{MACHINES.get(machine, machine)}"


def _registry(args: argparse.Namespace, matrix: Matrix) -> str:
    """Return the mirror that is set: by the command line, the environment, or matrix.yaml."""
    settings = {
        "--registry": getattr(args, "registry", None) or "",
        "TRTMATRIX_REGISTRY": os.environ.get("TRTMATRIX_REGISTRY", ""),
        "registry: in matrix.yaml": matrix.registry,
    }
    name, mirror = next(((name, value) for name, value in settings.items() if value), ("", ""))
    if mirror:
        _check_mirror(name, mirror)
    return mirror


def _engine(args: argparse.Namespace) -> str:
    """Return which engine is meant; what asks one over its socket, here and in our children, is told so."""
    if named := getattr(args, "engine", None):
        os.environ[ENGINE] = named
    engine = os.environ.get(ENGINE) or "auto"
    if engine not in SUFFIXES:
        raise UsageError(f"{ENGINE} is {engine}: known are {', '.join(SUFFIXES)}")
    return engine


def _with_own_images(args: argparse.Namespace, matrix: Matrix, engine: str, project: Project) -> Matrix:
    """Return the matrix with the images that ``--image`` names in place of its own."""
    texts = getattr(args, "own_images", None)
    if not texts:
        return matrix
    return with_own_images(matrix, texts, engine, lambda file: read_file(file, project.cache))


def _check_mirror(setting: str, value: str) -> None:
    """Refuse what no image's name can start with, by the name of the setting that has it."""
    try:
        parse_reference(f"{value.rstrip('/')}/image:tag")
    except UsageError as error:
        raise UsageError(
            f"{setting} {shorten(value)}: names no registry\n"
            "  write HOST or HOST/PATH, without https:// and without a tag, such as my.mirror/nvidia"
        ) from error


def _selection(args: argparse.Namespace) -> Selection:
    names = {name: tuple(getattr(args, name, [])) for name in ("trt", "repro", "case", "gpu", "runtime")}
    for runtime in names["runtime"]:
        if runtime not in RUNTIMES:
            raise UsageError(f"--runtime {runtime}: known are {', '.join(RUNTIMES)}")
    return Selection(
        versions=names["trt"], repros=names["repro"], cases=names["case"], gpus=names["gpu"],
        runtimes=names["runtime"],
    )  # fmt: skip
