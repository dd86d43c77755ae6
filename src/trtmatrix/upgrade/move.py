"""A move: what its options must be, its two versions and its GPU, and what is stored of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from trtmatrix.api.section import read_surfaces
from trtmatrix.common.errors import UsageError
from trtmatrix.judge.calibration import read_calibration
from trtmatrix.launchers.gpu import find_gpus, named_gpus
from trtmatrix.plan.context import Context, read_matrix
from trtmatrix.plan.survey import entries_of, recorded_gpus, take_survey
from trtmatrix.records.store import read_records
from trtmatrix.suite.cells import unlisted_version
from trtmatrix.suite.matrix import Matrix, Version
from trtmatrix.suite.model import CPU, Gpu, Product
from trtmatrix.suite.plan import Pull
from trtmatrix.upgrade.findings import Entries
from trtmatrix.upgrade.question import Question, UpgradeOptions, typed

if TYPE_CHECKING:
    from trtmatrix.judge.compare import Stored

SUFFIXES, API_SUFFIXES = (".html", ".md", ".json", ".sarif"), (".json", ".sarif")


def check_options(options: UpgradeOptions) -> None:
    """Refuse what makes no sense together, before anything is read; :class:`UsageError` tells of all."""
    if problems := list(_find_problems(options)):
        raise UsageError("\n".join(problems))


def _find_problems(options: UpgradeOptions) -> Iterator[str]:
    chosen = options.project.selection
    for option, names in (
        ("--trt", chosen.versions), ("--runtime", chosen.runtimes), ("--python", options.project.pythons),
    ):  # fmt: skip
        if names:
            yield f"{option}: upgrade takes its two versions by --from and --to; leave {option} out"
    if len(chosen.gpus) > 1:
        yield f"--gpu {','.join(chosen.gpus)}: an answer is for one GPU; ask once for each"
    if options.model.model is None:
        given = typed(options.model, "inputs", "atol", "rtol", "profile", "check", "explain")
        options_given = (word for word in given if word.startswith("--"))
        yield from (f"{name} is about your own model: name it by --model FILE.onnx" for name in options_given)
    named = [*(("--code", path) for path in options.code)]
    named += [("--check", options.model.check)] if options.model.check else []
    yield from (f"{option} {path}: there is no such file" for option, path in named if not path.exists())
    suffixes, only = (API_SUFFIXES, " with --api") if options.api else (SUFFIXES, "")
    for file in options.output:
        if file.suffix not in suffixes:
            yield f"--output {file}: the suffix must be one of {', '.join(suffixes)}{only}"
        elif file.suffix == ".sarif" and not options.code:
            yield f"--output {file}: it tells lines of your code: name that by --code DIR"
        if not file.parent.is_dir():
            yield f"--output {file}: there is no folder {file.parent}"


def find_move(matrix: Matrix, options: UpgradeOptions) -> tuple[Version, Version]:
    """Return the two versions; :class:`UsageError` where one is not listed, or they are of two products."""
    old, new = (_find_version(matrix, *end) for end in (("--from", options.before), ("--to", options.after)))
    if new.product is not old.product:
        same = (v.name for v in matrix.versions if v.product is old.product and v is not old)
        raise UsageError(
            f"{old.name} is {old.product.value} and {new.name} is {new.product.value}: an upgrade stays "
            f"inside one product; from {old.name} to {', '.join(same) or 'no other'}"
        )
    return old, new


def is_of_tensorrt(options: UpgradeOptions) -> bool:
    """Whether a move whose API is asked about is one of TensorRT's; each end's API is known, or is a version.

    :class:`UsageError` where an end is neither, both are the same, or of two products.
    """
    surfaces, products = read_surfaces(options.project.results), set[Product]()
    for option, name in (("--from", options.before), ("--to", options.after)):
        product = Product.TENSORRT
        if surfaces.of(name) is None:
            if not options.project.matrix.exists():
                known = ", ".join(surfaces.versions)
                raise UsageError(f"{option} {name}: its API is not known; known are {known}")
            matrix = read_matrix(options.project.matrix)
            product = _find_version(matrix, option, name, tuple(surfaces.versions)).product
        products.add(product)
    if options.before == options.after or len(products) > 1:
        raise UsageError(
            f"{options.before} and {options.after}: a difference takes two versions of one product"
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
        options=options, before=before, after=after, gpu=gpu, matrix=context.matrix, gpu_word=word,
        entries=Entries(entries_of(narrowed, survey, survey.stored), read_calibration()),
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
