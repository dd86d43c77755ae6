"""What an image says of itself against what matrix.yaml says of its version. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from trtmatrix.launchers.lock import Lock, named_versions
from trtmatrix.suite.matrix import Fact, ImageOrigin, Version
from trtmatrix.suite.model import Known, Product


class Agreement(Enum):
    """What an image's own words do to a fact of matrix.yaml."""

    CONFIRMED = "confirms"
    CONTRADICTED = "contradicts"
    SILENT = "says nothing of"


@dataclass(frozen=True, kw_only=True)
class FactCheck:
    """A fact of a version, and what its image says of the same thing."""

    version: str
    name: str
    fact: Fact
    says: str
    agreement: Agreement

    @property
    def settles(self) -> bool:
        """Whether a fact that was not read anywhere so far can be read here."""
        weak = self.fact.known in {Known.RECALLED, Known.INFERRED, Known.THIRD_PARTY}
        return weak and self.agreement is Agreement.CONFIRMED


_NAMES = {"library": "tensorrt", "cuda": "cuda", "torch": "torch"}


def check_facts(version: Version, lock: Lock, platform: str) -> Iterator[FactCheck]:
    """Yield what the locked image of a version says of its facts.

    An image of ours says nothing: its base is asked for CUDA and torch, the library comes from the wheels.
    """
    origin = version.origin
    if not isinstance(origin, ImageOrigin):
        return
    locked = lock.images.get(origin.build.base if origin.build else origin.image)
    found = locked.of(platform) if locked else None
    if found is None:
        return
    said = named_versions(found.environment)
    for name, fact in version.facts().items():
        if name in _NAMES and not (origin.build and name == "library"):
            says = getattr(said, _NAMES[name])
            yield FactCheck(
                version=version.name, name=name, fact=fact, says=says, agreement=agree(fact.value, says)
            )


def locked_tensorrt(version: Version, lock: Lock, platform: str) -> str:
    """Return the TensorRT that the locked image of a version says it has; nothing where that tells nothing.

    An image of ours is no witness: what its base says is not what its wheels are.
    """
    origin = version.origin
    if version.product is not Product.TENSORRT or not isinstance(origin, ImageOrigin) or origin.build:
        return ""
    locked = lock.images.get(origin.image)
    found = locked.of(platform) if locked else None
    return named_versions(found.environment).tensorrt if found else ""


def agree(value: str, says: str) -> Agreement:
    """Compare a fact with an image's words; where one is shorter, as ``10.8.0`` is, its parts decide.

    ``12.6.3`` agrees with ``12.6.3.004``, ``2.6.0a0+df5bbc09d1`` with ``2.6.0a0+df5bbc0``.
    """
    if not says:
        return Agreement.SILENT
    (release, _, commit), (its, _, built) = value.partition("+"), says.partition("+")
    ours, theirs = _parts(release), _parts(its)
    least = min(len(ours), len(theirs))
    same = ours[:least] == theirs[:least] and (commit.startswith(built) or built.startswith(commit))
    return Agreement.CONFIRMED if same else Agreement.CONTRADICTED


def _parts(text: str) -> list[str]:
    """Return a version's parts; numbers without leading zeros, as CUDA's ``004`` is 4."""
    return [part.lstrip("0") or "0" for part in re.split(r"[.-]", text)]
