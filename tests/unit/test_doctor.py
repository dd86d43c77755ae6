"""Doctor's words: what to type next for an image that is not here."""

from __future__ import annotations

import pytest

from trtmatrix.context import Scene
from trtmatrix.core.config import Version
from trtmatrix.core.plan import Engine, Host, Plan
from trtmatrix.doctor import _images
from trtmatrix.effects.gpu import GpuScan

FACT = {"value": "9.2.0", "known": "read", "source": "notes"}
PULLED = {"image": "example.org/tensorrt:9.2.0"}
MADE = {
    "image": "ours/tensorrt:9.2.0",
    "build": {"base": "example.org/base:1", "wheels": ["tensorrt-libs==9.2.0"]},
}


def scene(*images: str, available: bool = True) -> Scene:
    engine = Engine(available=available, images=dict.fromkeys(images, f"sha256:{'0' * 64}"))
    plan = Plan(launches=(), excluded=())
    return Scene(
        host=Host(engine=engine), scan=GpuScan(gpus=(), reason="none"), cells=(), plan=plan, stored=()
    )


@pytest.mark.parametrize(
    ("origin", "here", "found", "remedy"),
    [
        (MADE, (), "ours/tensorrt:9.2.0: image not built", "make it: nox -s image -- 9.2.0"),
        (MADE, ("ours/tensorrt:9.2.0",), "ours/tensorrt:9.2.0: sha256:000000000000", ""),
        (PULLED, (), "example.org/tensorrt:9.2.0: image not pulled", "name the versions by --trt"),
    ],
)
def test_an_image_that_is_not_here_comes_with_the_command_that_gets_it(
    origin: dict[str, object], here: tuple[str, ...], found: str, remedy: str
) -> None:
    version = Version.model_validate({"version": "9.2.0", "origin": origin, "library": FACT})
    (finding,) = _images(scene(*here), [version])
    assert (finding.found, finding.remedy[: len(remedy)] if remedy else finding.remedy) == (found, remedy)


def test_without_an_engine_nothing_is_said_of_images() -> None:
    version = Version.model_validate({"version": "9.2.0", "origin": MADE, "library": FACT})
    (finding,) = _images(scene(available=False), [version])
    assert (finding.found, finding.remedy) == ("ours/tensorrt:9.2.0: unknown: no container engine", "")
