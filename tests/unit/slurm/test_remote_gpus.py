"""GPUs of a site's nodes where GPUs of this host are thought of: plan, containers, reasons to run again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from builders import make_cell, make_record, make_version

from trtmatrix.judge.entry import Stored
from trtmatrix.plan.stale import find_changes
from trtmatrix.slurm.cluster import Cluster
from trtmatrix.slurm.shared import Shared
from trtmatrix.slurm.sitefile import EXAMPLE, parse_site
from trtmatrix.suite.cells import Selection
from trtmatrix.suite.matrix import InterpreterOrigin
from trtmatrix.suite.model import Exclusion, Gpu
from trtmatrix.suite.plan import Engine, GpuAccess, Host, Pull, make_plan

NEW, OLD = "580.159.04", "570.86.15"
IMAGE = "example.org/tensorrt:10.7.0"
BARE = Gpu(slug="nvidia-h200", name="NVIDIA H200")


def seen_on(node: str, driver: str, variant: str = "140 GiB", run: str = "1") -> Stored:
    """The record that a job left on a node."""
    facts = {"name": "NVIDIA H200", "variant": variant, "driver": driver, "host": node, "compute": "9.0"}
    started = f"2026-01-01T00:00:0{run}.000Z"
    record = make_record(make_cell(gpu=BARE), gpu=facts, run=run, started=started)
    return Stored(record=record, local=True)


def h200(*seen: Stored) -> Gpu:
    """The site's H200 after jobs have left these records."""
    cluster = Cluster(site=parse_site(EXAMPLE), shared=Shared(Path("/shared"), print))
    return cluster.host(seen).gpus[0]


def test_a_node_has_the_boards_of_its_newest_record_and_the_newest_driver_comes_first() -> None:
    gpu = h200(seen_on("a", OLD, run="1"), seen_on("a", NEW, run="2"), seen_on("b", OLD), seen_on("c", OLD))
    assert [(board.driver, board.hosts) for board in gpu.seen] == [(NEW, 1), (OLD, 2)]
    assert (gpu.driver, gpu.variant, gpu.compute) == (NEW, "140 GiB", "9.0")
    assert h200().seen == ()


def host_with(gpu: Gpu) -> Host:
    """What a client sees as its host: the site's GPU, and an image that the nodes can have."""
    engine = Engine(available=True, images={IMAGE: "sha256:1"}, gpu_access=GpuAccess.TOOLKIT)
    return Host(engine=engine, gpus=(gpu,), interpreters={"10.7.0": "/usr/bin/python3"})


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
    assert [(x.why, x.detail) for x in plan.excluded] == [(Exclusion.OTHER_GPU, "slurm.yaml has NVIDIA H200")]


@pytest.mark.parametrize(("least", "runs"), [("575.0", True), ("590.1", False)])
def test_a_driver_is_too_old_only_where_the_newest_that_was_seen_is(least: str, runs: bool) -> None:
    driver = {"least": least, "datacenter": [], "known": "read", "source": "notes"}
    gpu = replace(h200(seen_on("a", NEW), seen_on("b", OLD)), datacenter=False)
    cell = make_cell(version=make_version(driver=driver), gpu=gpu)
    plan = make_plan([cell], host_with(gpu), Selection(), Pull.NEVER)
    assert bool(plan.launches) is runs
    if not runs:
        assert plan.excluded[0].detail.endswith("needs 590.1, the newest seen is 580.159.04")


def test_what_has_changed_since_a_record_is_what_no_board_that_was_seen_has() -> None:
    cell = make_cell(gpu=h200(seen_on("a", NEW), seen_on("b", OLD)))
    facts = {"name": "NVIDIA H200", "variant": "140 GiB", "driver": "560.1"}
    changes = find_changes(make_record(cell, gpu=facts), {}, cell)
    assert changes == ["driver 560.1 → 580.159.04 or 570.86.15"]
    for driver in ("580.159.04", "570.86.15"):
        assert find_changes(make_record(cell, gpu={**facts, "driver": driver}), {}, cell) == []
