"""Every rule of preflight on hosts that keep it and that break it, and docs/hosts.md, which lists them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from builders import make_case
from hosts import BASE, GB, HERE, IMAGE, L4, LOCK, TO_BUILD, TO_PULL, Case_, bad, kinds, lock_of, manifest_of

from trtmatrix.images.checks import Wants
from trtmatrix.images.downloads import Room
from trtmatrix.images.rules import RULES, Rule, rule_of
from trtmatrix.launchers.references import Trouble
from trtmatrix.plan.lockfile import Lock
from trtmatrix.suite.cells import Selection
from trtmatrix.suite.matrix import ImageOrigin
from trtmatrix.suite.model import NO_GPU, Exclusion, Known
from trtmatrix.suite.plan import GpuAccess, Pull

PINNED = f"nvcr.io/nvidia/pytorch@{manifest_of(IMAGE)}"
LOCKED_HERE = HERE.but(lock=LOCK, images=HERE.facts.images, ids=frozenset({f"sha256:id-{IMAGE}"}))
MIG = replace(L4, variant="23 GiB, MIG on")
PYTHON = Selection(versions=("10.7.0",), runtimes=("host",))


BY_HAND = replace(HERE.version, origin=ImageOrigin(image="trtmatrix/test:latest"))
RECALLED = replace(HERE.version, library=replace(HERE.version.library, known=Known.RECALLED))


def saying(tensorrt: str, image: str = IMAGE) -> Lock:
    """A lock whose image says which TensorRT it has."""
    locked = lock_of((image, ())).images[image]
    ((platform, found),) = locked.platforms.items()
    said = replace(found, environment={"TRT_VERSION": tensorrt})
    return Lock(images={image: replace(locked, platforms={platform: said})})


def drive(room: float) -> Case_:
    return TO_PULL.but(images=Room(path="/var/lib/docker", free=round(room * GB)))


ROWS: dict[str, dict[str, tuple[Case_, bool | Exclusion]]] = {  # whether it breaks the rule, or the reason
    "engine": {
        "answers": (HERE, False),
        "none": (HERE.but(available=False, reason="no Docker socket"), True),
    },
    "engine-limits": {
        "limits all": (HERE, False),
        "no cgroup delegated": (HERE.but(unlimited=("memory", "processes")), True),
    },
    "gpu": {
        "here": (HERE, False),
        "none": (HERE.but(gpu=NO_GPU, gpus=()), Exclusion.NO_GPU),
        "another": (HERE.but(gpu=replace(L4, slug="nvidia-t4", index=None)), Exclusion.OTHER_GPU),
    },
    "gpu-access": {
        "the toolkit": (HERE, False),
        "CDI": (HERE.but(gpu_access=GpuAccess.CDI), False),
        "none": (HERE.but(gpu_access=None), True),
    },
    "mig": {
        "off": (HERE, False),
        "on, by the toolkit": (HERE.but(gpu=MIG, gpus=(MIG,)), False),
        "on, by CDI": (HERE.but(gpu=MIG, gpus=(MIG,), gpu_access=GpuAccess.CDI), True),
    },
    "driver": {
        "new enough": (HERE, False),
        "too old": (HERE.but(gpu=replace(L4, driver="550.54")), True),
        "a branch for data centres": (HERE.but(gpu=replace(L4, driver="535.104")), False),
        "that branch, a desktop GPU": (
            HERE.but(gpu=replace(L4, driver="535.104", datacenter=False)), True,
        ),
    },
    "compute": {
        "supported": (HERE, False),
        "10.0 is above 9.0": (HERE.but(gpu=replace(L4, compute="10.0")), True),
        "too old": (HERE.but(gpu=replace(L4, compute="7.0")), True),
        "of a GPU that is only named": (HERE.but(gpu=replace(L4, compute="10.0", index=None), gpus=()), True),
    },
    "component": {
        "nothing needed": (HERE, False),
        "no torch": (HERE.but(case=make_case(needs=frozenset({"torch"}))), True),
    },
    "image": {
        "locked and here": (LOCKED_HERE, False),
        "not named": (TO_PULL.but(selection=Selection()), Exclusion.IMAGE_NOT_PULLED),
        "no script that builds": (TO_BUILD.but(builds=False), Exclusion.IMAGE_NOT_BUILT),
        "ours, made by hand": (TO_PULL.but(version=BY_HAND), Exclusion.IMAGE_NOT_BUILT),
        "never": (TO_PULL.but(pull=Pull.NEVER), Exclusion.IMAGE_NOT_PULLED),
    },
    "offline": {
        "here": (HERE.but(offline=True), False),
        "not here": (TO_PULL.but(offline=True), True),
        "not here, nor built": (TO_BUILD.but(offline=True), True),
    },
    "interpreter": {"a container": (HERE, False), "no such Python": (HERE.but(selection=PYTHON), True)},
    "runtime": {
        "its own": (HERE.but(selection=Selection(runtimes=("container",))), False),
        "another": (HERE.but(selection=Selection(runtimes=("wheels",))), True),
    },
    "platform": {
        "published": (TO_PULL, False),
        "published for another": (TO_PULL.but(lock=lock_of((IMAGE, ()), platform="linux/arm64")), True),
        "the base, for another": (TO_BUILD.but(lock=lock_of((BASE, ()), platform="linux/arm64")), True),
        "not locked": (TO_PULL.but(lock=HERE.lock), False),
    },
    "library": {
        "the locked image says the same": (TO_PULL.but(lock=saying("10.7.0.23+cuda12.6")), False),
        "it says nothing": (TO_PULL, False),
        "another": (TO_PULL.but(lock=saying("10.8.0.40+cuda12.8")), True),
        "another, of a number that is only recalled": (
            TO_PULL.but(lock=saying("10.7.0.24"), version=RECALLED), False,
        ),
        "another, and here: the run looks into it": (
            LOCKED_HERE.but(lock=saying("10.8.0.40+cuda12.8")), False,
        ),
        "the base of what is built": (TO_BUILD.but(lock=saying("8.6.1.6", BASE)), False),
    },
    "registry": {
        "has it": (TO_PULL.but(answers={PINNED: None}), False),
        **{
            trouble.name: (TO_PULL.but(answers={PINNED: bad(trouble)}), True)
            for trouble in (
                Trouble.UNREACHABLE, Trouble.NEEDS_LOGIN, Trouble.WRONG_LOGIN, Trouble.MISSING,
            )
        },
        "the base is missing": (TO_BUILD.but(answers={BASE: bad(Trouble.MISSING)}), True),
        "the base is here": (
            TO_BUILD.but(answers={BASE: bad(Trouble.MISSING)}).but(
                engine=replace(TO_BUILD.engine, images={BASE: "sha256:2"})
            ),
            False,
        ),
        "the image is here": (HERE.but(answers={IMAGE: bad(Trouble.MISSING)}), False),
    },
    "lock": {"locked": (LOCKED_HERE, False), "not locked": (HERE, True)},
    "disk-images": {
        "ample": (drive(60), False),
        "not even packed": (drive(9.4 + 5.36), True),
        "nothing to pull": (HERE.but(images=Room(path="/", free=0)), False),
    },
    "disk": {
        "ample": (HERE, False),
        "low for the cache": (HERE.but(cache=Room(path="cache", free=4 * GB)), True),
    },
    "memory": {
        "a limit below the host's": (HERE, False),
        "a limit above it": (HERE.but(wants=Wants(memory=65 * GB)), True),
    },
    "memory-limit": {
        "enough": (HERE.but(wants=Wants(memory=64 << 20)), False),
        "less than the probe needs": (HERE.but(wants=Wants(memory=47 << 20)), True),
    },
}  # fmt: skip

WARN_ONLY = {rule.id for rule in RULES.values() if not rule.excludes}


def test_every_rule_has_hosts_that_keep_it_and_hosts_that_break_it() -> None:
    assert set(ROWS) == set(RULES)
    for rule, rows in ROWS.items():
        assert {bool(breaks) for _, breaks in rows.values()} == {True, False}, rule


@pytest.mark.parametrize(("rule", "row"), [(rule, row) for rule, rows in ROWS.items() for row in rows])
def test_a_rule_prevents_what_it_is_about_and_nothing_else(rule: str, row: str) -> None:
    host, breaks = ROWS[rule][row]
    plan, checked, broken = host.check()
    assert (rule in broken) is bool(breaks), (broken, checked.findings)
    if rule in WARN_ONLY or not breaks:
        assert plan.launches
        assert not plan.excluded
    else:
        assert not plan.launches
        assert kinds(plan) <= set(RULES[rule].excludes)
        assert breaks is True or kinds(plan) == {breaks}
        assert all(item.detail for item in plan.excluded)
    for finding in checked.findings:
        assert finding.remedy
        assert finding.prevents == "1 cell of 10.7.0"


def test_every_reason_but_what_only_a_run_shows_has_a_rule_with_source_and_remedy() -> None:
    assert {why for why in Exclusion if rule_of(why) is None} == {Exclusion.NOT_READY}
    assert all(rule.mends and rule.prevents for rule in RULES.values())


@pytest.mark.parametrize("trouble", [Trouble.LIMITED, Trouble.DAMAGED, Trouble.BROKEN])
def test_what_may_pass_until_the_pull_prevents_nothing(trouble: Trouble) -> None:
    plan, checked, _ = TO_PULL.but(answers={PINNED: bad(trouble)}).check()
    assert plan.launches
    assert not checked.findings


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


def test_the_page_has_the_rules_in_their_order_and_no_other() -> None:
    assert list(rows()) == list(RULES)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_a_row_says_what_the_rule_does(rule: Rule) -> None:
    _, looks_at, prevents, mends, source = rows()[rule.id]
    assert looks_at
    assert (prevents, mends) == (rule.prevents if rule.excludes else "nothing; only reported", rule.mends)
    last = source.rsplit(" ", 1)[-1]
    assert last.startswith("https://") or (ROOT / last).is_file()
