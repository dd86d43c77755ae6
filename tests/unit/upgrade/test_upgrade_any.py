"""Which version to move to where any will do."""

from __future__ import annotations

import pytest
from upgrades import ask, entries_for

from trtmatrix.upgrade.decide import choose_version, decide
from trtmatrix.upgrade.report import Decision, Upgrade

FROM = "10.0.0"
NEWER = ("10.3.0", "10.4.0", "10.7.0")


def reports(*states: str, before: str = "bad3") -> list[Upgrade]:
    """A report to each newer version, where the case stands as told."""
    return [
        decide(ask(entries_for({"sdpa": before}, {"sdpa": state}, old=FROM, new=new), FROM, new))
        for new, state in zip(NEWER, states, strict=True)
    ]


@pytest.mark.parametrize(
    ("states", "after", "decision"),
    [
        (("good3", "good3", "good3"), "10.7.0", Decision.GO),
        (("good3", "good3", "unknown"), "10.4.0", Decision.GO),
        (("good3", "unknown", "good1"), "10.3.0", Decision.GO),
        (("unknown", "said good", "unknown"), "10.7.0", Decision.NOT_ENOUGH),
        (("unknown", "good1", "unknown"), "10.4.0", Decision.NOT_ENOUGH),
    ],
)
def test_the_newest_with_nothing_against_it(states: tuple[str, ...], after: str, decision: Decision) -> None:
    chosen = choose_version(reports(*states, before="good3"))
    assert (chosen.after, chosen.decision) == (after, decision)
    others = {r.topic: r.text for r in chosen.reasons if r.topic in NEWER}
    assert set(others) == set(NEWER) - {after}
