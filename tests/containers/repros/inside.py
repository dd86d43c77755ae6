"""What a cell sees of the container that it is in."""

from __future__ import annotations

import errno
import getpass
import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Dict, Iterator

import numpy as np

FACTS = {
    "title": "the view from inside", "upstream": "example/example#2", "url": "https://example.com/2",
    "summary": "A cell that reports what it may do.", "expectations": [],
    "figure": {"measure": "max_abs", "label": "largest |y - float64|"},
}  # fmt: skip


def cases() -> Iterator[Dict[str, Any]]:
    yield {"id": "view", "params": {}, "limits": {"max_abs": 0.0}, "products": ["onnxruntime"]}


def prepare(params: Dict[str, Any]) -> Dict[str, Any]:
    from trtmatrix.authoring.graph import Graph

    x = np.arange(8, dtype=np.float32)
    graph = Graph({"x": x})
    graph.node("Identity", "x", out="y")
    graph.output("y", np.float32, x.shape)
    return {"model": graph.model(), "inputs": {"x": x}, "reference": {"y": x.astype(np.float64)}}


def run(params: Dict[str, Any], files: Any, trt: Any) -> Any:
    for look in (kernel, limits, network, folders, home, environment):
        for name, value in look(files).items():
            trt.measure(name, value)
    return trt.build(files.model).run(files.inputs)


def kernel(files: Any) -> Dict[str, int]:
    lines = Path("/proc/self/status").read_text().splitlines()
    status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    seen = {name: int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")}
    seen.update(NoNewPrivs=int(status["NoNewPrivs"]), Seccomp=int(status["Seccomp"]))
    seen.update(uid=os.getuid(), euid=os.geteuid(), gid=os.getgid(), groups=len(os.getgroups()))
    init = Path("/proc/1/cmdline").read_bytes().split(b"\0")[0].decode()
    seen["init"] = int(Path(init).name in {"docker-init", "tini", "catatonit", "podman-init"})
    return seen


def limits(files: Any) -> Dict[str, int]:
    groups = Path("/sys/fs/cgroup")
    v2 = (groups / "cgroup.controllers").exists()
    names = {
        "pids": "pids.max" if v2 else "pids/pids.max",
        "memory": "memory.max" if v2 else "memory/memory.limit_in_bytes",
    }
    seen = {name: int((groups / file).read_text()) for name, file in names.items()}
    swap = groups / ("memory.swap.max" if v2 else "memory/memory.memsw.limit_in_bytes")
    if swap.exists():
        seen["swap"] = int(swap.read_text()) - (0 if v2 else seen["memory"])
    return seen


def network(files: Any) -> Dict[str, int]:
    with socket.socket() as connection:
        connection.settimeout(2)
        refused = connection.connect_ex(("192.0.2.1", 80))
    return {
        "interfaces": sum(name != "lo" for _, name in socket.if_nameindex()),
        "unreachable": int(refused == errno.ENETUNREACH),
    }


def folders(files: Any) -> Dict[str, int]:
    """Report why each place cannot be written (the error's number, 0 where it can)."""
    ours = Path("/opt/trtmatrix")
    places = {
        "root": Path("/"), "etc": Path("/etc"), "usr": Path("/usr/local"), "above": ours,
        "cases": ours / "cases", "case": files.folder, "repros": ours / "repros", "job": ours / "job",
        "probe": ours / "trtprobe", "out": Path.cwd(), "scratch": Path(tempfile.gettempdir()),
    }  # fmt: skip
    seen = {"write_" + name: refusal(folder / "new") for name, folder in places.items()}
    seen["write_model"] = refusal(files.model)
    sockets = ("/var/run/docker.sock", "/run/docker.sock", "/run/podman/podman.sock")
    seen["sockets"] = sum(map(os.path.exists, sockets))
    seen["devices"] = sum(path.is_block_device() for path in Path("/dev").rglob("*"))
    return seen


def refusal(path: Path) -> int:
    try:
        with path.open("ab"):
            return 0
    except OSError as error:
        return error.errno or -1


def home(files: Any) -> Dict[str, int]:
    program = Path.home() / "program"
    shutil.copy("/bin/true", str(program))
    program.chmod(0o755)
    mounts = [line.split()[1:3] for line in Path("/proc/self/mounts").read_text().splitlines()]
    return {
        "home_runs": int(subprocess.run([str(program)], check=False).returncode == 0),
        "home_in_memory": int([str(Path.home().parent), "tmpfs"] in mounts),
    }


def environment(files: Any) -> Dict[str, int]:
    override = ("NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE")
    caches = ("XDG_CACHE_HOME", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "CUDA_CACHE_PATH")
    home = str(Path.home()) + "/"
    return {
        "tf32_overrides": sum(name in os.environ for name in override),
        "user_named": int(bool(os.environ.get("USER")) and Path.home().parent == Path(tempfile.gettempdir())),
        "telemetry_off": int(os.environ.get("ORT_DISABLE_TELEMETRY") == "1"),
        "has_a_name": int(getpass.getuser() == "trtmatrix"),
        "asks_for_no_gpu": int(os.environ.get("NVIDIA_VISIBLE_DEVICES") == "void"),
        "caches_at_home": int(all(os.environ.get(name, "").startswith(home) for name in caches)),
        "keeps_library_path": int("/usr/local/nvidia/lib64" in os.environ.get("LD_LIBRARY_PATH", "")),
    }
