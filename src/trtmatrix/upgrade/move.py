"""A move: its two versions and its GPU, what is stored of them, and the command that asks about it."""

from __future__ import annotations

import argparse
import contextlib
import shlex
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from trtmatrix.api.section import read_surfaces
from trtmatrix.common.errors import UsageError
from trtmatrix.judge.calibration import Calibration, read_calibration
from trtmatrix.launchers.gpu import find_gpus, named_gpus
from trtmatrix.model.own_model import ModelOptions
from trtmatrix.plan.context import Context, ProjectOptions, read_matrix
from trtmatrix.plan.survey import entries_of, recorded_gpus, take_survey
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


def check_options(args: argparse.Namespace) -> None:
    """Refuse what makes no sense together, before anything is read; :class:`UsageError` tells of all."""
    if problems := list(_find_problems(args)):
        raise UsageError("\n".join(problems))


def _find_problems(args: argparse.Namespace) -> Iterator[str]:
    for option, names in (("--trt", args.trt), ("--runtime", args.runtime), ("--python", args.python)):
        if names:
            yield (
                f"{option}: upgrade takes its two versions by --from and --to, as matrix.yaml has them; "
                f"leave {option} out, or run other cells by {DOOR} matrix first"
            )
    if args.api and args.after == ANY:
        yield "--api: name one version by --to, for a difference takes two"
    if len(args.gpu) > 1:
        yield f"--gpu {','.join(args.gpu)}: an answer is for one GPU; ask once for each"
    if args.model is None:
        for name in ("inputs", "atol", "rtol", "profile", "check", "explain"):
            value = getattr(args, name)
            if value is not None and value is not False and value != []:  # 0 is a tolerance
                yield f"--{name} is about your own model: name it by --model FILE.onnx"
    yield from (f"--code {path}: there is no such file" for path in args.code if not path.exists())
    if args.check and not args.check.is_file():
        yield f"--check {args.check}: there is no such file"
    suffixes, only = (API_SUFFIXES, " with --api") if args.api else (SUFFIXES, "")
    for file in args.output:
        if file.suffix not in suffixes:
            yield f"--output {file}: the suffix must be one of {', '.join(suffixes)}{only}"
        elif file.suffix == ".sarif" and not args.code:
            yield f"--output {file}: it tells lines of your code: name that by --code DIR"
        if not file.parent.is_dir():
            yield f"--output {file}: there is no folder {file.parent}"


def find_move(
    matrix: Matrix, before: str, after: str, left_out: Collection[str] = ()
) -> tuple[Version, tuple[Version, ...]]:
    """Return the version moved from, and those that may be moved to: one, or all newer ones for ``any``.

    ``left_out``: versions that ``any`` does not mean. :class:`UsageError` where a name is none of
    matrix.yaml's, or they are of two products.
    """
    names = [version.name for version in matrix.versions]
    old = _find_version(matrix, "--from", before)
    same = [version for version in matrix.versions if version.product is old.product]
    if after == ANY:
        newer = [v for v in same if v.release > old.release and v.name not in left_out]
        newer.sort(key=lambda v: v.release)
        if not newer:
            raise UsageError(
                f"--to any: matrix.yaml has no version newer than {old.name}: {', '.join(names)}"
            )
        return old, tuple(newer)
    new = _find_version(matrix, "--to", after)
    others = ", ".join(version.name for version in same if version is not old) or "no other"
    if new.product is not old.product:
        raise UsageError(
            f"{old.name} is {old.product.value} and {new.name} is {new.product.value}: an upgrade stays "
            f"inside one product; from {old.name} to {others}"
        )
    return old, (new,)


def is_of_tensorrt(args: argparse.Namespace) -> bool:
    """Whether a move whose API is asked about is one of TensorRT's; each end's API is known, or is a version.

    :class:`UsageError` where an end is neither, both are the same, or of two products.
    """
    if args.before == args.after:
        raise UsageError(f"--from and --to are both {args.before}: a difference takes two")
    surfaces, products = read_surfaces(args.results), set[Product]()
    for option, name in (("--from", args.before), ("--to", args.after)):
        if surfaces.of(name) is not None:
            products.add(Product.TENSORRT)
        elif args.matrix.exists():
            matrix = read_matrix(args.matrix)
            products.add(_find_version(matrix, option, name, tuple(surfaces.versions)).product)
        else:
            known = ", ".join(surfaces.versions)
            raise UsageError(f"{option} {name}: its API is not known; known are {known}")
    if len(products) > 1:
        raise UsageError(f"{args.before} and {args.after} are two products: an upgrade stays inside one")
    return products == {Product.TENSORRT}


