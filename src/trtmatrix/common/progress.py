"""Progress: live in a terminal, plain lines where there is none. Always on standard error."""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.progress import TaskID

PLAIN_PULL_SECONDS = 10.0


class Progress:
    """What long work tells, as plain lines, for logs and pipes. For many threads."""

    def __init__(self, stream: TextIO) -> None:
        """Keep the stream."""
        self.stream = stream
        self._lock = threading.Lock()
        self._totals: dict[str, int] = {}
        self._done: dict[str, int] = {}
        self._next_pull = 0.0
        self._pulls: set[str] = set()
        self._layers: dict[tuple[str, str], tuple[int, int]] = {}

    def note(self, text: str) -> None:
        """Say a line that stays, whole also when several versions run side by side."""
        with self._lock:
            self.stream.write(f"{text}\n")
            self.stream.flush()

    def begin(self, label: str, total: int) -> None:
        """Begin a stretch of ``total`` steps; several may run side by side."""
        self._totals[label], self._done[label] = total, 0
        self.note(f"{label}: {total}")

    def more(self, label: str, count: int) -> None:
        """Add steps to a stretch."""
        with self._lock:
            self._totals[label] = self._totals.get(label, 0) + count

    def step(self, label: str, text: str) -> None:
        """Finish one step of a stretch."""
        with self._lock:
            done = self._done[label] = self._done.get(label, 0) + 1
            total = self._totals.get(label, done)
        self.note(f"  [{done}/{total}] {text}")

    def pull(self, image: str, layer: str, current: int, total: int) -> None:
        """Report bytes of one layer of an image; their sum is told now and then."""
        if image not in self._pulls:
            self._pulls.add(image)
            self.note(f"pulling {image}")
        with self._lock:
            if total and "Downloading" in layer:
                self._layers[image, layer.split(" ", 1)[0]] = (current, total)
            mine = [size for (name, _), size in self._layers.items() if name == image]
        if not mine or time.monotonic() < self._next_pull:
            return
        self._next_pull = time.monotonic() + PLAIN_PULL_SECONDS
        got, of = (sum(part) / 1e9 for part in zip(*mine, strict=True))
        self.note(f"pulling {image}: {got:.1f} GB done of {of:.1f} GB seen so far")

    def close(self) -> None:
        """End the display."""


class QuietProgress(Progress):
    """Notes alone, for what is run as one of many steps that are told of otherwise."""

    def begin(self, label: str, total: int) -> None:
        """Say nothing."""

    def step(self, label: str, text: str) -> None:
        """Say nothing."""


class LiveProgress(Progress):
    """Bars in a terminal: one for each stretch, one for each layer being pulled."""

    def __init__(self, stream: TextIO) -> None:
        """Start the display."""
        super().__init__(stream)
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bars

        self.bars = Bars(
            TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn(),
            TimeElapsedColumn(), TextColumn("{task.fields[last]}", markup=False),
            console=Console(file=stream), transient=True,
        )  # fmt: skip
        self.bars.start()
        self._stretches: dict[str, TaskID] = {}
        self._bars: dict[str, TaskID] = {}

    def note(self, text: str) -> None:
        """Print above the bars."""
        self.bars.console.print(text, highlight=False, markup=False)

    def begin(self, label: str, total: int) -> None:
        """Show the stretch's bar."""
        self._stretches[label] = self.bars.add_task(label, total=total, last="")

    def more(self, label: str, count: int) -> None:
        """Lengthen the bar."""
        (task,) = (task for task in self.bars.tasks if task.id == self._stretches[label])
        self.bars.update(task.id, total=(task.total or 0) + count)

    def step(self, label: str, text: str) -> None:
        """Advance the bar and show the step beside it."""
        self.bars.update(self._stretches[label], advance=1, last=text)

    def pull(self, image: str, layer: str, current: int, total: int) -> None:
        """Show each layer in megabytes; a finished one goes."""
        key = layer.split(" ", 1)[0]
        if total and key not in self._bars:
            self._bars[key] = self.bars.add_task(f"{image} {key} (MB)", total=total >> 20, last="")
        task = self._bars.get(key)
        if task is None:
            return
        done = "complete" in layer or "exists" in layer
        self.bars.update(task, completed=current >> 20, total=(total >> 20) or None, visible=not done)

    def close(self) -> None:
        """Take the bars away."""
        self.bars.stop()


def open_progress(stream: TextIO | None = None) -> Progress:
    """Return a live display in a terminal, plain lines elsewhere."""
    stream = stream or sys.stderr
    return LiveProgress(stream) if stream.isatty() else Progress(stream)
