"""The user's own models as repros like any other: made from a file, its inputs and what was asked of it.

There may be several: in a list in YAML, a folder or files; their repros are run as one project's.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from math import prod
from pathlib import Path
from pprint import pformat
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from trtmatrix.common.errors import UsageError
from trtmatrix.common.options import flag, many, number, value
from trtmatrix.common.paths import whole_folder
from trtmatrix.common.text import fill_constants
from trtmatrix.judge.compare import OWN_MODEL
from trtmatrix.plan.context import Context
from trtmatrix.suite.cells import CONTROLS, select_versions
from trtmatrix.suite.digest import digest_evaluator
from trtmatrix.suite.keys import keys, parse_keys
from trtmatrix.suite.model import Product
from trtmatrix.suite.repro_files import LoadedRepro, read_repros

if TYPE_CHECKING:
    from trtmatrix.onnxmodel.inputs import Inputs
    from trtmatrix.onnxmodel.reading import ModelFile

ABOUT = "about.json"
"""What a report tells of a model, beside its repro."""

HALF = frozenset({"float16", "bfloat16"})
"""Types of graphs that are built as they are: strongly typed where there is that."""

SECONDS = 1800.0
"""The time limit of a build and its runs: a model of one's own may be large."""

BUILDS = 3
"""A single build is never enough to say that a model is well."""

FILE = "models.yaml"
"""The list that a folder may have; without one, its ``.onnx`` files are the models."""

CORRECTED = frozenset({"AveragePool", "ConvTranspose", "GlobalMaxPool", "Hardmax", "LRN"})
"""Operators whose reference is ``onnx.reference``'s with corrections: ONNX Runtime has no float64 kernel."""
_tolerance = number(float, 0, "tolerance: a finite number from 0")
_Text = Annotated[str, Field(min_length=1)]
_Tolerance = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Factor = Annotated[float, Field(ge=1, allow_inf_nan=False)]


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """The user's own model, where one is named, and what is asked of it.

    No command line has these: ``name``, if not its file's; ``limit``: how many times a figure may be what it
    was, 0 where performance is left out; ``build_limit``: a build time, if that is another; ``tags``: those
    of a list; ``build``: more options of the build; ``bug_is``: which ends are the failure.
    """

    model: Path | None = value("--model FILE.onnx", group="model", action="append")
    name: str = ""
    inputs: Path | None = value("--inputs NPZ|DIR", "its inputs: one .npz with one array per input, or a "
        "folder of such files, one per sample (default: random, from the graph's shapes)",
        "model")  # fmt: skip
    precision: str = value("--precision", "the precision that TensorRT may use", "model", default="tf32",
        choices=["tf32", "fp32", "fp16"])  # fmt: skip
    atol: float | None = value("--atol A", "accept |a - b| <= A + R |b|, element by element", "model",
        type=_tolerance)  # fmt: skip
    rtol: float | None = value("--rtol R", group="model", type=_tolerance)
    profile: tuple[str, ...] = many("--profile INPUT=MIN:OPT:MAX", "shapes of a dynamic input, such as "
        "ids=1x16:4x128:8x512, or values of an input that sets a shape, such as k=1:3:5 (default: taken from "
        "the inputs)", "model")  # fmt: skip
    check: Path | None = value("--check FILE.py", "your own acceptance test of the model's outputs: see "
        "docs/acceptance.md", "upgrade")  # fmt: skip
    explain: bool = flag("--explain", "find the first layer of the model that goes wrong, if any does",
        "upgrade")  # fmt: skip
    build: Mapping[str, Any] = field(default_factory=dict)
    bug_is: tuple[str, ...] = ()
    limit: float = 0.0
    build_limit: float = 0.0
    tags: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The name that was given to it, else its file's."""
        return self.name or (self.model.name if self.model else "")


def open_model(context: Context, options: ModelOptions) -> Context:
    """Return a context over the model's repro and the project's controls, or the same where none was named.

    The repro is written if it is new. :class:`UsageError` where an option about a model stands without one,
    or the model, its inputs or its profile cannot be used, with all that is wrong.
    """
    if options.model is None:
        about = {name: value for name, value in vars(options).items() if name != "precision"}
        if given := [f"--{name}" for name, value in about.items() if value not in (None, "", (), False, {})]:
            raise UsageError(f"{', '.join(given)}: of which model? name it by --model my.onnx")
        return context
    from trtmatrix.onnxmodel.inputs import choose_inputs
    from trtmatrix.onnxmodel.reading import read_model

    model = read_model(options.model)
    inputs = choose_inputs(model, options.inputs, options.profile)
    folder = _write(context, model, inputs, options)
    return context_of(context, folder / "repros", read_repros(folder / "repros"))


