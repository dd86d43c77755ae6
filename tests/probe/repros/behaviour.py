"""Everything a repro may do to the probe. Runs under each Python, from 3.8."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any, Callable, Dict, List

import numpy as np

from trtprobe.timing import time_engine


def run(params: Dict[str, Any], files: Any, trt: Any) -> Any:
    does = params["does"]
    return (QUICK.get(does) or globals()["do_" + does.replace("-", "_")])(params, files, trt)


def throw(error: BaseException) -> None:
    raise error


def do_raise(params: Dict[str, Any], files: Any, trt: Any) -> Any:
    print("about to raise")
    raise ZeroDivisionError("by the repro")


SCALARS = {
    "nan": float("nan"), "infinity": float("inf"), "minus": -np.inf,
    "half": np.float16(0.5), "whole": np.int64(7),
}  # fmt: skip
QUICK: Dict[str, Callable[..., Any]] = {
    "scalars": lambda _params, _files, trt: [trt.measure(*item) for item in SCALARS.items()] and {},
    "remark": lambda params, _files, trt: trt.remark(params["word"]) or {},
    "import": lambda params, *_: __import__(params["module"]) and {},
    "nan-output": lambda *_: {"y": np.full((2, 3), np.nan, np.float32)},
    "unknown-output": lambda *_: {"z": np.zeros(3)},
    "wrong-shape": lambda *_: {"y": np.zeros((3, 2))},
    "sys-exit": lambda *_: sys.exit(3),
    "os-exit": lambda *_: os._exit(7),
    "os-exit-zero": lambda *_: os._exit(0),
    "memory-error": lambda *_: throw(MemoryError("no room for the array")),
    "odd-text": lambda *_: throw(ValueError("no UTF-8: \udcff \x00 \x1b[31m")),
    "big-alloc": lambda _params, _files, trt: trt.cuda.alloc(1 << 31),
    "binary": lambda *_: os.write(1, b"\xff" * (1 << 17)) and {},
    "environment": lambda *_: (
        print("tf32:", os.environ.get("NVIDIA_TF32_OVERRIDE"), "home:", Path.home().is_dir()) or {}
    ),
    "read-only": lambda _params, files, _trt: files.inputs["x"].fill(1),
    "no-count": lambda _params, _files, trt: trt.count("wrong", float("nan")),
    "plugins": lambda _params, files, trt: trt.build(files.model, plugins=True).run(files.inputs),
    "scratch": lambda params, *_: Path(params["folder"], "big").write_bytes(b"x" * params["bytes"]) and {},
}


def do_pass(params: Dict[str, Any], files: Any, trt: Any) -> Any:
    engine = trt.build(files.model, precision=params.get("precision", "tf32"), level=params.get("level"))
    return engine.run(files.inputs)


def do_own_model(params: Dict[str, Any], files: Any, trt: Any) -> Any:
    """Build once for a user's own model and run each sample: x, or x.s0, x.s1 … with their own shapes."""
    engine = trt.build(files.model, profile=params.get("profile"), quantized=params.get("quantized", ()))
    outputs, inputs, feeds = {}, files.inputs, {}
    for sample in params.get("samples", [""]):
        feeds = {n[: len(n) - len(sample)]: inputs[n] for n in inputs if n.endswith(sample)}
        outputs.update({name + sample: y for name, y in engine.run(feeds).items()})
    time_engine(trt, engine, feeds, params.get("profile") or {})
    trt.measure("open_files", len(list(Path("/proc/self/fd").iterdir())))
    return outputs


def do_see(params: Dict[str, Any], files: Any, trt: Any) -> Any:
    engine = trt.build(files.model)
    trt.measure("ms", engine.latency(files.inputs, runs=5))
    trt.remark(engine.fusion(files.inputs))
    trt.measure("extra", len(files.extra))
    return engine.run(files.inputs)


def do_see_two(params: Dict[str, Any], files: Any, trt: Any) -> Any:
    fused, plain = trt.build(files.model, outputs=("fmha_v2",)), trt.build(files.model)
    trt.measure("first_fused", fused.fusion(files.inputs) == "fused")
    trt.remark(plain.fusion(files.inputs))
    return {}


def do_segv(params: Dict[str, Any], files: Any, trt: Any) -> Any:
    print("before the fault", flush=True)
    os.kill(os.getpid(), signal.SIGSEGV)


