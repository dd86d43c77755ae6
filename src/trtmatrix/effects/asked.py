"""What a repro asks of the build: its ``run`` is called with a stand-in that notes it, and runs nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trtmatrix.core.bundle.facts import Recipe
from trtmatrix.core.model import Product


def read_recipe(repro: Path, params: Mapping[str, Any], files: Path, product: Product) -> Recipe | None:
    """Return how the case's own graph was last built before it was first run.

    ``files``: the case's folder. None where that is not what the repro looks at: it enqueues the engine by
    itself, or its graph is made inside the container.
    """
    from trtprobe.cell import load_repro
    from trtprobe.files import CaseFiles

    module, case = load_repro(repro), CaseFiles(files)
    stand_in = _StandIn(case, has_streams=product is Product.TENSORRT)
    try:
        module.run(dict(params), case, stand_in)
    except _Seen as seen:
        return _recipe(seen, module, case)
    except Exception:  # noqa: BLE001 - a repro that needs more than a build and a run, whatever it raises
        return None
    return None


class _Seen(Exception):
    """The case's own graph is run."""

    def __init__(self, options: Mapping[str, Any], feeds: Mapping[str, Any]) -> None:
        super().__init__()
        self.options, self.feeds = options, feeds


class _Anything(dict[str, Any]):
    """Outputs of another graph: any name has a zero."""

    def __missing__(self, name: str) -> Any:  # noqa: ANN401 - an array
        import numpy as np

        return np.zeros(())


class _StandInEngine:
    """An engine that is not there."""

    def __init__(self, options: Mapping[str, Any], *, is_own: bool) -> None:
        self.options, self.is_own = options, is_own

    def run(self, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        if self.is_own:
            raise _Seen(self.options, inputs)
        return _Anything()

    def fusion(self, inputs: Mapping[str, Any]) -> str:
        del inputs
        return "?"


class _StandIn:
    """What a repro is handed as the product; it has no streams to enqueue on, whatever it says."""

    def __init__(self, case: Any, *, has_streams: bool) -> None:  # noqa: ANN401 - the probe's
        self.case, self.has_streams = case, has_streams

    def build(self, model: Path, **options: Any) -> _StandInEngine:  # noqa: ANN401 - as the probe's
        return _StandInEngine(options, is_own=model == self.case.model)

    def measure(self, name: str, value: float) -> None:
        del name, value

    count = measure

    def remark(self, word: str) -> None:
        del word


def _recipe(seen: _Seen, module: Any, case: Any) -> Recipe:  # noqa: ANN401 - a module
    """Return the recipe; a repro of a user's model says by itself how arrays are named."""
    options = seen.options
    reference = tuple(case.reference)
    return Recipe(
        precision=options.get("precision", "tf32"), level=options.get("level"),
        plugins=bool(options.get("plugins")), keep_fp32=tuple(options.get("keep_fp32", ())),
        marked=tuple(options.get("outputs", ())), quantized=tuple(options.get("quantized", ())),
        profile=dict(_ranges(options.get("profile") or {})),
        inputs=dict(getattr(module, "INPUTS", None) or {name: name for name in seen.feeds}),
        outputs=dict(getattr(module, "OUTPUTS", None) or {name: name for name in reference}),
        samples=int(getattr(module, "SAMPLES", 1)),
        shapes={name: tuple(array.shape) for name, array in seen.feeds.items()},
        has_reference=bool(reference),
    )  # fmt: skip


def _ranges(profile: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, shapes in profile.items():
        least, best, most = (tuple(int(n) for n in shape) for shape in shapes)
        yield name, (least, best, most)
