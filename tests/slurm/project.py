"""A project for a cluster: matrix.yaml, the site, a shared folder; the real command line over it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from projects import command, matrix_text, records_below

from tests.calling import Done
from tests.slurm.cluster import Cluster
from tests.slurm.gpus import H200, L4, Model
from tests.slurm.image import IMAGE, VERSION

HERE = Path(__file__).resolve().parent

INTERRUPTED = 130  # the exit code of a run that was told to end

ONE = ("--trt", VERSION, "--no-controls")
"""What selects the one version there is, and nothing but what is named beside it."""

POLL = {"TRTMATRIX_SLURM_POLL": "0.5"}
"""A client of these tests asks often: nobody else waits for the controller."""

MATRIX = matrix_text((VERSION, IMAGE, VERSION))


class Project:
    """matrix.yaml, slurm.yaml, results, cache and shared folder of one person.

    ``local`` stands for the nodes' own disks.
    """

    def __init__(self, folder: Path, cluster: Cluster, shared: Path | None = None) -> None:
        self.folder, self.cluster = folder, cluster
        self.results, self.cache = folder / "results", folder / "cache"
        self.shared, self.local = shared or folder / "shared", folder / "local"
        self.clients: list[Client] = []
        folder.mkdir(parents=True, exist_ok=True)
        self.shared.mkdir(exist_ok=True)
        if shared is None:  # the environment is made once for all
            (cluster.folder / "env").mkdir(exist_ok=True)
            (self.shared / "env").symlink_to(cluster.folder / "env")
        self.local.mkdir()
        (folder / "matrix.yaml").write_text(MATRIX)
        self.write_site()

    def write_site(self, models: Sequence[Model] = (L4, H200), setup: Sequence[str] = ()) -> None:
        """Write the site's settings; two tasks of an array at once, as there are two GPUs of each model."""
        site = self.cluster.site(self.shared, self.local, models)
        site["setup"] += setup
        (self.folder / "slurm.yaml").write_text(json.dumps(site, indent=1))  # JSON is YAML

    def command(self, *words: str, verb: str = "run") -> list[str]:
        limits = ["--executor=slurm", f"--memory={1 << 30}", f"--output-size={64 << 20}"]
        return command(verb, self.folder, HERE / "repros", *(limits if verb == "run" else []), *words)

    def start(self, *words: str, name: str = "1") -> Client:
        """Start a run in a session of its own, as a client on a login node; ``name`` tells runs apart."""
        client = Client(self, name, self.command(*words, "--json"))
        self.clients.append(client)
        return client

    def end(self) -> None:
        """Take away what a test that failed has left, so that the others find the cluster as it was."""
        for client in self.clients:
            client.kill()
        if jobs := [line.split()[0] for line in self.queue()]:
            self.cluster.ask("scancel", *jobs)

    def run(self, *words: str, seconds: float = 120) -> Done:
        return self.start(*words).wait(seconds)

    def submissions(self) -> list[Path]:
        found = [path.parent for path in self.shared.glob("runs/*/*/tasks.json")]
        return sorted(found, key=lambda path: (path.parent.name, int(path.name)))

    def cells(self) -> list[list[str]]:
        read = [json.loads((folder / "tasks.json").read_text())["tasks"] for folder in self.submissions()]
        return [sorted(cell for task in tasks for cell in task) for tasks in read]

    def queue(self) -> list[str]:
        """Return their jobs that are waiting or running, a task a line: id, state, name, node."""
        names = {f"trtmatrix-{path.parent.name}.{path.name}" for path in self.submissions()}
        return [line for line in self.cluster.queue() if line.split()[2] in names]

    def open_runs(self) -> list[Path]:
        return list(self.shared.glob("runs/*/run.json"))

    def containers(self) -> list[Any]:
        return self.cluster.containers()

    def logs(self) -> str:
        return "".join(
            log.read_text() for folder in self.submissions() for log in sorted(folder.glob("*.log"))
        )

    def running(self) -> int:
        return sum(container.attrs["State"] == "running" for container in self.containers())

    def left(self) -> list[str]:
        """Return what there still is of jobs: in the queue, containers, folders on the nodes' own disks."""
        folders = [str(path) for path in self.local.glob("trtmatrix.*/jobs/*")]
        return [*self.queue(), *(str(c.attrs["Names"]) for c in self.containers()), *folders]

    def first(self, case: str, model: Model) -> dict[str, Any]:
        """Return the record of a cell that confirms no other."""
        found = [r for r in self.records() if (r["cell"]["case"], r["cell"]["gpu"]) == (case, model.slug)]
        (first,) = [record for record in found if "confirms" not in record]
        return first

    def records(self) -> list[dict[str, Any]]:
        return records_below(self.results)


class Client:
    """A run that was started; what it prints and tells goes to files."""

    def __init__(self, project: Project, name: str, command: list[str]) -> None:
        self.printed, self.told_file = project.folder / f"{name}.printed", project.folder / f"{name}.told"
        with self.printed.open("w") as printed, self.told_file.open("w") as told:
            self.process = subprocess.Popen(
                command, stdout=printed, stderr=told, stdin=subprocess.DEVNULL, start_new_session=True,
                env={**project.cluster.environment, **POLL},
            )  # fmt: skip

    @property
    def told(self) -> str:
        return self.told_file.read_text(errors="replace")

    def wait(self, seconds: float = 60) -> Done:
        try:
            code = self.process.wait(timeout=seconds)
        except subprocess.TimeoutExpired as error:
            raise AssertionError(f"not done after {seconds} s: {self.told[-3000:]}") from error
        return Done(code=code, printed=self.printed.read_text(), told=self.told)

    def interrupt(self) -> None:
        os.killpg(self.process.pid, signal.SIGINT)

    def kill(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
