"""A move: its options, its two versions and its GPU, and what is stored of them."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from trtmatrix.api.section import read_surfaces
from trtmatrix.common.errors import UsageError
from trtmatrix.judge.calibration import read_calibration
from trtmatrix.judge.standing import Standing
from trtmatrix.launchers.gpu import find_gpus, named_gpus
from trtmatrix.model.own_model import ModelOptions
from trtmatrix.plan.context import Context, ProjectOptions, read_matrix
from trtmatrix.plan.survey import entries_of, find_additions, recorded_gpus, take_survey
from trtmatrix.records.store import read_records
from trtmatrix.suite.cells import unlisted_version
from trtmatrix.suite.matrix import Matrix, Version
from trtmatrix.suite.model import CPU, Gpu, Product
from trtmatrix.suite.plan import Pull
from trtmatrix.upgrade.findings import Entries
from trtmatrix.upgrade.question import DOOR, Question

if TYPE_CHECKING:
    from trtmatrix.judge.compare import Stored

SUFFIXES, API_SUFFIXES = (".html", ".md", ".json", ".sarif"), (".json", ".sarif")
ANY = "any"
MAX_SLOWDOWN = 1.1


@dataclass(frozen=True, kw_only=True)
class UpgradeOptions:
    """Those of ``upgrade``; ``after`` may be :data:`ANY`."""

    project: ProjectOptions
    model: ModelOptions
    before: str
    after: str
    code: tuple[Path, ...] = ()
    output: tuple[Path, ...] = ()
    api: bool = False
    no_run: bool = False
    max_slowdown: float = MAX_SLOWDOWN
    no_performance: bool = False
    full: bool = False
    json: bool = False

    @property
    def restricted(self) -> list[str]:
        """The options that narrow what is looked at, as typed."""
        chosen = self.project.selection
        asked = {"--repro": chosen.repros, "--case": chosen.cases}
        return [word for name, values in asked.items() if values for word in (name, ",".join(values))]

    @property
    def command(self) -> str:
        """The command that makes the same report."""
        gpus = self.project.selection.gpus
        words = ["--from", self.before, "--to", self.after, *(["--gpu", gpus[0]] if gpus else [])]
        words += [*self.restricted, *model_options(self.model)]
        words += ["--check", str(self.model.check)] if self.model.check else []
        words += [word for value in self.code for word in ("--code", str(value))]
        words += ["--max-slowdown", f"{self.max_slowdown:g}"] if self.max_slowdown != MAX_SLOWDOWN else []
        flags = {"--explain": self.model.explain, "--no-run": self.no_run}
        words += [flag for flag, said in {**flags, "--no-performance": self.no_performance}.items() if said]
        return f"{DOOR} upgrade -- {shlex.join([*words, *file_options(self.project)])}"

    def check(self) -> None:
        """Refuse what makes no sense together, before anything is read; :class:`UsageError` tells of all."""
        if problems := list(self._find_problems()):
            raise UsageError("\n".join(problems))

    def _find_problems(self) -> Iterator[str]:
        chosen = self.project.selection
        for option, names in (
            ("--trt", chosen.versions), ("--runtime", chosen.runtimes), ("--python", self.project.pythons),
        ):  # fmt: skip
            if names:
                yield f"{option}: upgrade takes its two versions by --from and --to; leave {option} out"
        if self.api and self.after == ANY:
            yield "--api: name one version by --to, for a difference takes two"
        if len(chosen.gpus) > 1:
            yield f"--gpu {','.join(chosen.gpus)}: an answer is for one GPU; ask once for each"
        if self.model.model is None:
            for name in ("inputs", "atol", "rtol", "profile", "check", "explain"):
                if getattr(self.model, name) not in (None, ()) and getattr(self.model, name) is not False:
                    yield f"--{name} is about your own model: name it by --model FILE.onnx"
        named = [*(("--code", path) for path in self.code)]
        named += [("--check", self.model.check)] if self.model.check else []
        yield from (f"{option} {path}: there is no such file" for option, path in named if not path.exists())
        suffixes, only = (API_SUFFIXES, " with --api") if self.api else (SUFFIXES, "")
        for file in self.output:
            if file.suffix not in suffixes:
                yield f"--output {file}: the suffix must be one of {', '.join(suffixes)}{only}"
            elif file.suffix == ".sarif" and not self.code:
                yield f"--output {file}: it tells lines of your code: name that by --code DIR"
            if not file.parent.is_dir():
                yield f"--output {file}: there is no folder {file.parent}"


def file_options(project: ProjectOptions) -> list[str]:
    """Return the options that name other files than the usual."""
    usual = ProjectOptions()
    names = ("matrix", "repros", "results", "cache")
    other = {n: getattr(project, n) for n in names if getattr(project, n) != getattr(usual, n)}
    return [word for name, path in other.items() for word in (f"--{name}", str(path))]


def model_options(model: ModelOptions) -> list[str]:
    """Return the options about a model of one's own, as they were given."""
    named = {name: getattr(model, name) for name in ("model", "inputs", "atol", "rtol")}
    words = [w for name, value in named.items() if value is not None for w in (f"--{name}", str(value))]
    words += ["--precision", model.precision] if model.model is not None else []
    return words + [word for value in model.profile for word in ("--profile", str(value))]


