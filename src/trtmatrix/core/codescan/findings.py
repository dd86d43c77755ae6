"""The uses that were found: one a place and name, the surest reading of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from trtmatrix.core.api import ApiChange, ApiUse, Certainty


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a use stands: ``line`` and ``cell`` from 1 (0: no notebook), ``text`` the line itself."""

    file: str
    line: int
    column: int = 0
    cell: int = 0
    text: str = ""


@dataclass
class Findings:
    """Collects uses; a sure reading of a place displaces one that is only possible, and stays."""

    found: dict[tuple[str, int, int, int, str, str], ApiUse] = field(default_factory=dict)

    def add(self, place: Place, changes: Sequence[ApiChange], why: str = "") -> None:
        """Note a use; ``why`` says why it is only possible (empty: it is sure)."""
        for change in changes:
            key = (place.file, place.cell, place.line, place.column, change.name, change.kind.value)
            before = self.found.get(key)
            if before is not None and (before.certainty is Certainty.SURE or why):
                continue
            self.found[key] = ApiUse(
                file=place.file, line=place.line, cell=place.cell, change=change, text=place.text.strip(),
                certainty=Certainty.POSSIBLE if why else Certainty.SURE, why=why,
            )  # fmt: skip

    def clear(self) -> None:
        """Forget all, before a pass that knows more."""
        self.found.clear()

    def listed(self) -> tuple[ApiUse, ...]:
        """Return the uses by file and line; one a line and name, the surest first."""
        best: dict[tuple[str, int, int, str, str], ApiUse] = {}
        for key, use in sorted(self.found.items()):
            where = (key[0], key[1], key[2], key[4], key[5])
            if where not in best or (best[where].why and not use.why):
                best[where] = use
        return tuple(best.values())
