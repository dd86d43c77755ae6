"""Looks into a case's graph for what can be changed, and writes the changed cases' repro into the cache."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trtmatrix.changed_repro import write_changed
from trtmatrix.core.advice import OWN_MODEL
from trtmatrix.core.bundle.changes import Change, Seen
from trtmatrix.core.expand import Cell
from trtmatrix.core.model import Case, Product
from trtmatrix.core.table import one_line
from trtmatrix.effects.repro_files import LoadedRepro

if TYPE_CHECKING:
    from trtmatrix.onnxmodel.batching import Batched

FOLDER = "changes"
"""Where in the cache the changed repros and the records of their runs lie."""


def look_into(loaded: LoadedRepro, cell: Cell, prepared: Path) -> tuple[Seen, Batched | None]:
    """Return what can be changed of a case's graph, and a user's samples with one row more.

    ``prepared``: the case's folder, as :class:`trtmatrix.effects.cases.CaseCache` makes it.
    """
    found = {**_find_tensor(cell, prepared), "level": _find_level(loaded, cell, prepared)}
    if not is_own(loaded):
        return Seen(**found), None
    from trtmatrix.onnxmodel.batching import NoBatchError

    try:
        batched = _add_row(loaded)
    except (NoBatchError, OSError) as error:
        return Seen(**found, no_batch=one_line(str(error))), None
    return Seen(**found, own_batch=batched.size), batched


def is_own(loaded: LoadedRepro) -> bool:
    """Whether a repro is that of a user's own model, which lies beside it."""
    return loaded.repro.upstream == OWN_MODEL


def _find_level(loaded: LoadedRepro, cell: Cell, prepared: Path) -> int | None:
    """Return the optimization level that a repro asks for in its own text."""
    from trtmatrix.effects.asked import read_recipe

    recipe = read_recipe(loaded.file, cell.case.params, prepared, cell.version.product)
    return recipe.level if recipe else None


def _find_tensor(cell: Cell, prepared: Path) -> dict[str, Any]:
    """Return an inner tensor and its operator, or why there is none."""
    from trtmatrix.onnxmodel.marking import choose_tensor, read_markable

    on_cpu = cell.version.product is Product.ONNXRUNTIME
    if on_cpu and (prepared / "check.onnx").is_file():
        return {"no_tensor": "ONNX Runtime runs another graph, with the plugin written out"}
    try:
        markable = read_markable(prepared / "model.onnx")
    except Exception as error:  # noqa: BLE001 - onnx and protobuf raise what they like
        return {"no_tensor": f"the graph cannot be read: {one_line(str(error), 120)}"}
    if not (tensor := choose_tensor(markable)):
        return {}
    return {"tensor": tensor, "operator": markable.nodes[tensor].operator}


def _add_row(loaded: LoadedRepro) -> Batched:
    from trtmatrix.onnxmodel.batching import add_row
    from trtmatrix.onnxmodel.preparing import mark_of, model_of

    module, model = loaded.module, model_of(loaded.file)
    marks = [mark_of(sample, module.SAMPLES) for sample in range(module.SAMPLES)]
    return add_row(model, model.parent.parent / "inputs", module.INPUTS, marks, module.PROFILE)


def write_changed_repro(
    cache: Path, loaded: LoadedRepro, case: Case, changes: Sequence[Change], builds: int,
    batched: Batched | None,
) -> Path:  # fmt: skip
    """Return the folder of the repro that runs a case changed; written now if it is not there.

    That of a user's model has the model and its samples beside it, as :mod:`trtmatrix.own_model` has them.
    """
    source = loaded.file.read_text(encoding="utf-8")
    text = write_changed(source, case, changes, builds, batched.profile if batched else {})
    name = f"{loaded.repro.id}-{sha256(text.encode()).hexdigest()[:16]}"
    folder = cache / FOLDER / name
    if folder.is_dir():
        return folder / "repros"
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=folder.parent))
    try:
        partial.chmod(0o755)
        (partial / "repros").mkdir()
        (partial / "repros" / loaded.file.name).write_text(text, encoding="utf-8")
        if is_own(loaded):
            _put_model(loaded, partial, batched.arrays if batched else {})
        if not folder.is_dir():
            partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder / "repros"


def _put_model(loaded: LoadedRepro, folder: Path, arrays: Mapping[str, Any]) -> None:
    """Put a user's model and samples beside its changed repro, by links; what is batched into ``batch``."""
    import numpy as np

    made = loaded.file.resolve().parent.parent
    for target in (folder, folder / "batch"):
        _link_tree(made / "model", target / "model")
    _link_tree(made / "inputs", folder / "inputs")
    (folder / "batch" / "inputs").mkdir()
    for name, array in arrays.items():
        np.save(folder / "batch" / "inputs" / f"{name}.npy", array)


def _link_tree(source: Path, target: Path) -> None:
    """Give every file of a folder of the cache a second name: nobody changes them."""
    shutil.copytree(source, target, copy_function=os.link)