def context_of(context: Context, folder: Path, repros: Sequence[LoadedRepro]) -> Context:
    """Return a context over the models' repros in a folder."""
    by_id = {item.repro.id: item for item in repros}
    own = tuple(name for name in by_id if name != CONTROLS)  # the controls go along where they are needed
    return replace(
        context, project=replace(context.project, repros=folder), repros=by_id,
        selection=replace(context.selection, repros=own, cases=()),
    )  # fmt: skip


def model_repro(context: Context) -> LoadedRepro:
    """Return the model's repro of a context that :func:`open_model` gave."""
    return next(loaded for name, loaded in context.repros.items() if name != CONTROLS)


def outputs_of(loaded: LoadedRepro) -> dict[str, str]:
    """Return what a model's repro calls its outputs → their names in the graph."""
    return dict(loaded.module.OUTPUTS)


def read_about(context: Context) -> dict[str, Any]:
    """Return what a report tells of the model: ``facts`` (pairs) and ``troubles``."""
    about: dict[str, Any] = json.loads((context.project.repros.parent / ABOUT).read_text(encoding="utf-8"))
    return about


def notes_of(context: Context) -> list[str]:
    """Return what is told of a model before it runs: where its inputs come from, what is unusual in it."""
    about = read_about(context)
    samples = dict(about["facts"])["samples"]
    return [*([f"samples: {samples}"] if about["drawn"] else []), *about["troubles"]]


def _write(context: Context, model: ModelFile, inputs: Inputs, options: ModelOptions) -> Path:
    """Write the model's folder if it is not there; returns it. Its name tells the content.

    Large files are there once.
    """
    import numpy as np

    from trtmatrix.onnxmodel.inputs import digest_samples, file_names, stem_of
    from trtmatrix.onnxmodel.preparing import mark_of
    from trtmatrix.prepare.cases import CaseCache

    profile = json.dumps(inputs.profile, sort_keys=True)
    content = sha256(f"{digest_samples(inputs.samples)} {profile}".encode()).hexdigest()
    text = _fill_page(context, model, inputs, options, content)
    controls = context.repros[CONTROLS].file.read_bytes() if CONTROLS in context.repros else b""
    models = context.project.cache / "models"
    folder = models / f"{model.digest[:16]}-{sha256(text.encode() + controls).hexdigest()[:16]}"
    if folder.is_dir():
        return folder
    blobs, names = CaseCache(context.project.cache), file_names(tensor.name for tensor in model.inputs)
    with whole_folder(folder) as fresh:
        for name, file in {"model.onnx": model.path, **model.files}.items():
            target = fresh / "model" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            os.link(blobs.keep_file(file), target)
        (fresh / "inputs").mkdir()
        for number, sample in enumerate(inputs.samples):
            mark = mark_of(number, len(inputs.samples))
            for file_name, name in names.items():
                np.save(fresh / "inputs" / f"{file_name}{mark}.npy", sample[name])
        repro = f"{stem_of(options.name or model.path.stem)}-{model.digest[:8]}"
        (fresh / "repros").mkdir()
        (fresh / "repros" / f"{repro.replace('-', '_')}.py").write_text(text, encoding="utf-8")
        if controls:
            (fresh / "repros" / f"{CONTROLS}.py").write_bytes(controls)
        about = json.dumps(_about(model, inputs, options.precision), indent=1)
        (fresh / ABOUT).write_text(about, encoding="utf-8")
    return folder


