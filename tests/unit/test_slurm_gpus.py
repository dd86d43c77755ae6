"""GPUs of a site's nodes where GPUs of this host are thought of: plan, containers, reasons to run again."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import make_cell, make_entry, make_record, make_version

from trtmatrix.core.config import InterpreterOrigin
from trtmatrix.core.container import give_gpu
from trtmatrix.core.expand import Selection
from trtmatrix.core.model import Evidence, Exclusion, Gpu
from trtmatrix.core.plan import Engine, GpuAccess, Host, Pull, make_plan
from trtmatrix.core.slurm.boards import Node, site_gpus
from trtmatrix.core.slurm.site import NodeRuntime, Site, SiteGpu
from trtmatrix.core.stale import Why, find_changes, find_reason
from trtmatrix.effects.gpu import known_gpu

NEW = "NVIDIA H200, GPU-1, 9.0, 143771, 580.159.04, Disabled, 345, 3201, 700.00"
OLD = "NVIDIA H200, GPU-2, 9.0, 143771, 570.86.15, Disabled, 1980, 3201, 700.00"
IMAGE = "example.org/tensorrt:10.7.0"


def h200(*lines: str) -> Gpu:
    """The site's H200 after jobs have seen these boards, each on a node of its own."""
    site = Site(
        shared="/shared", runtime=NodeRuntime.DOCKER, gpus=(SiteGpu(name="NVIDIA H200", gres="gpu:h200:1"),)
    )
    nodes = [Node(name=f"n{number}", gpus=(line,)) for number, line in enumerate(lines)]
    return site_gpus(site, nodes, known_gpu)[0]


def host_with(gpu: Gpu) -> Host:
    """What a client sees as its host: the site's GPU, and an image that the nodes can have."""
    engine = Engine(available=True, images={IMAGE: "sha256:1"}, gpu_access=GpuAccess.TOOLKIT)
    return Host(engine=engine, gpus=(gpu,), interpreters={"10.7.0": "/usr/bin/python3"})


def test_cells_of_a_sites_gpu_are_launched() -> None:
    gpu = h200()
    plan = make_plan([make_cell(gpu=gpu)], host_with(gpu), Selection(), Pull.NEVER)
    assert [launch.gpu for launch in plan.launches] == [gpu]


@pytest.mark.parametrize("runtimes", [("host",), ()])
def test_no_interpreter_of_this_host_runs_cells_of_a_sites_gpu(runtimes: tuple[str, ...]) -> None:
    gpu, version = h200(), make_version()
    if not runtimes:
        version = replace(version, origin=InterpreterOrigin(interpreter="/usr/bin/python3"))
    cell = make_cell(version=version, gpu=gpu)
    plan = make_plan([cell], host_with(gpu), Selection(runtimes=runtimes), Pull.NEVER)
    assert [item.why for item in plan.excluded] == [Exclusion.NO_INTERPRETER]
    there = replace(gpu, remote=False, index=0)
    assert make_plan(
        [replace(cell, gpu=there)], host_with(there), Selection(runtimes=runtimes), Pull.NEVER
    ).launches


def test_a_gpu_that_the_site_has_not_is_said_to_be_missing_in_its_file() -> None:
    l4 = Gpu(slug="nvidia-l4", name="NVIDIA L4")
    plan = make_plan([make_cell(gpu=l4)], host_with(h200()), Selection(), Pull.NEVER)
    assert [(x.why, x.detail) for x in plan.excluded] == [
        (Exclusion.OTHER_GPU, "the site's file has NVIDIA H200")
    ]


@pytest.mark.parametrize(("least", "runs"), [("575.0", True), ("590.1", False)])
def test_a_driver_is_too_old_only_where_the_newest_that_was_seen_is(least: str, runs: bool) -> None:
    driver = {"least": least, "datacenter": [], "known": "read", "source": "notes"}
    gpu = replace(h200(NEW, OLD), datacenter=False)
    cell = make_cell(version=make_version(driver=driver), gpu=gpu)
    plan = make_plan([cell], host_with(gpu), Selection(), Pull.NEVER)
    assert bool(plan.launches) is runs
    if not runs:
        assert plan.excluded[0].detail.endswith("needs 590.1, the newest seen is 580.159.04")


@pytest.mark.parametrize("access", GpuAccess)
def test_only_the_script_on_the_node_knows_which_board_a_container_gets(access: GpuAccess) -> None:
    assert not give_gpu(h200(NEW), Engine(available=True, gpu_access=access)).words
    assert give_gpu(
        replace(h200(NEW), remote=False, index=0), Engine(available=True, gpu_access=access)
    ).words


def test_what_has_changed_since_a_record_is_what_no_board_that_was_seen_has() -> None:
    cell = make_cell(gpu=h200(NEW, OLD))
    facts = {"name": "NVIDIA H200", "variant": "140 GiB", "driver": "560.1"}
    changes = find_changes(make_record(cell, gpu=facts), {}, cell)
    assert [str(change) for change in changes] == ["driver 560.1 → 580.159.04 or 570.86.15"]
    for driver in ("580.159.04", "570.86.15"):
        assert find_changes(make_record(cell, gpu={**facts, "driver": driver}), {}, cell) == ()


def test_a_driver_that_only_boards_of_another_variant_have_is_a_change_too() -> None:
    cell = make_cell(gpu=h200(NEW, OLD.replace("143771", "71885")))
    record = make_record(cell, gpu={"name": "NVIDIA H200", "variant": "140 GiB", "driver": "570.86.15"})
    assert [str(c) for c in find_changes(record, {}, cell)] == ["which boards have this driver"]


def test_before_any_job_has_run_a_cell_is_run_because_nobody_knows_the_boards() -> None:
    cell = make_cell(gpu=h200())
    reason = find_reason(make_entry(cell, evidence=Evidence.RECORDED))
    assert reason is not None
    assert reason.why is Why.ELSEWHERE
    assert reason.words.startswith("no job has told yet")
