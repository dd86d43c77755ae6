"""Runs a job's cells one after another, each in fresh processes, and leaves a record for each.

The job's folder holds ``job.json`` and ``heartbeat``, a file that the host touches every second. The
supervisor ends by itself: each process at its time limit, all of it when the heartbeat stops. Where the
folder holds ``scratch``, a list of folders that are the job's alone, these are emptied after each cell.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import shutil
import signal
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Dict, List, Optional

from trtprobe import ends
from trtprobe.cell import run_cell
from trtprobe.exits import RESULT, Cut, Exit, judge_exit
from trtprobe.files import write_json
from trtprobe.memory import oom_kills
from trtprobe.observe import UNSET
from trtprobe.processes import Child, become_subreaper, kill_descendants
from trtprobe.records import make_record

POLL_SECONDS = 0.02
BALLAST = 16 << 20
"""Bytes that are held while a cell runs: one that fills memory by files is killed, and its files stay until
they are removed; so much is free then, that the supervisor is not killed too."""
CHECK_SECONDS = 0.25
HEARTBEAT_SECONDS = 15.0
"""Without a sign of life from the host for this long, the job ends."""


class Stopped(Exception):
    """The supervisor itself was told to end."""


def main(argv: List[str]) -> int:
    """Run the job in ``--job``; records appear in ``--out`` as ``<index>.record.json``."""
    parser = argparse.ArgumentParser(prog="trtprobe supervise")
    for name in ("job", "cases", "repros", "out"):
        parser.add_argument("--" + name, type=Path, required=True)
    args = parser.parse_args(argv)
    job = json.loads((args.job / "job.json").read_text())
    signal.signal(signal.SIGTERM, _stop)
    become_subreaper()
    _make_home()
    preload(job["product"])
    heartbeat = args.job / "heartbeat"
    try:
        for index, cell in enumerate(job["cells"]):
            if _stale(heartbeat):
                return 1
            supervise(Work(args, job, cell, index), heartbeat)
    except Stopped:
        kill_descendants()
        return 1
    return 0


def preload(product: str) -> None:
    """Import what every cell imports, but nothing that opens a GPU; a cell reports what fails."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    modules = {"onnxruntime": "onnxruntime", "tensorrt-rtx": "tensorrt_rtx_bindings"}
    try:
        importlib.import_module("importlib.metadata")
        importlib.import_module(modules.get(product, "numpy"))
    except Exception as error:
        print("not preloaded: %s" % error, flush=True)


def _make_home() -> None:
    """Make the home folder in a container's scratch, where it is not there yet."""
    with contextlib.suppress(OSError):
        Path(os.environ.get("HOME", "/nowhere")).mkdir(parents=True, exist_ok=True)


def _empty_scratch(named: Path) -> None:
    """Empty the folders that the file names, and make the home folder anew."""
    for folder in named.read_text().splitlines() if named.is_file() else ():
        for path in Path(folder).iterdir():
            _remove(path)
    _make_home()


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(str(path), ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()


def _stop(number: int, _frame: Any) -> None:
    """Unwind once; a second signal must not cut the cleaning up short."""
    signal.signal(number, signal.SIG_IGN)
    raise Stopped("signal %d" % number)


def _stale(heartbeat: Path) -> bool:
    try:
        return time.time() - heartbeat.stat().st_mtime > HEARTBEAT_SECONDS
    except OSError:
        return True


class Work:
    """One cell to run: its folders and what it may use."""

    def __init__(
        self, args: argparse.Namespace, job: Dict[str, Any], cell: Dict[str, Any], index: int
    ) -> None:
        """Lay out the cell's folder below ``--out``."""
        self.job, self.cell, self.out = job, cell, args.out
        self.folder, self.scratch = args.out / str(index), args.job / "scratch"
        self.started, self.record = (
            args.out / ("%d.%s.json" % (index, word)) for word in ("started", "record")
        )
        self.processes, builds = int(cell.get("processes", 1)), int(cell.get("builds", 1))
        self.seconds = float(cell["seconds"]) * builds
        self.spec = {
            "product": job["product"],
            "repro": str(args.repros / cell["repro_file"]),
            "params": cell["params"],
            "files": str(args.cases / cell["files"]),
            "keep_outputs": cell["keep_outputs"],
            "needs": cell.get("needs", []),
            "memo": str(args.out / "memo"),
            "builds": builds,
        }


def supervise(work: Work, heartbeat: Path) -> None:
    """Run a cell's processes until one does not end well, and write the record."""
    started = now()
    exits: List[Exit] = []
    write_json(work.started, {"started": started})
    while len(exits) < work.processes and all(process.ended == ends.RAN for process in exits):
        exits.append(_run_process(work, len(exits), heartbeat))
    times = {"started": started, "finished": now()}
    record = make_record(work.cell, work.job["product"], times, exits)
    _drop_unkept(work.folder, record["kept"])
    write_json(work.record, record)
    if record["ended"] == ends.INTERRUPTED:
        raise Stopped("no sign of life from the host")


def _run_process(work: Work, number: int, heartbeat: Path) -> Exit:
    """Run the cell in a fresh process and an empty folder, below the first one's for those after it."""
    folder = work.folder / ("process-%d" % number) if number else work.folder
    shutil.rmtree(str(folder), ignore_errors=True)
    folder.mkdir(parents=True)
    before = oom_kills()
    child = Child(lambda: _perform(work.spec, folder), folder, UNSET)
    ballast = b"1" * BALLAST
    try:
        cut = _wait(child, work, heartbeat)
    finally:
        del ballast
        child.kill()
    killed = oom_kills() - before
    _empty_scratch(work.scratch)
    process = judge_exit(child, work.spec, folder, cut, killed)
    _drop_unkept(folder, process.result.get("kept", {}))
    return process


def _perform(spec: Dict[str, Any], folder: Path) -> int:
    """Run the cell, in its own process; leaves its result."""
    write_json(folder / RESULT, run_cell(spec, folder))
    return 0


def _wait(child: Child, work: Work, heartbeat: Path) -> Optional[Cut]:
    """Wait for the child; return how it had to be cut off, or None where it ended by itself."""
    deadline, check, before = time.monotonic() + work.seconds, 0.0, folder_bytes(work.out)
    while child.poll() is None:
        moment = time.monotonic()
        if moment > deadline:
            return ends.TIME_OUT, "not done after %g s" % work.seconds
        if moment > check:
            check = moment + CHECK_SECONDS
            if _stale(heartbeat):
                return ends.INTERRUPTED, "the host gave no sign of life"
            size = folder_bytes(work.out) - before
            if size > work.job["output_bytes"]:
                return ends.CRASHED, "wrote %d bytes; the output folder may hold %d" % (
                    size, work.job["output_bytes"])  # fmt: skip
        time.sleep(POLL_SECONDS)
    return None


def _drop_unkept(folder: Path, kept: Dict[str, Any]) -> None:
    """Remove what the cell left, but for the outputs that it was asked to keep."""
    wanted = {name + ".npy" for name in kept}
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.name not in wanted:
            _remove(path)


def folder_bytes(folder: Path) -> int:
    """Return the bytes on disk below a folder (symbolic links not followed)."""
    total = 0
    for root, _, files in os.walk(str(folder)):
        for name in files:
            with contextlib.suppress(OSError):
                total += Path(root, name).lstat().st_size
    return total


def now() -> str:
    """Return the time in UTC as ISO 8601 with milliseconds."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