def _fill_page(
    context: Context, model: ModelFile, inputs: Inputs, options: ModelOptions, content: str
) -> str:
    from trtmatrix.onnxmodel.graphs import all_nodes, opset_of
    from trtmatrix.onnxmodel.inputs import file_names

    built = _built_as(model, options.precision)
    case: dict[str, Any] = {
        "id": f"{options.precision}-{content[:6]}",
        "params": {"precision": built, "model": model.digest[:16], "inputs": content[:16]},
        "keep": True, "builds": BUILDS, "seconds": SECONDS,
    }  # fmt: skip
    products = {version.product for version in select_versions(context.matrix, context.selection)}
    alone = Product.ONNXRUNTIME in products and Product.TENSORRT not in products
    if alone or any(node.op_type in CORRECTED for node in all_nodes(model.proto)):
        case["params"]["reference"] = digest_evaluator()[:16]  # where its corrections change the reference
    if (options.atol, options.rtol) != (None, None):
        case["tolerance"] = {"atol": float(options.atol or 0.0), "rtol": float(options.rtol or 0.0)}
    case |= {"bug_is": [*options.bug_is]} if options.bug_is else {}
    facts = {
        "title": f"your model {options.title}", "upstream": OWN_MODEL,
        "url": "docs/upgrade.md",
        "summary": f"Inputs: {inputs.words}. Opset {opset_of(model.proto)}.",
        "figure": {"measure": "floors", "label": "error as a multiple of the noise floor"},
        "expectations": [], "workarounds": [],
    }  # fmt: skip
    values = {
        "FACTS": facts, "SAMPLES": len(inputs.samples),
        "INPUTS": file_names(tensor.name for tensor in model.inputs),
        "OUTPUTS": file_names(tensor.name for tensor in model.outputs),
        "PROFILE": {name: tuple(map(tuple, shapes)) for name, shapes in inputs.profile.items()},
        "QUANTIZED": tuple(model.quantized), "OPTIONS": dict(options.build),
        "FLOOR": "bf16" if model.typed == "bfloat16" else built,
        "REFERENCE": "onnx.reference" if alone else "onnxruntime",  # it is not judged by itself
    }  # fmt: skip
    literal, page = partial(pformat, width=100, sort_dicts=False), Path(__file__).with_name("page.py")
    codes = {name: literal(value) for name, value in values.items()}
    filled = fill_constants(page.read_text(encoding="utf-8"), codes)
    return filled.replace("yield {}", f"yield {literal(case)}")


def _built_as(model: ModelFile, precision: str) -> str:
    """Return what the probe calls the precision."""
    return "fp16" if model.typed in HALF else {"fp16": "fp16-flag"}.get(precision, precision)


def _about(model: ModelFile, inputs: Inputs, precision: str) -> dict[str, Any]:
    """Return what a report tells of the model, by content alone: nothing of where it lies."""
    from trtmatrix.onnxmodel.graphs import opset_of
    from trtmatrix.onnxmodel.inputs import shape_text

    proto, size = model.proto, sum(file.stat().st_size for file in (model.path, *model.files.values()))
    parameters = sum(prod(tensor.dims) for tensor in proto.graph.initializer)
    ranges = [f"{n} {' to '.join(dict.fromkeys(map(shape_text, r)))}" for n, r in inputs.profile.items()]
    facts = [
        ("opset", f"{opset_of(proto)} (IR {proto.ir_version})"),
        ("made by", f"{proto.producer_name} {proto.producer_version}".strip() or "not said"),
        ("inputs", ", ".join(f"{tensor.name} {tensor.text}" for tensor in model.inputs)),
        ("outputs", ", ".join(f"{tensor.name} {tensor.text}" for tensor in model.outputs)),
        ("weights", f"{parameters:,} numbers, {model.typed}, {size:,} bytes in all"),
        ("external files", ", ".join(sorted(model.files)) or "none"),
        ("quantized to", ", ".join(model.quantized) or "nothing"),
        ("built as", _built_as(model, precision)),
        ("profile", "; ".join(ranges) or "none: all shapes are static"),
        ("samples", f"{len(inputs.samples)}, {inputs.words}" if inputs.drawn else inputs.words),
    ]  # fmt: skip
    typed = f"the graph is typed in {model.typed}: it is built as it is, whatever --precision says"
    told = [typed] if model.typed in HALF and precision != "fp16" else []
    return {"facts": facts, "troubles": [*model.troubles, *told], "drawn": inputs.drawn}


# --- Several models


@keys
class Listed:
    """One model of models.yaml. Paths are relative to the file; what is not given, the command line says.

    ``profile``: by dynamic input, such as ``ids: 1x16:4x128:8x512``. ``check``: the acceptance script.
    ``max_slowdown``: how many times the latency, memory, size or build time may be what it was, with
    ``max_build_slowdown`` for the build time alone; ``performance: false`` leaves these out.
    """

    file: _Text
    name: str = ""
    inputs: str = ""
    precision: Literal["tf32", "fp32", "fp16"] | None = None
    profile: Mapping[str, str] = field(default_factory=dict)
    atol: _Tolerance | None = None
    rtol: _Tolerance | None = None
    check: str = ""
    max_slowdown: _Factor | None = None
    max_build_slowdown: _Factor | None = None
    performance: bool = True
    tags: tuple[_Text, ...] = ()


