"""What a run says before it starts: how many tests, what is fetched for them, and what stays on the disk."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from trtmatrix.common.counting import counted, duration
from trtmatrix.suite.matrix import WheelsOrigin
from trtmatrix.suite.model import CellId
from trtmatrix.suite.plan import Engine, Launch

if TYPE_CHECKING:
    from trtmatrix.plan.context import Context
    from trtmatrix.plan.survey import Survey

ENVIRONMENT_BYTES = 210_000_000
"""What an environment of wheels takes: 123 MB of ONNX Runtime 1.31.1, 208 to 267 MB of TensorRT-RTX."""
CASE_BYTES = 5_500_000
"""What a prepared case and its kept outputs take: 1.6 GB of all 298 cases."""


def announce(
    context: Context, survey: Survey, served: frozenset[CellId], is_here: Callable[[Launch], bool]
) -> str:
    """Return the sentence with which a run begins; sizes of wheels and cases are as earlier ones had them."""
    from trtmatrix.images.downloads import gigabytes
    from trtmatrix.images.preflight import find_room

    every = [launch.of(c for c in launch.cells if c.id not in served) for launch in survey.plan.launches]
    launches = [launch for launch in every if launch.cells]
    cells = [cell for launch in launches for cell in launch.cells]
    new = {
        launch.version.name for launch in launches
        if launch.python is None and isinstance(launch.version.origin, WheelsOrigin) and not is_here(launch)
    }  # fmt: skip
    known = (context.project.cache / "cases").is_dir()
    cases = set() if known else {(cell.repro.id, cell.case.id) for cell in cells}
    size = len(new) * ENVIRONMENT_BYTES + len(cases) * CASE_BYTES
    fetched = [image_words(launches, context, survey.host.engine)]
    if new:
        wheels = gigabytes(len(new) * ENVIRONMENT_BYTES)
        fetched.append(f"{counted(len(new), 'Python environment')}, about {wheels}")
    fetched = [words for words in fetched if words]
    parts = [f"{counted(len(cells), 'test')} to run"]
    parts.append(f"to fetch: {' and '.join(fetched)}" if fetched else "nothing to fetch")
    if size:
        room = find_room(context.project.cache)
        parts.append(f"about {gigabytes(size)} will be kept in {room.path} ({gigabytes(room.free)} free)")
    return "; ".join(parts)


def image_words(launches: Iterable[Launch], context: Context, engine: Engine) -> str:
    """Return how many images launches lack, their GB, and the time as far as known; nothing where none."""
    from trtmatrix.images.downloads import find_downloads, gigabytes
    from trtmatrix.launchers.pulled import pull_speed

    downloads = find_downloads(launches, context.lock, engine, context.matrix.registry)
    sizes = [each.added for each in downloads]
    if not sizes:
        return ""
    if None in sizes:
        return f"{counted(len(sizes), 'image')}, 10 to 34 GB{' each' * (len(sizes) > 1)}"
    size = sum(each for each in sizes if each is not None)
    if not size:  # made of wheels on a base that is here, or is made here too
        return f"{counted(len(sizes), 'image')} to build"
    speed = pull_speed(context.project.cache)
    time = f", {duration(size / speed)}" if speed else ""
    return f"{counted(len(sizes), 'image')}, {gigabytes(size)}{time}"
