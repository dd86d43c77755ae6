"""``bundle``: makes the archive that shows a failing cell to its maintainers, and verifies one.

All questions and checks come before the first second of work: what follows the answer asks nothing.
"""

from __future__ import annotations

import io
import json
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from trtmatrix.bugs.cell import Found, find_cell, read_cell_id
from trtmatrix.bugs.issue import Issue, newest_known, render_issue
from trtmatrix.bugs.redact import Redactor, allowed, allowed_facts, clean_graph, known_values
from trtmatrix.bugs.script import (
    SCRIPT,
    Limits,
    Recipe,
    fill_template,
    limits_of,
    read_recipe,
    script_values,
    trtexec_lines,
    why_no_script,
)
from trtmatrix.bugs.verify import find_place, tell, verify_archive
from trtmatrix.common.archive import SUFFIX, check_name, digest_of, write_archive, write_size
from trtmatrix.common.errors import ExitCode, UsageError
from trtmatrix.judge.numbers import judge_build, nan_last, read_floors
from trtmatrix.judge.record import RAN
from trtmatrix.model.own_model import ModelOptions
from trtmatrix.onnxmodel.graphs import load_whole
from trtmatrix.onnxmodel.preparing import mark_of
from trtmatrix.plan.context import ProjectOptions
from trtmatrix.prepare.cases import CaseCache
from trtmatrix.suite.matrix import ImageOrigin
from trtmatrix.suite.model import Product, Verdict

if TYPE_CHECKING:
    from numpy.typing import NDArray

GITHUB = 25_000_000
"""Bytes that GitHub takes as an attachment: https://docs.github.com/en/get-started/writing-on-github/working-with-advanced-formatting/attaching-files."""

Files = dict[str, bytes]

ISSUE, MODEL, INPUTS, REFERENCE = "ISSUE.md", "model.onnx", "inputs.npz", "reference.npz"
WHAT = {
    ISSUE: "the issue: a title, then upstream's form", SCRIPT: "builds, runs, compares: one script",
    MODEL: "the graph with its weights", INPUTS: "its inputs",
    REFERENCE: "the float64 reference of each output, and what a known defect adds to it",
}  # fmt: skip
"""What the files of an archive are."""

FINER = 256
"""A reference is rounded so many times below its noise floor: it is compressed far better then."""

LARGE = 4 << 20
"""Bytes from which on the shape of a known defect is kept to one bit: c is 8e-4 off then."""


@dataclass(frozen=True, kw_only=True)
class MakeOptions:
    """Those of ``bundle make``."""

    project: ProjectOptions
    model: ModelOptions
    cell: str
    to: Path | None
    yes: bool
    no_verify: bool
    seconds: float
    json: bool


@dataclass(frozen=True, kw_only=True)
class VerifyOptions:
    """Those of ``bundle verify``."""

    file: Path
    image: str
    trust: bool
    seconds: float
    json: bool


def verify_command(options: VerifyOptions) -> ExitCode:
    """Verify an archive."""
    outcome = verify_archive(options.file, options.seconds, image=options.image, trust=options.trust)
    print(json.dumps(vars(outcome), indent=1) if options.json else outcome.text)
    return ExitCode.AS_EXPECTED if outcome.verified else ExitCode.SURPRISE


