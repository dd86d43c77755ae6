"""How one engine fails, as the judge decides it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from trtmatrix.judge.factors import EXPLAINED, FAIL_FACTOR
from trtmatrix.judge.judge import judge_engine
from trtmatrix.judge.noise import precision_of
from trtmatrix.judge.numbers import (
    Subject,
    above_limits,
    forbidden_fit,
    judge_build,
    nan_last,
    read_floors,
    read_signs,
    unexpected_in,
)
from trtmatrix.judge.record import Measured
from trtmatrix.judge.signs import Sign, best_sign, name_signs
from trtmatrix.suite.model import Verdict
from trtmatrix.suite.repros import BEYOND

SIZE = "{size}"
"""Stands in an engine's words for the range of sizes."""


class Kind(str, Enum):
    """What is wrong."""

    ENDED = "ended"
    """A build failure, crash or time-out that is the bug; ``what`` is the cause, ``message`` says it."""
    SHAPE = "another shape"
    """An output has another shape than its reference."""
    NOT_FINITE = "not finite"
    ZEROS = "zeros"
    """Outputs that are zero all over where the reference is not."""
    DEFECT = "known defect"
    """The error has a known defect's shape; ``what`` names it."""
    LIMIT = "own limit"
    """A measurement of the case's own is above its limit; ``what`` names it."""
    REMARK = "remark"
    """Right, but not compiled as the case wants it."""
    WRONG = "wrong numbers"


@dataclass(frozen=True, kw_only=True)
class Manner:
    """The way in which a cell fails.

    ``what``: see :class:`Kind`; of several that fit equally well all, with commas; of wrong numbers the
    precision in which they come out where that was not allowed. ``outputs``: those that are wrong; none where
    the kind is not about outputs. ``sizes``: of each engine that fails, the figure that ``Kind`` goes by (c
    of a defect, a measurement, the share of NaN, else the worst output's error in noise floors), so that a
    spread is known. ``errors``: the relative L2 error of the worst output of each. ``message``: an error's
    text without what differs from run to run (numbers, addresses, paths). ``words``: all that in a sentence.
    ``unsteady``: the engines give garbage that differs from one to the next (:mod:`trtmatrix.judge.garbage`);
    ``kind`` and ``sizes`` are then those of most of them, ``outputs`` and ``errors`` those of all.
    """

    kind: Kind
    what: str = ""
    outputs: tuple[str, ...] = ()
    sizes: tuple[float, ...] = ()
    message: str = ""
    words: str = ""
    errors: tuple[float, ...] = ()
    unsteady: bool = False


def of_engine(build: Measured, subject: Subject) -> Manner | None:
    """Return how one engine fails, None where it does not; in the order in which the judge decides."""
    if judge_engine(build, subject).verdict is not Verdict.FAIL:
        return None
    if unexpected := unexpected_in(build):
        share = max(float(v["nan_unexpected"]) / max(1, v.get("count", 1)) for v in unexpected.values())
        return _manner(Kind.NOT_FINITE, build, tuple(unexpected), share, "NaN or infinite, a share of {size}")
    own = {name: value for name, value in above_limits(build, subject.case).items() if name != BEYOND}
    if own:
        what, size = ", ".join(sorted(own)), own[min(own)]
        return _manner(Kind.LIMIT, build, (), size, f"{what} above the limit: {SIZE}", what)
    if judge_build(build, subject).verdict is not Verdict.FAIL:
        return _manner(
            Kind.REMARK, build, (), _worst(build, _floors(build, subject))[1],
            f"right, but {build.remark}", build.remark,
        )  # fmt: skip
    return _of_numbers(build, subject)


def _of_numbers(build: Measured, subject: Subject) -> Manner:
    """Return how outputs are wrong: zero, by a known defect, or else."""
    floors = _floors(build, subject)
    signs = list(read_signs(build, subject, subject.noise)) if subject.noise else []
    name, size = _worst(build, floors)
    wrong = tuple(output for output in floors if not floors[output] < FAIL_FACTOR)
    zeros = tuple(output for output in wrong or (name,) if _is_zero(build.outputs.get(output, {})))
    in_floors = f"{SIZE} noise floors" if floors else f"relative L2 error {SIZE}"
    if zeros:
        return _manner(Kind.ZEROS, build, zeros, size, "zero all over, where the reference is not")
    if named := _named(signs):
        what = ", ".join(sorted(sign.name for sign in named))
        outputs = wrong or tuple(dict.fromkeys(sign.output for sign in named))
        words = f"{_defect_words(named[0], subject)}, c = {SIZE}"
        return _manner(Kind.DEFECT, build, outputs, named[0].c or 0.0, words, what)
    member = forbidden_fit(build, subject, subject.noise, name) if subject.noise and name in floors else ""
    as_member = f", as {precision_of(member)} computes" if member else ""
    return _manner(
        Kind.WRONG, build, wrong or tuple(filter(None, [name])), size, f"wrong by {in_floors}{as_member}",
        precision_of(member),
    )  # fmt: skip


def _manner(
    kind: Kind, build: Measured, outputs: tuple[str, ...], size: float, words: str, what: str = ""
) -> Manner:
    """Return one engine's manner; the error is that of the worst output that is wrong."""
    errors = [float(v["rel_l2"]) for k, v in build.outputs.items() if k in (outputs or build.outputs)
              and "rel_l2" in v]  # fmt: skip
    worst = (max(errors, key=nan_last),) if errors else ()
    return Manner(kind=kind, what=what, outputs=outputs, sizes=(size,), words=words, errors=worst)


def _floors(build: Measured, subject: Subject) -> dict[str, float]:
    return read_floors(build, subject, subject.noise) if subject.noise else {}


def _worst(build: Measured, floors: Mapping[str, float]) -> tuple[str, float]:
    """Return the output that is furthest off and by how much: in noise floors, else its relative L2 error."""
    sizes = floors or {name: float(v["rel_l2"]) for name, v in build.outputs.items() if "rel_l2" in v}
    name = max(sorted(sizes), key=lambda output: nan_last(sizes[output]), default="")
    return name, sizes.get(name, 0.0)


def _is_zero(values: Mapping[str, float]) -> bool:
    """Whether an output is zero all over and its reference is not."""
    return bool(values) and 0 < values.get("count", 0) == values.get("zeros") and values.get("rel_l2", 0) != 0


def _named(signs: Sequence[Sign]) -> list[Sign]:
    """Return the known defects that have an error's shape, the best first."""
    best = best_sign(signs)
    return name_signs(signs) or ([best] if best is not None and best.explained >= EXPLAINED else [])


def _defect_words(sign: Sign, subject: Subject) -> str:
    known = subject.known.get(sign.name)
    what = known.what if known else sign.name
    return f"{what} ({known.upstream})" if known and known.upstream else what
