"""Every rule of preflight on hosts that keep it and that break it, and docs/hosts.md, which lists them."""

from dataclasses import replace
from pathlib import Path

import pytest
from builders import make_case
from hosts import BASE, GB, HERE, L4, LOCK, TO_BUILD, TO_PULL, Case_, bad, lock_of, manifest_of
from locks import IMAGE

from trtmatrix.images.checks import RULES, Room, Rule, Wants, rule_of
from trtmatrix.launchers.references import Trouble
from trtmatrix.suite.cells import Selection
from trtmatrix.suite.matrix import ImageOrigin
from trtmatrix.suite.model import NO_GPU, Exclusion
from trtmatrix.suite.plan import GpuAccess, Pull

PINNED = f"nvcr.io/nvidia/pytorch@{manifest_of(IMAGE)}"
LOCKED_HERE = HERE.but(lock=LOCK, images=HERE.facts.images, ids=frozenset({f"sha256:id-{IMAGE}"}))
MIG = replace(L4, variant="23 GiB, MIG on")
PYTHON = Selection(versions=("10.7.0",), runtimes=("host",))


BY_HAND = replace(HERE.version, origin=ImageOrigin(image="trtmatrix/test:latest"))


def drive(room: float) -> Case_:
    return TO_PULL.but(images=Room(path="/var/lib/docker", free=round(room * GB)))


NO_BASE = TO_BUILD.but(answers={BASE: bad(Trouble.MISSING)})

HOLDS: list[tuple[str, Case_]] = [  # a rule that one may take for broken there
    ("gpu-access", HERE.but(gpu_access=GpuAccess.CDI)),
    ("mig", HERE.but(gpu=MIG, gpus=(MIG,))),
    ("driver", HERE.but(gpu=replace(L4, driver="535.104"))),  # a branch for data centres
    ("image", LOCKED_HERE), ("lock", LOCKED_HERE),
    ("offline", HERE.but(offline=True)),
    ("runtime", HERE.but(selection=Selection(runtimes=("container",)))),
    ("platform", TO_PULL), ("platform", TO_PULL.but(lock=HERE.lock)),
    ("registry", TO_PULL.but(answers={PINNED: "sha256:1"})),
    ("registry", HERE.but(answers={IMAGE: bad(Trouble.MISSING)})),
    ("registry", NO_BASE.but(engine=replace(TO_BUILD.engine, images={BASE: "sha256:2"}))),
    ("disk-images", drive(60)), ("disk-images", HERE.but(images=Room(path="/", free=0))),
    ("memory-limit", HERE.but(wants=Wants(memory=64 << 20))),
]  # fmt: skip
BREAKS: list[tuple[str, Case_, Exclusion | None]] = [  # the reason, where the rule has several
    ("engine", HERE.but(available=False, reason="no Docker socket"), None),
    ("engine-limits", HERE.but(unlimited=("memory", "processes")), None),
    ("gpu", HERE.but(gpu=NO_GPU, gpus=()), Exclusion.NO_GPU),
    ("gpu", HERE.but(gpu=replace(L4, slug="nvidia-t4", index=None)), Exclusion.OTHER_GPU),
    ("gpu-access", HERE.but(gpu_access=None), None),
    ("mig", HERE.but(gpu=MIG, gpus=(MIG,), gpu_access=GpuAccess.CDI), None),
    ("driver", HERE.but(gpu=replace(L4, driver="550.54")), None),
    ("driver", HERE.but(gpu=replace(L4, driver="535.104", datacenter=False)), None),
    ("compute", HERE.but(gpu=replace(L4, compute="10.0")), None),  # which is above 9.0
    ("compute", HERE.but(gpu=replace(L4, compute="7.0")), None),
    ("compute", HERE.but(gpu=replace(L4, compute="10.0", index=None), gpus=()), None),  # only named
    ("component", HERE.but(case=make_case(needs=frozenset({"torch"}))), None),
    ("image", TO_PULL.but(selection=Selection()), Exclusion.IMAGE_NOT_PULLED),
    ("image", TO_PULL.but(pull=Pull.NEVER), Exclusion.IMAGE_NOT_PULLED),
    ("image", TO_BUILD.but(builds=False), Exclusion.IMAGE_NOT_BUILT),
    ("image", TO_PULL.but(version=BY_HAND), Exclusion.IMAGE_NOT_BUILT),
    ("offline", TO_PULL.but(offline=True), None), ("offline", TO_BUILD.but(offline=True), None),
    ("interpreter", HERE.but(selection=PYTHON), None),
    ("runtime", HERE.but(selection=Selection(runtimes=("wheels",))), None),
    ("platform", TO_PULL.but(lock=lock_of((IMAGE, ()), platform="linux/arm64")), None),
    ("platform", TO_BUILD.but(lock=lock_of((BASE, ()), platform="linux/arm64")), None),
    ("registry", TO_PULL.but(answers={PINNED: bad(Trouble.UNREACHABLE)}), None),
    ("registry", TO_PULL.but(answers={PINNED: bad(Trouble.NEEDS_LOGIN)}), None),
    ("registry", TO_PULL.but(answers={PINNED: bad(Trouble.WRONG_LOGIN)}), None),
    ("registry", TO_PULL.but(answers={PINNED: bad(Trouble.MISSING)}), None), ("registry", NO_BASE, None),
    ("lock", HERE, None),
    ("disk-images", drive(9.4 + 5.36), None),  # not even packed
    ("disk", HERE.but(cache=Room(path="cache", free=4 * GB)), None),
    ("memory-limit", HERE.but(wants=Wants(memory=47 << 20)), None),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "host"), [*HOLDS, *((rule, HERE) for rule in RULES if rule != "lock")])
