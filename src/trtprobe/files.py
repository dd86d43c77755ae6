"""A case's files as the host prepared them, and JSON that is written whole or not at all."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, Dict, Iterator, Mapping, Optional

import numpy as np


class CaseFiles:
    """The folder of one case: ``model.onnx``, ``inputs/*.npy``, ``reference/*.npy``, ``case.json``.

    There may be ``check.onnx``, what ONNX Runtime checks instead of a graph that it cannot run, and
    ``extra/*.npy``, what the case needs and the graph does not take (such as the weights of a module),
    ``others/*.onnx``, graphs to compare with, and ``defects/<defect>/*.npy``, what a known defect adds to
    outputs, in the reference's shape.

    Arrays are memory-mapped and read-only, and opened one by one. ``reference`` is empty where a case has
    none; its arrays are stored in the smallest dtype that holds every float64 value exactly.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.model = folder / "model.onnx"
        self.inputs, self.reference = Arrays(folder / "inputs"), Arrays(folder / "reference")
        self.extra = Arrays(folder / "extra")
        self.others = {path.stem: path for path in sorted((folder / "others").glob("*.onnx"))}
        self.defects = {path.name: Arrays(path) for path in sorted((folder / "defects").glob("*"))}

    @property
    def params(self) -> Dict[str, Any]:
        """The case's parameters."""
        params: Dict[str, Any] = json.loads((self.folder / "case.json").read_text())["params"]
        return params


class Arrays(Mapping[str, np.ndarray]):
    """The arrays of a folder by name; each is opened when it is asked for, closed with its last use.

    So a case may have hundreds of samples: no more files are open than arrays are held.
    """

    def __init__(self, folder: Path) -> None:
        self._files = {path.stem: path for path in sorted(folder.glob("*.npy"))}

    def __getitem__(self, name: str) -> np.ndarray:
        file = self._files[name]
        if not file.is_file():  # a pipe would be waited for
            raise OSError("%s is no file" % file)
        array: np.ndarray = np.load(str(file), mmap_mode="r")
        return array

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


def strict(value: Any) -> Any:
    """Return a value as strict JSON can hold it: NaN and infinity become words."""
    if isinstance(value, dict):
        return {str(key): strict(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [strict(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def to_json(data: Dict[str, Any], indent: Optional[int] = None) -> str:
    """Return strict JSON; in one line it takes a fraction of the time."""
    return json.dumps(strict(data), allow_nan=False, indent=indent, sort_keys=True)


def write_json(path: Path, data: Dict[str, Any]) -> None:
    """Write strict JSON by a temporary file and a rename, so that no reader sees a part of it."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(to_json(data, indent=1), encoding="utf-8")
    partial.replace(path)
