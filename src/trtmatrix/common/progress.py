"""Progress on standard error: one live block in a terminal, elsewhere a line now and then. All is logged.

What is live is drawn by rich, which the tables' colours need anyway.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from trtmatrix.common.text import counted, duration

if TYPE_CHECKING:
    from rich.console import Group
    from rich.live import Live

SECONDS = 15.0  # a line that tells how far the work is comes at most so often
_MOST_NOW = 4
_BAR = 30


class _Stretch:
    def __init__(self, total: int = 0) -> None:
        self.total, self.done, self.began = total, 0, time.monotonic()

    def words(self) -> str:
        """Return how long it has taken so far, and the time left by the speed so far."""
        passed = time.monotonic() - self.began
        words = f"{int(passed // 60)}:{int(passed % 60):02}"
        if 0 < self.done < self.total:
            words += f", about {duration(passed / self.done * (self.total - self.done))} left"
        return words


class Progress:
    """What long work tells, as lines for logs and pipes, or a block at the foot of a terminal.

    The block says how far, how long still, what is pulled, what runs now. For many threads.
    """

    def __init__(
        self, stream: TextIO, *, log: Path | None = None, full: bool = False, quiet: bool = False,
        live: bool = False,
    ) -> None:  # fmt: skip
        """Start the log anew, if it can be written. ``full``: a line a step; ``quiet``: notes alone."""
        self.stream, self.full, self.quiet = stream, full, quiet
        self._lock = threading.RLock()
        self._stretches: dict[str, _Stretch] = {}
        self._now: dict[str, str] = {}
        self._layers: dict[str, dict[str, tuple[int, int]]] = {}
        self._told = time.monotonic()
        self._file: TextIO | None = None
        if log is not None:
            with contextlib.suppress(OSError):
                log.parent.mkdir(parents=True, exist_ok=True)
                log.unlink(missing_ok=True)  # another run that still writes keeps its own
                self._file = log.open("w", encoding="utf-8", errors="replace")
        self.log = log if self._file else None
        self._live: Live | None = None
        if live:
            from rich.console import Console
            from rich.live import Live

            console = Console(file=stream, highlight=False)
            self._live = Live(
                console=console, get_renderable=self._block, transient=True, redirect_stdout=False
            )
            self._live.start()

    def note(self, text: str) -> None:
        """Say a line that stays, whole also when several versions run side by side."""
        self._write(text, shown=True)

    def begin(self, label: str, total: int) -> None:
        """Begin a stretch of ``total`` steps; several may run side by side."""
        with self._lock:
            self._stretches[label] = _Stretch(total=total)
        self._write(f"{label}: {total}", shown=self.full)

    def more(self, label: str, count: int) -> None:
        """Add steps to a stretch."""
        with self._lock:
            self._stretches.setdefault(label, _Stretch()).total += count

    def now(self, who: str, text: str = "") -> None:
        """Say what somebody works at, or that there is nothing any more."""
        with self._lock:
            self._now.pop(who, None)
            self._now |= {who: text} if text else {}

    def step(self, label: str, text: str) -> None:
        """Finish one step of a stretch."""
        with self._lock:
            found = self._stretches.setdefault(label, _Stretch())
            found.done += 1
            found.total = max(found.total, found.done)
            self._write(f"  [{found.done}/{found.total}] {text}", shown=self.full)
            if not (self.full or self.quiet) and time.monotonic() - self._told >= SECONDS:
                parts = [f"{each.done} of {each.total} {label}" for label, each in self._stretches.items()]
                took = next(iter(self._stretches.values())).words()
                now = f"; now {next(reversed(self._now.values()))}" if self._now else ""
                self._tell(f"{', '.join(parts)} in {took}{now}")

    def pull(self, image: str, layer: str, current: int, total: int) -> None:
        """Report bytes of one layer of an image; their sum is told now and then."""
        with self._lock:
            if image not in self._layers:
                self.note(f"pulling {image}")
            mine = self._layers.setdefault(image, {})
            if total and "Downloading" in layer:
                mine[layer.split(" ", 1)[0]] = (current, total)
            if mine and time.monotonic() >= self._told + SECONDS:
                self._tell(f"pulling {self._pulled(image)}")

    def close(self) -> None:
        """End the display and the log."""
        if self._live is not None:
            self._live.stop()
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None

    def _pulled(self, image: str) -> str:
        got, of = (sum(part) / 1e9 for part in zip(*self._layers[image].values(), strict=True))
        return f"{image}: {got:.1f} GB done of {of:.1f} GB seen so far"

    def _tell(self, text: str) -> None:
        """Say what replaces what was said before; the block says the same."""
        self._told = time.monotonic()
        self._write(text, shown=self._live is None)

    def _write(self, text: str, *, shown: bool) -> None:
        """Log a line, and show it where that is wanted; who reads may be gone."""
        with self._lock:
            if self._file is not None:
                with contextlib.suppress(OSError):
                    self._file.write(f"{text}\n")
                    self._file.flush()
            with contextlib.suppress(OSError, ValueError):
                if shown and self._live is not None:
                    self._live.console.print(text, markup=False, soft_wrap=True)
                elif shown:
                    print(text, file=self.stream, flush=True)

    def _block(self) -> Group:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        # Without our lock: rich holds its own here, and who says a line takes ours first and then rich's.
        bars, stretches = Table.grid(padding=(0, 1)), self._stretches.copy()
        open_ones = {k: v for k, v in stretches.items() if v.done < v.total} or stretches
        for label, each in open_ones.items():
            words = f"{each.done}/{each.total} {label} · {each.words()}"
            bars.add_row(ProgressBar(each.total, each.done, _BAR), Text(words, no_wrap=True))
        lines = [f"pulling {self._pulled(image)}" for image, mine in self._layers.copy().items() if mine]
        running = list(self._now.values())
        lines += [f"now: {text}" for text in running[:_MOST_NOW]]
        if len(running) > _MOST_NOW:
            lines.append(f"     and {counted(len(running) - _MOST_NOW, 'other')}")
        return Group(bars, Text("\n".join(lines), no_wrap=True, overflow="ellipsis"))


def open_progress(*, log: Path | None = None, full: bool = False, quiet: bool = False) -> Progress:
    """Return a live display in a terminal, lines elsewhere and where all of them are wanted.

    ``log``: a file that every line goes to.
    """
    live = not (full or quiet) and sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    return Progress(sys.stderr, log=log, full=full, quiet=quiet, live=live)
