"""A shared folder, a node's environment and generated scripts, which are run by hand: no Slurm is needed.

The GPU is fake, which is said here: a device file of our own, and an nvidia-smi that tells of it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from tests.containers.engines import client
from trtmatrix.core.container import Limits
from trtmatrix.core.plan import GpuAccess
from trtmatrix.core.slurm.scripts import ImportScript, TaskScript, import_script, task_script
from trtmatrix.core.slurm.site import NodeRuntime, Site, SiteGpu
from trtmatrix.core.slurm.words import CONTAINER_LABEL
from trtmatrix.effects.paths import probe_folder

IMAGE = "trtmatrix/test:latest"
KEY = uuid4().hex[:8]
"""The array's key. Containers are named after it and their job: an engine may have two runs' at once."""

CLUSTER = f"by-hand-{KEY}"
"""The cluster that the scripts believe to be on: jobs are numbered alike everywhere."""

JOBS = count(1)

SMI = """\
#!{python} -ISs
import sys
told = {{"index": "0", "uuid": "GPU-11111111-2222-3333-4444-555555555555", "name": {name!r},
        "compute_cap": "8.9", "memory.total": "23034", "driver_version": {driver!r},
        "mig.mode.current": "[N/A]", "clocks.sm": "2040", "clocks.mem": "6251", "power.limit": "72.00"}}
fields = [w for w in sys.argv if w.startswith("--query-gpu=")][0].partition("=")[2].split(",")
unknown = [field for field in fields if field not in told or field in {lacking!r}]
if unknown:
    sys.exit("Field %r is not a valid field to query." % unknown[0])
print(", ".join(told[field] for field in fields))
"""

REPRO = """\
import os, signal, time
import numpy as np

def run(case, files, trt):
    does = case["does"]
    trt.measure("device", float(os.path.exists("/dev/nvidia%d" % case["minor"])))
    trt.measure("uid", float(os.getuid()))
    trt.measure("network", float(len(os.listdir("/sys/class/net"))))
    says = ("SLURM", "PMI", "APPTAINER", "SINGULARITY")
    trt.measure("scheduler", float(any(name.startswith(says) for name in os.environ)))
    trt.measure("compat", float("TRTMATRIX_CUDA_COMPAT" in os.environ))
    if does == "hangs":
        time.sleep(600)
    if does == "faults":
        os.kill(os.getpid(), signal.SIGSEGV)
    if does == "ends-its-supervisor":
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)
    return {"y": np.arange(case.get("size", 8), dtype=np.float32)}
