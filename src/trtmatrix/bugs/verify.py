"""``bundle verify``: runs an archive where nothing else of ours is, and compares with what it records.

An archive is code: it is run in a container without network that sees it read-only, in an image that the user
names or that is here already. Nothing else that it brings is run or built. Where its failure was seen outside
of containers it is run so only by who trusts it. Nothing in it is believed or checked beyond that.
"""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
import time
import venv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trtmatrix.bugs.manner import ABSURD
from trtmatrix.bugs.script import SCRIPT, read_recorded
from trtmatrix.common.archive import ChangedError, read_archive
from trtmatrix.common.errors import MachineryError, UsageError
from trtmatrix.common.offline import is_offline
from trtmatrix.common.paths import scratch_folder
from trtmatrix.common.processes import run_to_end
from trtmatrix.launchers.container import ALONE, GpuOptions, give_gpu, own_labels
from trtmatrix.launchers.containers import remove_leftovers
from trtmatrix.launchers.docker_engine import PODMAN, find_address, find_engine, inspect_image
from trtmatrix.launchers.gpu import find_gpus
from trtmatrix.launchers.wheels import find_wheelhouse, install_wheels
from trtmatrix.suite.model import Product
from trtmatrix.suite.plan import Engine

ALIKE = 10.0
"""An error that is more than so many times smaller or larger is another failure."""

TAIL = 3000
LATE = 124
"""The exit code of a command that took too long; a script of an archive has 0, 1 and 125."""

