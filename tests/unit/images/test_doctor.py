"""Doctor's words: what to type next for an image that is not here."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import make_version

from trtmatrix.images.doctor import image_finding
from trtmatrix.suite.matrix import Build, ImageOrigin
from trtmatrix.suite.plan import Engine

HINT = "name the version by --trt (a run pulls or builds it)"
PULLED = ImageOrigin(image="a/tensorrt:9.2.0")
MADE = ImageOrigin(image="a/tensorrt:9.2.0", build=Build(base="a/base:1", wheels=("tensorrt-libs==9.2.0",)))


@pytest.mark.parametrize(
    ("origin", "here", "found", "remedy"),
    [
        (MADE, (), "image not built", HINT),
        (MADE, (MADE.image,), "sha256:000000000000", ""),
        (PULLED, (), "image not pulled (not locked)", HINT),
    ],
)
def test_an_image_that_is_not_here_comes_with_the_command_that_gets_it(
    origin: ImageOrigin, here: tuple[str, ...], found: str, remedy: str
) -> None:
    engine = Engine(available=True, images=dict.fromkeys(here, f"sha256:{'0' * 64}"))
    finding = image_finding(replace(make_version("9.2.0"), origin=origin), origin, engine)
    assert finding.found == f"{origin.image}: {found}"
    assert finding.remedy.startswith(remedy)
    assert bool(finding.remedy) is bool(remedy)
