"""Limits of a cell while it runs: its time, the host's sign of life, what it writes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Optional

from trtprobe import ends
from trtprobe.exits import Cut
from trtprobe.intake import Intake, folder_bytes


class Watch:
    """Looks after one process of a cell, from when it has taken the cell."""

    def __init__(self, intake: Intake, out: Path, own: Path, seconds: float) -> None:
        """Name the output folder, the process's own folder in it, and what it may take."""
        self.intake, self.out, self.own, self.seconds = intake, out, own, seconds
        self.limit = int(intake.job["output_bytes"])
        self.deadline = 0.0
        self._others: Optional[int] = None

    def begin(self) -> None:
        """Start the clock."""
        self.deadline, self._others = time.monotonic() + self.seconds, None

    def check(self) -> Optional[Cut]:
        """Return how the process has to be cut off, None where it may go on."""
        if time.monotonic() > self.deadline:
            return ends.TIME_OUT, "not done after %g s" % self.seconds
        if not self.intake.alive():
            return ends.INTERRUPTED, "the host gave no sign of life"
        size = self._written()
        if size > self.limit:
            return ends.CRASHED, "wrote %d bytes; the output folder may hold %d" % (size, self.limit)
        return None

    def _written(self) -> int:
        """Return what lies in the process's own folder, and what others have grown by since the first look.

        So a cell that is done before costs no look at all.
        """
        total = folder_bytes(self.out)
        if self._others is None:
            self._others = total - folder_bytes(self.own)
        return total - self._others
