"""A case's files as an archive holds them: a model, and arrays in .npz files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np


class CaseFiles:
    """The files of the case, as the repro's ``run`` asks for them; what is not there is empty."""

    def __init__(self, folder: Path, params: dict[str, Any]) -> None:
        """Read all arrays. ``defects.npz`` names its arrays ``<defect>/<output>``."""
        self.folder, self.model, self.params = folder, folder / "model.onnx", params
        self.others = {path.stem: path for path in sorted((folder / "others").glob("*.onnx"))}
        self.inputs, self.reference, self.extra = (
            read_npz(folder / name) for name in ("inputs.npz", "reference.npz", "extra.npz")
        )
        self.defects: dict[str, dict[str, np.ndarray]] = {}
        for name, array in read_npz(folder / "defects.npz").items():
            defect, _, output = name.partition("/")
            self.defects.setdefault(defect, {})[output] = array


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of a file by name; nothing where it is not there."""
    if not path.is_file():
        return {}
    with np.load(str(path)) as archive:
        return {name: archive[name] for name in archive.files}
