"""A launcher whose probe is played: it speaks the job's protocol, and its engines come out as a test says."""

import io
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from builders import H200, make_case, make_cell, make_repro
from prepare.test_cases import loaded

from trtmatrix.common.progress import Progress
from trtmatrix.judge.noise import Calibration
from trtmatrix.judge.record import RAN
from trtmatrix.launchers.launcher import Ended, Launcher, Poll, Ready
from trtmatrix.prepare.case_pool import Wanted
from trtmatrix.prepare.cases import CaseCache
from trtmatrix.run.execute import execute_plan
from trtmatrix.run.perform import Options
from trtmatrix.run.tasks import Run
from trtmatrix.suite.cells import Cell, Selection
from trtmatrix.suite.matrix import ImageOrigin
from trtmatrix.suite.model import Gpu
from trtmatrix.suite.plan import Engine, GpuAccess, Host, Launch, Plan, Pull, make_plan
from trtmatrix.suite.repro_files import LoadedRepro
from trtprobe.files import write_json

RIGHT, WRONG = 1.0, 1e6
Play = Callable[[str], float]
"""A case's id → what the case measures of each engine."""


class Playing:
    """A launcher whose probe measures what it is told, and that keeps the jobs that it was given."""

    def __init__(self, play: Play) -> None:
        self.play, self.jobs, self.starts = play, list[list[dict[str, Any]]](), list[dict[str, Any]]()
        self.launches, self.died = list[Launch](), Ended(code=139)
        self._lock = threading.Lock()

    def make_ready(self, launch: Launch) -> Ready:
        return Ready(launch=launch, digests={"image": "i", "runtime": "container"}, handle=None)

    def run(self, ready: Ready, folder: Path, poll: Poll) -> Ended:
        cells: list[dict[str, Any]] = []
        with self._lock:
            self.jobs.append(cells)
            self.launches.append(ready.launch)
            self.starts.append(json.loads((folder / "job" / "job.json").read_text()))
        while True:
            over = (folder / "job" / "end").exists()  # looked for first, so that no cell is lost
            file = folder / "job" / f"{len(cells)}.cell.json"
            if file.exists():
                cells.append(json.loads(file.read_text()))
                try:
                    self.cell(len(cells) - 1, cells[-1], folder / "out")
                except EOFError:
                    poll()
                    return self.died
            elif over:
                break
            poll()
            time.sleep(0.001)
        poll()
        return Ended(code=0)

    def cell(self, index: int, cell: dict[str, Any], out: Path) -> None:
        """Leave what a cell leaves; an EOFError ends the probe, as ``died`` says."""
        write_json(out / f"{index}.started.json", {})
        record = self.record(cell, self.play(cell["cell"]["case"]), out / str(index))
        write_json(out / f"{index}.record.json", record)

    def record(self, cell: dict[str, Any], value: float, out: Path) -> dict[str, Any]:
        del out
        measured = {"outputs": {}, "scalars": {"worst": value}, "remark": "", "signatures": {}}
        builds = [{"measurements": measured, "engine": {}}] * cell["builds"]
        more = {"builds": builds} if len(builds) > 1 else {}
        data = {"schema": 1, "cell": cell["cell"], "run": cell["run"], "product": "tensorrt", "ended": RAN}
        started = f"2025-01-02T03:04:0{len(self.jobs)}.{len(self.jobs[-1]):03d}Z"
        return {
            **data, "detail": "", "started": started, "observed": {}, "measurements": measured, "kept": {},
            **more,
        }  # fmt: skip


class PreparingHere:
    """Prepares cases in this process, in the order asked for: for repros that are in no file."""

    def __init__(self, cases: CaseCache) -> None:
        self.cases, self.done = cases, list[str]()

    def prepare(self, groups: Sequence[Sequence[Wanted]], stop: threading.Event) -> Iterator[Wanted]:
        for wanted in (wanted for group in groups for wanted in group):
            if stop.is_set():
                return
            self.cases.prepare(wanted.loaded, wanted.case)
            self.done.append(wanted.case.id)
            yield wanted


def make_run(folder: Path, launcher: Any, repros: Sequence[LoadedRepro], **more: Any) -> Run:
    cases = CaseCache(folder)
    how = {name: more.pop(name) for name in Options.__dataclass_fields__ if name in more}
    given: dict[str, Any] = {
        "id": "r0", "options": Options(**{"output_size": 1, **how}),
        "launchers": {"container": launcher, "wheels": launcher}, "cases": cases, "cache": folder,
        "repros": {item.repro.id: item for item in repros}, "local": folder / "local", "probe_digest": "p",
        "progress": Progress(io.StringIO()), "gpu_clocks": lambda _: {},
        "calibration": Calibration(), "preparer": PreparingHere(cases), **more,
    }  # fmt: skip
    return Run(**given)


def make_a_plan(cells: Sequence[Cell], *boards: Gpu, pull: bool = False) -> Plan:
    """A plan for these cells on a host with one H200, or with these boards; ``pull``: no image is here."""
    origins = [cell.version.origin for cell in cells]
    images = {origin.image: "sha256:0" for origin in origins if isinstance(origin, ImageOrigin) and not pull}
    engine = Engine(available=True, images=images, gpu_access=GpuAccess.TOOLKIT)
    return make_plan(cells, Host(engine=engine, gpus=boards or (H200,)), Selection(), Pull.ALL)


def always(value: float) -> Play:
    return lambda _: value


def boards_of(count: int) -> tuple[Gpu, ...]:
    """Equal boards of one host."""
    return tuple(
        replace(H200, index=n, minor=n, uuid=f"GPU-{n}", uuid_hash=f"hash-{n}") for n in range(count)
    )


SECONDS = 20.0
"""Longest wait for what must happen."""


def cells_of(*names: str, versions: Sequence[str] = ("10.7.0",), **fields: Any) -> list[Cell]:
    """Cells of cases that fail where they measure more than 10."""
    limits = {"worst": 10.0}
    cases = [make_case(name, limits=limits, params={"n": n}, **fields) for n, name in enumerate(names)]
    repro = make_repro(*cases)
    return [make_cell(repro, case, version) for version in versions for case in repro.cases]


def source_of(cells: Sequence[Cell], **result: Any) -> LoadedRepro:
    return replace(loaded(**result), repro=cells[0].repro)


def perform(
    folder: Path, launcher: Launcher, cells: Sequence[Cell], *boards: Any, pull: bool = False, **more: Any
) -> Run:
    run = make_run(folder, launcher, [source_of(cells)], **more)
    return execute_plan(make_a_plan(cells, *boards, pull=pull), run)


def stored(folder: Path) -> list[str]:
    return sorted(path.parent.name for path in (folder / "local").rglob("*.json"))
