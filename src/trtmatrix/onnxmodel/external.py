"""The files beside a model that hold its large weights: ONNX's external data, found and refused by rule.

Format: https://onnx.ai/onnx/repo-docs/ExternalData.html.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import onnx
from onnx import ModelProto, TensorProto

from trtmatrix.common.errors import UsageError
from trtmatrix.onnxmodel.walk import all_tensors

OWN_NAMES = frozenset(
    {
        "model.onnx",
        "check.onnx",
        "case.json",
        "noise.json",
        "inputs",
        "reference",
        "extra",
        "others",
        "defects",
    }
)
"""What lies in a case's folder already."""


def find_external(model: Path, loaded: ModelProto | None = None) -> dict[str, Path]:
    """Return the files with a model's external data: their relative name → where they are.

    :class:`UsageError` tells of all that are missing, too short, or outside of the model's folder.
    """
    loaded = loaded or onnx.load(str(model), load_external_data=False)
    needed: dict[str, int] = {}
    problems: list[str] = []
    for tensor in all_tensors(loaded):
        if tensor.data_location != TensorProto.EXTERNAL:
            continue
        entries = {entry.key: entry.value for entry in tensor.external_data}
        name = entries.get("location", "")
        end = _number(entries.get("offset")) + _number(entries.get("length"))
        needed[name] = max(needed.get(name, 0), end)
    found: dict[str, Path] = {}
    for name, size in needed.items():
        if reason := _refused(model, name, size):
            problems.append(f"{model}: its weights lie in {name!r}, {reason}")
        else:
            found[name] = model.parent / name
    if problems:
        raise UsageError("\n".join(problems))
    return found


def _number(text: str | None) -> int:
    return int(text) if text and text.isdecimal() else 0


def _refused(model: Path, name: str, size: int) -> str:
    """Return why a file cannot be taken, or nothing."""
    pure = PurePosixPath(name.replace("\\", "/"))
    if not name or pure.is_absolute() or ".." in pure.parts or ":" in name.partition("/")[0]:
        return "which is not inside of the model's folder: save it again with all data in one file beside it"
    if pure.parts[0] in OWN_NAMES:
        return "a name that a case's folder has for its own: save it again under another name"
    file = model.parent / name
    if not file.is_file():
        return "which is not there: copy it beside the model, or name the model where it is"
    if not file.resolve().is_relative_to(model.resolve().parent):
        return "a link out of the model's folder: copy the file there"
    if file.stat().st_size < size:
        return f"which has {file.stat().st_size} bytes of at least {size}: it is truncated, copy it again"
    return ""
