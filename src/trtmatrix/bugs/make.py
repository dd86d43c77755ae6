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
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from trtmatrix.bugs.cell import Found, find_cell
from trtmatrix.bugs.issue import FILES, newest_known, render_issue
from trtmatrix.bugs.redact import Redactor, allowed, allowed_facts, clean_graph
from trtmatrix.bugs.script import (
    SCRIPT,
    fill_template,
    limits_of,
    read_recipe,
    script_values,
    six_digits,
    trtexec_lines,
    why_no_script,
    worst_sample,
)
from trtmatrix.bugs.verify import find_place, tell, verify_archive
from trtmatrix.common.archive import SUFFIX, check_name, digest_of, write_archive
from trtmatrix.common.errors import ExitCode, UsageError
from trtmatrix.common.options import flag, read_seconds, value
from trtmatrix.common.text import write_size
from trtmatrix.judge.record import RAN
from trtmatrix.model.own_model import ModelOptions
from trtmatrix.onnxmodel.graphs import load_whole
from trtmatrix.onnxmodel.preparing import mark_of
from trtmatrix.plan.context import ProjectOptions
from trtmatrix.prepare.cases import CaseCache
from trtmatrix.suite.matrix import ImageOrigin
from trtmatrix.suite.model import Product

GITHUB = 25_000_000
"""Bytes that GitHub takes as an attachment: https://docs.github.com/en/get-started/writing-on-github/working-with-advanced-formatting/attaching-files."""

Files = dict[str, bytes]

ISSUE, MODEL = "ISSUE.md", "model.onnx"

FINER = 256
"""A reference is rounded so many times below its noise floor: it is compressed far better then."""


LIMIT = "time limit for one run of the archive"


@dataclass(frozen=True, kw_only=True)
class MakeOptions:
    """Those of ``bundle make``."""

    project: ProjectOptions
    model: ModelOptions
    cell: str = value("CELL", "a cell as the page (report) and --json show it: REPRO/CASE@VERSION#GPU")
    to: Path | None = value("--to FILE", "where to write (default: ./REPRO-CASE-VERSION.tar.gz)")
    yes: bool = flag("--yes", "do not ask; needed if stdin is not a terminal")
    no_verify: bool = flag("--no-verify", "do not run the archive afterwards")
    seconds: float = value("--seconds S", LIMIT, type=read_seconds, default=1800)
    json: bool = flag("--json", "print JSON")


@dataclass(frozen=True, kw_only=True)
class VerifyOptions:
    """Those of ``bundle verify``."""

    file: Path = value("FILE")
    image: str = value("--image IMAGE", "run it in this image instead of the recorded one", default="")
    trust: bool = flag("--trust", "run it outside containers, with your rights, if its failure was seen that "
        "way")  # fmt: skip
    seconds: float = value("--seconds S", LIMIT, type=read_seconds, default=1800)
    json: bool = flag("--json", "print JSON")


def verify_command(options: VerifyOptions) -> ExitCode:
    """Verify an archive."""
    outcome = verify_archive(options.file, options.seconds, image=options.image, trust=options.trust)
    print(json.dumps(vars(outcome), indent=1) if options.json else outcome.text)
    return ExitCode.AS_EXPECTED if outcome.verified else ExitCode.SURPRISE


