"""Gathers what preflight's rules look at: disks, memory, device nodes, MIG, registries, indexes of wheels."""

from __future__ import annotations

import contextlib
import shutil
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path

from trtmatrix.core.config import ImageOrigin
from trtmatrix.core.errors import ConfigError, TrtMatrixError
from trtmatrix.core.model import Gpu
from trtmatrix.core.plan import Launch
from trtmatrix.core.preflight.facts import Answer, Room
from trtmatrix.core.registry import Trouble, parse_reference
from trtmatrix.effects.registry import Registry

ASK_SECONDS = (5.0, 5.0)
"""To connect to a registry or index, and between two pieces of its answer."""
ATTEMPTS = 2
TOGETHER = 8
MEMORY = Path("/proc/meminfo")


def find_room(path: Path) -> Room:
    """Return what is free where a folder is, or will be made."""
    there = path.resolve()
    existing = next(parent for parent in (there, *there.parents) if parent.exists())
    return Room(path=str(path), free=shutil.disk_usage(existing).free)


def images_room(root: str) -> Room | None:
    """Return what is free where the engine keeps its images; None where that is on another host."""
    if not root or not Path(root).is_dir():
        return None
    return find_room(Path(root))


def find_memory() -> tuple[int, int]:
    """Return the memory of this host, whole and available, in bytes; zeros where it does not say."""
    try:
        text = MEMORY.read_text()
    except OSError:
        return 0, 0
    kilobytes = {line.split(":")[0]: int(line.split()[1]) for line in text.splitlines()}
    return kilobytes.get("MemTotal", 0) << 10, kilobytes.get("MemAvailable", 0) << 10


def find_nodes(folder: Path = Path("/dev")) -> frozenset[str]:
    """Return the device nodes of NVIDIA's driver that are here."""
    return frozenset(str(node) for node in folder.glob("nvidia*"))


def count_mig_instances(gpus: Iterable[Gpu]) -> dict[int, int]:
    """Return how many MIG instances each GPU in MIG mode has, by index; without those NVML is silent on."""
    indices = [gpu.index for gpu in gpus if gpu.index is not None and "MIG on" in gpu.variant]
    if not indices:
        return {}
    import pynvml

    found = {}
    try:
        pynvml.nvmlInit()
        for index in indices:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            found[index] = _count_instances(pynvml, handle)
    except pynvml.NVMLError:
        return found
    return found


def _count_instances(nvml, handle) -> int:  # type: ignore[no-untyped-def] # noqa: ANN001 - the pynvml module
    count = 0
    for number in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
        except nvml.NVMLError:
            continue
        count += 1
    return count


def ask_registries(references: Sequence[str], insecure: Sequence[str]) -> dict[str, Answer]:
    """Ask for every reference at the same time; returns what was said of each."""
    if not references:
        return {}
    registry = Registry(insecure=insecure, attempts=ATTEMPTS, seconds=ASK_SECONDS)
    waiting, answers = deque(references), dict[str, Answer]()

    def work() -> None:
        with contextlib.suppress(IndexError):  # nothing is left to ask
            while True:
                reference = waiting.popleft()
                answers[reference] = _ask(registry, reference)

    # An interrupted run leaves them behind: what a silent registry is waited for cannot be called off.
    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(TOGETHER, len(references)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {reference: answers[reference] for reference in references if reference in answers}


def _ask(registry: Registry, reference: str) -> Answer:
    try:
        return Answer(host=parse_reference(reference).host, digest=registry.check(reference))
    except TrtMatrixError as error:  # of a registry, or that no image can have this name
        words, _, remedy = str(error).partition("\n")
        trouble, host = getattr(error, "trouble", Trouble.MISSING), getattr(error, "host", "")
        return Answer(host=host, trouble=trouble, words=words, remedy=remedy.strip())


def ask_indexes(addresses: Sequence[str]) -> dict[str, str]:
    """Return why each index of wheels does not answer; nothing where it does, whatever it says."""
    import requests

    found = {}
    for address in addresses:
        try:
            requests.head(address, timeout=ASK_SECONDS, allow_redirects=True).close()
        except requests.exceptions.RequestException as error:
            found[address] = f"it does not answer: {error.__class__.__name__}"
        else:
            found[address] = ""
    return found


def unhashed_wheels(launches: Iterable[Launch], builder: Path | None) -> dict[str, tuple[str, ...]]:
    """Return by version the wheels of images to be built that the project's lock files have no SHA-256 of."""
    from trtmatrix.core.wheel_locks import parse_lock

    found: dict[str, tuple[str, ...]] = {}
    for launch in launches:
        origin = launch.version.origin
        if builder is None or not launch.build or not isinstance(origin, ImageOrigin) or origin.build is None:
            continue
        locks = builder.resolve().parent / "locks"
        if not locks.is_dir():  # another script, with other rules
            continue
        file = locks / f"{launch.version.name}.txt"
        try:
            text = file.read_text(encoding="utf-8") if file.exists() else ""
            pins = parse_lock(text, origin.build.wheels, str(file))
        except (OSError, ConfigError):
            continue  # the build itself says what is wrong with its files
        found[launch.version.name] = tuple(pin.wheel for pin in pins if not pin.sha256)
    return found
