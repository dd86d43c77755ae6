"""What is still to be pulled: layers count once, those that are here not at all; and the disk it takes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import H200, make_cell, make_version
from hosts import ENGINE, GB, layer, lock_of

from trtmatrix.images.checks import HostFacts, Wants, check
from trtmatrix.images.downloads import USUAL_BUILT, Need, Room, find_downloads, gigabytes, need_here
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


def asked(launches: list[Launch], engine: Engine = ENGINE) -> list[str]:
    return [download.reference for download in find_downloads(launches, LOCK, engine)]


def test_layers_are_counted_once_and_an_image_once() -> None:
    downloads = find_downloads(LAUNCHES, LOCK, ENGINE)
    assert [(d.image, d.versions, d.added) for d in downloads] == [
        (ONE, ("10.1.0", "10.4.0"), 7 * GB), (TWO, ("10.2.0",), 3 * GB), (THREE, ("10.3.0",), 7 * GB),
    ]  # fmt: skip


def test_what_is_here_is_left_out() -> None:
    engine = replace(ENGINE, ids=frozenset({f"sha256:id-{TWO}"}))
    downloads = find_downloads([launch("10.1.0", ONE), launch("10.2.0", TWO, engine=engine)], LOCK, engine)
    assert [(d.image, d.added) for d in downloads] == [(ONE, 2 * GB)]
    assert asked([replace(launch("10.1.0", ONE), python="python3")]) == []


def test_of_an_image_of_ours_the_base_is_pulled() -> None:
    missing, ours = built("9.2.0", THREE), built("9.3.0", "trtmatrix/debian12-python310:latest")
    downloads = find_downloads([missing, ours], LOCK, ENGINE)
    assert [(d.reference.partition("@")[0], d.added, d.built) for d in downloads] == [
        ("example.org/a", 8 * GB, True), ("", 0, True),
    ]  # fmt: skip
    assert asked([missing], replace(ENGINE, ids=frozenset({f"sha256:id-{THREE}"}))) == [""]


def test_what_is_not_locked_has_no_known_size_and_is_asked_for_by_its_name() -> None:
    loose = find_downloads([*LAUNCHES, launch("10.5.0", "example.org/a:5")], LOCK, ENGINE)
    assert (loose[-1].added, loose[-1].reference) == (None, "example.org/a:5")
    assert need_here(loose, Keep.ALL) == Need(least=(17 + 7) * GB, usual=(2 * 17 + 20) * GB)


def test_images_that_go_after_their_last_cell_are_here_two_at_a_time() -> None:
    assert need_here(find_downloads(LAUNCHES, LOCK, ENGINE), Keep.NONE) == Need(
        least=(14 + 7) * GB, usual=28 * GB
    )
    ours = find_downloads([built(f"9.{n}.0", "trtmatrix/base") for n in (1, 2, 3)], LOCK, ENGINE)
    assert need_here(ours, Keep.NONE) == Need(least=0, usual=3 * USUAL_BUILT)
    assert need_here([], Keep.NONE) == Need()


@pytest.mark.parametrize(
    ("free", "names"),
    [(24, ["10.1.0", "10.2.0", "10.3.0", "10.4.0"]), (23.9, ["10.1.0", "10.2.0", "10.4.0"]), (0, [])],
)
def test_room_goes_to_what_starts_first_and_to_all_that_still_fits(free: float, names: list[str]) -> None:
    facts = HostFacts(engine=ENGINE, images=Room(path="/d", free=round(free * GB)))
    here = replace(launch("10.6.0", ONE), pull=False)
    checked = check(facts, Wants(launches=(*LAUNCHES, here), lock=LOCK))
    assert [each.version.name for each in checked.launches] == [*names, "10.6.0"]
    for excluded in checked.excluded:
        assert excluded.detail.startswith(f"{gigabytes(free * GB)} free at /d, at least ")