def do_late_crash(params: Dict[str, Any], files: Any, trt: Any) -> Any:
    """Run well, and crash when the process ends, as a library's destructor may."""
    os._exit = lambda _code: os.kill(os.getpid(), signal.SIGSEGV)  # type: ignore[assignment, return-value]
    return do_pass(params, files, trt)


def do_build_crash(params: Dict[str, Any], files: Any, trt: Any) -> Any:
    do_pass(params, files, trt)
    os.kill(os.getpid(), signal.SIGSEGV)


def do_chatty(params: Dict[str, Any], files: Any, trt: Any) -> Any:
    for _ in range(64):
        os.write(1, b"x" * (1 << 20))
    os.write(2, b"\nthe end\n")
    return {}


def do_litter(params: Dict[str, Any], files: Any, trt: Any) -> Any:
    for folder in ("folder", "../beside"):
        Path(folder).mkdir()
        Path(folder, "file").touch()
    Path("link").symlink_to("/nowhere")
    return do_pass(params, files, trt)


def do_hang(params: Dict[str, Any], files: Any, trt: Any) -> Any:
    """Hang, deaf to SIGTERM, with a child in a session of its own that has a child in another."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    code = (
        "import os, subprocess, sys, time, signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "inner = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'],"
        " start_new_session=True); print(os.getpid(), inner.pid, flush=True); time.sleep(600)"
    )
    outer = subprocess.Popen([sys.executable, "-c", code], start_new_session=True, stdout=subprocess.PIPE)
    assert outer.stdout is not None
    pids = f"{os.getpid()} {outer.stdout.readline().decode().strip()}"
    Path(params["marks"], "pids").write_text(pids)
    time.sleep(600)


def do_leave_orphan(params: Dict[str, Any], files: Any, trt: Any) -> Any:
    """End well and leave a process behind that keeps the output open."""
    left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    Path(params["marks"], "orphan").write_text(str(left.pid))
    return do_pass(params, files, trt)


CALLS: List[Any] = []


def do_builds(params: Dict[str, Any], files: Any, trt: Any) -> Any:
    """Give y plus how many builds were before; the first leaves what none after it must show."""
    CALLS.append(trt)
    if len(CALLS) == 1:
        trt.measure("first", 1)
        trt.remark("first")
    trt.measure("same_backend", int(CALLS[0] is trt))
    fail(params, len(CALLS))
    outputs = do_pass(params, files, trt)
    for _ in range(3):
        trt.count("trials", 10)
    return {"y": outputs["y"] + np.float32(len(CALLS) - 1)}


def do_trials(params: Dict[str, Any], files: Any, trt: Any) -> Any:
    pids = Path(params["marks"], params["pids"])
    with pids.open("a") as stream:
        stream.write(f"{os.getpid()} ")
    number = len(pids.read_text().split())
    trt.count("trials", 10)
    trt.count("wrong", number)
    trt.measure("delay", number)
    print("process", number, "sees", sorted(path.name for path in Path().iterdir()), flush=True)
    fail(params, number)
    return {"y": np.full((2, 3), number, np.float32)}


def fail(params: Dict[str, Any], number: int) -> None:
    if params.get("fails_in") == number:
        do = {"segv": do_segv, "hang": lambda *_: time.sleep(600), "raise": do_raise}
        do[params["how"]](params, None, None)


def do_see_process(params: Dict[str, Any], files: Any, trt: Any) -> Any:
    """Tell what a cell before may have left, and who else works for the supervisor."""
    before = os.environ.get("LEFT"), np.geterr()["divide"], Path.cwd().name
    siblings = Path(f"/proc/{os.getppid()}/task/{os.getppid()}/children").read_text().split()
    print("sees", *before, "siblings", len(siblings))
    return do_pass(params, files, trt)


def do_remove(params: Dict[str, Any], files: Any, trt: Any) -> Any:
    outputs = do_pass(params, files, trt)
    shutil.rmtree(str(Path(params["folder"]).resolve()))
    return outputs


def do_see_folder(params: Dict[str, Any], files: Any, trt: Any) -> Any:
    others = sorted(path.name for path in Path("..").iterdir() if path.name not in {Path.cwd().name, "plans"})
    print("beside it:", others)
    return do_pass(params, files, trt)


def do_leave(params: Dict[str, Any], files: Any, trt: Any) -> Any:
    """Leave the process otherwise than it was, in one way, after a run that is right."""
    outputs = do_pass(params, files, trt)
    LEFT[params["what"]](trt)
    return outputs


def leave_module(trt: Any, name: str = "foreign_module") -> None:
    Path(f"{name}.py").touch()
    sys.path.insert(0, str(Path.cwd()))
    __import__(name)
    sys.path.pop(0)


def leave_torch(trt: Any) -> None:
    """As torch leaves a process that imports it and uses the GPU through it."""
    leave_module(trt, "torch")
    os.environ["LEFT"] = "1"
    warnings.simplefilter("ignore")


def leave_torch_and_path(trt: Any) -> None:
    leave_torch(trt)
    sys.path.insert(0, "/nowhere")


def leave_forked(trt: Any) -> None:
    """Return twice: first as a copy of the cell's own process."""
    copy = os.fork()
    if copy:
        os.waitpid(copy, 0)
        Path(os.environ["HOME"], "waited").touch()


