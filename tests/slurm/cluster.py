"""A real Slurm on this machine: munge, slurmctld and three slurmd, with fake GPU devices of two types.

Each slurmd lives in a PID namespace of its own: killing its first process takes away all that runs there, as
of a node that loses its power. All of them are our children, end with us even where we are killed, and lie
below one folder.
"""

import contextlib
import os
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.containers.engines import client
from tests.slurm.gpus import H200, L4, NODES, Devices, Model, make_nvml
from tests.waiting import wait_until
from trtmatrix.launchers.container import JOB_LABELS

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "scontrol", "unshare", "setpriv")
PACKAGES = "slurmctld slurmd munge slurm-client util-linux"
CLIENT = ("sbatch", "squeue", "scancel", "scontrol", "sinfo")
"""What a login node has here: no sacct, and no container engine."""

SECONDS = 30
JOBS = 1000
"""So many job ids are a cluster's own: they name containers, and several clusters may share an engine."""

CONF = """\
ClusterName=fake{first}
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/munge.sock
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
SchedulerParameters=sched_min_interval=0,batch_sched_delay=0,sched_interval=1
ReturnToService=2
SlurmdTimeout=4
MessageTimeout=4
KillWait=2
MinJobAge=10
FirstJobId={first}
Prolog={folder}/prolog
JobRequeue=1
MpiDefault=none
GresTypes=gpu
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
"""


def lacking() -> str:
    """Return why no Slurm can be started here, or nothing."""
    if os.geteuid():
        return "root is needed, for Slurm's daemons and for device files"
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    missing = [name for name in PROGRAMS if shutil.which(name, path=path) is None]
    return f"{', '.join(missing)} missing: apt-get install {PACKAGES}" if missing else ""


