"""What is still to be pulled: layers count once, those that are here not at all; and the disk it takes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import H200, make_cell, make_version
from hosts import ENGINE, GB, layer, lock_of

from trtmatrix.images.checks import Facts, Wants, check
from trtmatrix.images.downloads import (
    USUAL_BUILT,
    Download,
    Need,
    Room,
    asked_references,
    find_downloads,
    gigabytes,
    need_here,
    without_counted,
)
from trtmatrix.plan.lockfile import Lock, pin_of
from trtmatrix.suite.matrix import Build, ImageOrigin
from trtmatrix.suite.plan import Engine, Keep, Launch

BASE, CUDA = layer("base", 1), layer("cuda", 4)
ONE, TWO, THREE = (f"example.org/a:{n}" for n in (1, 2, 3))
LOCK = lock_of(
    (ONE, (BASE, CUDA, layer("one", 2))), (TWO, (BASE, CUDA, layer("two", 3), layer("two", 3))),
    (THREE, (BASE, layer("three", 7))),
)  # fmt: skip


def launch(name: str, image: str, lock: Lock = LOCK, engine: Engine = ENGINE) -> Launch:
    """A launch whose image is pulled, unless it is here."""
    origin = ImageOrigin(image=image, pin=pin_of(lock, image, engine.platform))
    version = replace(make_version(name), origin=origin)
    return Launch(
        version=version, gpu=H200, cells=(make_cell(version=version),), pull=engine.held(origin) is None
    )


def built(name: str, base: str) -> Launch:
    """A launch whose image is built on a base."""
    origin = ImageOrigin(image=f"trtmatrix/tensorrt:{name}", build=Build(base=base, wheels=("a==1",)))
    version = replace(make_version(name), origin=origin)
    return Launch(version=version, gpu=H200, cells=(make_cell(version=version),), build=True)


LAUNCHES = [launch("10.1.0", ONE), launch("10.2.0", TWO), launch("10.3.0", THREE), launch("10.4.0", ONE)]


def test_layers_are_counted_once_and_an_image_once() -> None:
    downloads = find_downloads(LAUNCHES, LOCK, ENGINE)
    assert [(d.image, d.versions) for d in downloads] == [
        (ONE, ("10.1.0", "10.4.0")), (TWO, ("10.2.0",)), (THREE, ("10.3.0",)),
    ]  # fmt: skip
    assert [d.size for d in downloads] == [7 * GB, 8 * GB, 8 * GB]
    assert without_counted(downloads) == (7 * GB, 3 * GB, 7 * GB)


def test_layers_of_images_that_are_here_are_left_out() -> None:
    engine = replace(ENGINE, ids=frozenset({f"sha256:id-{TWO}"}))
    downloads = find_downloads([launch("10.1.0", ONE), launch("10.2.0", TWO, engine=engine)], LOCK, engine)
    assert [(d.image, d.size) for d in downloads] == [(ONE, 2 * GB)]


def test_a_host_interpreter_and_an_image_that_is_here_pull_nothing() -> None:
    here = replace(launch("10.1.0", ONE), pull=False)
    assert find_downloads([here, replace(here, pull=True, python="python3")], LOCK, ENGINE) == ()


def test_of_an_image_of_ours_the_base_is_pulled() -> None:
    missing, ours = built("9.2.0", THREE), built("9.3.0", "trtmatrix/debian12-python310:latest")
    downloads = find_downloads([missing, ours], LOCK, ENGINE)
    assert [(d.reference.partition("@")[0], d.size, d.built) for d in downloads] == [
        ("example.org/a", 8 * GB, True), ("", 0, True),
    ]  # fmt: skip
    here = replace(ENGINE, ids=frozenset({f"sha256:id-{THREE}"}))
    assert [d.reference for d in find_downloads([missing], LOCK, here)] == [""]
    assert asked_references([missing, ours], LOCK, ENGINE) == (f"example.org/a@sha256:manifest-{THREE}",)


@pytest.mark.parametrize(
    "name", ["trtmatrix/test:latest", "docker.io/trtmatrix/test", "trtmatrix/a@sha256:0"]
)
def test_no_registry_is_asked_for_an_image_of_ours(name: str) -> None:
    assert asked_references([launch("10.1.0", name), built("9.3.0", name)], LOCK, ENGINE) == ()
    theirs = f"127.0.0.1:5000/{name}"
    assert asked_references([launch("10.1.0", theirs)], LOCK, ENGINE) == (theirs,)


def test_what_is_not_locked_has_no_known_size_and_is_asked_for_by_its_name() -> None:
    loose = launch("10.5.0", "example.org/a:5")
    downloads = find_downloads([*LAUNCHES, loose], LOCK, ENGINE)
    assert without_counted(downloads)[-1] is None
    assert asked_references([*LAUNCHES, loose], LOCK, ENGINE)[-1] == "example.org/a:5"
    assert (
        need_here(downloads, Keep.ALL, LOCK, ENGINE).least
        == need_here(downloads[:-1], Keep.ALL, LOCK, ENGINE).least
    )


NEEDS: dict[str, tuple[list[Download], Keep, float, float]] = {
    # at the least layers unpacked and the largest of them compressed; usually twice its size and all
    "nothing": ([], Keep.ALL, 0, 0),
    "one": ([Download(image=ONE, reference=ONE, versions=("1",), layers=(layer("a", 1), layer("b", 3)))],
            Keep.ALL, 4 + 3, 8 + 4),
}  # fmt: skip


@pytest.mark.parametrize("name", NEEDS)
def test_an_image_takes_its_layers_unpacked_and_what_is_being_pulled(name: str) -> None:
    downloads, keep, least, usual = NEEDS[name]
    assert need_here(downloads, keep, LOCK, ENGINE) == Need(least=round(least * GB), usual=round(usual * GB))


@pytest.mark.parametrize(
    ("keep", "least"),
    [(Keep.ALL, 7 + 3 + 7 + 7), (Keep.LOCKED, 7 + 3 + 7 + 7), (Keep.NONE, 7 + 7 + 7)],
)
def test_images_that_go_after_their_last_cell_are_here_two_at_a_time(keep: Keep, least: float) -> None:
    assert need_here(find_downloads(LAUNCHES, LOCK, ENGINE), keep, LOCK, ENGINE).least == least * GB


def test_what_is_not_locked_goes_where_locked_ones_are_kept() -> None:
    downloads = find_downloads([launch(f"10.{n}.0", f"example.org/a:1{n}") for n in range(4)], LOCK, ENGINE)
    all_of, two = (
        need_here(downloads, Keep.ALL, LOCK, ENGINE).usual,
        need_here(downloads, Keep.LOCKED, LOCK, ENGINE).usual,
    )
    assert (all_of - two) == 2 * 20 * GB


def test_an_image_that_is_built_stays_and_takes_its_wheels() -> None:
    downloads = find_downloads(
        [built("9.2.0", "trtmatrix/base"), built("9.3.0", "trtmatrix/base")], LOCK, ENGINE
    )
    assert need_here(downloads, Keep.NONE, LOCK, ENGINE) == Need(least=0, usual=2 * USUAL_BUILT)


@pytest.mark.parametrize(
    ("free", "order", "names"),
    [
        (24, [0, 1, 2, 3], ["10.1.0", "10.2.0", "10.3.0", "10.4.0"]),
        (23.9, [0, 1, 2, 3], ["10.1.0", "10.2.0", "10.4.0"]),
        (20, [2, 1, 0], ["10.3.0"]),
        (14.9, [2, 1], ["10.2.0"]),
        (0, [0, 1, 2, 3], []),
    ],
)
def test_room_goes_to_what_starts_first_and_to_all_that_still_fits(
    free: float, order: list[int], names: list[str]
) -> None:
    facts = Facts(engine=ENGINE, images=Room(path="/d", free=round(free * GB)))
    here = replace(launch("10.6.0", ONE), pull=False)
    launches = [*(LAUNCHES[number] for number in order), here]
    checked = check(facts, Wants(launches=tuple(launches), lock=LOCK))
    assert [each.version.name for each in checked.launches] == [*names, "10.6.0"]
    for excluded in checked.excluded:
        assert excluded.detail.startswith(f"{gigabytes(free * GB)} free at /d, at least ")


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0.0 GB"), (9_400_000_000, "9.4 GB"), (120_000_000_000, "120 GB"), (82_000_000, "82 MB"),
     (1_500_000, "1.5 MB"), (3, "0.1 MB")],
)  # fmt: skip
def test_sizes_are_told_as_they_are_read(count: int, words: str) -> None:
    assert gigabytes(count) == words


KNOWN, OTHER = f"sha256:id-{TWO}", "sha256:pulled-by-hand"


@pytest.mark.parametrize(
    ("sizes", "least"),
    [
        ({}, 7 + 4),
        ({KNOWN: 9}, 7 + 4),  # its layers are known
        ({OTHER: 1}, 7 + 4 - 2),  # what is here is neither unpacked nor pulled
        ({OTHER: 4}, 3),
        ({OTHER: 3, "sha256:another": 6}, 0),
    ],
)
def test_what_may_be_here_in_an_image_of_unknown_layers_is_not_needed(
    sizes: dict[str, float], least: float
) -> None:
    engine = replace(ENGINE, sizes={name: round(size * GB) for name, size in sizes.items()})
    downloads = find_downloads([launch("10.1.0", ONE)], LOCK, engine)
    need = need_here(downloads, Keep.ALL, LOCK, engine)
    assert need == Need(least=round(least * GB), usual=(14 + 7) * GB)
    for free in (need.least, need.least - 1):
        facts = Facts(engine=engine, images=Room(path="/d", free=free))
        checked = check(facts, Wants(lock=LOCK, launches=(launch("10.1.0", ONE),)))
        assert bool(checked.launches) is (free >= need.least)


def test_containerd_keeps_what_it_pulled_beside_what_it_unpacked() -> None:
    engine = replace(ENGINE, snapshots=True)
    downloads = find_downloads([launch("10.1.0", ONE)], LOCK, engine)
    assert need_here(downloads, Keep.ALL, LOCK, engine) == Need(least=2 * 7 * GB, usual=3 * 7 * GB)
    assert need_here([], Keep.ALL, LOCK, engine) == Need()
