"""From a cell that fails to the files of its archive: a graph with its arrays, or repro and probe."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from trtmatrix.api.section import read_store
from trtmatrix.bugs.cell import Found
from trtmatrix.bugs.issue import Report, render_issue
from trtmatrix.bugs.recipe import Limits, Recipe, polygraphy_lines, read_recipe, trtexec_lines
from trtmatrix.bugs.redact import Redactor, allowed, allowed_facts, clean_graph
from trtmatrix.bugs.script import CHECK, fill_template, limits_of, script_values, why_no_script
from trtmatrix.common.errors import UsageError
from trtmatrix.judge.numbers import judge_build, nan_last, read_floors
from trtmatrix.judge.record import RAN
from trtmatrix.judge.words import PRODUCT_NAMES, full_words
from trtmatrix.onnxmodel.preparing import mark_of
from trtmatrix.prepare.cases import CaseCache
from trtmatrix.suite.matrix import ImageOrigin
from trtmatrix.suite.model import Product, Verdict, release_of
from trtmatrix.tables.markdown import code

if TYPE_CHECKING:
    from numpy.typing import NDArray

WHAT = {
    "ISSUE.md": "the issue: a title, then upstream's form", "repro.py": "builds, runs, compares: one script",
    "model.onnx": "the graph with its weights", "inputs.npz": "its inputs", "run.sh": "runs the repro",
    "reference.npz": "the float64 reference of each output, and what a known defect adds to it",
    "repros": "the repro", "trtprobe": "what runs it", "check.py": "says how it ended",
    "case": "graphs, inputs, references",
}  # fmt: skip
"""What the files and folders of an archive are."""


def check_found(found: Found) -> None:
    """Refuse a failing cell of which no archive can be made, before anything is computed."""
    if found.product is Product.TENSORRT_RTX or not found.manner:
        raise UsageError(f"{found.entry.cell.id}: engines of TensorRT-RTX are built here, and not run")


def recorded_of(found: Found, redactor: Redactor) -> dict[str, Any]:
    """Return what a script is told of the cell's record: what ran it, how many engines fail, how they do."""
    record, outcome, facts = found.record, found.entry.outcome, environment_of(found)
    told = ("library", "gpu", "driver", "image", "image_id", "date")
    return {
        "cell": str(found.entry.cell.id), "product": record.product.value,
        **{name: facts[name] for name in told if facts.get(name)},
        "engines": f"{outcome.failed} of {outcome.builds} fail" if outcome and outcome.builds else "it fails",
        "how": redactor.clean("repro.py", found.manner.words),
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

    What one graph shows, built once, gets one script; else the repro goes out with the probe.
    """
    case, record, product = found.case, found.record, found.product
    folder = CaseCache(found.context.project.cache).prepare(found.loaded, case)
    recipe = read_recipe(found.loaded.file, case.params, folder, product)
    subject, outcome = found.subject, found.entry.outcome
    recorded, why = recorded_of(found, redactor), why_no_script(recipe, found.manner)
    if why or recipe is None:
        files = _folder(found, folder, recorded, why, redactor)
        return {"ISSUE.md": _issue(found, name, redactor, files, why=why), **files}
    sample, wrong = worst_sample(found, recipe)
    given = {array + mark_of(sample, recipe.samples): graph for array, graph in recipe.outputs.items()}
    if record.ended == RAN:
        given = {array: graph for array, graph in given.items() if array in record.builds[0].outputs}
    limits = limits_of(subject, given)
    floors = {
        array: subject.noise.floor(array, subject.precision) if subject.noise else None for array in given
    }
    on_cpu = product is Product.ONNXRUNTIME
    files, renamed = graph_files(folder, recipe, sample, limits, floors, redactor, on_cpu=on_cpu)
    redactor = replace(redactor, keep=redactor.keep | names_in(files[MODEL]))
    recorded["wrong"] = {
        rename(given[array], renamed): ends for array, ends in wrong.items() if array in given
    }
    some = outcome is not None and 0 < outcome.failed < outcome.builds
    builds = min(max(outcome.builds, 3), 20) if outcome and some else 1
    values = script_values(recipe, subject, limits, recorded=recorded, builds=builds)
    for constant in ("LIMITS", "PROFILE"):
        values[constant] = {rename(key, renamed): value for key, value in values[constant].items()}
    script = redactor.clean("repro.py", fill_template(values))
    files["repro.py"] = script.encode()
    issue = _issue(found, name, redactor, files, recipe=recipe, limits=limits, script=script)
    return {"ISSUE.md": issue, **files}


def names_in(model: bytes | Path) -> frozenset[str]:
    """Return the names of nodes and tensors of a graph that goes out: a message may tell of them."""
    import onnx

    graph = onnx.load_from_string(model if isinstance(model, bytes) else model.read_bytes()).graph
    names = [name for node in graph.node for name in (node.name, *node.output)]
    return frozenset(name for name in (*names, *(one.name for one in graph.input)) if len(name) > 2)


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


def _folder(found: Found, folder: Path, recorded: Mapping[str, Any], why: str, redactor: Redactor) -> Files:
    """Return the repro with the probe, the case, and what says how a run of it ended."""
    case, product, subject = found.case, found.product, found.subject
    limits: Limits = {name: (limit, limit) for name, limit in case.limits.items()}
    if subject.noise is not None:
        limits |= limits_of(subject, {name: name for name in subject.noise.outputs})
    on_trt = product is Product.TENSORRT
    needs = " and ".join(["TensorRT", *sorted(case.needs)]) if on_trt else PRODUCT_NAMES[product]
    compared = subject.noise is not None
    files = folder_files(folder, found.loaded.file, product.value, needs, why, redactor, compared=compared)
    values = {
        "RECORDED": recorded, "LIMITS": limits, "REMARKS": sorted(case.remarks) if on_trt else [],
        "BUG_IS": sorted(cause.value for cause in case.bug_is),
    }  # fmt: skip
    files["check.py"] = redactor.clean("check.py", fill_template(values, CHECK)).encode()
    return files


def _issue(
    found: Found, name: str, redactor: Redactor, files: Files, *,
    recipe: Recipe | None = None, limits: Limits | None = None, script: str = "", why: str = "",
) -> bytes:  # fmt: skip
    """Return ISSUE.md, without what is private."""
    product = found.product
    facts, tools = environment_of(found), {}
    if recipe is not None and product is Product.TENSORRT:
        tools["trtexec"] = trtexec_lines(recipe, facts.get("library", ""))
    if recipe is not None:
        tools["Polygraphy"] = polygraphy_lines(recipe, product, facts.get("library", ""), limits or {})
    tops = dict.fromkeys(file.partition("/")[0] for file in files)
    run = "sh run.sh" if why else "python3 repro.py" + " --onnxruntime" * (product is Product.ONNXRUNTIME)
    report = Report(
        found=found, facts=facts, outputs=_output_rows(found), archive=name, run=run, tools=tools,
        files={top: WHAT.get(top, "") for top in tops}, script=script, why_folder=why,
        newest=newest_known(product), on_cpu=_on_cpu(found),
    )  # fmt: skip
    return redactor.clean("ISSUE.md", render_issue(report)).encode()


def _output_rows(found: Found) -> list[list[str]]:
    """Return how each output of the first engine that fails stands to its reference."""
    if found.record.ended != RAN:
        return []
    subject, builds = found.subject, found.record.builds
    build = next((b for b in builds if judge_build(b, subject).verdict is Verdict.FAIL), builds[0])
    floors, rows = read_floors(build, subject), []
    for name, x in build.outputs.items():
        numbers = [x.get("rel_l2"), floors.get(name), x.get("max_abs")]
        worst = f"{x['worst_y']:.6g} instead of {x['worst_r']:.6g}" if "worst_at" in x else ""
        shown = ["" if number is None else f"{number:.3g}" for number in numbers]
        rows.append([code(name), *shown, str(int(x.get("nan", 0)) + int(x.get("inf", 0))), worst])
    return rows


def newest_known(product: Product) -> str:
    """Return the newest release of TensorRT whose API is known; nothing of other products."""
    if product is not Product.TENSORRT:
        return ""
    return max(read_store(), key=release_of, default="")


def _on_cpu(found: Found) -> str:
    """Return what ONNX Runtime makes of the same graph; nothing where it did not run it."""
    return "; ".join(
        f"ONNX Runtime {e.record.observed.get('library')} on the CPU: {full_words(e.outcome)}"
        for e in found.others
        if e.cell.version.product is Product.ONNXRUNTIME and e.outcome and e.record
    )


Files = dict[str, bytes | Path]

MODEL, INPUTS, REFERENCE, SCRIPT, RUN = "model.onnx", "inputs.npz", "reference.npz", "repro.py", "run.sh"
FINER = 256
"""A reference is rounded so many times below its noise floor: it is compressed far better then."""

LARGE = 4 << 20
"""Bytes from which on the shape of a known defect is kept to one bit: c is 8e-4 off then."""

RUN_TEXT = """\
#!/bin/sh
# {why}: so here is the repro with the probe that runs it.
# Exit code: 1 the failure came back, 0 it did not, 125 cannot be said. Needs Python 3.8, NumPy and {needs}.
cd -- "$(dirname -- "$0")" || exit 125
PYTHONPATH=. python3 repros/{repro} --files case --product {product} "$@" | python3 check.py
"""


def graph_files(
    folder: Path, recipe: Recipe, sample: int, limits: Limits, floors: Mapping[str, float | None],
    redactor: Redactor, *, on_cpu: bool,
) -> tuple[Files, dict[str, str]]:  # fmt: skip
    """Return graph, inputs and reference of one sample, and the new names of tensors that had private ones.

    ``floors``: noise floors by the arrays' names; ``on_cpu``: ONNX Runtime runs it, by ``check.onnx`` where
    there is one. The keys of ``limits`` and of the arrays are the graph's names.
    """
    check = folder / "check.onnx"
    model, renamed = clean_model(
        check if on_cpu and check.is_file() else folder / MODEL, redactor, recipe.marked
    )
    mark = mark_of(sample, recipe.samples)
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
    return {MODEL: model, INPUTS: write_npz(inputs), REFERENCE: write_npz(reference)}, renamed


def clean_model(file: Path, redactor: Redactor, marked: tuple[str, ...] = ()) -> tuple[bytes, dict[str, str]]:
    """Return a graph with its weights as one file, without notes; ``marked``: inner tensors made outputs."""
    import onnx

    model = onnx.load(str(file))
    known = {output.name for output in model.graph.output}
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in marked if name not in known)
    renamed = clean_graph(model, redactor, MODEL)
    try:
        return model.SerializeToString(deterministic=True), renamed
    except ValueError as error:  # protobuf holds 2 GB at most
        raise UsageError(
            f"{file}: graph and weights do not fit into one file: minimise it first: nox -s minimise -- CELL"
        ) from error


def folder_files(
    folder: Path, repro: Path, product: str, needs: str, why: str, redactor: Redactor, *, compared: bool
) -> Files:
    """Return a repro's file, the probe, the case and what runs them, as one readable folder.

    ``compared``: outputs are compared with references, which go along.
    """
    import trtprobe

    probe = Path(trtprobe.__file__).parent
    run = RUN_TEXT.format(why=why[:1].upper() + why[1:], needs=needs, repro=repro.name, product=product)
    params = json.loads((folder / "case.json").read_text(encoding="utf-8"))["params"]
    files: Files = {
        RUN: run.encode(), "case/case.json": json.dumps({"params": params}, indent=1).encode(),
        f"repros/{repro.name}": redactor.clean(repro.name, repro.read_text(encoding="utf-8")).encode(),
    }  # fmt: skip
    files |= {f"trtprobe/{f.relative_to(probe)}": f.read_bytes() for f in sorted(probe.rglob("*.py"))}
    for file in sorted(folder.rglob("*")):
        name = f"case/{file.relative_to(folder)}"
        if file.suffix == ".onnx":
            files[name] = clean_model(file, redactor)[0]
        elif file.suffix == ".npy" and (compared or "/reference/" not in name):
            files[name] = file.resolve()
    return files


def write_npz(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Return the bytes of an ``.npz``: the same each time, and read by NumPy alone."""
    out = io.BytesIO()
    np.savez_compressed(out, **{name: arrays[name] for name in sorted(arrays)})  # type: ignore[arg-type]
    return out.getvalue()


def round_off(array: NDArray[Any], floor: float) -> NDArray[Any]:
    """Return a float64 array rounded far below a relative noise floor, as float32 where it fits.

    Rounding to nearest at k bits changes each value, and so the whole in relative L2, by at most 2^-(k+1).
    """
    if array.dtype != np.float64 or not 0 < floor < math.inf:
        return array
    bits = max(1, math.ceil(math.log2(FINER / floor)) - 1)
    if bits >= 52:
        return array
    mantissa, exponent = np.frexp(array)
    with np.errstate(all="ignore"):
        rounded = np.ldexp(np.round(mantissa * 2.0 ** (bits + 1)) / 2.0 ** (bits + 1), exponent)
        rounded = np.where(np.isfinite(rounded), rounded, array)
        single = rounded.astype(np.float32)
    return single if np.array_equal(single.astype(np.float64), rounded, equal_nan=True) else rounded
