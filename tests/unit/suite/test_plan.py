"""Which cells run on which host: a table over hosts, in which every reason occurs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import H200, make_case, make_cell, make_repro, make_version

from trtmatrix.suite.cells import Selection
from trtmatrix.suite.matrix import Build, ImageOrigin, Version
from trtmatrix.suite.model import Exclusion
from trtmatrix.suite.plan import Engine, GpuAccess, Host, Pull, find_image, host_python, make_plan

IMAGE = "example.org/tensorrt:10.7.0"
RULE = {"least": "560", "datacenter": ["470.57", "535.86"], "known": "read", "source": "notes"}
COMPUTE = {"min": "7.5", "max": "9.0", "known": "read", "source": "notes"}
PULLED = make_version("10.7.0", library="10.7.0.23", driver=RULE, compute=COMPUTE, torch_tensorrt="2.6.0a0")
BUILT = replace(PULLED, origin=ImageOrigin(image="own/x:1", build=Build(base="b:1", wheels=("c",))))
RTX = make_version("tensorrt-rtx-1.4")
HERE_ENGINE = Engine(available=True, images={IMAGE: "sha256:0"}, gpu_access=GpuAccess.TOOLKIT)
NO_ENGINE = Engine(available=False, reason="no Docker socket")
HOST = Host(engine=HERE_ENGINE, gpus=(H200,))
BUILDS = replace(HOST, builds_images=True)
NAMED = Selection(versions=("10.7.0",))


EMPTY, MADE = (
    Host(engine=replace(HERE_ENGINE, images=images), gpus=(H200,)) for images in ({}, {"own/x:1": "sha256:1"})
)


@pytest.mark.parametrize(
    ("library", "python"),
    [("10.7.0", "p"), ("10.7.0.23", "p"), ("10.7.0.24", None), ("10.70.0", None), ("10.8.0", None)],
)
def test_an_interpreter_is_chosen_by_its_library(library: str, python: str | None) -> None:
    assert host_python(PULLED, Host(engine=NO_ENGINE, interpreters={library: "p"})) == python


def test_there_is_one_launch_a_version_and_gpu_and_no_cell_is_lost() -> None:
    repro = make_repro(make_case("a"), make_case("b", needs=frozenset({"torch_tensorrt"})))
    other = replace(H200, slug="other", name="Other", index=1)
    plain = make_version("10.8.0")
    host = Host(engine=replace(HERE_ENGINE, images={}), gpus=(H200, other))
    cells = [
        make_cell(repro, case, version, gpu)
        for case in repro.cases for version in (PULLED, plain, RTX) for gpu in (H200, other)
    ]  # fmt: skip
    plan = make_plan(cells, host, Selection(), Pull.ALL)
    keys = [(launch.version.name, launch.gpu.slug) for launch in plan.launches]
    assert len(keys) == len(set(keys)) == 6
    inside = [cell for launch in plan.launches for cell in launch.cells]
    assert sorted(str(cell.id) for cell in [*inside, *(e.cell for e in plan.excluded)]) == sorted(
        str(cell.id) for cell in cells
    )
    assert {e.why for e in plan.excluded} == {Exclusion.COMPONENT_MISSING}
    assert all(launch.pull is (launch.version is not RTX) for launch in plan.launches)
    assert all(launch.python is None for launch in plan.launches)


@pytest.mark.parametrize(
    ("version", "host", "pull", "build"),
    [
        (PULLED, HOST, False, False), (PULLED, EMPTY, True, False),
        (BUILT, BUILDS, False, True), (BUILT, MADE, False, False),
    ],
)  # fmt: skip
def test_an_image_that_is_not_here_is_pulled_or_built(
    version: Version, host: Host, pull: bool, build: bool
) -> None:
    (launch,) = make_plan([make_cell(version=version)], host, NAMED, Pull.NAMED).launches
    assert (launch.pull, launch.build) == (pull, build)


NAMES = {
    "nvcr.io/nvidia/tensorrt:24.01-py3": "sha256:" + "a" * 64, "python:latest": "sha256:" + "b" * 64,
    "nvcr.io/nvidia/tensorrt@sha256:" + "c" * 64: "sha256:" + "a" * 64,
}  # fmt: skip


@pytest.mark.parametrize(
    ("wanted", "name"),
    [
        *((name, name) for name in NAMES),
        ("docker.io/library/python", "python:latest"),
        ("sha256:" + "b" * 12, "python:latest"),
        ("python:3", None),
    ],
)
def test_an_image_is_found_by_name_digest_and_id(wanted: str, name: str | None) -> None:
    found = find_image(NAMES, wanted)
    assert (found.name if found else None) == name
    if wanted.endswith("24.01-py3"):
        assert found is not None
        assert found.registry == "nvcr.io/nvidia/tensorrt@sha256:" + "c" * 64
