"""What came of one's own model beside its verdict: one's own acceptance, the first wrong layer. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class CheckOutcome:
    """What the deployer's own acceptance said; ``passed`` is None where it raised, ``error`` says how."""

    script: str
    passed: bool | None
    figure: float | None = None
    label: str = ""
    error: str = ""


@dataclass(frozen=True, kw_only=True)
class WrongLayer:
    """The first layer that goes wrong at a version, as far as it could be found.

    ``tensor`` and ``node`` are ONNX names, ``operator`` the node's type. ``steps`` tells each marking in
    words; ``why_not`` says why nothing was found (marking cured the failure, the step budget was used up),
    or nothing.
    """

    version: str
    tensor: str = ""
    node: str = ""
    operator: str = ""
    error: str = ""
    steps: tuple[str, ...] = ()
    why_not: str = ""


@dataclass(frozen=True, kw_only=True)
class Integers:
    """How an output of integers compares with its reference at a version, over all samples.

    ``differ``: elements that are not the reference's; ``beyond``: of these, those that no noise explains.
    """

    output: str
    version: str
    count: int
    differ: int
    beyond: int

    @property
    def text(self) -> str:
        """The same in words."""
        if not self.differ:
            return f"{self.output} is the reference in all {self.count} elements"
        where = f"{self.output} differs from the reference in {self.differ} of {self.count} elements"
        if self.beyond:
            return f"{where}, in {self.beyond} of them by more than the noise of its precision explains"
        return f"{where}, all of them ties within the noise of its precision"