def find_move(context: Context, options: UpgradeOptions) -> tuple[Version, tuple[Version, ...]]:
    """Return the version moved from, and those that may be moved to: one, or all newer ones for ``any``.

    Those are the agreed ones and those that were measured. :class:`UsageError` where a name is none of
    matrix.yaml's, or they are of two products.
    """
    old = _find_version(context.matrix, "--from", options.before)
    same = sorted((v for v in context.matrix.versions if v.product is old.product), key=lambda v: v.release)
    names = ", ".join(version.name for version in same if version is not old) or "no other"
    if options.after == ANY:
        stored = read_records(context.project.results)
        left_out = find_additions(context, stored, Standing.PLANNED, Standing.REPORTED)
        newer = tuple(v for v in same if v.release > old.release and v.name not in left_out)
        if not newer:
            raise UsageError(f"--to any: matrix.yaml has no version newer than {old.name}: {names}")
        return old, newer
    new = _find_version(context.matrix, "--to", options.after)
    if new.product is not old.product:
        raise UsageError(
            f"{old.name} is {old.product.value} and {new.name} is {new.product.value}: an upgrade stays "
            f"inside one product; from {old.name} to {names}"
        )
    return old, (new,)


def is_of_tensorrt(options: UpgradeOptions) -> bool:
    """Whether a move whose API is asked about is one of TensorRT's; each end's API is known, or is a version.

    :class:`UsageError` where an end is neither, both are the same, or of two products.
    """
    if options.before == options.after:
        raise UsageError(f"--from and --to are both {options.before}: a difference takes two")
    surfaces, products = read_surfaces(options.project.results), set[Product]()
    for option, name in (("--from", options.before), ("--to", options.after)):
        if surfaces.of(name) is not None:
            products.add(Product.TENSORRT)
        elif options.project.matrix.exists():
            matrix = read_matrix(options.project.matrix)
            products.add(_find_version(matrix, option, name, tuple(surfaces.versions)).product)
        else:
            raise UsageError(
                f"{option} {name}: its API is not known; known are {', '.join(surfaces.versions)}"
            )
    if len(products) > 1:
        raise UsageError(
            f"{options.before} and {options.after} are two products: an upgrade stays inside one"
        )
    return products == {Product.TENSORRT}


def _find_version(matrix: Matrix, option: str, name: str, others: Sequence[str] = ()) -> Version:
    """Return a version of matrix.yaml; ``others``: names that may have been meant, too."""
    found = next((version for version in matrix.versions if version.name == name), None)
    if found is not None:
        return found
    hint = "" if others else ". What changes in its API alone: --api, with --code DIR"
    names = [*(version.name for version in matrix.versions), *others]
    raise UsageError(unlisted_version(option, name, names) + hint)


def make_question(options: UpgradeOptions, context: Context, before: Version, after: Version) -> Question:
    """Return what is to be decided, with all that is stored of the product on the GPU that is meant."""
    gpu, word = CPU, ""
    if before.product is Product.TENSORRT:
        try:
            stored = read_records(context.project.results)
            gpu = choose_gpu(context.selection.gpus, find_gpus().gpus, stored)
        except UsageError as error:
            raise UsageError(f"{error}; code alone is looked at by --api --code DIR") from error
        word = context.selection.gpus[0] if context.selection.gpus else gpu.name
    names = tuple(v.name for v in context.matrix.versions if v.product is before.product)
    selection = replace(context.selection, versions=names, gpus=(word,) if word else ())
    narrowed = replace(context, selection=selection)
    survey = take_survey(narrowed, Pull.NEVER)
    return Question(
        before=before, after=after, gpu=gpu, matrix=context.matrix, gpu_word=word, command=options.command,
        entries=Entries(entries_of(narrowed, survey, survey.stored), read_calibration()),
        max_slowdown=None if options.no_performance else options.max_slowdown,
        options=tuple(file_options(options.project)), restricted=" ".join(options.restricted),
    )  # fmt: skip


def choose_gpu(named: Sequence[str], here: Sequence[Gpu], stored: Sequence[Stored]) -> Gpu:
    """Return the one GPU that the answer is for: that named, else the only one here.

    :class:`UsageError` where none is named and none, or several kinds, are here.
    """
    recorded = recorded_gpus(stored)
    if named:
        gpu = named_gpus(named, [*here, *recorded.values()])[0]
        if not gpu.present:
            with contextlib.suppress(UsageError):  # the table of known GPUs may know more than records do
                known = named_gpus([gpu.name], ())[0]
                return replace(gpu, datacenter=known.datacenter, compute=gpu.compute or known.compute)
        return gpu
    kinds = {gpu.slug: gpu for gpu in reversed(here)}
    if len(kinds) == 1:
        return next(iter(kinds.values()))
    several = f"this host has {', '.join(gpu.name for gpu in kinds.values())}"
    records = ", ".join(gpu.name for gpu in recorded.values())
    raise UsageError(
        f"{several if kinds else 'no GPU is in this host'}: name the GPU that you deploy on, such as --gpu L4"
        f"{f' (there are records of {records})' if records else ''}"
    )
