"""A client over a shared folder and a Slurm in memory, for tests of the loop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from builders import make_case, make_cell, make_repro
from playing import LIMIT, RIGHT, Play, always, make_shop
from slurmdouble import FakeSlurm
from test_cases import loaded

from trtmatrix.cluster import Cluster
from trtmatrix.core.container import Limits
from trtmatrix.core.expand import Cell, Selection
from trtmatrix.core.plan import Engine, GpuAccess, Host, Pull, make_plan
from trtmatrix.core.slurm.boards import site_gpus
from trtmatrix.core.slurm.layout import OVER
from trtmatrix.core.slurm.site import NodeRuntime, Site, SiteGpu
from trtmatrix.effects.shared_folder import SharedFolder
from trtmatrix.effects.slurm import Slurm
from trtmatrix.performed import Performed
from trtmatrix.run import run_plan
from trtmatrix.slurm_pace import Pace
from trtmatrix.slurm_run import SlurmRun
from trtmatrix.workshop import Workshop

PACE = Pace(
    folder=0.002, squeue=0.002, most=0.004, settle=0.02, silent=0.5, lost=0.03, later=0.02, worth=20.0,
    again=0.02,
)  # fmt: skip
RIGHTLY = always(RIGHT)
CASES = ("a", "b", "c")


class Client:
    """One client over a shared folder: a process of this program, as far as it concerns Slurm."""

    def __init__(
        self, folder: Path, slurm: FakeSlurm, *names: str, options: tuple[str, ...] = (), **more: Any
    ) -> None:
        # parameters of its own give each case a folder of files of its own
        cases = [make_case(name, **{**LIMIT, "params": {"n": 1, "of": name}}) for name in names or CASES]
        repro = make_repro(*cases)
        shared = SharedFolder(slurm.shared)
        site = Site(
            shared=str(slurm.shared), runtime=NodeRuntime.DOCKER,
            gpus=(SiteGpu(name="NVIDIA H200", gres="gpu:h200:1"),), options=options,
        )  # fmt: skip
        (gpu,) = site_gpus(site, [])
        self.cells: list[Cell] = [make_cell(repro, case, gpu=gpu) for case in cases]
        engine = Engine(available=True, gpu_access=GpuAccess.TOOLKIT)
        host = Host(engine=engine, gpus=(gpu,))
        past = frozenset(path.parent.name for path in (slurm.shared / "arrays").glob(f"*/{OVER}"))
        repros = folder / "repros"
        repros.mkdir(parents=True, exist_ok=True)
        cluster = Cluster(site=site, folder=shared, host=host, planned=host, repros=repros, past=past)
        self.shop: Workshop = make_shop(folder, None, [replace(loaded(), repro=repro)], **more)
        self.plan = make_plan(self.cells, host, Selection(), Pull.ALL)
        self.remote = SlurmRun(cluster, self.shop, Limits(), slurm=Slurm(run=slurm.run, user=0), pace=PACE)
        self.shared, self.local = slurm.shared, folder / "local"

    def run(self, run: str = "r0") -> Performed:
        return run_plan(self.plan, frozenset(), run, self.shop, self.remote)

    @property
    def told(self) -> str:
        return str(self.shop.progress.stream.getvalue())  # type: ignore[attr-defined] # it is a StringIO

    @property
    def open_arrays(self) -> list[str]:
        return [p.name for p in (self.shared / "arrays").glob("*") if not (p / OVER).exists()]


def make_slurm(folder: Path, play: Play = RIGHTLY, **more: Any) -> FakeSlurm:
    shared = folder / "shared"
    shared.mkdir()
    return FakeSlurm(shared=shared, play=play, **more)


def leave_after_submitting(slurm: FakeSlurm, client: Client) -> Callable[[Sequence[str]], None]:
    """What loses a client's connection once its array is submitted."""

    def leave(words: Sequence[str]) -> None:
        if words[0] == "sbatch" and slurm.jobs[-1].task is not None:
            client.shop.leave.set()
            client.shop.stop.set()

    return leave


def stop_as_it_runs(slurm: FakeSlurm, client: Client) -> Callable[[Sequence[str]], None]:
    """What interrupts a client once a task of its array runs."""

    def stop(words: Sequence[str]) -> None:
        if any(job.state == "RUNNING" and job.task is not None for job in slurm.jobs):
            client.shop.stop.set()
        elif words[0] == "squeue":
            slurm.finish_import()

    return stop


def cases_of(performed: Performed) -> Counter[str]:
    return Counter(record.cell.case for record in performed.records)
