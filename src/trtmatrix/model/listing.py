"""Several models of one's own: a list in YAML, a folder or files, and their repros run as one project's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from trtmatrix.common.errors import ConfigError, UsageError
from trtmatrix.common.paths import whole_folder
from trtmatrix.model.own_model import ModelOptions, model_repro, open_model
from trtmatrix.plan.context import Context
from trtmatrix.suite.cells import CONTROLS
from trtmatrix.suite.keys import keys, parse_keys, schema_number
from trtmatrix.suite.repro_files import LoadedRepro

FILE = "models.yaml"
"""The list that a folder may have; without one, its ``.onnx`` files are the models."""

_Text = Annotated[str, Field(min_length=1)]
_Tolerance = Annotated[float, Field(ge=0, allow_inf_nan=False)]


@keys
class Listed:
    """One model of models.yaml. Paths are relative to the file; what is not given, the command line says.

    ``profile``: by dynamic input, such as ``ids: 1x16:4x128:8x512``. ``check``: the acceptance script.
    ``max_slowdown``: how many times the latency, memory, size or build time may be what it was;
    ``performance: false`` leaves these out.
    """

    file: _Text
    name: str = ""
    inputs: str = ""
    precision: Literal["tf32", "fp32", "fp16"] | None = None
    profile: Mapping[str, str] = field(default_factory=dict)
    atol: _Tolerance | None = None
    rtol: _Tolerance | None = None
    check: str = ""
    max_slowdown: Annotated[float, Field(ge=1, allow_inf_nan=False)] | None = None
    performance: bool = True
    tags: tuple[_Text, ...] = ()


@keys
class Listing:
    """The whole of models.yaml."""

    schema: Annotated[Literal[1], BeforeValidator(schema_number)]
    models: Annotated[tuple[Listed, ...], Field(min_length=1)]


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A model to be asked about; ``max_slowdown`` is 0 where performance is left out."""

    model: ModelOptions
    max_slowdown: float
    tags: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name that was given to it, else its file's."""
        return self.model.name or (self.model.model.name if self.model.model else "")


def parse_listing(text: str, file: str = FILE) -> Listing:
    """Read models.yaml's text; :class:`ConfigError` lists every mistake with line and remedy."""
    return parse_keys(Listing, text, file)


def find_models(
    places: Sequence[Path], usual: ModelOptions, max_slowdown: float, tags: Sequence[str] = ()
) -> tuple[Wanted, ...]:
    """Return the models of lists, folders and ``.onnx`` files, those with one of the tags if any is named.

    ``usual``, ``max_slowdown``: for what a list does not say. :class:`UsageError` where there is none, or two
    have the same name.
    """
    found = [one for place in places for one in _find(place, usual, max_slowdown)]
    twice = [name for name, number in Counter(one.model.name for one in found).items() if number > 1]
    if twice:
        raise UsageError(f"--models: {', '.join(twice)} stands twice: give each model a name of its own")
    chosen = tuple(one for one in found if not tags or set(tags) & set(one.tags))
    if not chosen:
        known = ", ".join(sorted({tag for one in found for tag in one.tags})) or "none"
        raise UsageError(f"--tag {','.join(tags)}: no model has it; tags are: {known}")
    return chosen


def _find(place: Path, usual: ModelOptions, limit: float) -> Iterator[Wanted]:
    listed = place / FILE if (place / FILE).is_file() else place
    if listed.suffix in {".yaml", ".yml"}:
        try:
            listing = parse_listing(listed.read_text(encoding="utf-8"), str(listed))
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError([f"{listed}: cannot be read: {error}"]) from error
        for one in listing.models:
            path, bounds = listed.parent / one.file, (one.atol, one.rtol)
            atol, rtol = bounds if bounds != (None, None) else (usual.atol, usual.rtol)
            model = replace(
                usual, name=one.name or path.stem, model=path, precision=one.precision or usual.precision,
                inputs=listed.parent / one.inputs if one.inputs else None, atol=atol, rtol=rtol,
                profile=tuple(f"{name}={ranges}" for name, ranges in one.profile.items()),
                check=listed.parent / one.check if one.check else usual.check,
            )  # fmt: skip
            allowed = (one.max_slowdown or limit) if one.performance and limit else 0.0
            yield Wanted(model=model, max_slowdown=allowed, tags=one.tags)
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
        model = replace(usual, name=str(named or file.stem), model=file, inputs=samples)
        yield Wanted(model=model, max_slowdown=limit)


@dataclass(frozen=True, kw_only=True)
class Opened:
    """A model's own context (:func:`open_model`), or None and the ``mistake`` for which there is none."""

    wanted: Wanted
    context: Context | None
    mistake: str = ""


def open_models(context: Context, wanted: Sequence[Wanted]) -> tuple[Context, tuple[Opened, ...]]:
    """Return a context over the repros of all models, and each by itself; a mistake costs its model alone."""
    opened: list[Opened] = []
    repros: dict[str, LoadedRepro] = {}
    for one in wanted:
        try:
            mine = open_model(context, one.model)
            repro = model_repro(mine)
            twice = repro.repro.id in repros
        except UsageError as error:
            opened.append(Opened(wanted=one, context=None, mistake=str(error)))
            continue
        mistake = f"{one.model.name}: another model has this file and name: give it another name"
        opened.append(Opened(wanted=one, context=None if twice else mine, mistake=mistake if twice else ""))
        repros |= {} if twice else mine.repros
    texts = {loaded.file.name: loaded.file.read_bytes() for loaded in repros.values()}
    digest = sha256(b"\n".join(name.encode() + text for name, text in sorted(texts.items()))).hexdigest()
    folder = context.project.cache / "sets" / digest[:16]  # cells find their repros by name alone
    if not folder.is_dir():
        with whole_folder(folder) as partial:
            for name, text in texts.items():
                (partial / name).write_bytes(text)
    names = tuple(name for name in repros if name != CONTROLS)
    merged = replace(
        context, project=replace(context.project, repros=folder), repros=repros,
        selection=replace(context.selection, repros=names, cases=()),
    )  # fmt: skip
    return merged, tuple(opened)
