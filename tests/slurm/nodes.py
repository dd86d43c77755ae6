"""The nodes of the tests' cluster: their GPUs, as device files and as an nvidia-smi that tells of them.

The GPUs are fake, which is said here: a character device that swallows what is written (as /dev/null), and a
program that answers for them. All else of the cluster is real.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import NAMESPACE_DNS, uuid5

NULL = os.makedev(1, 3)
FIRST_MINOR, LAST_MINOR = 100, 900
"""Where numbers of our own begin and end: no host has a hundred GPUs."""


@dataclass(frozen=True, kw_only=True)
class Model:
    """What nvidia-smi says of one model of GPU; ``memory`` in MiB."""

    gres: str
    name: str
    compute: str
    memory: int

    @property
    def slug(self) -> str:
        """Its name in a cell's id."""
        return self.name.lower().replace(" ", "-")


L4 = Model(gres="l4", name="NVIDIA L4", compute="8.9", memory=23034)
H200 = Model(gres="h200", name="NVIDIA H200", compute="9.0", memory=143771)
A100 = Model(gres="a100", name="NVIDIA A100", compute="8.0", memory=81920)
"""No node has one."""


@dataclass(frozen=True, kw_only=True)
class Node:
    """A node that is to be: its GPUs, all of one model, and its driver."""

    name: str
    model: Model
    count: int
    driver: str


NODES = (
    Node(name="l4a", model=L4, count=1, driver="550.54.15"),
    Node(name="l4b", model=L4, count=1, driver="535.183.01"),
    Node(name="h200a", model=H200, count=2, driver="570.86.15"),
)
"""Two types, and one of them with two drivers."""

SMI = """\
#!{python} -ISs
\"\"\"A fake nvidia-smi: answers from a table for the GPUs of the node that it is started on.\"\"\"
import os, sys
BOARDS = {boards!r}
here = BOARDS.get(os.environ.get("SLURMD_NODENAME", ""), [])
words = dict(w.partition("=")[::2] for w in sys.argv[1:] if "=" in w)
plain = [w for w in sys.argv[1:] if "=" not in w]
for short in ("-i", "--id"):
    if short in plain:
        words["--id"] = plain[plain.index(short) + 1]
one = words.get("--id")
chosen = [b for b in here if one is None or one in (b["index"], b["uuid"])]
if one is not None and not chosen:
    print("No devices were found")
    sys.exit(6)
if "-L" in plain or "--list-gpus" in plain:
    for b in chosen:
        print("GPU %s: %s (UUID: %s)" % (b["index"], b["name"], b["uuid"]))
    sys.exit(0)
if "-q" in plain or "--query" in plain:
    for b in chosen:
        print("GPU %s" % b["pci.bus_id"])
        print("    Product Name                          : %s" % b["name"])
        print("    GPU UUID                              : %s" % b["uuid"])
        print("    Minor Number                          : %s" % b["minor_number"])
    sys.exit(0)
fields = words.get("--query-gpu")
if fields is None:
    sys.exit("the fake nvidia-smi knows -L, -q and --query-gpu only: %s" % sys.argv[1:])
unknown = [f for f in fields.split(",") if f.strip() not in BOARDS["fields"]]
if unknown:
    print("Field %r is not a valid field to query." % unknown[0])
    sys.exit(2)
for b in chosen:
    print(", ".join(b[f.strip()] for f in fields.split(",")))
"""


class Devices:
    """Device files of our own below /dev; all of them go with :meth:`remove`."""

    def __init__(self) -> None:
        """Have none yet."""
        self.files: list[Path] = []

    def make(self, count: int) -> tuple[int, ...]:
        """Make nodes with numbers that follow one another and that nobody else has; returns the numbers."""
        first = FIRST_MINOR
        while first < LAST_MINOR:
            made: list[int] = []
            for minor in range(first, first + count):
                if not self._make(minor):
                    break
                made.append(minor)
            if len(made) == count:
                return tuple(made)
            for minor in made:
                self._remove(Path(f"/dev/nvidia{minor}"))
            first += len(made) + 1
        raise RuntimeError(f"/dev/nvidia{FIRST_MINOR} to /dev/nvidia{LAST_MINOR} are all there")

    def _make(self, minor: int) -> bool:
        file = Path(f"/dev/nvidia{minor}")
        try:
            os.mknod(file, stat.S_IFCHR | 0o666, NULL)
        except FileExistsError:
            return False
        self.files.append(file)
        file.chmod(0o666)  # whatever the umask is
        return True

    def _remove(self, file: Path) -> None:
        file.unlink(missing_ok=True)
        self.files.remove(file)

    def remove(self) -> None:
        """Remove them all."""
        for file in list(self.files):
            self._remove(file)


def write_smi(folder: Path, nodes: Sequence[Node], minors: dict[str, tuple[int, ...]]) -> Path:
    """Write the fake nvidia-smi into a folder; returns the folder, which a job puts first in its PATH."""
    boards: dict[str, list[dict[str, str]]] = {
        node.name: [_board(node, *at) for at in enumerate(minors[node.name])] for node in nodes
    }
    table: dict[str, object] = {**boards, "fields": sorted(boards[nodes[0].name][0])}
    folder.mkdir(parents=True)
    (folder / "nvidia-smi").write_text(SMI.format(python=sys.executable, boards=table))
    (folder / "nvidia-smi").chmod(0o755)
    return folder


def _board(node: Node, index: int, minor: int) -> dict[str, str]:
    """Describe a board. Slurm gives a job the place of a device in gres.conf, and no minor number: 0, 1 …"""
    model = node.model
    return {
        "index": str(index), "uuid": f"GPU-{uuid5(NAMESPACE_DNS, f'{node.name}.{minor}')}",
        "name": model.name, "gpu_name": model.name, "compute_cap": model.compute,
        "memory.total": str(model.memory), "driver_version": node.driver, "mig.mode.current": "[N/A]",
        "clocks.sm": "1980", "clocks.mem": "2619", "power.limit": "72.00", "count": str(node.count),
        "minor_number": str(minor), "pci.bus_id": f"00000000:{minor % 256:02X}:00.0",
        "clocks.current.sm": "1980", "clocks.current.memory": "2619",
    }  # fmt: skip
