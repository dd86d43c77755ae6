"""Whether a ``reproduce.sh`` is what this version renders, whatever cell and image it is of. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product as each

from trtmatrix.core.bundle.facts import Environment, Failure, Image
from trtmatrix.core.bundle.run_script import render_reproduce
from trtmatrix.core.model import CellId, Product, Verdict

WORD = r"(?:[\w@%+=:,./-]+|'[^'\n]*')"
"""One word of a shell, in which nothing is run."""

ID = f"sha256:{'0' * 64}"
HOLES = {
    "HOLEA/HOLEB@HOLEC#HOLED: HOLEE": r"""[^\n"$`\\]*""", "HOLEN": r"""[^\n"$`\\]*""",
    "HOLEV": r"""[^\n"$`\\]*""", "HOLER": WORD, "HOLET": WORD,
    "HOLEL": rf"(?:docker build(?: {WORD})*|sh image/build\.sh)",
    f"reproduce:{'0' * 12}": r"reproduce:\w+", ID: WORD, ID[:19]: r"[\w:]*",
}  # fmt: skip
"""What stands in a rendered script for what differs from archive to archive, and what may stand there."""


def is_rendered(script: str, product: Product) -> bool:
    """Whether a script is this version's own, but for the names, digests and the build line in it."""
    return any(re.fullmatch(pattern, script) for pattern in _patterns(product))


def _patterns(product: Product) -> Iterator[str]:
    for reference, build, gpu in each(("", "HOLER"), ("", "HOLEL"), ("", "g")):
        image = Image(name="HOLEN", id=ID, reference=reference, tag="HOLET", build=build)
        yield _pattern(_failure(product, image, gpu))
    yield _pattern(_failure(product, None, ""))


def _pattern(failure: Failure) -> str:
    pattern = re.escape(render_reproduce(failure))
    for hole, may in HOLES.items():
        pattern = pattern.replace(re.escape(hole), may)
    return pattern


def _failure(product: Product, image: Image | None, gpu: str) -> Failure:
    return Failure(
        cell=CellId(repro="HOLEA", case="HOLEB", version="HOLEC", gpu="HOLED"), product=product,
        product_name="", version="", title="HOLEE", upstream="", url="", summary="", kind="",
        verdict=Verdict.FAIL, reason="", figure="", figure_label="", manner="", builds=1, failed=1, params={},
        precision="", environment=Environment(library="HOLEV", gpu=gpu), image=image,
    )  # fmt: skip
