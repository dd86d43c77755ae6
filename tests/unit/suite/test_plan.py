"""Which cells run on which host: a table over hosts, in which every reason occurs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from builders import H200, make_case, make_cell, make_repro, make_version

from trtmatrix.suite.cells import Selection
from trtmatrix.suite.matrix import Build, ImageOrigin, Version
from trtmatrix.suite.model import CPU, NO_GPU, Exclusion, Gpu
from trtmatrix.suite.plan import Engine, GpuAccess, Host, Pull, exclude, find_image, host_python, make_plan

IMAGE = "example.org/tensorrt:10.7.0"
RULE = {"least": "560", "datacenter": ["470.57", "535.86"], "known": "read", "source": "notes"}
COMPUTE = {"min": "7.5", "max": "9.0", "known": "read", "source": "notes"}
PULLED = make_version("10.7.0", library="10.7.0.23", driver=RULE, compute=COMPUTE, torch_tensorrt="2.6.0a0")
BUILT = replace(PULLED, origin=ImageOrigin(image="own/x:1", build=Build(base="b:1", wheels=("c",))))
BY_HAND = replace(PULLED, origin=ImageOrigin(image="trtmatrix/test:latest"))
RTX = make_version("tensorrt-rtx-1.4")
HERE_ENGINE = Engine(available=True, images={IMAGE: "sha256:0"}, gpu_access=GpuAccess.TOOLKIT)
NO_ENGINE = Engine(available=False, reason="no Docker socket")
L4 = Gpu(slug="nvidia-l4", name="NVIDIA L4", compute="8.9", datacenter=True)
HOST = Host(engine=HERE_ENGINE, gpus=(H200,))
BUILDS = replace(HOST, builds_images=True)
BARE = Host(engine=NO_ENGINE)
WITH_PYTHON = Host(engine=NO_ENGINE, gpus=(H200,), interpreters={"10.7.0": "/usr/bin/python3"})
NAMED = Selection(versions=("10.7.0",))
ON_HOST = Selection(runtimes=("host",))


def on(**change: Any) -> Gpu:
    return replace(H200, **change)


def with_engine(engine: Engine) -> Host:
    return Host(engine=engine, gpus=(H200,))


NO_ACCESS = with_engine(replace(HERE_ENGINE, gpu_access=None))
EMPTY = with_engine(replace(HERE_ENGINE, images={}))
MADE = with_engine(replace(HERE_ENGINE, images={"own/x:1": "sha256:1"}))
OFFLINE = replace(EMPTY, offline=True, builds_images=True)
NO_WHEELS = replace(
    OFFLINE, lacking={RTX.name: "tensorrt-rtx==1.7: not installed, and there is no wheelhouse"}
)
Row = tuple[Version, Gpu, Host, Selection, Pull, Exclusion | None]
ROWS: dict[str, Row] = {
    "all here": (PULLED, H200, HOST, Selection(), Pull.NAMED, None),
    "no engine": (PULLED, H200, with_engine(NO_ENGINE), Selection(), Pull.ALL, Exclusion.NO_ENGINE),
    "no access": (PULLED, H200, NO_ACCESS, Selection(), Pull.NAMED, Exclusion.NO_GPU_ACCESS),
    "no gpu": (PULLED, NO_GPU, BARE, Selection(), Pull.NAMED, Exclusion.NO_GPU),
    "gpu named, another here": (PULLED, L4, HOST, Selection(), Pull.NAMED, Exclusion.OTHER_GPU),
    "compute too high": (PULLED, on(compute="12.0"), HOST, NAMED, Pull.ALL, Exclusion.UNSUPPORTED_GPU),
    "compute of a named gpu": (
        PULLED, Gpu(slug="b200", name="B200", compute="10.0"), BARE, Selection(), Pull.NAMED,
        Exclusion.UNSUPPORTED_GPU,
    ),
    "driver too old": (PULLED, on(driver="550.1"), HOST, Selection(), Pull.NAMED, Exclusion.DRIVER_TOO_OLD),
    "driver of a branch": (PULLED, on(driver="535.104.05"), HOST, Selection(), Pull.NAMED, None),
    "not pulled": (PULLED, H200, EMPTY, Selection(), Pull.NAMED, Exclusion.IMAGE_NOT_PULLED),
    "not pulled, named": (PULLED, H200, EMPTY, NAMED, Pull.NAMED, None),
    "not pulled, never": (PULLED, H200, EMPTY, NAMED, Pull.NEVER, Exclusion.IMAGE_NOT_PULLED),
    "not built, no script": (BUILT, H200, HOST, NAMED, Pull.ALL, Exclusion.IMAGE_NOT_BUILT),
    "not built": (BUILT, H200, BUILDS, Selection(), Pull.NAMED, Exclusion.IMAGE_NOT_BUILT),
    "not built, named": (BUILT, H200, BUILDS, NAMED, Pull.NAMED, None),
    "ours, by hand": (BY_HAND, H200, BUILDS, NAMED, Pull.ALL, Exclusion.IMAGE_NOT_BUILT),
    "built": (BUILT, H200, MADE, NAMED, Pull.NEVER, None),
    "host, found": (PULLED, H200, WITH_PYTHON, ON_HOST, Pull.NAMED, None),
    "host, not found": (PULLED, H200, HOST, ON_HOST, Pull.NAMED, Exclusion.NO_INTERPRETER),
    "offline, not pulled": (PULLED, H200, OFFLINE, NAMED, Pull.ALL, Exclusion.NOT_HERE),
    "offline, not built": (BUILT, H200, OFFLINE, NAMED, Pull.ALL, Exclusion.NOT_HERE),
    "offline, wheels": (RTX, CPU, OFFLINE, Selection(), Pull.NEVER, None),
    "offline, no wheels": (RTX, CPU, NO_WHEELS, Selection(), Pull.ALL, Exclusion.NOT_HERE),
    "wheels": (RTX, CPU, BARE, Selection(), Pull.NEVER, None),
    "wheels, host asked for": (RTX, CPU, BARE, ON_HOST, Pull.NEVER, Exclusion.OTHER_RUNTIME),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_a_cell_runs_or_is_excluded_for_one_reason(name: str) -> None:
    version, gpu, host, selection, pull, expected = ROWS[name]
    found = exclude(make_cell(version=version, gpu=gpu), host, selection, pull)
    assert (found[0] if found else None) is expected
    assert found is None or found[1], "a reason has words"


def needing(version: Version) -> Exclusion | None:
    case = make_case(needs=frozenset({"torch_tensorrt"}))
    found = exclude(make_cell(case=case, version=version), HOST, Selection(), Pull.NAMED)
    return found[0] if found else None


def test_a_case_that_needs_torch_tensorrt_runs_where_the_image_has_it() -> None:
    assert needing(PULLED) is None
    assert needing(replace(PULLED, torch_tensorrt=None)) is Exclusion.COMPONENT_MISSING


OF_PREFLIGHT = {
    Exclusion.IMAGE_NOT_GIVEN, Exclusion.NO_ROOM, Exclusion.NO_MEMORY,
}  # fmt: skip
"""What is found out after the plan, of the launches that it has."""


def test_every_reason_of_the_plan_occurs_in_the_table() -> None:
    occurs = {row[-1] for row in ROWS.values()} | {Exclusion.COMPONENT_MISSING}
    elsewhere = {Exclusion.NOT_READY, *OF_PREFLIGHT}
    assert occurs - {None} == set(Exclusion) - elsewhere


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
