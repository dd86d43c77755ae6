"""Runs a job's cells one after another in processes that it keeps warm, and leaves a record for each.

The job's folder holds ``job.json``, the cells, to which the host adds, and ``heartbeat``, a file that the
host touches every second. The supervisor ends by itself: each process at its time limit, all of it when
there are no more cells or the heartbeat stops. Where the folder holds ``scratch``, a list of folders that
are the job's alone, these are emptied after each process.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import shutil
import signal
from datetime import datetime, timezone
from itertools import count
from pathlib import Path
from typing import Any, Dict, List

from trtprobe import ends, observe
from trtprobe.exits import Exit
from trtprobe.files import write_json
from trtprobe.intake import Intake, Stopped, make_home, remove
from trtprobe.pool import Order, Pool
from trtprobe.processes import become_subreaper, kill_descendants
from trtprobe.records import make_record
from trtprobe.surfacing import leave_surface
from trtprobe.watch import Watch


def main(argv: List[str]) -> int:
    """Run the job in ``--job``; records appear in ``--out`` as ``<index>.record.json``."""
    parser = argparse.ArgumentParser(prog="trtprobe supervise")
    for name in ("job", "cases", "repros", "out"):
        parser.add_argument("--" + name, type=Path, required=True)
    args = parser.parse_args(argv)
    intake = Intake(args.job)
    signal.signal(signal.SIGTERM, _stop)
    become_subreaper()
    make_home()
    preload(intake.job["product"])
    gc.collect()
    gc.freeze()
    pool = Pool(intake)
    try:
        for index in count():
            cell = intake.cell(index, pool.prepare)
            if cell is None:
                break
            supervise(Work(args, intake, cell, index), pool)
        pool.close()
        leave_surface(intake.job, args.out)
    except Stopped:
        kill_descendants()
        return 1
    return 0


def preload(product: str) -> None:
    """Import what every cell imports, but nothing that opens a GPU; a cell reports what fails."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    modules = {"onnxruntime": "onnxruntime", "tensorrt-rtx": "tensorrt_rtx_bindings"}
    try:
        observe.observed()
        importlib.import_module("numpy.random")
        importlib.import_module(modules.get(product, "numpy"))
    except Exception as error:
        print("not preloaded: %s" % error, flush=True)


def _stop(number: int, _frame: Any) -> None:
    """Unwind once; a second signal must not cut the cleaning up short."""
    signal.signal(number, signal.SIG_IGN)
    raise Stopped("signal %d" % number)


class Work:
    """One cell to run: its folders and what it may use."""

    def __init__(self, args: argparse.Namespace, intake: Intake, cell: Dict[str, Any], index: int) -> None:
        """Lay out the cell's folder below ``--out``."""
        self.intake, self.cell, self.out = intake, cell, args.out
        self.product, self.folder = intake.job["product"], args.out / str(index)
        self.started, self.record = (
            args.out / ("%d.%s.json" % (index, word)) for word in ("started", "record")
        )
        self.plans = args.out / ("%d.plans" % index)
        self.processes, builds = int(cell.get("processes", 1)), int(cell.get("builds", 1))
        self.alone = bool(cell.get("alone")) or not intake.is_warm
        self.seconds = float(cell["seconds"]) * builds
        self.spec = {
            "product": self.product,
            "repro": str(args.repros / cell["repro_file"]),
            "params": cell["params"],
            "files": str(args.cases / cell["files"]),
            "keep_outputs": cell["keep_outputs"],
            "needs": cell.get("needs", []),
            "memo": "" if self.alone else str(args.out / "memo"),
            "plans": str(self.plans) if self.processes > 1 else "",
            "builds": builds,
        }

    def order(self, number: int) -> Order:
        """Return what one of the cell's processes is given; those after the first have a folder below its."""
        folder = self.folder / ("process-%d" % number) if number else self.folder
        watch = Watch(self.intake, self.out, folder, self.seconds)
        return Order(self.spec, folder, self.alone, bool(self.cell.get("dangerous")), watch)


def supervise(work: Work, pool: Pool) -> None:
    """Run a cell's processes until one does not end well, and write the record."""
    pool.make_ready(work.alone)
    started = now()
    exits: List[Exit] = []
    write_json(work.started, {"started": started})
    while len(exits) < work.processes and all(process.ended == ends.RAN for process in exits):
        order = work.order(len(exits))
        exits.append(pool.run_beside(order) if exits else pool.run(order))
        _drop_unkept(order.folder, exits[-1].result.get("kept", {}))
    times = {"started": started, "finished": now()}
    record = make_record(work.cell, work.product, times, exits)
    _drop_unkept(work.folder, record["kept"])
    if work.plans.is_dir():
        shutil.rmtree(str(work.plans), ignore_errors=True)
    write_json(work.record, record, indent=None)
    if record["ended"] == ends.INTERRUPTED:
        raise Stopped("no sign of life from the host")


def _drop_unkept(folder: Path, kept: Dict[str, Any]) -> None:
    """Remove what the cell left, but for the outputs that it was asked to keep."""
    wanted = {name + ".npy" for name in kept}
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.name not in wanted:
            remove(path)


def now() -> str:
    """Return the time in UTC as ISO 8601 with milliseconds."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