def make_command(options: MakeOptions) -> ExitCode:
    """Check everything and ask, then write the archive of a failing cell and run it from itself alone."""
    if not options.yes and not sys.stdin.isatty():
        raise UsageError("nobody can be asked here, as stdin is no terminal: add --yes to write the archive")
    found = find_cell(options.cell, options.project, options.model)
    cell, project = found.entry.cell.id, found.context.project
    target = options.to or Path(f"{cell.repro}-{cell.case}-{cell.version}{SUFFIX}")
    check_name(target)
    if target.is_dir() or not target.parent.is_dir():
        raise UsageError(f"--to {target}: name a file in a folder that is there")
    if found.product is Product.TENSORRT_RTX:
        raise UsageError(f"{cell}: engines of TensorRT-RTX are built here, and not run")
    kept = [str(cell), newest_known(found.product)]  # and all versions' numbers
    kept += [str(part) for v in found.context.matrix.versions for part in (v.name, v.library.value)]
    kept += [str(entry.record.observed.get("library")) for entry in found.row if entry.record]
    own = (project.matrix, project.repros / "x", project.cache / "x")
    redactor = Redactor.of_host((*own, options.model.model, options.model.inputs), kept)
    place = None if options.no_verify else find_place(recorded_of(found, redactor))
    weights = "\nTHE WEIGHTS OF YOUR OWN MODEL GO OUT with it." if found.own_model else ""
    then = "" if place is None else " and run in a fresh environment"
    tell(
        f"{target} will be written{then}: what an engineer needs to see {cell} fail.\n"
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
    taken = [f"  {name}: {redactor.told(name)}" for name in files if redactor.told(name)]
    tell("What goes out:")
    tell("\n".join(f"  {name:13}  {write_size(len(files[name])):>8}  {FILES[name]}" for name in files))
    tell("\n".join(["Taken out as private:", *taken]) if taken else "Nothing private was found in it.")
    write_archive(target, files)
    digest, size = digest_of(target), target.stat().st_size
    if size > GITHUB:
        tell(f"{write_size(size)} is more than GitHub takes (25 MB): put it elsewhere")
    outcome = None if place is None else verify_archive(target, options.seconds, place)
    if options.json:
        verify = vars(outcome) if outcome else None
        print(json.dumps({"file": str(target), "sha256": digest, "size": size, "verify": verify}, indent=1))
    else:
        print(f"{target}: {write_size(size)}, sha256 {digest}")
        print(outcome.text if outcome else "not verified: bundle verify FILE does that")
    return ExitCode.AS_EXPECTED if outcome is None or outcome.verified else ExitCode.SURPRISE


def recorded_of(found: Found, redactor: Redactor) -> dict[str, Any]:
    """Return what a script is told of the cell's record: what ran it, how many engines fail, how they do."""
    outcome, facts = found.entry.outcome, environment_of(found)
    told = ("library", "gpu", "driver", "image", "image_id", "date")
    return {
        "cell": str(found.entry.cell.id), "product": found.record.product.value,
        **{name: facts[name] for name in told if name in facts},
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
    case, subject, on_cpu = found.case, found.subject, found.product is Product.ONNXRUNTIME
    folder = CaseCache(found.context.project.cache).prepare(found.loaded, case)
    recipe = read_recipe(found.loaded.file, case.params, folder, found.product)
    why = why_no_script(recipe, found.manner)
    if why or recipe is None:
        name, written = found.loaded.file.name, f"prepare {found.loaded.repro.id}/{case.id}"
        raise UsageError(
            f"{found.entry.cell.id}: {why}; an archive shows one graph, built once\n  attach {name} itself: "
            f"python {name} --files DIR runs it, with what python -m trtmatrix {written} writes"
        )
    check = folder / "check.onnx"  # what ONNX Runtime runs, where it is another one
    model = load_whole(check if on_cpu and check.is_file() else folder / MODEL)
    known = {output.name for output in model.graph.output}
    model.graph.output.extend(onnx.ValueInfoProto(name=n) for n in recipe.marked if n not in known)
    recipe = recipe.renamed(clean_graph(model, redactor, MODEL))
    try:
        content = model.SerializeToString(deterministic=True)
    except Exception as error:  # protobuf's own, which has no types: it holds 2 GB at most
        raise UsageError(
            "graph and weights do not fit into one file: minimise it first: nox -s minimise -- CELL"
        ) from error
    names = {name for node in model.graph.node for name in (node.name, *node.output)}
    names |= {info.name for info in model.graph.input}  # a message may tell of names that go out
    redactor = replace(redactor, keep=redactor.keep.union(name for name in names if len(name) > 2))

    sample, wrong = worst_sample(found, recipe)
    mark = mark_of(sample, recipe.samples)
    given = {array + mark: graph for array, graph in recipe.outputs.items()}
    if found.record.ended == RAN:
        given = {array: graph for array, graph in given.items() if array in found.record.builds[0].outputs}
    limits = limits_of(subject, given)
    inputs = {graph: np.load(folder / "inputs" / f"{a}{mark}.npy") for a, graph in recipe.inputs.items()}
    reference: dict[str, NDArray[Any]] = {}
    for array, graph in recipe.outputs.items():
        if graph in limits:
            r = np.load(folder / "reference" / f"{array}{mark}.npy")
            reference[graph] = round_off(r, (subject.floor(array + mark) or 0.0) / FINER)
        for key in (key for key in limits if key.endswith(f" in {graph}")):
            d = np.load(folder / "defects" / key.rpartition(" in ")[0] / f"{array}.npy")
            reference[key] = round_off(d, 2**-6)  # c changes by far less
    recorded = recorded_of(found, redactor)
    recorded["wrong"] = {given[array]: six_digits(ends) for array, ends in wrong.items() if array in given}
    outcome, builds = found.entry.outcome, 1
    if outcome and 0 < outcome.failed < outcome.builds:  # only some engines fail
        builds = min(max(outcome.builds, 3), 20)
    values = script_values(recipe, subject, limits, recorded=recorded, builds=builds)
    script, facts = redactor.clean(SCRIPT, fill_template(values)), environment_of(found)
    trtexec = [] if on_cpu else trtexec_lines(recipe, facts.get("library", ""))
    issue = render_issue(found, facts, name, trtexec, script)
    return {
        ISSUE: redactor.clean(ISSUE, issue).encode(), MODEL: content, "inputs.npz": write_npz(inputs),
        "reference.npz": write_npz(reference), SCRIPT: script.encode(),
    }  # fmt: skip


def write_npz(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Return the bytes of an ``.npz``: the same each time, and read by NumPy alone."""
    out = io.BytesIO()
    np.savez_compressed(out, **{name: arrays[name] for name in sorted(arrays)})  # type: ignore[arg-type]
    return out.getvalue()


def round_off(array: NDArray[Any], step: float) -> NDArray[Any]:
    """Return a float64 array rounded to nearest by at most a relative step, as float32 where it fits.

    So the whole changes by at most that step in relative L2.
    """
    if array.dtype != np.float64 or step <= np.finfo(np.float64).eps:
        return array
    mantissa, exponent = np.frexp(array)  # from 1/2 to 1
    grid = 2.0 ** math.floor(math.log2(step))
    rounded: NDArray[Any] = np.ldexp(np.rint(mantissa / grid) * grid, exponent)
    with np.errstate(all="ignore"):
        single = rounded.astype(np.float32)
    return single if np.array_equal(single, rounded, equal_nan=True) else rounded