@keys
class Listing:
    """The whole of models.yaml."""

    schema: Literal[1]
    models: Annotated[tuple[Listed, ...], Field(min_length=1)]


def find_models(
    places: Sequence[Path], usual: ModelOptions, tags: Sequence[str] = ()
) -> tuple[ModelOptions, ...]:
    """Return the models of lists, folders and ``.onnx`` files, those with one of the tags if any is named.

    ``usual``: what a list does not say. :class:`UsageError` where there is none, or two have the same name.
    """
    found = [one for place in places for one in _find(place, usual)]
    twice = [name for name, number in Counter(one.name for one in found).items() if number > 1]
    if twice:
        raise UsageError(f"--models: {', '.join(twice)} stands twice: give each model a name of its own")
    chosen = tuple(one for one in found if not tags or set(tags) & set(one.tags))
    if not chosen:
        known = ", ".join(sorted({tag for one in found for tag in one.tags})) or "none"
        raise UsageError(f"--tag {','.join(tags)}: no model has it; tags are: {known}")
    return chosen


def _find(place: Path, usual: ModelOptions) -> Iterator[ModelOptions]:
    listed = place / FILE if (place / FILE).is_file() else place
    if listed.suffix in {".yaml", ".yml"}:
        try:
            text = listed.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--models {listed}: cannot be read: {error}") from error
        for one in parse_keys(Listing, text, str(listed)).models:
            path, bounds = listed.parent / one.file, (one.atol, one.rtol)
            atol, rtol = bounds if bounds != (None, None) else (usual.atol, usual.rtol)
            yield replace(
                usual, name=one.name or path.stem, model=path, precision=one.precision or usual.precision,
                inputs=listed.parent / one.inputs if one.inputs else None, atol=atol, rtol=rtol,
                profile=tuple(f"{name}={ranges}" for name, ranges in one.profile.items()),
                check=listed.parent / one.check if one.check else usual.check, tags=one.tags,
                limit=(one.max_slowdown or usual.limit) if one.performance and usual.limit else 0.0,
                build_limit=one.max_build_slowdown or usual.build_limit,
            )  # fmt: skip
        return
    files = sorted([*place.glob("*.onnx"), *place.glob("*/model.onnx")]) if place.is_dir() else [place]
    if not files:
        raise UsageError(
            f"--models {place}: no model is there: put NAME.onnx with NAME.npz into it, NAME/model.onnx with "
            f"NAME/inputs.npz, or a {FILE} (docs/upgrade.md)"
        )
    for file in files:
        named = file.stem == "model" and file.parent.name
        inputs = ("inputs", "inputs.npz") if named else (file.stem, f"{file.stem}.npz")
        beside = [path for name in inputs if (path := file.with_name(name)).exists()]
        samples = next((path for path in beside if path.suffix == ".npz" or any(path.glob("*.npz"))), None)
        yield replace(usual, name=str(named or file.stem), model=file, inputs=samples)


@dataclass(frozen=True, kw_only=True)
class Opened:
    """A model's own context (:func:`open_model`), or None and the ``mistake`` for which there is none."""

    options: ModelOptions
    context: Context | None
    mistake: str = ""


def open_models(context: Context, models: Sequence[ModelOptions]) -> tuple[Context, tuple[Opened, ...]]:
    """Return a context over the repros of all models, and each by itself; a mistake costs its model alone."""
    opened: list[Opened] = []
    repros: dict[str, LoadedRepro] = {}
    for options in models:
        try:
            mine = open_model(context, options)
            twice = model_repro(mine).repro.id in repros
        except UsageError as error:
            opened.append(Opened(options=options, context=None, mistake=str(error)))
            continue
        mistake = "another model has this file and name: give it another name" if twice else ""
        opened.append(Opened(options=options, context=None if twice else mine, mistake=mistake))
        repros |= {} if twice else mine.repros
    texts = {loaded.file.name: loaded.file.read_bytes() for loaded in repros.values()}
    digest = sha256(b"\n".join(name.encode() + text for name, text in sorted(texts.items()))).hexdigest()
    folder = context.project.cache / "sets" / digest[:16]  # cells find their repros by name alone
    if not folder.is_dir():
        with whole_folder(folder) as partial:
            for name, text in texts.items():
                (partial / name).write_bytes(text)
    return context_of(context, folder, [*repros.values()]), tuple(opened)
