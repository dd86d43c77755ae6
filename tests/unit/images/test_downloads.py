"""What is still to be pulled: layers count once, those that are here not at all; and the disk it takes."""

from dataclasses import replace

import pytest
from builders import H200, make_cell, make_version
from hosts import ENGINE, GB, layer, lock_of

from trtmatrix.common.text import write_size
from trtmatrix.images.checks import (
    USUAL_BUILT,
    HostFacts,
    Room,
    Wants,
    check,
    find_downloads,
    need_here,
)
from trtmatrix.plan.lockfile import pin_of
from trtmatrix.suite.matrix import Build, ImageOrigin
from trtmatrix.suite.plan import Engine, Keep, Launch

BASE, CUDA = layer("base", 1), layer("cuda", 4)
NAME = "example.org/a"
ONE, TWO, THREE = (f"{NAME}:{n}" for n in (1, 2, 3))
LOCK = lock_of(
    (ONE, (BASE, CUDA, layer("one", 2))), (TWO, (BASE, CUDA, layer("two", 3), layer("two", 3))),
    (THREE, (BASE, layer("three", 7))),
)  # fmt: skip


def launch(name: str, image: str, engine: Engine = ENGINE, *, build: Build | None = None) -> Launch:
    """A launch whose image is pulled, unless it is here, or built."""
    known = build.base if build else image
    origin = ImageOrigin(image=known, pin=pin_of(LOCK, known, engine.platform))
    if build:
        origin = ImageOrigin(image=image, build=build, base=origin)
    version = replace(make_version(name), origin=origin)
    cells, pull = (make_cell(version=version),), not build and engine.held(origin) is None
    return Launch(version=version, gpu=H200, cells=cells, pull=pull, build=build is not None)


def built(name: str, base: str) -> Launch:
    return launch(name, f"trtmatrix/tensorrt:{name}", build=Build(base=base, wheels=("a==1",)))


LAUNCHES = [launch("10.1.0", ONE), launch("10.2.0", TWO), launch("10.3.0", THREE), launch("10.4.0", ONE)]
NO_LOCK = launch("10.5.0", f"{NAME}:5")
HAS_TWO, HAS_THREE = (replace(ENGINE, ids=frozenset({f"sha256:id-{image}"})) for image in (TWO, THREE))
BUILT = [built("9.2.0", THREE), built("9.3.0", "trtmatrix/debian12-python310:latest")]


@pytest.mark.parametrize(
    ("launches", "engine", "downloads"),
    [
        (LAUNCHES, ENGINE, [  # layers count once, an image once
            (NAME, ("10.1.0", "10.4.0"), 7 * GB), (NAME, ("10.2.0",), 3 * GB), (NAME, ("10.3.0",), 7 * GB),
        ]),
        ([launch("10.1.0", ONE), launch("10.2.0", TWO, HAS_TWO)], HAS_TWO, [(NAME, ("10.1.0",), 2 * GB)]),
        ([replace(launch("10.1.0", ONE), python="python3")], ENGINE, []),
        ([NO_LOCK], ENGINE, [(f"{NAME}:5", ("10.5.0",), None)]),
        (BUILT, ENGINE, [(NAME, ("9.2.0",), 8 * GB), ("", ("9.3.0",), 0)]),  # of ours the base is pulled
        (BUILT[:1], HAS_THREE, [("", ("9.2.0",), 0)]),
    ],
)  # fmt: skip
def test_layers_count_once_and_what_is_here_not_at_all(
    launches: list[Launch], engine: Engine, downloads: list[tuple[str, tuple[str, ...], int | None]]
) -> None:
    found = find_downloads(launches, LOCK, engine)
    assert [(d.reference.partition("@")[0], d.versions, d.added) for d in found] == downloads


@pytest.mark.parametrize(
    ("launches", "keep", "need"),
    [
        ([*LAUNCHES, NO_LOCK], Keep.ALL, ((17 + 7) * GB, (2 * 17 + 20) * GB)),
        (LAUNCHES, Keep.NONE, ((14 + 7) * GB, 28 * GB)),  # two at a time
        ([built(f"9.{n}.0", "trtmatrix/base") for n in (1, 2, 3)], Keep.NONE, (0, 3 * USUAL_BUILT)),
        ([], Keep.NONE, (0, 0)),
    ],
)
def test_what_it_takes_on_the_disk(launches: list[Launch], keep: Keep, need: tuple[int, int]) -> None:
    assert need_here(find_downloads(launches, LOCK, ENGINE), keep) == need


@pytest.mark.parametrize(
    ("free", "names"),
    [(24, ["10.1.0", "10.2.0", "10.3.0", "10.4.0"]), (23.9, ["10.1.0", "10.2.0", "10.4.0"]), (0, [])],
)
def test_room_goes_to_what_starts_first_and_to_all_that_still_fits(free: float, names: list[str]) -> None:
    facts = HostFacts(engine=ENGINE, images=Room(path="/d", free=round(free * GB)))
    here = replace(launch("10.6.0", ONE), pull=False)
    excluded, _ = check(facts, Wants(launches=(*LAUNCHES, here), lock=LOCK))
    left_out = {each.cell.version.name for each in excluded}
    assert left_out == {each.version.name for each in LAUNCHES} - {*names}
    for each in excluded:
        assert each.detail.startswith(f"{write_size(free * GB)} free at /d, at least ")