SAFE = (
    *ALONE, "--tmpfs=/tmp:exec,nosuid,nodev,size=8g", "--env=HOME=/tmp", "--env=ORT_DISABLE_TELEMETRY=1",
    "--pids-limit=1024",
    "--env=PYTHONDONTWRITEBYTECODE=1", "--workdir=/bug", "--memory=32g", "--memory-swap=32g",
    f"--ulimit=fsize={8 << 30}",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Verification:
    """How a verification came out. ``said``: the end of what the archive printed; ``code``: its exit code."""

    file: str
    verified: bool
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    code: int | None = None
    seconds: float = 0.0
    said: str = ""

    @property
    def text(self) -> str:
        """The same in lines."""
        head = f"{self.file}: verified in {self.seconds:.0f} s: the failure came back"
        if not self.verified:
            head = f"{self.file}: NOT verified\n" + "\n".join(f"  {problem}" for problem in self.problems)
        told = "".join(f"\n  {line}" for line in self.said.strip().splitlines()[-12:])
        return head + told * (not self.verified) + "".join(f"\n  note: {note}" for note in self.notes)


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where an archive is run: in a container of ``image`` by ``engine``, else by fresh ``wheels``."""

    image: str = ""
    engine: Engine | None = None
    options: tuple[str, ...] = ()
    wheels: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def find_place(recorded: Mapping[str, Any], *, image: str = "", trust: bool = True) -> Place:
    """Return where a recorded failure can be looked for here; :class:`MachineryError` says why it cannot.

    ``image``: in which one, instead of the recorded one. ``trust``: it may run outside of containers. Nothing
    is started or installed yet.
    """
    if not image and not recorded.get("image_id"):
        if not trust:
            raise UsageError(
                "this failure was seen outside of containers: the archive would run as you, with all that "
                "you may do. Read it; then add --trust, or --image IMAGE to run it in a container"
            )
        if not re.fullmatch(r"\d[\w.+-]{0,60}", str(recorded.get("library", "0"))):
            raise UsageError(f"{recorded['library']!r} is no version of ONNX Runtime")
        if recorded.get("product") != Product.ONNXRUNTIME.value or "library" not in recorded:
            raise MachineryError("the failure was seen in an interpreter of a host: run the archive by hand")
        wheels = (f"onnxruntime=={recorded['library']}", "numpy")
        return Place(wheels=wheels, notes=(f"run in a fresh environment with {', '.join(wheels)}",))
    on_gpu = recorded.get("product") == Product.TENSORRT.value
    engine = find_engine(gpu_here=on_gpu)
    if not engine.available:
        raise MachineryError(engine.reason)
    then = str(recorded.get("image_id", "no container"))
    wanted, name = (image, "") if image else (then, str(recorded.get("image", "")))
    held = inspect_image(wanted) or (inspect_image(name) if name else None)
    if held is None:
        raise MachineryError(
            f"the image {name or wanted} is not here: pull it or build it (docker pull, nox -s image), then "
            "bundle verify FILE; bundle make --no-verify writes the archive without"
        )
    image_id = held[0]
    notes = [] if image_id == then else [f"run in {image_id}; it was recorded in {then}"]
    options = [f"--user={'0:0' if engine.rootless else f'{os.getuid()}:{os.getgid()}'}"]
    if on_gpu:
        gpus, seen = find_gpus().gpus, recorded.get("gpu")
        gpu = next((gpu for gpu in gpus if gpu.name == seen), next(iter(gpus), None))
        access = give_gpu(gpu, engine) if gpu else GpuOptions()
        if gpu is None or not access.command_line:
            raise MachineryError(
                f"this failure was seen on {seen}, and no container reaches a GPU here (doctor says why): "
                "verify it where there is one; bundle make --no-verify leaves it out"
            )
        for what, here, was in (("GPU", gpu.name, seen), ("driver", gpu.driver, recorded.get("driver"))):
            notes += [f"{what} here: {here}; recorded: {was}"] if was and here != was else []
        options += access.command_line
        options += (f"--volume={host}:{inside}:ro" for host, inside in access.mounts.items())
    return Place(image=image_id, engine=engine, options=tuple(options), notes=tuple(notes))


def tell(text: str) -> None:
    """Tell of long work."""
    print(text, file=sys.stderr, flush=True)


def verify_archive(
    file: Path, seconds: float, place: Place | None = None, *, image: str = "", trust: bool = False
) -> Verification:
    """Run an archive from itself alone and say whether its failure came back as it was recorded.

    ``place``: where, if it is known already; else as :func:`find_place` says. :class:`UsageError` where it
    is no archive, :class:`MachineryError` where it cannot be run here.
    """
    if not file.is_file():
        raise UsageError(f"{file}: there is no such file; bundle make CELL writes one")
    with scratch_folder() as scratch:
        try:
            folder = read_archive(file, Path(scratch) / "archive")
        except ChangedError as error:
            return Verification(file=file.name, verified=False, problems=error.problems)
        try:
            recorded = read_recorded((folder / SCRIPT).read_text(encoding="utf-8"))
        except (OSError, SyntaxError, ValueError) as error:
            raise UsageError(f"{file}: has no {SCRIPT} that bundle make wrote") from error
        place = place or find_place(recorded, image=image, trust=trust)
        command = ["python3", SCRIPT]
        command += ["--onnxruntime"] if recorded.get("product") == Product.ONNXRUNTIME.value else []
        where = (
            f"in a container of {place.image}" if place.engine else f"AS YOU, with {' '.join(place.wheels)}"
        )
        tell(f"running {' '.join(command)} of the archive {where}")
        started = time.monotonic()
        code, said = _run(folder, command, place, seconds)
    if code == LATE:
        problems = [f"it was not done after {seconds:g} s (--seconds S allows more)"]
    elif code not in {0, 1}:
        problems = [f"nothing can be said: exit code {code}"]
    elif code == 0:
        problems = ["the failure did not come back"]
    elif "\nrecorded: " not in said:  # Python's own 1 means nothing
        problems = [f"{SCRIPT} itself failed"]
    else:
        try:
            problems = [*compare(recorded, said)]
        except (AttributeError, TypeError, ValueError):  # an archive of others may say anything
            problems = [f"{SCRIPT} records or prints what no archive of bundle make does"]
    return Verification(
        file=file.name, verified=not problems, problems=tuple(problems), notes=place.notes, code=code,
        seconds=round(time.monotonic() - started, 1), said=said[-TAIL:],
    )  # fmt: skip


def compare(recorded: Mapping[str, Any], said: str) -> Iterator[str]:
    """Yield how what an archive printed differs from what it records: other outputs, errors of another size.

    Absurd numbers are of no size: they are others in each engine.
    """
    numbers = {key: tuple(map(float, ends)) for key, ends in (recorded.get("wrong") or {}).items()}
    found: dict[str, list[float]] = {}
    for key, number in re.findall(r"^(.+): (\S+), right up to .*: WRONG$", said, re.MULTILINE):
        found.setdefault(key, []).append(float(number))
    if numbers and not {*numbers} & {*found}:
        yield f"{', '.join(found) or 'something else'} is wrong; recorded: {', '.join(numbers)}"
    for key in sorted({*numbers} & {*found}):
        low, high = numbers[key]
        odd = [x for x in found[key] if not low / ALIKE <= x <= max(high * ALIKE, 2.0)]
        if odd and math.isfinite(low) and high <= min(ABSURD, ALIKE * low):
            yield f"{key}: {odd[0]:.4g}; recorded: {low:.4g} to {high:.4g}"


def _run(folder: Path, command: list[str], place: Place, seconds: float) -> tuple[int, str]:
    """Run the archive's command; returns its exit code, 124 where it took too long, and what it printed."""
    variables = dict(os.environ)
    if place.engine is None:
        bin_folder = folder.parent / "environment" / "bin"
        venv.create(bin_folder.parent, with_pip=False, symlinks=True)
        install_wheels(bin_folder / "python", place.wheels, find_wheelhouse(Path()) if is_offline() else None)
        path = f"{bin_folder}{os.pathsep}{variables.get('PATH', '')}"
        return run_to_end(command, {"PATH": path, "ORT_DISABLE_TELEMETRY": "1"}, seconds, folder)
    remove_leftovers()
    name, docker = f"trtmatrix-verify-{os.urandom(6).hex()}", place.engine.command
    labels = (f"--label={label}={text}" for label, text in own_labels().items())
    words = [f"--name={name}", *labels, *SAFE, *place.options, f"--volume={folder}:/bug:ro"]
    words += [f"--entrypoint={command[0]}", place.image, *command[1:]]
    variables |= {"CONTAINER_HOST": find_address()} if place.engine.name == PODMAN else {}
    try:
        return run_to_end([docker, "run", "--rm", *words], variables, seconds, folder)
    finally:
        subprocess.run([docker, "rm", "--force", name], capture_output=True, check=False)
