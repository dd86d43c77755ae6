"""What the script of an archive is given on this host: a GPU in the engine's way, or a fresh environment."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from trtmatrix.core.bundle.facts import RUN
from trtmatrix.core.container import give_gpu
from trtmatrix.core.errors import MachineryError
from trtmatrix.core.model import Gpu, Product
from trtmatrix.core.plan import Engine
from trtmatrix.core.record import Record

Tell = Callable[[str], None]

WHEELS: Mapping[Product, tuple[str, ...]] = {
    Product.ONNXRUNTIME: ("onnxruntime=={library}", "numpy"),
    Product.TENSORRT_RTX: (
        "tensorrt-rtx-cu12-libs=={library}", "tensorrt-rtx-cu12-bindings=={library}", "numpy"
    ),
}  # fmt: skip
"""What a fresh environment gets where the failure was seen outside of containers."""


def find_settings(record: Record, scratch: Path, tell: Tell) -> tuple[dict[str, str], list[str]]:
    """Return the variables that the script is given here, and what is otherwise than recorded.

    ``scratch``: where an environment is made, where the failure was seen outside of containers.
    :class:`MachineryError` where the failure cannot be looked for here.
    """
    if record.digests.get("runtime") == "container":
        return _container_settings(record)
    import venv

    from trtmatrix.effects.offline import is_offline
    from trtmatrix.effects.wheelhouse import find_wheelhouse
    from trtmatrix.effects.wheels import install_wheels

    wheels = tuple(w.format(library=record.observed.get("library")) for w in WHEELS.get(record.product, ()))
    if not wheels:
        raise MachineryError(
            f"the failure was seen in an interpreter of a host: run {RUN} by hand, PYTHON set to one"
        )
    tell(f"making a fresh environment with {', '.join(wheels)}")
    venv.create(scratch / "env", with_pip=False, symlinks=True)
    python = scratch / "env" / "bin" / "python"
    install_wheels(python, wheels, find_wheelhouse(Path()) if is_offline() else None)
    return {"PYTHON": str(python)}, [
        f"run in a fresh environment with {', '.join(wheels)}, not in a container"
    ]


def _container_settings(record: Record) -> tuple[dict[str, str], list[str]]:
    """Return how the script reaches the engine here, and gives its container a GPU where it had one."""
    from trtmatrix.effects.engine import PODMAN, find_address, find_engine

    wants_gpu = bool(record.gpu.get("name"))
    engine = find_engine(gpu_here=wants_gpu)
    reached = {"DOCKER": engine.command, "CONTAINER_HOST": find_address()} if engine.name == PODMAN else {}
    user = {"RUN_AS": "0:0"} if engine.rootless else {}
    settings, notes = _gpu_settings(record, engine) if wants_gpu else ({"GPU_OPTIONS": ""}, [])
    return {**settings, **reached, **user}, notes


def _gpu_settings(record: Record, engine: Engine) -> tuple[dict[str, str], list[str]]:
    """Return how the script gives its container a GPU of this host."""
    from trtmatrix.effects.gpu import find_gpus

    scan, wanted = find_gpus(), str(record.gpu.get("name"))
    if not scan.gpus:
        raise MachineryError(
            f"this failure was seen on {wanted}, and no GPU is here ({scan.reason}): verify it where there "
            "is one; bundle make --no-verify leaves it out"
        )
    gpu = next((gpu for gpu in scan.gpus if gpu.name == wanted), scan.gpus[0])
    access = give_gpu(gpu, engine)
    if not access.words:
        raise MachineryError(
            f"containers cannot reach the {gpu.name} here: "
            f"{engine.reason or 'neither toolkit, CDI nor nodes'}\n"
            "  python -m trtmatrix doctor says what to do"
        )
    mounts = [f"--volume={host}:{inside}:ro" for host, inside in access.mounts.items()]
    return {"GPU_OPTIONS": shlex.join([*access.words, *mounts])}, list(_other_gpu(gpu, record))


def _other_gpu(gpu: Gpu, record: Record) -> Iterator[str]:
    names = (("GPU", gpu.name, "name"), ("driver", gpu.driver, "driver"))
    for what, here, key in names:
        then = str(record.gpu.get(key) or "")
        if then and here != then:
            yield f"{what} here: {here}; recorded: {then}"
