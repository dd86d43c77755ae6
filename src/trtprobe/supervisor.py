"""Runs a job's cells one after another, each in a fresh process, and leaves a record for each.

The job's folder holds ``job.json`` and ``heartbeat``, a file that the host touches every second. The
supervisor ends by itself: each cell at its time limit, all of it when the heartbeat stops. Where the
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
from typing import Any, Dict, List, Optional, Tuple

from trtprobe import SCHEMA, ends
from trtprobe.cell import run_cell
from trtprobe.files import write_json
from trtprobe.memory import oom_kills
from trtprobe.observe import UNSET
from trtprobe.processes import Child, become_subreaper, kill_descendants

POLL_SECONDS = 0.02
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


def _plain(text: str) -> str:
    """Return a text that every encoding of Unicode can hold: lone surrogates become escapes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


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
        self.job, self.cell, self.index, self.out = job, cell, index, args.out
        self.folder, self.scratch = args.out / str(index), args.job / "scratch"
        self.seconds = float(cell["seconds"])
        self.spec = {
            "product": job["product"],
            "repro": str(args.repros / cell["repro_file"]),
            "params": cell["params"],
            "files": str(args.cases / cell["files"]),
            "keep_outputs": cell["keep_outputs"],
            "needs": cell.get("needs", []),
            "memo": str(args.out / "memo"),
        }

    def start(self) -> Child:
        """Start the cell's process in an empty folder."""
        shutil.rmtree(str(self.folder), ignore_errors=True)
        self.folder.mkdir(parents=True)
        write_json(self.out / ("%d.started.json" % self.index), {"started": now()})
        return Child(self.perform, self.folder, UNSET)

    def perform(self) -> int:
        """Run the cell, in its own process; leaves result.json."""
        write_json(self.folder / "result.json", run_cell(self.spec, self.folder))
        return 0


def supervise(work: Work, heartbeat: Path) -> None:
    """Run one cell to its end, however it ends, and write its record."""
    started, before = now(), oom_kills()
    child = work.start()
    try:
        cut = _wait(child, work, heartbeat)
    except Stopped:
        child.kill()
        raise
    child.kill()
    killed = oom_kills() - before
    _empty_scratch(work.scratch)
    ended, detail, result = _judge_end(child, work, cut, killed)
    record = {
        "schema": SCHEMA, "cell": work.cell["cell"], "run": work.cell["run"],
        "product": work.job["product"], "ended": ended, "detail": _plain(detail)[:4000],
        "started": started, "finished": now(), "exit": child.code, "attempts": 1,
        "oom_kills": killed, "observed": result.get("observed", {}),
        "environment": result.get("environment", {}),
        "unset": {name: os.environ[name] for name in UNSET if name in os.environ},
        "engine": result.get("engine", {}),
        "measurements": {
            "outputs": result.get("outputs", {}), "scalars": result.get("scalars", {}),
            "remark": result.get("remark", ""),
        },
        "kept": result.get("kept", {}) if ended == ends.RAN else {}, "log": child.log(),
    }  # fmt: skip
    _drop_unkept(work.folder, record["kept"])
    write_json(work.out / ("%d.record.json" % work.index), record)
    if ended == ends.INTERRUPTED:
        raise Stopped("no sign of life from the host")


def _wait(child: Child, work: Work, heartbeat: Path) -> Optional[Tuple[str, str]]:
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


def _judge_end(
    child: Child, work: Work, cut: Optional[Tuple[str, str]], oom: int
) -> Tuple[str, str, Dict[str, Any]]:
    """Say how the cell ended, from what is seen outside and what it wrote itself."""
    result = _load(work.folder / "result.json") or {}
    if cut is not None:
        return cut[0], cut[1], _load(work.folder / "observed.json") or {}
    code = child.code or 0
    if result and code == 0:
        if oom and result["ended"] not in {ends.RAN, ends.BUILT}:
            return (
                ends.OUT_OF_HOST_MEMORY,
                "%s (%d killed for memory)" % (result["detail"], oom),
                result,
            )
        return result["ended"], result["detail"], result
    partial = result or _load(work.folder / "observed.json") or {}
    if oom:
        return (
            ends.OUT_OF_HOST_MEMORY,
            "killed by the kernel: the memory limit was reached",
            partial,
        )
    return ends.CRASHED, _exit_words(code, bool(result)), partial


def _exit_words(code: int, finished: bool) -> str:
    when = " after the cell had finished" if finished else ""
    if code < 0:
        try:
            return "killed by %s%s" % (signal.Signals(-code).name, when)
        except ValueError:
            return "killed by signal %d%s" % (-code, when)
    return "exited with code %d%s" % (code, when)


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


def _load(path: Path) -> Optional[Dict[str, Any]]:
    try:
        data: Dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return data


def now() -> str:
    """Return the time in UTC as ISO 8601 with milliseconds."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
