"""Which images stay after their last cell: never one goes that this tool did not pull."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.containers.engines import COMMAND
from tests.containers.pulling_kit import Bench, want
from trtmatrix.launchers.images import Images
from trtmatrix.suite.matrix import Build, ImageOrigin
from trtmatrix.suite.plan import Keep, Launch


def with_cells(launch: Launch) -> Launch:
    """The launch with something to run: what is counted is cells, whatever they are."""
    return replace(launch, cells=(None,))  # type: ignore[arg-type] # nobody looks into it


def have(bench: Bench, images: Images, launch: Launch) -> Launch:
    launch = with_cells(launch)
    images.expect([launch])
    bench.have(images, launch)
    return launch


@pytest.mark.parametrize("locked", [True, False])
def test_what_was_here_under_another_name_stays(locked: bool, bench: Bench) -> None:
    name, theirs = bench.push("theirs")[0], f"small/theirs:{os.getpid()}"
    launch = want(name, locked=locked)
    by_hand = bench.client.images.pull(name)
    by_hand.tag(*theirs.split(":"))
    bench.client.images.remove(name)
    bench.names.append(theirs)
    images = bench.images(Keep.NONE)
    images.ended(have(bench, images, launch))
    assert bench.is_here(theirs)
    assert bench.told == []


@pytest.mark.engines
@pytest.mark.parametrize("locked", [True, False])
def test_an_image_of_several_names_goes_after_the_last_of_them(locked: bool, bench: Bench) -> None:
    names = bench.push_under("first", "second", "third")
    images = bench.images(Keep.NONE)
    launches = [with_cells(want(name, locked=locked)) for name in names]
    images.expect(launches)
    for launch in launches[:2]:
        bench.have(images, launch)
    for launch in launches[:2]:
        assert bench.is_here(reference_of(launch))
        images.ended(launch)
    bench.have(images, launches[2])
    images.ended(launches[2])
    assert not any(bench.is_here(reference_of(launch)) for launch in launches)


def reference_of(launch: Launch) -> str:
    assert isinstance(launch.version.origin, ImageOrigin)
    return launch.version.origin.reference


@pytest.mark.engines
def test_what_a_container_needs_stays(bench: Bench) -> None:
    images = bench.images(Keep.NONE)
    launch = have(bench, images, want(bench.push("shared")[0]))
    container = bench.client.containers.create(reference_of(launch), ["nothing"])
    try:
        images.ended(launch)
        assert bench.told[-1].startswith(f"{reference_of(launch)} stays: ")
        assert bench.is_here(reference_of(launch))
    finally:
        container.remove()


def test_the_base_of_a_build_is_pulled_by_us_and_goes(bench: Bench, tmp_path: Path) -> None:
    base, made = bench.push("base")[0], f"small/made:{os.getpid()}"
    images = bench.images(Keep.NONE)
    code = f"import subprocess\nsubprocess.run([{COMMAND!r}, 'tag', {base!r}, {made!r}], check=True)\n"
    (tmp_path / "build").write_text(code)
    images.builder = (str(tmp_path / "build"),)
    launch = want(made)
    origin = ImageOrigin(image=made, build=Build(base=base, wheels=()))
    launch = replace(launch, version=replace(launch.version, origin=origin), pull=False, build=True)
    images.ended(have(bench, images, launch))
    assert not bench.is_here(base)
    assert bench.is_here(made), "what was built was not pulled"
