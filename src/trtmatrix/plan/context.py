"""What every command starts from: the project's files as read, and what was selected of them."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from trtmatrix.common.errors import ConfigError, UsageError, shorten
from trtmatrix.common.options import flag, many, value
from trtmatrix.common.paths import Project, default_cache
from trtmatrix.launchers.references import MACHINES, with_own_images
from trtmatrix.plan.lockfile import REMEDY, Lock, parse_matrix_lock, pin_matrix
from trtmatrix.suite.cells import Selection, select_cases, select_repros, select_versions
from trtmatrix.suite.matrix import REGISTRY, Matrix, parse_matrix
from trtmatrix.suite.plan import ENGINE, IMAGE_SUFFIXES
from trtmatrix.suite.repro_files import LoadedRepro, read_repros
from trtmatrix.suite.repros import Repro

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class ProjectOptions:
    """Which files a command works on, what it selects of them, and how it reaches images."""

    matrix: Path = value("--matrix FILE", "the versions", "files", default=Path("matrix.yaml"))
    repros: Path = value("--repros DIR", "the repro scripts", "files", default=Path("repros"))
    results: Path = value("--results DIR", "the stored records", "files", default=Path("results"))
    cache: Path | None = value("--cache DIR", "prepared cases, environments, outputs (TRTMATRIX_CACHE, else "
        "~/.cache/trtmatrix)", "files")  # fmt: skip
    offline: bool = flag("--offline", "use no network; find images by their ID", "files")
    registry: str = value("--registry HOST/PATH", "a mirror to use instead of nvcr.io/nvidia "
        "(TRTMATRIX_REGISTRY, else registry: in matrix.yaml)", "files", default="")  # fmt: skip
    selection: Selection = field(default_factory=Selection)
    pythons: tuple[str, ...] = many("--python PATH", "with --runtime host: an interpreter that has TensorRT "
        "(default: this one)", "select")  # fmt: skip
    controls: bool = flag("--no-controls", "leave out controls that are not selected", "controls",
        default=True)  # fmt: skip
    engine: str = value("--engine", "container engine (TRTMATRIX_ENGINE, else auto: Docker, else Podman)",
        "where", default="", choices=["auto", "docker", "podman", "apptainer", "pyxis"])  # fmt: skip
    images: tuple[str, ...] = many("--image VERSION=REFERENCE|FILE", "use this image for a version: a "
        "reference, or a file (.tar from docker save; .sif for apptainer; .sqsh for pyxis); may be repeated",
        "where")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Context:
    """The project as read, and what the user selected of it.

    ``controls``: these go along. The images of ``matrix`` are
    known by ``lock`` (matrix.lock). ``offline``: no connection is ever opened. ``engine``: which one is meant
    (:data:`trtmatrix.suite.plan.IMAGE_SUFFIXES`).
    """

    project: Project
    matrix: Matrix
    repros: dict[str, LoadedRepro]
    selection: Selection
    pythons: tuple[str, ...]
    controls: bool = True
    lock: Lock = field(default_factory=Lock)
    offline: bool = False
    engine: str = "auto"

    @property
    def plain_repros(self) -> list[Repro]:
        """The repros without their modules."""
        return [loaded.repro for loaded in self.repros.values()]


def open_context(options: ProjectOptions) -> Context:
    """Read matrix.yaml and the repros, check the selection; all mistakes are told. Nothing is written."""
    project = Project(
        matrix=options.matrix, repros=options.repros, results=options.results,
        cache=(options.cache or default_cache()).resolve(),
    )  # fmt: skip
    for option, folder in (("--results", project.results), ("--cache", project.cache)):
        if folder.exists() and not folder.is_dir():
            raise UsageError(f"{option} {folder}: this is a file; name a folder")
    problems: list[str] = []

    def attempt(read: Callable[[Path], T], path: Path) -> T | None:
        try:
            return read(path)
        except ConfigError as error:
            problems.extend(error.problems)
            return None

    matrix, lock = attempt(read_matrix, project.matrix), attempt(read_lock, project.lock)
    loaded = attempt(read_repros, project.repros)
    if matrix is None or lock is None or loaded is None:
        raise ConfigError(problems)
    if options.engine:  # what asks one over its socket, here and in our children, is told so
        os.environ[ENGINE] = options.engine
    if (engine := os.environ.get(ENGINE) or "auto") not in IMAGE_SUFFIXES:
        raise UsageError(f"{ENGINE} is {engine}: known are {', '.join(IMAGE_SUFFIXES)}")
    matrix = replace(matrix, registry=_registry(options, matrix))
    matrix = with_own_images(matrix, options.images, engine, project.cache)
    context = Context(
        project=project, matrix=pin_matrix(matrix, lock, own_platform()), selection=options.selection,
        repros={item.repro.id: item for item in loaded}, pythons=options.pythons or (sys.executable,),
        controls=options.controls, lock=lock, offline=options.offline, engine=engine,
    )  # fmt: skip
    select_versions(matrix, options.selection)
    select_cases(select_repros(context.plain_repros, options.selection), options.selection)
    return context


def read_matrix(path: Path) -> Matrix:
    """Read matrix.yaml; :class:`ConfigError` where it is not there or has mistakes."""
    return parse_matrix(
        _read(path, "run this in the project's folder, or name the file by --matrix"), str(path)
    )


def read_lock(path: Path) -> Lock:
    """Read matrix.lock; an empty one where there is none, :class:`ConfigError` where it has mistakes."""
    return parse_matrix_lock(_read(path, REMEDY), str(path)) if path.exists() else Lock()


def _read(path: Path, advice: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([f"{path}: cannot be read: {error}; {advice}"]) from error


def own_platform() -> str:
    """Return what this host runs, as registries name it: ``linux/amd64``."""
    machine = os.uname().machine
    return f"linux/{MACHINES.get(machine, machine)}"


def _registry(options: ProjectOptions, matrix: Matrix) -> str:
    """Return the mirror that is set: by the command line, the environment, or matrix.yaml."""
    mirror = options.registry or os.environ.get("TRTMATRIX_REGISTRY", "") or matrix.registry
    if not re.fullmatch(REGISTRY, mirror.rstrip("/")):
        told = f"the registry {shorten(mirror)} (--registry, TRTMATRIX_REGISTRY or matrix.yaml) is none"
        raise UsageError(f"{told}\n  write HOST or HOST/PATH, without https://, such as my.mirror/nvidia")
    return mirror
