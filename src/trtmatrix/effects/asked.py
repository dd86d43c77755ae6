"""What a repro asks of a build: its run() is called with a product that notes that and computes nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trtmatrix.core.bundle.facts import Recipe
from trtmatrix.core.model import Case
from trtmatrix.effects.repro_files import LoadedRepro
from trtprobe.backends.base import Backend, BuildOptions, Engine
from trtprobe.files import CaseFiles

if TYPE_CHECKING:
    from numpy.typing import NDArray


class _Outputs(Mapping[str, "NDArray[Any]"]):
    """Whatever output is asked for is there."""

    def __getitem__(self, name: str) -> NDArray[Any]:
        import numpy as np

        return np.zeros((1,), np.float32)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


class _Noted(Engine):
    """An engine that computes nothing."""

    def run(self, inputs: Mapping[str, NDArray[Any]]) -> Any:  # noqa: ANN401 - stands for outputs by name
        """Return something for each output."""
        del inputs
        return _Outputs()

    def fusion(self, inputs: Mapping[str, NDArray[Any]]) -> str:
        """Say that nothing can be seen."""
        del inputs
        return "?"


class _Notes(Backend):
    """A product that notes how it is asked to build."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[Path, BuildOptions]] = []

    def _build(self, model: Path, options: BuildOptions) -> Engine:
        self.asked.append((model, options))
        return _Noted()


def asked_of(loaded: LoadedRepro, case: Case, folder: Path) -> Recipe | None:
    """Return what a case's run asks of the build of its model; None where it builds none by itself.

    ``folder``: the prepared case. What the repro raises after it has built is no matter.
    """
    files, product = CaseFiles(folder), _Notes()
    with contextlib.suppress(Exception):  # it may need torch, a GPU or real numbers: what it asked stands
        loaded.module.run(dict(case.params), files, product)
    found = [options for model, options in product.asked if model == files.model]
    if not found:
        return None
    options, samples = found[-1], int(getattr(loaded.module, "SAMPLES", 1))
    inputs = dict(getattr(loaded.module, "INPUTS", None) or {name: name for name in files.inputs})
    outputs = dict(getattr(loaded.module, "OUTPUTS", None) or {name: name for name in files.reference})
    mark = ".s0" if samples > 1 else ""
    return Recipe(
        precision=options.precision, level=options.level, plugins=options.plugins,
        keep_fp32=options.keep_fp32, marked=options.outputs, profile=dict(options.profile),
        quantized=options.quantized, inputs=inputs, outputs=outputs, samples=samples,
        shapes={graph: tuple(files.inputs[name + mark].shape) for name, graph in inputs.items()},
        has_reference=bool(files.reference),
    )  # fmt: skip
