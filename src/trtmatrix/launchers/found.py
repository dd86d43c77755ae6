"""Which of both runtimes is here, as an engine: asked by its own command, never over a socket."""

from __future__ import annotations

from pathlib import Path

from trtmatrix.launchers.apptainer import Apptainer
from trtmatrix.launchers.images import Runtime, held_images
from trtmatrix.launchers.pyxis import Pyxis
from trtmatrix.suite.plan import Engine, GpuAccess


def find_runtime(name: str) -> Runtime:
    """Return the runtime ``apptainer`` or ``pyxis``, be it here or not."""
    return Apptainer() if name == "apptainer" else Pyxis()


def find_child_engine(name: str, cache: Path, *, gpu_here: bool) -> Engine:
    """Return what is known of a runtime of this host; where it cannot be used it is said why."""
    runtime, images = find_runtime(name), cache / "images"
    reason, remedy = runtime.find_trouble()
    return Engine(
        available=not reason, reason=reason, remedy=remedy, name=runtime.name,
        version="" if reason else runtime.version, images=held_images(cache, runtime.suffix),
        gpu_access=GpuAccess.RUNTIME if gpu_here else None,
        root=str(next(folder for folder in (images, *images.parents) if folder.is_dir())),
    )  # fmt: skip
