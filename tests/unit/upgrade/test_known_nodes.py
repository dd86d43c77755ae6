"""What is known of the nodes of the user's model, in a decision and in its report."""

from __future__ import annotations

import pytest
from upgrades import NEW, OLD, answer, own

from trtmatrix.model.static_check import NodeAt, NodeGroup, StaticCheck
from trtmatrix.suite.repros import Effect
from trtmatrix.upgrade.model_section import with_nodes
from trtmatrix.upgrade.question import Own
from trtmatrix.upgrade.render import render_screen, render_text
from trtmatrix.upgrade.report import Decision, Upgrade, Weight

SOURCE = "https://github.com/NVIDIA/TensorRT/issues/3447"


def at(version: str, known: str = "reported", depends: str = "") -> NodeAt:
    return NodeAt(version=version, effect=Effect.WRONG, known=known, source=SOURCE, depends=depends)


def looked_at(mine: Own, *found: NodeAt) -> Own:
    """The same model, of whose two Mul this is known."""
    group = NodeGroup(
        repro="transpose-constant", upstream="NVIDIA/TensorRT#3447", operator="Mul", nodes=("/a", "/b"),
        what="a constant factor", instead="leave the Transposes out", at=found,
    )  # fmt: skip
    check = StaticCheck(
        model="my.onnx", opset=17, nodes=9, versions=(OLD, NEW), rules=24, silent=(),
        groups=(group,) if found else (),
    )  # fmt: skip
    return Own(section=with_nodes(mine.section, check, OLD, NEW), entries=mine.entries)


def told(upgrade: Upgrade) -> str:
    return " ".join(render_text(upgrade).split())


UNSEEN, GOOD = own("good3", "unknown"), own("good3", "good3")


@pytest.mark.parametrize(
    ("found", "weight", "words"),
    [
        ((at(NEW),), Weight.AGAINST, f"new at {NEW}"),
        ((at(OLD, "assumed"), at(NEW, "measured")), Weight.AGAINST, f"new at {NEW}"),
        ((at(OLD), at(NEW, "read")), Weight.NOTE, f"broken in both {OLD} and {NEW}"),
        ((at(OLD),), Weight.NOTE, f"nothing known at {NEW}"),
        ((at(NEW, "assumed"),), Weight.NOTE, f"feared at {NEW}"),
        ((at(NEW, depends="a value is beyond 256"),), Weight.NOTE, f"feared at {NEW}"),
    ],
)
def test_what_becomes_known_to_fail_counts_against_the_move(
    found: tuple[NodeAt, ...], weight: Weight, words: str
) -> None:
    upgrade = answer(looked_at(UNSEEN, *found))
    assert upgrade.decision is (Decision.DONT if weight is Weight.AGAINST else Decision.NOT_ENOUGH)
    (reason,) = (reason for reason in upgrade.reasons if "Mul ×2 (/a, /b)" in reason.text)
    assert (reason.topic, reason.weight) == ("your model", weight)
    assert words in reason.text
    assert "instead: leave the Transposes out" in reason.text
    assert [source.title for source in reason.sources] == ["NVIDIA/TensorRT#3447"]


def test_a_model_that_ran_rightly_is_the_better_witness() -> None:
    upgrade = answer(looked_at(GOOD, at(NEW)))
    assert upgrade.decision is Decision.GO
    assert [r.weight for r in upgrade.reasons if "Mul ×2" in r.text] == [Weight.NOTE]


def test_the_report_and_its_screen_say_so() -> None:
    upgrade = answer(looked_at(UNSEEN, at(NEW)))
    assert f"nodes: 9 nodes held against 24 rules: {OLD}: nothing known against it" in told(upgrade)
    assert "against Mul ×2 (/a, /b): a constant" in told(upgrade)
    screen = render_screen(upgrade, 80)
    assert "against     your model: Mul ×2 (/a, /b): a constant factor; new at" in screen
    both = answer(looked_at(UNSEEN, at(OLD), at(NEW)))
    screen = " ".join(render_screen(both, 80).split())
    assert f"your model: Mul ×2 (/a, /b): a constant factor; broken in both {OLD} and {NEW}" in screen
    assert f"{OLD}, {NEW}: nothing known against it" in told(answer(looked_at(UNSEEN)))
