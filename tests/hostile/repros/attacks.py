"""Cells that attack what stands outside of them, each followed by a right and a wrong one."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import stat
import sys
import time
from pathlib import Path
from typing import Any, Dict, Iterator

import numpy as np

FACTS = {
    "title": "attacks on what stands outside",
    "upstream": "example/example#1",
    "url": "https://example.com/1",
    "summary": "Cells that attack their supervisor, their neighbours and the host.",
    "figure": {"measure": "max_abs", "label": "largest |y - float64|"},
    "expectations": [],
}

ROOT = Path("/opt/trtmatrix")
ATTACKS = (
    "forges-records", "knocks-at-the-host", "looks-into-the-supervisor", "swaps-the-run",
    "swaps-the-product", "swaps-the-measure", "swaps-a-wrapped", "changes-json", "changes-numpy",
    "fills-the-disk", "fills-unseen", "leaves-setuid", "hands-over-a-pipe", "hands-over-nonsense",
    "hands-over-what-changes", "names-a-path", "names-another-cell", "removes-all", "links", "shouts",
    "kills-the-supervisor",
)  # fmt: skip


def cases() -> Iterator[Dict[str, Any]]:
    same = {"limits": {"max_abs": 0.0}, "products": ["onnxruntime"], "seconds": 20}
    for attack in (*ATTACKS, "stops-the-supervisor"):
        own = {"seconds": 1} if attack == "stops-the-supervisor" else {}
        yield {"id": attack, "params": {"does": attack}, "keep": True, **same, **own}
        yield {"id": "right-after-" + attack, "params": {"does": "right", "after": attack}, **same}
        yield {
            "id": "wrong-after-" + attack, "params": {"does": "wrong", "after": attack},
            "control": "negative", **same,
        }  # fmt: skip


def prepare(params: Dict[str, Any]) -> Dict[str, Any]:
    """Return a graph that adds 1, or where it is wrong 2, to inputs that are another case's nowhere else."""
    from trtmatrix.authoring.graph import Graph

    start = ATTACKS.index(params["after"]) if params.get("after") in ATTACKS else len(ATTACKS)
    x = np.arange(start, start + 8, dtype=np.float32) / 3
    graph, added = Graph(), 2 if params["does"] == "wrong" else 1
    graph.input("x", np.float32, x.shape)
    graph.node("Add", "x", graph.constant(np.full(1, added, np.float32)), out="y")
    graph.output("y", np.float32, x.shape)
    return {"model": graph.model(), "inputs": {"x": x}, "reference": {"y": (x + np.float32(1)).astype(float)}}


def run(params: Dict[str, Any], files: Any, trt: Any) -> Dict[str, Any]:
    outputs: Dict[str, Any] = trt.build(files.model).run(files.inputs)
    attack = globals().get("do_" + params["does"].replace("-", "_"))
    if attack is not None:
        trt.measure("reached", sum(map(succeeds, attack(outputs, trt))))
    return outputs


def succeeds(step: Any) -> bool:
    """Whether a step of an attack comes through."""
    try:
        return step() is not False
    except Exception as error:  # noqa: BLE001 - whatever it was that kept it
        print("%s: %r" % (step.__name__, error))
        return False


RECORD = {
    "schema": 1, "ended": "ran", "detail": "", "observed": {}, "environment": {}, "engine": {}, "kept": {},
    "measurements": {
        "outputs": {"y": {"count": 8, "max_abs": 0.0}}, "scalars": {}, "signatures": {}, "remark": "",
    },
    "log": "", "started": "2025-01-01T00:00:00.000Z", "finished": "2025-01-01T00:00:00.001Z",
}  # fmt: skip


def do_forges_records(outputs: Any, trt: Any) -> Iterator[Any]:
    def write_into(folder: Path) -> None:
        for index in range(100):
            (folder / ("%d.record.json" % index)).write_text(json.dumps(RECORD))

    yield lambda: write_into(ROOT / "job")
    succeeds(lambda: write_into(ROOT / "out"))  # that it may: nobody reads it