def _find_version(matrix: Matrix, option: str, name: str, others: Sequence[str] = ()) -> Version:
    """Return a version of matrix.yaml; ``others``: names that may have been meant, too."""
    found = next((version for version in matrix.versions if version.name == name), None)
    if found is not None:
        return found
    hint = "" if others else ". What changes in its API alone: --api, with --code DIR"
    names = [*(version.name for version in matrix.versions), *others]
    raise UsageError(unlisted_version(option, name, names) + hint)


@dataclass(frozen=True, kw_only=True)
class Gathered:
    """What is known of all versions of one product on one GPU. ``gpu_word``: how commands name it."""

    gpu: Gpu
    gpu_word: str
    entries: Entries
    calibration: Calibration


def gather(context: Context, version: Version) -> Gathered:
    """Read the records and expectations of a version's product on the GPU that is meant; runs nothing."""
    names = tuple(v.name for v in context.matrix.versions if v.product is version.product)
    gpu, word = CPU, ""
    if version.product is Product.TENSORRT:
        stored = read_records(context.project.results)
        try:
            gpu = choose_gpu(context.selection.gpus, find_gpus().gpus, stored)
        except UsageError as error:
            raise UsageError(f"{error}; code alone is looked at by --api --code DIR") from error
        word = context.selection.gpus[0] if context.selection.gpus else gpu.name
    selection = replace(context.selection, versions=names, gpus=(word,) if word else ())
    narrowed = replace(context, selection=selection)
    survey = take_survey(narrowed, Pull.NEVER)
    calibration = read_calibration()
    entries = Entries(entries_of(narrowed, survey, survey.stored), calibration)
    return Gathered(gpu=gpu, gpu_word=word, entries=entries, calibration=calibration)


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


def make_question(
    args: argparse.Namespace, context: Context, gathered: Gathered, before: Version, after: Version
) -> Question:
    """Return what is to be decided, without the user's model and code."""
    asked = {name: ",".join(getattr(args, name)) for name in ("repro", "case")}
    restricted = " ".join(f"--{name} {value}" for name, value in asked.items() if value)
    left_out = tuple(r.id for r in context.plain_repros if args.repro and r.id not in args.repro)
    return Question(
        before=before, after=after, gpu=gathered.gpu, matrix=context.matrix, entries=gathered.entries,
        max_slowdown=None if args.no_performance else args.max_slowdown, gpu_word=gathered.gpu_word,
        options=tuple(file_options(args)), restricted=restricted,
        left_out=tuple(name for name in left_out if name != "controls"), command=command_of(args),
    )  # fmt: skip


def file_options(args: argparse.Namespace | ProjectOptions) -> list[str]:
    """Return the options that name other files than the usual."""
    usual = {name: Path(name) for name in ("matrix.yaml", "repros", "results")}
    given = {name: getattr(args, name.removesuffix(".yaml")) for name in (*usual, "cache")}
    other = {n.removesuffix(".yaml"): path for n, path in given.items() if path != usual.get(n)}
    return [word for name, path in other.items() for word in (f"--{name}", str(path))]


def command_of(args: argparse.Namespace) -> str:
    """Return the command that makes the same report."""
    words = ["--from", args.before, "--to", args.after]
    words += ["--gpu", args.gpu[0]] if args.gpu else []
    for name in ("repro", "case"):
        words += [f"--{name}", ",".join(getattr(args, name))] if getattr(args, name) else []
    words += model_options(args, "check")
    words += [word for value in args.code for word in ("--code", str(value))]
    words += ["--max-slowdown", f"{args.max_slowdown:g}"] if args.max_slowdown != MAX_SLOWDOWN else []
    words += [
        f"--{name.replace('_', '-')}"
        for name in ("explain", "no_run", "no_performance")
        if getattr(args, name)
    ]
    return f"{DOOR} upgrade -- {shlex.join([*words, *file_options(args)])}"


def model_options(args: argparse.Namespace | ModelOptions, *others: str) -> list[str]:
    """Return the options about a model of one's own, as they were given; ``others``: more of one value."""
    words: list[str] = []
    for name in ("model", "inputs", "atol", "rtol", *others):
        value = getattr(args, name)
        words += [f"--{name}", str(value)] if value is not None else []
    words += ["--precision", args.precision] if args.model is not None else []
    return words + [word for value in args.profile for word in ("--profile", str(value))]
