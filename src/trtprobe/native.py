"""Export of a module by the image's own torch (1.13 and later): the exporter is a variable of its own."""

from __future__ import annotations

import contextlib
import inspect
import tempfile
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping

import numpy as np

from trtprobe.files import CaseFiles


@contextlib.contextmanager
def exported(module: Any, files: CaseFiles, output_names: List[str]) -> Iterator[Path]:
    """Give the case's weights (``files.extra``) to a module and export it; the file goes with the block."""
    module.load_state_dict(_tensors(files.extra))
    with tempfile.TemporaryDirectory() as folder:
        yield export(module, _tensors(files.inputs), output_names, Path(folder) / "native.onnx")


def export(
    module: Any, inputs: Mapping[str, Any], output_names: List[str], path: Path, opset: int = 17
) -> Path:
    """Write a module in eval mode as ONNX by ``torch.onnx.export``, with static shapes; returns ``path``.

    ``inputs`` are tensors by the names of ``forward``'s arguments, which the graph's inputs get too;
    ``ValueError`` for one that it does not take. The exporter is the one that traces: every torch has it,
    and it is the one of the reports.
    """
    import torch

    names = [name for name in inspect.signature(module.forward).parameters if name in inputs]
    if len(names) < len(inputs):
        raise ValueError("forward() takes no %s" % ", ".join(sorted(set(inputs) - set(names))))
    tracing = {"dynamo": False} if "dynamo" in inspect.signature(torch.onnx.export).parameters else {}
    arguments = tuple(inputs[name] for name in names)
    with torch.no_grad():
        torch.onnx.export(
            module.eval(), arguments, str(path), opset_version=opset,
            input_names=names, output_names=output_names, **tracing,
        )  # fmt: skip
    return path


def _tensors(arrays: Mapping[str, np.ndarray]) -> Dict[str, Any]:
    import torch

    return {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}