def test_a_rule_that_holds_prevents_nothing(rule: str, host: Case_) -> None:
    plan, findings, broken = host.check()
    assert rule not in broken, findings
    assert (bool(plan.launches), plan.excluded) == (True, ())


@pytest.mark.parametrize(("rule", "host", "reason"), BREAKS)
def test_a_rule_that_is_broken_prevents_what_it_is_about_and_nothing_else(
    rule: str, host: Case_, reason: Exclusion | None
) -> None:
    plan, findings, broken = host.check()
    assert rule in broken
    assert bool(plan.launches) is not bool(RULES[rule].excludes)
    assert {item.why for item in plan.excluded} <= ({reason} if reason else set(RULES[rule].excludes))
    assert all(item.detail for item in plan.excluded)
    for finding in findings:
        assert finding.remedy
        assert finding.prevents == "1 cell of 10.7.0"


def test_every_rule_can_be_broken_and_every_reason_has_a_rule() -> None:
    assert {rule for rule, _, _ in BREAKS} == set(RULES)
    assert {why for why in Exclusion if rule_of(why) is None} == {Exclusion.NOT_READY}
    assert all(rule.mends and rule.prevents for rule in RULES.values())


@pytest.mark.parametrize("trouble", [Trouble.LIMITED, Trouble.DAMAGED, Trouble.BROKEN])
def test_what_may_pass_until_the_pull_prevents_nothing(trouble: Trouble) -> None:
    plan, findings, _ = TO_PULL.but(answers={PINNED: bad(trouble)}).check()
    assert plan.launches
    assert not findings


@pytest.mark.parametrize("change", [{"proxied": True}, {"images": None}])
def test_an_engine_that_has_its_own_way_to_the_registry_is_let_try(change: dict[str, object]) -> None:
    lost = TO_PULL.but(answers={PINNED: bad(Trouble.UNREACHABLE)}, **change)
    assert lost.check()[0].launches
    refused = TO_PULL.but(answers={PINNED: bad(Trouble.WRONG_LOGIN)}, **change)
    assert not refused.check()[0].launches


ROOT = Path(__file__).resolve().parents[3]
HEAD = "| rule | looks at | prevents | remedy | source |"


def rows() -> dict[str, list[str]]:
    """Return the page's rules: id → the cells of its row."""
    lines = (ROOT / "docs" / "hosts.md").read_text(encoding="utf-8").splitlines()
    below = lines[lines.index(HEAD) + 2 :]
    found = [line.strip("| ").split(" | ") for line in below[: below.index("")]]
    return {cells[0].strip("`"): cells for cells in found}


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_the_page_has_a_row_that_says_what_the_rule_does(rule: Rule) -> None:
    assert list(rows()) == list(RULES)
    _, looks_at, prevents, mends, source = rows()[rule.id]
    assert looks_at
    assert (prevents, mends) == (rule.prevents if rule.excludes else "nothing; only reported", rule.mends)
    last = source.rsplit(" ", 1)[-1]
    assert last.startswith("https://") or (ROOT / last).is_file()