"""


@dataclass(kw_only=True)
class Node:
    """What a script finds on its node, and the shared folder."""

    folder: Path
    minor: int
    name: str = "NVIDIA L4"
    driver: str = "550.54.15"
    lacking: tuple[str, ...] = ()
    runtime: NodeRuntime = NodeRuntime.DOCKER
    access: GpuAccess = GpuAccess.NODES
    setup: tuple[str, ...] = ()
    scratch: str = ""
    limits: Limits = field(default_factory=lambda: Limits(memory=1 << 30))
    running: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def shared(self) -> Path:
        return self.folder / "shared of us"

    @property
    def local(self) -> Path:
        """The node's own disk."""
        return self.folder / "local"

    @property
    def site(self) -> Site:
        return Site(
            shared=str(self.shared), runtime=self.runtime, gpus=(), access=self.access,
            setup=(f"PATH='{self.folder}/bin':$PATH", *self.setup), scratch=self.scratch,
        )  # fmt: skip

    def prepare(self) -> None:
        """Lay out what the client would."""
        suite = self.shared / "suite" / "s1"
        for folder in (suite / "repros", self.shared / "cases" / "c1", self.shared / "images", self.local):
            folder.mkdir(parents=True, exist_ok=True)
        if not (suite / "trtprobe").exists():
            shutil.copytree(probe_folder(), suite / "trtprobe")
        (suite / "repros" / "acts.py").write_text(REPRO)
        (self.shared / "cases" / "c1" / "reference").mkdir(parents=True, exist_ok=True)
        np.save(self.shared / "cases" / "c1" / "reference" / "y.npy", np.arange(8.0))
        (self.folder / "bin").mkdir(exist_ok=True)
        smi = SMI.format(python=sys.executable, name=self.name, driver=self.driver, lacking=self.lacking)
        self.command("nvidia-smi", smi)

    def command(self, name: str, text: str) -> None:
        """Put a command into the node's PATH."""
        file = self.folder / "bin" / name
        file.write_text(text)
        file.chmod(0o755)

    def note_image(self, image_id: str, file: str = "/nowhere/image.tar") -> None:
        """Have an image as an import would leave it."""
        folder = self.shared / "images" / "i1"
        folder.mkdir(exist_ok=True)
        size = Path(file).stat().st_size if Path(file).exists() else 0
        (folder / "facts").write_text(f"file={file}\nid={image_id}\nreference=x\nbytes={size}\n")

    def add_try(self, *cells: Mapping[str, Any], attempt: int = 1) -> None:
        """Write an attempt at task 0."""
        job = self.shared / "arrays" / KEY / "tries" / f"0.{attempt}" / "job"
        job.mkdir(parents=True)
        facts = {"product": "onnxruntime", "output_bytes": 64 << 20, "isolation": "worker"}
        (job / "job.json").write_text(json.dumps(facts))
        for number, does in enumerate(cells):
            cell = {
                "cell": {"repro": "acts", "case": f"c{number}", "version": "v", "gpu": "nvidia-l4"},
                "run": "r", "repro_file": "acts.py", "params": {"minor": self.minor, **does}, "seconds": 60,
                "files": does.get("files", "c1"), "keep_outputs": True,
            }  # fmt: skip
            seconds = does.get("seconds")
            text = json.dumps(cell if seconds is None else {**cell, "seconds": seconds})
            (job / f"{number}.cell.json").write_text(text)
        (job / "end").touch()

    def task(self, **changes: Any) -> Path:
        """Write the script of the array's tasks."""
        spec = TaskScript(
            site=self.site, gpu=SiteGpu(name="NVIDIA L4", gres="gpu:l4:1"), slug="nvidia-l4", key=KEY,
            version="v", image="i1", suite="s1", minutes=10, limits=self.limits,
        )  # fmt: skip
        return self.write("task.sh", task_script(replace(spec, **changes)))

    def importing(self, **changes: Any) -> Path:
        """Write the script of an import."""
        spec = ImportScript(site=self.site, key="i1", reference=IMAGE)
        return self.write("import.sh", import_script(replace(spec, **changes)))

    def write(self, name: str, text: str) -> Path:
        file = self.folder / name
        file.write_text(text)
        return file

    def start(self, script: Path, attempt: int = 1, **environment: str) -> tuple[subprocess.Popen[str], str]:
        """Start a script as Slurm would; returns it and its job's number."""
        job = str(next(JOBS))
        told = {
            "SLURM_JOB_ID": job, "SLURM_ARRAY_JOB_ID": job, "SLURM_ARRAY_TASK_ID": "0",
            "SLURMD_NODENAME": "node1", "SLURM_JOB_GPUS": str(self.minor), "SLURM_CLUSTER_NAME": CLUSTER,
            "TMPDIR": str(self.local), "PATH": os.environ["PATH"], "HOME": str(self.folder),
        }  # fmt: skip
        with (self.folder / f"said.{job}").open("w") as said:
            process = subprocess.Popen(
                ["/bin/bash", str(script), str(attempt)], env={**told, **environment}, text=True, stdout=said,
                stderr=said, start_new_session=True, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        self.running.append(process)
        return process, job

    def run(self, script: Path, attempt: int = 1, seconds: float = 90, **environment: str) -> tuple[int, str]:
        """Run a script to its end; returns its exit code and what it said."""
        process, job = self.start(script, attempt, **environment)
        return process.wait(timeout=seconds), (self.folder / f"said.{job}").read_text()

    def ran(self, attempt: int = 1, job: str = "") -> Path:
        name = f"0.{attempt}.{job}" if job else f"0.{attempt}"
        return self.shared / "arrays" / KEY / "ran" / name

    def ended(self, attempt: int = 1) -> dict[str, str]:
        return read_facts(self.ran(attempt) / "ended")

    def record(self, number: int, attempt: int = 1) -> dict[str, Any]:
        data: dict[str, Any] = json.loads((self.ran(attempt) / f"{number}.record.json").read_text())
        return data

    def left(self) -> list[str]:
        """Return what is left on the node: containers, and files on its own disk."""
        return [*(str(c.attrs["Names"]) for c in containers()), *(str(p) for p in self.local.iterdir())]


def containers(job: str = "") -> list[Any]:
    """Return the containers, running or not, of this process's jobs, or of one of them."""
    labels = [f"io.trtmatrix.cluster={CLUSTER}", *([f"{CONTAINER_LABEL}={job}"] if job else [])]
    return list(client().containers.list(all=True, filters={"label": labels}, sparse=True))


def read_facts(file: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in file.read_text().splitlines())


@contextlib.contextmanager
def a_node(folder: Path) -> Iterator[Node]:
    """Make a node with a device file of its own; nothing of it is left."""
    minor = next(n for n in range(901, 1000) if not Path(f"/dev/nvidia{n}").exists())
    device = Path(f"/dev/nvidia{minor}")
    os.mknod(device, 0o020666, os.makedev(1, 3))
    node = Node(folder=folder, minor=minor)
    try:
        node.prepare()
        yield node
    finally:
        for process in node.running:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        device.unlink()
        for tag in client().images.get(IMAGE).tags:
            if tag.startswith("trtmatrix/slurm:"):  # an import names what it saves
                client().images.remove(tag, noprune=True)
        for container in containers():
            with contextlib.suppress(Exception):
                container.remove(force=True)
