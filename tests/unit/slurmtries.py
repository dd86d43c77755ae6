"""Tasks, attempts and jobs made by hand, for tests of what becomes of them."""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trtmatrix.core.model import CellId
from trtmatrix.core.slurm import layout
from trtmatrix.core.slurm.fate import Attempt
from trtmatrix.core.slurm.jobs import JobStatus, Phase
from trtmatrix.core.slurm.manifest import Asked, Manifest, Sent, Try

STATE = {Phase.WAITING: "PENDING", Phase.RUNNING: "RUNNING", Phase.GONE: "COMPLETED"}


def make_asked(number: int = 0, **more: Any) -> Asked:
    cell = CellId(repro="sdpa-scale", case=f"case-{number}", version="10.7.0", gpu="l4")
    handed = {"cell": vars(cell), "files": f"files-{number}"}
    return Asked(cell=cell, digests={"case": str(number)}, run="r1", handed=handed, **more)


def make_task(cells: int = 3, **more: Any) -> tuple[Asked, ...]:
    return tuple(make_asked(number, **more) for number in range(cells))


def make_manifest(key: str = "k1", cells: tuple[int, ...] = (3,), **more: Any) -> Manifest:
    facts = {"made": "2026-01-01T00:00:00Z", "suite": "s1", "image": "i1", **more}
    return Manifest(
        key=key, gpu="l4", version="10.7.0", job={"product": "tensorrt"},
        tasks=tuple(make_task(count) for count in cells), **facts,
    )  # fmt: skip


def make_try(attempt: int = 1, indices: tuple[int, ...] = (0, 1, 2), **more: Any) -> Try:
    for name in ("records", "started", "interrupted"):
        if name in more:
            more[name] = frozenset(more[name])
    return Try(task=0, attempt=attempt, indices=indices, **more)


def make_job(phase: Phase = Phase.RUNNING, state: str = "", **more: Any) -> JobStatus:
    return JobStatus(job="7", task=0, phase=phase, state=state or STATE[phase], **more)


def make_sent(number: int = 1, attempt: int = 1, job: str = "7", **more: Any) -> Sent:
    return Sent(number=number, attempt=attempt, tasks=(0,), made="2026-01-01T00:00:00Z", job=job, **more)


def sent_attempt(left: Try, job: JobStatus | None = None, missing: float = -1.0) -> Attempt:
    """Return an attempt that was submitted as job 7."""
    return Attempt(left=left, sent=make_sent(attempt=left.attempt), job=job, missing=missing)


def leave_image(root: Path, key: str, reference: str = "r", image_id: str = "sha256:1", **more: Any) -> None:
    """Leave what an import's script leaves of an image."""
    folder = Path(layout.image_folder(str(root), key))
    folder.mkdir(parents=True)
    facts = {"reference": reference, "id": image_id, "file": "", "bytes": 0, **more}
    (folder / layout.IMAGE).write_text(json.dumps(facts))


@contextmanager
def no_room() -> Iterator[None]:
    """Let this process write nothing to any file, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))  # Python ignores the signal: writing fails
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
