"""What this tool pulled: ``pulled.json`` in the cache, for all its runs.

An image goes only where this file says that the tool brought it.
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


class PulledImage(BaseModel):
    """An image that a run pulled under a reference; ``drop``: it wanted it gone after its last cell.

    ``engine`` tells engines apart; ``image_id`` is empty while it is being pulled.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    engine: str
    reference: str
    owner: str
    drop: bool
    image_id: str = ""


class Ledger(BaseModel):
    """All that the file says."""

    model_config = ConfigDict(strict=True, extra="forbid")

    version: Literal[2] = Field(default=2, alias="schema")
    pulled: list[PulledImage] = []

    def of(self, engine: str, image_id: str = "") -> list[PulledImage]:
        """Return the pulls that brought an engine its images, or one of them."""
        here = [item for item in self.pulled if item.engine == engine and item.image_id]
        return [item for item in here if item.image_id == image_id] if image_id else here


def read_ledger(cache: Path) -> Ledger:
    """Return what the file says; an empty ledger where it cannot be believed: then nothing is ours."""
    try:
        return Ledger.model_validate_json((cache / FILE).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValidationError):
        return Ledger()


@contextlib.contextmanager
def open_ledger(cache: Path) -> Iterator[Ledger]:
    """Open the ledger, whose changes are written at the end; one process and thread at a time has it open.

    Pulls that had not ended when their run died are struck: somebody may have pulled that by hand since.
    """
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # it goes with the file, however this process ends
        ledger = read_ledger(cache)
        before = ledger.model_dump_json()
        ledger.pulled = [item for item in ledger.pulled if item.image_id or not is_dead(item.owner)]
        try:
            yield ledger
        finally:
            if ledger.model_dump_json() != before:
                with whole_file(cache / FILE) as out:
                    out.write(ledger.model_dump_json(indent=1, by_alias=True).encode() + b"\n")