class Cluster:
    """A Slurm that runs; :func:`start_cluster` makes it.

    ``environment``: what a command needs to be a client of it, on a host with nothing but Slurm's commands.
    ``setup``: the site's lines that put the stand-in for NVML in place; ``driver``: where the driver's
    libraries would be: it is empty, as the image brings a stand-in. ``no_epilog``: a file that switches
    the epilog off while it is there.
    """

    def __init__(self, folder: Path, devices: Devices, epilog: Path | None) -> None:
        """Write the configuration; a job that is over is forgotten soon, as on a busy cluster."""
        self.folder = folder
        for name in ("munge", "state", "log", "login", *(f"spool.{node.name}" for node in NODES)):
            (folder / name).mkdir(parents=True)
        (folder / "munge").chmod(0o755)
        (folder / "state").chmod(0o700)
        self.first = (1 + secrets.randbelow(60000)) * JOBS
        self.minors = {node.name: devices.make(node.count) for node in NODES}
        for name in ("nvidiactl", "nvidia-uvm"):
            devices.share(name)
        self.setup = make_nvml(folder / "nvml", self.minors)
        self.driver = folder / "driver"
        self.driver.mkdir()
        self.conf = folder / "slurm.conf"
        ports = free_ports(1 + len(NODES))
        text = CONF.format(folder=folder, port=ports[0], first=self.first)
        self.no_epilog = folder / "no-epilog"
        if epilog is not None:
            text += f"Epilog={self._copy(epilog)}\n"
        gres = ""
        for node, port in zip(NODES, ports[1:], strict=True):
            text += f"NodeName={node.name} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs=4 "
            text += f"RealMemory=4000 Gres=gpu:{node.model.gres}:{node.count}\n"
            for minor in self.minors[node.name]:
                gres += f"NodeName={node.name} Name=gpu Type={node.model.gres} File=/dev/nvidia{minor}\n"
        text += "PartitionName=gpu Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n"
        text += "PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=10\n"
        self.conf.write_text(text)
        (folder / "gres.conf").write_text(gres)
        prolog = folder / "prolog"
        prolog.write_text(f"#!/bin/bash\n[[ ! -e {folder}/no-launch.$SLURMD_NODENAME ]]\n")
        prolog.chmod(0o755)
        self._put_commands()
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def _copy(self, epilog: Path) -> Path:
        """Copy an epilog, as one that a file switches off: what happens without is to be seen too."""
        copy, (first, *rest) = self.folder / "epilog", epilog.read_text().splitlines(keepends=True)
        copy.write_text(f"{first}[ ! -e {self.no_epilog} ] || exit 0\n{''.join(rest)}")
        copy.chmod(0o755)
        return copy

    def _put_commands(self) -> None:
        for name in CLIENT:
            found = shutil.which(name)
            assert found is not None, f"{name}: apt-get install {PACKAGES}"
            (self.folder / "login" / name).symlink_to(found)

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a client: Slurm's commands in PATH, no sacct, no engine."""
        own = ("SLURM", "SBATCH", "SQUEUE", "DOCKER")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(own)}
        return {
            **kept, "SLURM_CONF": str(self.conf), "PATH": str(self.folder / "login"),
            "DOCKER_HOST": f"unix://{self.folder}/no-engine-here",
        }  # fmt: skip

    def site(self, shared: Path, local: Path, models: Sequence[Model] = (L4, H200)) -> dict[str, Any]:
        """Return the settings of a site that is this cluster; ``local``: instead of the nodes' own disks."""
        return {
            "schema": 1, "shared": str(shared), "runtime": "docker", "access": "nodes",
            "driver_folder": str(self.driver),
            "gpus": [{"name": model.name, "gres": f"gpu:{model.gres}:1"} for model in models],
            "python": sys.executable, "setup": [*self.setup, f"export TMPDIR={local}"],
            "limits": {"minutes": 5, "cpus": 1, "memory": "1g", "running": 2},
        }  # fmt: skip

    def start(self) -> None:
        key = self.folder / "munge" / "key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        place = self.folder / "munge"
        options = [f"--key-file={key}", f"--socket={place}/munge.sock", f"--pid-file={place}/pid"]
        options += [f"--log-file={place}/log", f"--seed-file={place}/seed"]
        self._start("munged", ["munged", "--foreground", "--force", *options])
        wait_until((place / "munge.sock").exists, SECONDS, "munge's socket")
        self._start("slurmctld", ["slurmctld", "-D", "-f", str(self.conf)])
        for node in NODES:
            self.start_node(node.name)
        for node in NODES:
            self.wait_for_node(node.name, "idle")

    def _start(self, name: str, command: list[str]) -> None:
        environment = {**os.environ, "SLURM_CONF": str(self.conf)}
        environment["PATH"] = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
        with (self.folder / "log" / f"{name}.told").open("ab") as told:
            words = ["setpriv", "--pdeathsig=KILL", *command]
            self.running[name] = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=told, stderr=told,
                env=environment, cwd=self.folder, start_new_session=True,
            )  # fmt: skip

    def start_node(self, name: str) -> None:
        alone = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
        self._start(name, [*alone, "slurmd", "-D", "-f", str(self.conf), "-N", name])

    @contextlib.contextmanager
    def fail_launches(self, name: str) -> Iterator[None]:
        """Have a node's prolog fail, which drains it; at the end it takes jobs again."""
        flag = self.folder / f"no-launch.{name}"
        flag.touch()
        try:
            yield
        finally:
            flag.unlink()
            self.ask("scontrol", "update", f"NodeName={name}", "State=RESUME", fail=False)
            self.wait_for_node(name, "idle")

    def kill_node(self, name: str) -> None:
        """Take away all that runs on a node, at once; containers are the engine's, and stay."""
        process = self.running.pop(name)
        for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
            os.kill(int(child), signal.SIGKILL)  # the first of the namespace: all of it goes
        process.wait()

    def wait_for_node(self, name: str, state: str) -> None:
        words = ("sinfo", "--noheader", f"--nodes={name}", "--format=%T")
        is_so = lambda: self.ask(*words, fail=False).startswith(state)  # noqa: E731
        wait_until(is_so, SECONDS, f"{name} to be {state}", self.explain)

    def ask(self, *words: str, fail: bool = True) -> str:
        done = subprocess.run(
            words, env=self.environment, capture_output=True, text=True, check=False, timeout=SECONDS
        )
        assert not fail or done.returncode == 0, f"{shlex.join(words)}: {done.stdout}{done.stderr}"
        return done.stdout

    def script_of(self, job: int) -> int:
        """Return the process of a job that runs: its script has become the command that it runs."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                ours = f"SLURM_JOB_ID={job}\0" in (folder / "environ").read_text(errors="replace")
                if ours and "\0trtmatrix\0run\0" in (folder / "cmdline").read_text(errors="replace"):
                    found.append(int(folder.name))
        assert found, self.explain()
        return min(found)

    def queue(self) -> list[str]:
        return self.ask("squeue", "--noheader", "--array", "--format=%i %T %j %N").splitlines()

    def containers(self) -> list[Any]:
        found = client().containers.list(all=True, filters={"label": JOB_LABELS["SLURM_JOB_ID"]}, sparse=True)
        return [
            c
            for c in found
            if self.first <= int(c.attrs["Labels"][JOB_LABELS["SLURM_JOB_ID"]]) < self.first + JOBS
        ]

    def explain(self) -> str:
        logs = sorted((self.folder / "log").glob("*"))
        return "\n".join(f"{log.name}:\n{log.read_text(errors='replace')[-600:]}" for log in logs)

    def stop(self) -> None:
        if "slurmctld" in self.running:
            with contextlib.suppress(subprocess.TimeoutExpired, AssertionError):
                self.ask("scancel", "--user=root", fail=False)
                wait_until(lambda: not self.ask("squeue", "-h", fail=False), 10, "no job")
        for node in NODES:
            if node.name in self.running:
                self.kill_node(node.name)
        for process in reversed(self.running.values()):
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=10)
            process.kill()
            process.wait()
        self.running = {}


@contextlib.contextmanager
def start_cluster(*, epilog: Path | None = None) -> Iterator[Cluster]:
    """Start a cluster in a folder of its own; all of it goes at the end."""
    # a path that is short: munge's socket lies in it, and each user may pass through it
    folder, devices = Path(tempfile.mkdtemp(prefix="trtmatrix-slurm-")), Devices()
    folder.chmod(0o755)
    cluster = None
    try:
        cluster = Cluster(folder, devices, epilog)
        cluster.start()
        yield cluster
    finally:
        if cluster is not None:
            cluster.stop()
        devices.remove()
        shutil.rmtree(folder, ignore_errors=True)


def free_ports(count: int) -> list[int]:
    held = [socket.socket() for _ in range(count)]
    try:
        for each in held:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in held]
    finally:
        for each in held:
            each.close()