def make_command(options: MakeOptions) -> ExitCode:
    """Check everything and ask, then write the archive of a failing cell and run it from itself alone."""
    cell = read_cell_id(options.cell)
    target = options.to or Path(f"{cell.repro}-{cell.case}-{cell.version}{SUFFIX}")
    check_name(target)
    if target.is_dir() or not target.parent.is_dir():
        raise UsageError(f"--to {target}: name a file in a folder that is there")
    if not options.yes and not sys.stdin.isatty():
        raise UsageError("nobody can be asked here, as stdin is no terminal: add --yes to write the archive")
    found = find_cell(cell, options.project, options.model)
    if found.product is Product.TENSORRT_RTX or not found.manner:  # which says why it is not known
        raise UsageError(f"{found.entry.cell.id}: engines of TensorRT-RTX are built here, and not run")
    project, given = found.context.project, filter(None, (options.model.model, options.model.inputs))
    folders = [project.cache, project.matrix.resolve().parent, project.repros.resolve()]
    folders += [path.resolve().parent for path in given]
    kept = [str(found.entry.cell.id), newest_known(found.product)]  # and all versions' numbers
    kept += [str(part) for v in found.context.matrix.versions for part in (v.name, v.library.value)]
    kept += [str(entry.record.observed.get("library")) for entry in found.row if entry.record]
    redactor = Redactor(known=known_values(folders), keep=frozenset(filter(None, kept)))
    place = None if options.no_verify else find_place(recorded_of(found, redactor))
    weights = "\nTHE WEIGHTS OF YOUR OWN MODEL GO OUT with it." if found.own_model else ""
    then = "" if place is None else " and run in a fresh environment"
    tell(
        f"{target} will be written{then}: what an engineer needs to see {found.entry.cell.id} fail.\n"
        "It holds the graph, its inputs, the reference and what ran it. Names, paths, addresses and "
        "tokens that this host is known by or that look private are taken out: look through it yourself, "
        f"too.{weights}"
    )
    if not options.yes:
        print("Write it? [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
            tell(f"nothing was written to {target}")
            return ExitCode.SURPRISE

    files = gather_files(found, target.name, redactor)
    tell(listing(files, redactor))
    write_archive(target, files)
    digest, size = digest_of(target), target.stat().st_size
    if size > GITHUB:
        tell(f"{write_size(size)} is more than GitHub takes (25 MB): put it elsewhere")
    outcome = None if place is None else verify_archive(target, options.seconds, place)
    if options.json:
        data = {
            "file": str(target), "sha256": digest, "size": size, "names": sorted(files),
            "verify": vars(outcome) if outcome else None,
        }  # fmt: skip
        print(json.dumps(data, indent=1))
    else:
        print(f"{target}: {write_size(size)}, sha256 {digest}")
        print(outcome.text if outcome else "not verified: bundle verify FILE does that")
    return ExitCode.AS_EXPECTED if outcome is None or outcome.verified else ExitCode.SURPRISE


def listing(files: Files, redactor: Redactor) -> str:
    """Return what goes out, a line for each file, and what was taken out of it."""
    lines = ["What goes out:"]
    lines += [f"  {name:13}  {write_size(len(files[name])):>8}  {WHAT[name]}" for name in files]
    taken = [f"  {name}: {redactor.told(name)}" for name in sorted({file for file, _ in redactor.taken})]
    lines.append("Taken out as private:" if taken else "Nothing private was found in it.")
    return "\n".join([*lines, *taken])


def recorded_of(found: Found, redactor: Redactor) -> dict[str, Any]:
    """Return what a script is told of the cell's record: what ran it, how many engines fail, how they do."""
    outcome, facts = found.entry.outcome, environment_of(found)
    told = ("library", "gpu", "driver", "image", "image_id", "date")
    return {
        "cell": str(found.entry.cell.id), "product": found.record.product.value,
        **{name: facts[name] for name in told if facts.get(name)},
        "engines": f"{outcome.failed} of {outcome.builds} fail" if outcome and outcome.builds else "it fails",
        "how": redactor.clean(SCRIPT, found.manner.words),
    }  # fmt: skip


def environment_of(found: Found) -> dict[str, str]:
    """Return the facts of what ran the cell that go out; the image's where it was in a container."""
    facts, version = allowed_facts(found.record), found.entry.cell.version
    if found.record.digests.get("runtime") != "container":
        facts.pop("image_id", None)
    elif isinstance(version.origin, ImageOrigin):
        facts["image"] = allowed("image", version.origin.image)
    if "cuda" not in facts and version.cuda:
        facts["cuda"] = allowed("cuda", version.cuda.value)
    return facts


def gather_files(found: Found, name: str, redactor: Redactor) -> Files:
    """Return the files of a cell's archive of that name; its case is prepared if need be.

    :class:`UsageError` where one graph, built once, does not show the failure.
    """
    case, product, subject = found.case, found.product, found.subject
    folder = CaseCache(found.context.project.cache).prepare(found.loaded, case)
    recipe = read_recipe(found.loaded.file, case.params, folder, product)
    why = why_no_script(recipe, found.manner)
    if why or recipe is None:
        name, written = found.loaded.file.name, f"prepare {found.loaded.repro.id}/{case.id}"
        raise UsageError(
            f"{found.entry.cell.id}: {why}; an archive shows one graph, built once\n  attach {name} itself: "
            f"python {name} --files DIR runs it, with what python -m trtmatrix {written} writes"
        )
    sample, wrong = worst_sample(found, recipe)
    given = {array + mark_of(sample, recipe.samples): graph for array, graph in recipe.outputs.items()}
    if found.record.ended == RAN:
        given = {array: graph for array, graph in given.items() if array in found.record.builds[0].outputs}
    limits = limits_of(subject, given)
    floors = {a: subject.noise.floor(a, subject.precision) if subject.noise else None for a in given}
    on_cpu = product is Product.ONNXRUNTIME
    files, renamed = graph_files(folder, recipe, sample, limits, floors, redactor, on_cpu=on_cpu)
    graph = onnx.load_from_string(files[MODEL]).graph  # a message may tell of names that go out
    names = {name for node in graph.node for name in (node.name, *node.output)}
    names |= {info.name for info in graph.input}
    redactor = replace(redactor, keep=redactor.keep.union(name for name in names if len(name) > 2))
    recorded = recorded_of(found, redactor)
    recorded["wrong"] = {rename(given[a], renamed): ends for a, ends in wrong.items() if a in given}
    outcome, builds = found.entry.outcome, 1
    if outcome and 0 < outcome.failed < outcome.builds:  # only some engines fail
        builds = min(max(outcome.builds, 3), 20)
    values = script_values(recipe, subject, limits, recorded=recorded, builds=builds)
    for constant in ("LIMITS", "PROFILE"):
        values[constant] = {rename(key, renamed): value for key, value in values[constant].items()}
    script = redactor.clean(SCRIPT, fill_template(values))
    facts = environment_of(found)
    report = Issue(
        found=found, facts=facts, archive=name, run="python3 repro.py" + " --onnxruntime" * on_cpu,
        trtexec=[] if on_cpu else trtexec_lines(recipe, facts.get("library", "")), files=WHAT, script=script,
    )  # fmt: skip
    return {ISSUE: redactor.clean(ISSUE, render_issue(report)).encode(), **files, SCRIPT: script.encode()}


def rename(key: str, renamed: Mapping[str, str]) -> str:
    """Return a tensor's new name, also of ``"<defect> in <tensor>"``."""
    defect, mark, name = key.rpartition(" in ")
    return defect + mark + renamed.get(name, name)


def worst_sample(found: Found, recipe: Recipe) -> tuple[int, dict[str, tuple[float, float]]]:
    """Return the number of the sample that is furthest off, and the ends of each wrong output's errors."""
    failing = [
        build for record in found.entry.records if record.ended == RAN for build in record.builds
        if judge_build(build, found.subject).verdict is Verdict.FAIL
    ]  # fmt: skip
    errors: dict[str, list[float]] = {}
    for build in failing:
        floors = read_floors(build, found.subject)
        for name, values in build.outputs.items():
            if "rel_l2" in values and (not floors.get(name, math.inf) < 8 or values.get("nan_unexpected")):
                bad = math.nan if values.get("nan_unexpected") else float(values["rel_l2"])
                errors.setdefault(name, []).append(bad)
    worst = max(errors, key=lambda name: max(map(nan_last, errors[name])), default="")
    sample = next((n for n in range(recipe.samples) if recipe.samples > 1 and worst.endswith(f".s{n}")), 0)
    return sample, {name: (min(sizes), max(sizes)) for name, sizes in errors.items()}


def graph_files(
    folder: Path, recipe: Recipe, sample: int, limits: Limits, floors: Mapping[str, float | None],
    redactor: Redactor, *, on_cpu: bool,
) -> tuple[Files, dict[str, str]]:  # fmt: skip
    """Return graph, inputs and reference of one sample, and the new names of tensors that had private ones.

    ``floors``: noise floors by the arrays' names; ``on_cpu``: ONNX Runtime runs it, by ``check.onnx`` where
    there is one. The keys of ``limits`` and of the arrays are the graph's names.
    """
    check, mark = folder / "check.onnx", mark_of(sample, recipe.samples)
    file = check if on_cpu and check.is_file() else folder / MODEL
    model = load_whole(file)
    known = {output.name for output in model.graph.output}
    model.graph.output.extend(onnx.ValueInfoProto(name=n) for n in recipe.marked if n not in known)
    renamed = clean_graph(model, redactor, MODEL)
    try:
        content = model.SerializeToString(deterministic=True)
    except Exception as error:  # protobuf's own, which has no types: it holds 2 GB at most
        raise UsageError(
            f"{file}: graph and weights do not fit into one file: minimise it first: nox -s minimise -- CELL"
        ) from error
    inputs = {
        renamed.get(g, g): np.load(folder / "inputs" / f"{a}{mark}.npy") for a, g in recipe.inputs.items()
    }
    reference: dict[str, NDArray[Any]] = {}
    for array, graph in recipe.outputs.items():
        if graph in limits:
            r = np.load(folder / "reference" / f"{array}{mark}.npy")
            reference[renamed.get(graph, graph)] = round_off(r, floors.get(array + mark) or 0.0)
        for defect in (key[: -len(f" in {graph}")] for key in limits if key.endswith(f" in {graph}")):
            d = np.load(folder / "defects" / defect / f"{array}.npy")
            name = f"{defect} in {renamed.get(graph, graph)}"
            reference[name] = round_off(d, FINER / 2) if d.nbytes > LARGE else d
    return {MODEL: content, INPUTS: write_npz(inputs), REFERENCE: write_npz(reference)}, renamed


def write_npz(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Return the bytes of an ``.npz``: the same each time, and read by NumPy alone."""
    out = io.BytesIO()
    np.savez_compressed(out, **{name: arrays[name] for name in sorted(arrays)})  # type: ignore[arg-type]
    return out.getvalue()


def round_off(array: NDArray[Any], floor: float) -> NDArray[Any]:
    """Return a float64 array rounded far below a relative noise floor, as float32 where it fits.

    Rounding to nearest at k bits changes each value, and so the whole in relative L2, by at most 2^-(k+1).
    """
    bits = max(1, math.ceil(math.log2(FINER / floor)) - 1) if 0 < floor < math.inf else 52
    if array.dtype != np.float64 or bits >= 52:
        return array
    mantissa, exponent = np.frexp(array)
    with np.errstate(all="ignore"):
        rounded = np.ldexp(np.round(mantissa * 2.0 ** (bits + 1)) / 2.0 ** (bits + 1), exponent)
        rounded = np.where(np.isfinite(rounded), rounded, array)
        single = rounded.astype(np.float32)
    return single if np.array_equal(single.astype(np.float64), rounded, equal_nan=True) else rounded