def do_knocks_at_the_host(outputs: Any, trt: Any) -> Iterator[Any]:
    for kind in (socket.SOCK_SEQPACKET, socket.SOCK_STREAM):
        yield lambda kind=kind: socket.socket(socket.AF_UNIX, kind).connect(str(ROOT / "job" / "socket"))


def do_looks_into_the_supervisor(outputs: Any, trt: Any) -> Iterator[Any]:
    libc, supervisor = ctypes.CDLL(None, use_errno=True), os.getppid()
    yield lambda: os.open("/proc/%d/mem" % supervisor, os.O_RDWR)
    for number in range(1, 12):
        yield lambda number=number: os.open("/proc/%d/fd/%d" % (supervisor, number), os.O_RDWR)
    yield lambda: bool(Path("/proc/%d/environ" % supervisor).read_bytes())
    yield lambda: libc.ptrace(16, supervisor, None, None) == 0  # PTRACE_ATTACH
    pidfd = libc.syscall(434, supervisor, 0)
    for number in range(3, 12):
        yield lambda number=number: libc.syscall(438, pidfd, number, 0) >= 0  # pidfd_getfd


def do_swaps_the_run(outputs: Any, trt: Any) -> Iterator[Any]:
    engine = type(trt.build(Path(sys._getframe(1).f_locals["files"].model)))

    def run(self: Any, inputs: Any) -> Any:
        return {"y": inputs["x"] + 1}

    engine.run.__code__ = run.__code__
    return iter(())


def do_swaps_the_product(outputs: Any, trt: Any) -> Iterator[Any]:
    import onnxruntime

    onnxruntime.InferenceSession.run = lambda _self, _names, feeds, *_: [feeds["x"] + np.float32(1)]
    return iter(())


def do_swaps_the_measure(outputs: Any, trt: Any) -> Iterator[Any]:
    sys.modules["trtprobe.answer"].measure_all.__code__ = (
        lambda _outputs, _files: {"outputs": {"y": {"count": 8, "max_abs": 0.0}}, "signatures": {}}
    ).__code__
    sys.modules["trtprobe.measure"].Sums.result.__code__ = (lambda _self, _count: {"max_abs": 0.0}).__code__
    return iter(())


def do_swaps_a_wrapped(outputs: Any, trt: Any) -> Iterator[Any]:
    sys.modules["trtprobe.cell"]._compiled.__wrapped__.__code__ = (
        lambda _path, _modified, _size: compile("def run(p, f, t): return dict(f.reference)", "x", "exec")
    ).__code__
    return iter(())


def do_changes_json(outputs: Any, trt: Any) -> Iterator[Any]:
    encode = json.JSONEncoder.encode

    def lie(self: json.JSONEncoder, o: Any) -> str:
        return encode(self, o).replace("crashed", "ran")

    json.JSONEncoder.encode = lie  # type: ignore[method-assign]
    return iter(())


def do_changes_numpy(outputs: Any, trt: Any) -> Iterator[Any]:
    core: Any = sys.modules.get("numpy._core.fromnumeric") or sys.modules["numpy.core.fromnumeric"]
    core.amax = core.max = lambda *_, **__: 0.0
    return iter(())


TOO_MUCH = 9 << 30
"""More than any file system of a container has, and refused at once, not by the limit of memory."""


def allocate(folder: Path, size: int, unlink: bool) -> bool:
    path = folder / "allocated"
    file = os.open(str(path), os.O_RDWR | os.O_CREAT)
    if unlink:
        path.unlink()
        globals().setdefault("HELD", []).append(file)
    return bool(ctypes.CDLL(None).fallocate64(file, 1, ctypes.c_int64(0), ctypes.c_int64(size)) == 0)


def do_fills_the_disk(outputs: Any, trt: Any) -> Iterator[Any]:
    for folder in (Path(), ROOT / "out", ROOT / "job", ROOT / "cases"):
        yield lambda folder=folder: allocate(folder, TOO_MUCH, False)


