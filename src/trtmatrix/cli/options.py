"""What commands are called with: the command line as typed, frozen options."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from trtmatrix.launchers.container import Limits
from trtmatrix.model.own_model import ModelOptions
from trtmatrix.plan.context import ProjectOptions
from trtmatrix.run.perform import Options
from trtmatrix.suite.plan import Isolation, Keep, Pull

IN_ARRAY = "SLURM_ARRAY_TASK_ID"
"""Set in the tasks of an array, which share a folder of results: none keeps a page or a log of its own."""

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Where:
    """Whose GPUs are meant: this host's, or those of a cluster with the site's settings."""

    executor: str
    site: Path | None


@dataclass(frozen=True, kw_only=True)
class ProjectCommand:
    """Those of ``list``, and of every command below."""

    project: ProjectOptions
    json: bool = False


@dataclass(frozen=True, kw_only=True)
class HostCommand(ProjectCommand):
    """Those of ``doctor`` and ``publish``."""

    where: Where


@dataclass(frozen=True, kw_only=True)
class ReportOptions(HostCommand):
    """Those of ``report``."""

    output: tuple[Path, ...]


@dataclass(frozen=True, kw_only=True)
class TableOptions(ReportOptions):
    """Those of ``table``."""

    model: ModelOptions
    full: bool


@dataclass(frozen=True, kw_only=True)
class RunOptions(TableOptions):
    """Those of ``run``; ``memory`` and ``output_size`` in bytes."""

    plan: bool
    stale: bool
    rerun: bool
    rebuilds: int
    no_confirm: bool
    isolation: Isolation
    pull: Pull
    keep: Keep
    locked: bool
    memory: int
    output_size: int

    @property
    def how(self) -> Options:
        """How cells are run; a container's scratch is memory too, and never more than that."""
        limits = Limits(
            memory=self.memory, output=self.output_size, scratch=min(Limits().scratch, self.memory)
        )
        return Options(
            limits=limits, rerun=self.rerun, rebuilds=self.rebuilds, confirm=not self.no_confirm,
            isolation=self.isolation, keep=self.keep, locked=self.locked, full=self.full,
            log=None if IN_ARRAY in os.environ else self.project.results / "local" / "last-run.txt",
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class PrepareOptions(ProjectCommand):
    """Those of ``prepare``; ``which``: ``REPRO/CASE``."""

    which: str
    to: Path | None


@dataclass(frozen=True, kw_only=True)
class CheckOptions:
    """Those of ``check``; ``trt``: releases, all of ``matrix`` where none is named."""

    file: Path
    trt: tuple[str, ...]
    matrix: Path
    repros: Path
    full: bool
    json: bool


@dataclass(frozen=True, kw_only=True)
class SchemaOptions:
    """Those of ``schema``; ``site``: that of slurm.yaml."""

    site: bool


def read_options(kind: type[T], args: argparse.Namespace) -> T:
    """Return a command's options, of which each field has the name of its option."""
    values, types = vars(args), get_type_hints(kind)
    found: dict[str, Any] = {}
    for name in (field.name for field in fields(kind)):  # type: ignore[arg-type] # a dataclass
        if types[name] is ProjectOptions:
            found[name] = ProjectOptions.of(values)
        elif is_dataclass(types[name]):
            found[name] = read_options(types[name], args)
        elif name not in values:  # a command without it has its default
            continue
        elif isinstance(values[name], list):
            found[name] = tuple(values[name])
        else:
            enum = isinstance(types[name], type) and issubclass(types[name], Enum)
            found[name] = types[name](values[name]) if enum else values[name]
    return kind(**found)
