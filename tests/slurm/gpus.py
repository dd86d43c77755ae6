"""The nodes of the tests' cluster: their GPUs, as device files and as a library that tells of them.

The GPUs are fake, which is said here: a character device that swallows what is written (as /dev/null), and a
stand-in for NVML that answers for them (nvml.c). All else of the cluster is real.
"""

import os
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path
from uuid import NAMESPACE_DNS, uuid5

from bench.surfaces import need_compiler

HERE = Path(__file__).resolve().parent
NULL = os.makedev(1, 3)
FIRST_MINOR, LAST_MINOR = 100, 900  # where numbers of our own begin and end: no host has a hundred GPUs


@dataclass(frozen=True, kw_only=True)
class Model:
    """What NVML says of one model of GPU; ``memory`` in MiB."""

    gres: str
    name: str
    compute: str
    memory: int

    @property
    def slug(self) -> str:
        return self.name.lower().replace(" ", "-")


L4 = Model(gres="l4", name="NVIDIA L4", compute="8.9", memory=23034)
H200 = Model(gres="h200", name="NVIDIA H200", compute="9.0", memory=143771)
A100 = Model(gres="a100", name="NVIDIA A100", compute="8.0", memory=81920)  # no node has one


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


class Devices:
    """Device files of our own below /dev; all of them go with :meth:`remove`."""

    def __init__(self) -> None:
        self.files: list[Path] = []

    def make(self, count: int) -> tuple[int, ...]:
        """Make so many GPUs with numbers that nobody else has; returns the numbers."""
        free = (minor for minor in range(FIRST_MINOR, LAST_MINOR) if self.share(f"nvidia{minor}"))
        return tuple(next(free) for _ in range(count))

    def share(self, name: str) -> bool:
        """Make a device, where this host has none of that name; returns whether it was made."""
        file = Path("/dev") / name
        try:
            os.mknod(file, stat.S_IFCHR | 0o666, NULL)
        except FileExistsError:
            return False
        self.files.append(file)
        file.chmod(0o666)  # whatever the umask is
        return True

    def remove(self) -> None:
        """Remove them all, but for what GPUs of another cluster on this host share with ours."""
        for file in sorted(self.files, key=lambda file: not file.name[6:].isdigit()):
            if file.name[6:].isdigit() or not list(Path("/dev").glob("nvidia[0-9]*")):
                file.unlink(missing_ok=True)
        self.files.clear()


def make_nvml(folder: Path, minors: dict[str, tuple[int, ...]]) -> list[str]:
    """Compile the stand-in for NVML and write its table; returns the lines of setup that put it in place."""
    folder.mkdir()
    library = folder / "libnvidia-ml.so.1"
    subprocess.run([need_compiler(), "-shared", "-fPIC", "-o", library, HERE / "nvml.c"], check=True)
    table = "".join(_line(node, *at) for node in NODES for at in enumerate(minors[node.name]))
    (folder / "boards").write_text(table)
    return [f"export LD_LIBRARY_PATH={folder} FAKE_NVML={folder / 'boards'}"]


def _line(node: Node, index: int, minor: int) -> str:
    model, uuid = node.model, uuid5(NAMESPACE_DNS, f"{node.name}.{minor}")
    numbers = f"{model.compute.replace('.', '|')}|{model.memory}|{node.driver}|{minor}"
    return f"{node.name}|{index}|{model.name}|GPU-{uuid}|{numbers}\n"
