"""Gathers what preflight's rules look at: disks, memory, device nodes, MIG, registries, indexes of wheels."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from trtmatrix.core.config import ImageOrigin
from trtmatrix.core.errors import ConfigError, TrtMatrixError
from trtmatrix.core.model import Gpu
from trtmatrix.core.plan import Launch
from trtmatrix.core.preflight.facts import Answer, Room
from trtmatrix.core.registry import Trouble, explain_trouble, parse_reference
from trtmatrix.effects.deadline import ask_all
from trtmatrix.effects.wheels import pip_files, pip_index

if TYPE_CHECKING:
    from trtmatrix.effects.registry import Registry

ASK_SECONDS = (5.0, 5.0)
"""To connect to a registry or index, and between two pieces of its answer."""
SECONDS = 20.0
"""For all registries together, and for all indexes: one that sends a byte now and then would never end."""
ATTEMPTS = 2
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


def ask_registries(
    references: Sequence[str], insecure: Sequence[str], seconds: float = SECONDS
) -> dict[str, Answer]:
    """Ask for every reference at the same time; returns what was said of each, within ``seconds`` in all."""
    if not references:
        return {}
    from trtmatrix.effects.registry import Registry  # here: who asks nobody does not wait for its imports

    registry = Registry(insecure=insecure, attempts=ATTEMPTS, seconds=ASK_SECONDS)
    answers = ask_all(
        lambda reference: _ask(registry, reference), references, seconds=seconds,
        note=lambda missing: _tell_waiting([parse_reference(each).host for each in missing]),
    )  # fmt: skip
    return {each: answers[each] if each in answers else _silent(each, seconds) for each in references}


def _ask(registry: Registry, reference: str) -> Answer:
    try:
        return Answer(host=parse_reference(reference).host, digest=registry.check(reference))
    except TrtMatrixError as error:  # of a registry, or that no image can have this name
        return _bad(error)


def _bad(error: TrtMatrixError) -> Answer:
    words, _, remedy = str(error).partition("\n")
    trouble, host = getattr(error, "trouble", Trouble.MISSING), getattr(error, "host", "")
    return Answer(host=host, trouble=trouble, words=words, remedy=remedy.strip())


def _silent(reference: str, seconds: float) -> Answer:
    host = parse_reference(reference).host
    why = f"it does not answer within {seconds:.0f} s"
    return _bad(explain_trouble(Trouble.UNREACHABLE, host, reference, why))


def _tell_waiting(hosts: Iterable[str]) -> None:
    print(f"trtmatrix: asking {', '.join(dict.fromkeys(hosts))} …", file=sys.stderr, flush=True)


def ask_indexes(addresses: Collection[str], seconds: float = SECONDS) -> dict[str, str]:
    """Return why each index of wheels does not answer; nothing where it does, whatever it says.

    An empty address is the index that pip is set to; where that is none, or several, nothing is asked.
    """
    places = {address: address or pip_index(os.environ, pip_files(os.environ)) for address in addresses}
    asked = [address for address, place in places.items() if place]
    answers = ask_all(
        lambda address: _ask_index(places[address], named=bool(address)), asked, seconds=seconds,
        note=lambda missing: _tell_waiting(urlsplit(places[each]).hostname or each for each in missing),
    )  # fmt: skip
    late = f"it does not answer within {seconds:.0f} s"
    return {address: answers.get(address, late) for address in asked}


def _ask_index(place: str, *, named: bool) -> str:
    import requests

    try:
        requests.head(place, timeout=ASK_SECONDS, allow_redirects=True).close()
    except requests.exceptions.SSLError:
        return ""  # somebody answers; pip may trust more than we do
    except requests.exceptions.RequestException as error:
        host = "" if named else f" ({urlsplit(place).hostname})"
        return f"it does not answer{host}: {error.__class__.__name__}"
    return ""


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