def do_fills_unseen(outputs: Any, trt: Any) -> Iterator[Any]:
    for folder in (Path(), ROOT / "out"):
        yield lambda folder=folder: allocate(folder, TOO_MUCH, True)


def do_leaves_setuid(outputs: Any, trt: Any) -> Iterator[Any]:
    for folder in (Path(), ROOT / "out", ROOT / "job", Path("/tmp")):  # noqa: S108 - it is attacked

        def leave(folder: Path = folder) -> bool:
            path = folder / "suid"
            path.write_bytes(Path("/bin/sh").read_bytes())
            path.chmod(0o6777)
            nosuid = os.statvfs(str(path)).f_flag & os.ST_NOSUID
            return bool(path.stat().st_mode & stat.S_ISUID) and not nosuid

        yield leave


def channel() -> Any:
    """Return the connection to the supervisor, which a cell's own process has."""
    frame: Any = sys._getframe()
    while "taker" not in frame.f_locals:
        frame = frame.f_back
    return frame.f_locals["taker"].channel


def do_hands_over_a_pipe(outputs: Any, trt: Any) -> Iterator[Any]:
    os.mkfifo("pipe")
    channel().send({"build": 0, "output": "y"}, os.open("pipe", os.O_RDWR))
    return iter(())


def do_hands_over_nonsense(outputs: Any, trt: Any) -> Iterator[Any]:
    results = {"ended": "ran", "builds": 7}, {"ended": "ran", "detail": "", "builds": [7] * 9}
    for data in (b"", b"\x93NUMPY\1\0", b"[" * 30000, *(json.dumps(result).encode() for result in results)):
        for words in ({"build": 0, "output": "y"}, {"result": "final"}):
            channel().hand(words, lambda stream, data=data: stream.write(data))
    return iter(())


def do_hands_over_what_changes(outputs: Any, trt: Any) -> Iterator[Any]:
    file = os.memfd_create("x", os.MFD_ALLOW_SEALING)
    with open(file, "wb", closefd=False) as stream:
        np.save(stream, outputs["y"])
    channel().send({"build": 0, "output": "y"}, file)
    return iter(())


def do_names_a_path(outputs: Any, trt: Any) -> Iterator[Any]:
    outputs["../../../../../../tmp/trtmatrix-was-here"] = outputs["y"]
    return iter(())


def do_names_another_cell(outputs: Any, trt: Any) -> Iterator[Any]:
    cell = {"repro": "attacks", "case": "wrong-after-names-another-cell", "version": "9.9.9", "gpu": "h200"}
    record = json.dumps({**RECORD, "cell": cell, "product": "tensorrt"}).encode()
    channel().hand({"result": "final"}, lambda stream: stream.write(record))
    os._exit(0)


def do_removes_all(outputs: Any, trt: Any) -> Iterator[Any]:
    for folder in (ROOT / "job", ROOT / "cases", ROOT / "repros", ROOT / "trtprobe"):
        for path in sorted(folder.rglob("*"), reverse=True)[:50]:
            yield lambda path=path: path.rmdir() if path.is_dir() else path.unlink()


def do_links(outputs: Any, trt: Any) -> Iterator[Any]:
    for index in range(100):
        path = ROOT / "out" / str(index)
        if not path.exists():
            path.symlink_to("/etc")
    return iter(())


def do_shouts(outputs: Any, trt: Any) -> Iterator[Any]:
    for number in range(3000):
        channel().send({"done": number, "ready": number, "build": number, "taken": []})
    return iter(())


def do_kills_the_supervisor(outputs: Any, trt: Any) -> Iterator[Any]:
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(10)
    return iter(())


def do_stops_the_supervisor(outputs: Any, trt: Any) -> Iterator[Any]:
    os.kill(os.getppid(), signal.SIGSTOP)
    while True:
        succeeds(lambda: allocate(ROOT / "out", 1 << 30, True))
        time.sleep(1)
