"""What this tool pulled and who uses which image just now: ``pulled.json`` in the cache, for all its runs.

An image goes only where this file says that the tool brought it, and that no run that lives uses it.
"""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trtmatrix.common.paths import is_dead, whole_file

FILE, LOCK = "pulled.json", "pulled.lock"


class _Entry(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class PulledImage(_Entry):
    """An image that was pulled under a reference, by whom and when (UTC, ISO 8601).

    ``engine`` tells engines apart. ``image_id`` is empty while it is being pulled. ``drop``: its run wanted
    it gone after its last cell.
    """

    engine: str
    reference: str
    owner: str
    began: str
    drop: bool
    image_id: str = ""


class Use(_Entry):
    """A run that uses an image just now: once for each name by which it does."""

    engine: str
    image_id: str
    owner: str


class Speed(_Entry):
    """How many bytes came in how many seconds."""

    size: int
    seconds: float


class Ledger(BaseModel):
    """All that the file says."""

    model_config = ConfigDict(strict=True, extra="forbid")

    version: Literal[1] = Field(default=1, alias="schema")
    pulled: list[PulledImage] = []
    uses: list[Use] = []
    speeds: list[Speed] = []

    def of(self, engine: str, image_id: str = "") -> list[PulledImage]:
        """Return the pulls that brought an engine its images, or one of them."""
        here = [item for item in self.pulled if item.engine == engine and item.image_id]
        return [item for item in here if item.image_id == image_id] if image_id else here

    def is_used(self, engine: str, image_id: str) -> bool:
        """Whether a run uses an image just now."""
        return any((use.engine, use.image_id) == (engine, image_id) for use in self.uses)

    def strike_dead(self) -> None:
        """Strike the uses of runs that are gone, and their pulls that had not ended.

        What such a pull may have left is nobody's: somebody may have pulled it by hand since.
        """
        owners = {use.owner for use in self.uses} | {item.owner for item in self.pulled}
        dead = {owner for owner in owners if is_dead(owner)}
        self.uses = [use for use in self.uses if use.owner not in dead]
        self.pulled = [item for item in self.pulled if item.image_id or item.owner not in dead]


def read_ledger(cache: Path) -> Ledger:
    """Return what the file says; an empty ledger where it cannot be believed: then nothing is ours."""
    try:
        return Ledger.model_validate_json((cache / FILE).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValidationError):
        return Ledger()


@contextlib.contextmanager
def open_ledger(cache: Path) -> Iterator[Ledger]:
    """Open the ledger, whose changes are written at the end; one process and thread at a time has it open.

    An image must be found, and noted as used, while it is open: so no other run can drop it between.
    """
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # it goes with the file, however this process ends
        ledger = read_ledger(cache)
        before = ledger.model_dump_json()
        ledger.strike_dead()
        try:
            yield ledger
        finally:
            if ledger.model_dump_json() != before:
                with whole_file(cache / FILE) as out:
                    out.write(ledger.model_dump_json(indent=1, by_alias=True).encode() + b"\n")


def pull_speed(cache: Path) -> float | None:
    """Return how fast earlier pulls were, in bytes (compressed) a second; None where none is known."""
    speeds = read_ledger(cache).speeds
    seconds = sum(speed.seconds for speed in speeds)
    return sum(speed.size for speed in speeds) / seconds if seconds > 0 else None
