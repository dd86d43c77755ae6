"""Runs a job's cells one after another in processes that it keeps warm, and leaves a record for each.

The job's folder holds ``job.json``, the cells, to which the host adds, and ``heartbeat``, a file that the
host touches every second. The supervisor ends by itself: each process at its time limit, all of it when
there are no more cells or the heartbeat stops. Where the folder holds ``scratch``, a list of folders that
are the job's alone, these are emptied after each process. In the end the bindings' surface is read on demand.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import shutil
import signal
from collections import Counter
from datetime import datetime, timezone
from itertools import count
from pathlib import Path
from typing import Any, Dict, List

import numpy as np

from trtprobe import SCHEMA, ends, observe
from trtprobe.cell import nothing_yet
from trtprobe.channel import Channel, connect, npy
from trtprobe.files import to_json
from trtprobe.job import Job, Stopped, make_home
from trtprobe.operators import run_operators
from trtprobe.plans import FOLDER
from trtprobe.pool import Exit, Order, Pool
from trtprobe.processes import become_subreaper, hide, kill_descendants
from trtprobe.surface import ask_surface

LOG_CHARACTERS = 1 << 16


def main(argv: List[str]) -> int:
    """Run the job in ``--job``; the host gets ``<index>.record.json``. ``--out``: where cells may write."""
    parser = argparse.ArgumentParser(prog="trtprobe supervise")
    for name in ("job", "cases", "repros", "out"):
        parser.add_argument("--" + name, type=Path, required=True)
    args = parser.parse_args(argv)
    job = Job(args.job)
    signal.signal(signal.SIGTERM, _stop)
    hide()
    try:
        host = connect(args.job)
    except OSError as error:
        print("nobody listens in %s: %s" % (args.job, error), flush=True)
        return 1
    become_subreaper()
    make_home()
    _preload(job.product)
    gc.collect()
    gc.freeze()
    try:
        if "operators" in job.job:
            run_operators(job, host, args.cases, args.out)
        else:
            pool = Pool(job, args.out)
            for index in count():
                cell = job.cell(index, pool.prepare)
                if cell is None:
                    break
                repro, files = args.repros / cell["repro_file"], args.cases / cell["files"]
                supervise(job, pool, host, cell, index, {"repro": str(repro), "files": str(files)})
            pool.close()
            shutil.rmtree(str(args.out / FOLDER), ignore_errors=True)
            surface = ask_surface(job.job["surface"]) if job.job.get("surface") else None
            if surface is not None:
                deliver(host, "surface.json", surface)
    except Stopped:
        kill_descendants()
        return 1
    return 0


def _stop(number: int, _frame: Any) -> None:
    """Unwind once; a second signal must not cut the cleaning up short."""
    signal.signal(number, signal.SIG_IGN)
    raise Stopped("signal %d" % number)


def _preload(product: str) -> None:
    """Import what every cell imports, but nothing that opens a GPU; a cell reports what fails."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    modules = {"onnxruntime": "onnxruntime", "tensorrt-rtx": "tensorrt_rtx_bindings"}
    try:
        observe.observed()
        importlib.import_module("numpy.random")
        importlib.import_module(modules.get(product, "numpy"))
    except Exception as error:
        print("not preloaded: %s" % error, flush=True)


def supervise(
    job: Job, pool: Pool, host: Channel, cell: Dict[str, Any], index: int, paths: Dict[str, str]
) -> None:
    """Run a cell's processes until one does not end well, and hand over its outputs, then the record."""
    processes, builds = int(cell.get("processes", 1)), int(cell.get("builds", 1))
    alone = bool(cell.get("alone")) or not job.is_warm
    # Who is alone, or wants engines of its own, builds all by itself: then the plans are shared by its own
    # processes, if there are several.
    plans = pool.out / ("%d.plans" % index if alone else FOLDER) / str(index)
    spec = {
        **paths, "product": job.product, "params": cell["params"], "needs": cell.get("needs", []),
        "keep_outputs": cell.get("keep_outputs", True),
        "plans": str(plans) if processes > 1 or not (alone or cell.get("own_engines")) else "",
        "builds": builds,
        "cell": "%s/%s" % (cell["cell"]["repro"], cell["cell"]["case"]),
    }  # fmt: skip
    order = Order(
        spec, pool.out / str(index), seconds=float(cell["seconds"]) * builds,
        alone=alone or processes > 1, dangerous=bool(cell.get("dangerous")),
    )  # fmt: skip
    pool.make_ready(order.alone, order.repro)
    started = now()
    deliver(host, "%d.started.json" % index, {"started": started})
    exits = [pool.run(order)]
    while len(exits) < processes and exits[-1].ended == ends.RAN:
        pool.make_ready(True, order.repro)
        exits.append(pool.run(order))
    record = make_record(cell, job.product, {"started": started, "finished": now()}, exits)
    if alone or record["ended"] not in ends.ENDED_WELL:
        shutil.rmtree(str(plans.parent if alone else plans), ignore_errors=True)
    for name in record["kept"]:
        deliver(host, "%d/%s.npy" % (index, name), exits[0].kept[name])
    deliver(host, "%d.record.json" % index, record)
    if record["ended"] == ends.INTERRUPTED:
        raise Stopped("no sign of life from the host")


def deliver(host: Channel, name: str, content: Any) -> None:
    """Hand over an array, or strict JSON, as a file of this name; :class:`Stopped` where the host is gone."""
    is_array = isinstance(content, np.ndarray)
    write = npy(content) if is_array else lambda stream: stream.write(to_json(content).encode())
    if not host.hand({"file": name}, write):
        raise Stopped("the host has hung up")


def make_record(
    cell: Dict[str, Any], product: str, times: Dict[str, str], exits: List[Exit]
) -> Dict[str, Any]:
    """Return the record of a cell; it ended as its last process did.

    Measurements, engine, outputs and ``worker`` are the first process's, but for its counts: these are added
    up over all. ``builds`` and ``processes`` are there where there were several.
    """
    first, last, processes = exits[0].result, exits[-1], cell.get("processes", 1)
    measurements = dict(first.get("measurements") or nothing_yet()["measurements"])
    detail = last.detail
    if processes > 1 and last.ended not in {ends.RAN, ends.BUILT}:
        detail = "process %d of %d: %s" % (len(exits), processes, detail)
    logs = ["--- process %d\n%s\n" % (i, one.log.rstrip("\n")) for i, one in enumerate(exits, 1)]
    record = {
        "schema": SCHEMA, "cell": cell["cell"], "run": cell["run"], "product": product,
        "ended": last.ended, "detail": detail.encode("utf-8", "backslashreplace").decode("utf-8")[:4000],
        **times, "exit": last.code, "attempts": 1, "oom_kills": sum(process.oom_kills for process in exits),
        "observed": first.get("observed", {}), "environment": first.get("environment", {}),
        "unset": {name: os.environ[name] for name in observe.UNSET if name in os.environ},
        "engine": first.get("engine", {}), "measurements": measurements,
        "kept": first.get("kept", {}) if last.ended == ends.RAN else {},
        "log": exits[0].log if len(exits) == 1 else "".join(logs)[-LOG_CHARACTERS:],
        "worker": exits[0].worker,
    }  # fmt: skip
    if "builds" in first:
        record["builds"] = first["builds"]
    if processes > 1:
        record["processes"] = len(exits)
        counts: Counter[str] = Counter()
        for process in exits:
            counts.update(process.result.get("counts", {}))
        measurements["scalars"] = {**measurements["scalars"], **counts}
    return record


def now() -> str:
    """Return the time in UTC as ISO 8601 with milliseconds."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