KEPT: List[Any] = sys.__dict__.setdefault("kept_by_a_cell", [])
LEFT: Dict[str, Callable[[Any], Any]] = {
    "torch": leave_torch,
    "torch and path": leave_torch_and_path,
    "variable": lambda _: os.environ.update(LEFT="1"),
    "handler": lambda _: signal.signal(signal.SIGUSR1, signal.SIG_IGN),
    "mask": lambda _: signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1}),
    "alarm": lambda _: signal.setitimer(signal.ITIMER_REAL, 0.2),
    "error state": lambda _: np.seterr(divide="raise"),
    "warnings": lambda _: warnings.simplefilter("ignore"),
    "path": lambda _: sys.path.append("/nowhere"),
    "output": lambda _: os.dup2(os.open(os.devnull, os.O_WRONLY), 1),
    "stdout": lambda _: setattr(sys, "stdout", sys.__stderr__),
    "folder": lambda _: os.chdir("/"),
    "umask": lambda _: os.umask(0o777),
    "limit": lambda _: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)),
    "recursion": lambda _: sys.setrecursionlimit(500),
    "collector": lambda _: gc.disable(),
    "trace": lambda _: sys.setprofile(lambda *_: None),
    "numpy": lambda _: setattr(np, "maximum", np.minimum),
    "backend": lambda trt: setattr(type(trt), "build", None),
    "instance": lambda trt: setattr(trt, "build", None),
    "measure": lambda _: setattr(sys.modules["trtprobe.answer"], "measure_all", lambda *_: {}),
    "encoder": lambda _: setattr(json.JSONEncoder, "extra", 1),
    "module": leave_module,
    "thread": lambda _: threading.Thread(target=time.sleep, args=(600,), daemon=True).start(),
    "child": lambda _: subprocess.Popen(["/bin/sleep", "600"], start_new_session=True),
    "forked": leave_forked,
    "files closed": lambda _: os.closerange(3, 256),
    "files": lambda _: KEPT.extend(os.open(os.devnull, os.O_RDONLY) for _ in range(100)),
    "rounding": lambda _: ctypes.CDLL("libm.so.6").fesetround(0x800),
    "memory": lambda _: KEPT.append(np.ones(5 << 26)),
}


def do_sticky(params: Dict[str, Any], files: Any, trt: Any) -> Any:
    """Run well and break the GPU's context, as a kernel that is still running may."""
    outputs = do_pass(params, files, trt)
    trt.cuda.lib.standinBreak(700)
    if params.get("fails"):
        trt.build(files.others["refused"])
    return outputs


def do_kill_group(params: Dict[str, Any], files: Any, trt: Any) -> Any:
    code = "import os, signal; os.killpg(os.getpgid(os.getppid()), signal.SIGKILL)"
    subprocess.run([sys.executable, "-c", code], check=False, start_new_session=True)
    time.sleep(60)


def do_speak(params: Dict[str, Any], files: Any, trt: Any) -> Any:
    """Print through all that holds back, and end with it unflushed."""
    libc = ctypes.CDLL(None)
    libc.printf(b"from C %s\n", params["word"].encode())
    sys.stdout.write(f"from Python {params['word']}\n")
    os.write(1, b"raw %s\n" % params["word"].encode())
    return {}
