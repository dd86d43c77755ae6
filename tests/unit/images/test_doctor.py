"""Doctor's words: what to type next for an image that is not here."""

from __future__ import annotations

import pytest
from builders import read_version

from trtmatrix.images.doctor import image_finding
from trtmatrix.suite.matrix import ImageOrigin
from trtmatrix.suite.plan import Engine

FACT = {"value": "9.2.0", "known": "read", "source": "notes"}
PULLED = {"image": "example.org/tensorrt:9.2.0"}
MADE = {
    "image": "ours/tensorrt:9.2.0",
    "build": {"base": "example.org/base:1", "wheels": ["tensorrt-libs==9.2.0"]},
}


@pytest.mark.parametrize(
    ("origin", "here", "found", "remedy"),
    [
        (
            MADE,
            (),
            "ours/tensorrt:9.2.0: image not built",
            "name the version by --trt (a run pulls or builds it)",
        ),
        (MADE, ("ours/tensorrt:9.2.0",), "ours/tensorrt:9.2.0: sha256:000000000000", ""),
        (
            PULLED,
            (),
            "example.org/tensorrt:9.2.0: image not pulled (not locked)",
            "name the version by --trt (a run pulls or builds it)",
        ),
    ],
)
def test_an_image_that_is_not_here_comes_with_the_command_that_gets_it(
    origin: dict[str, object], here: tuple[str, ...], found: str, remedy: str
) -> None:
    version = read_version({"version": "9.2.0", "origin": origin, "library": FACT})
    assert isinstance(version.origin, ImageOrigin)
    engine = Engine(available=True, images=dict.fromkeys(here, f"sha256:{'0' * 64}"))
    finding = image_finding(version, version.origin, engine)
    assert (finding.found, finding.remedy[: len(remedy)] if remedy else finding.remedy) == (found, remedy)
