"""The books of pulled images as a file of the cache, for several runs at once; see core.pulled."""

from __future__ import annotations

import contextlib
import fcntl
import tempfile
from collections.abc import Iterator
from pathlib import Path

from trtmatrix.common.owner import is_dead
from trtmatrix.launchers.pulled_rules import Books, format_books, parse_books

FILE, LOCK = "pulled.json", "pulled.lock"


class Page:
    """The books while they are open; what is put into ``books`` is written."""

    def __init__(self, ledger: Ledger, books: Books) -> None:
        """Keep where they are written."""
        self._ledger, self._books = ledger, books

    @property
    def books(self) -> Books:
        """What they say now."""
        return self._books

    def write(self, books: Books) -> None:
        """Write them at once, whole or not at all, where they changed."""
        if books != self._books:
            self._ledger.write(books)
        self._books = books


class Ledger:
    """``pulled.json`` in the cache. One process and thread at a time has it open; others wait."""

    def __init__(self, cache: Path) -> None:
        """Name the files; nothing is read or written yet."""
        self.file, self._lock = cache / FILE, cache / LOCK

    @contextlib.contextmanager
    def open(self) -> Iterator[Page]:
        """Open the books; what is in them of runs that are gone, and of no use, is struck.

        An image must be found, and noted as used, while they are open: so no other run can drop it between.
        """
        self._lock.parent.mkdir(parents=True, exist_ok=True)
        with self._lock.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # it goes with the file, however this process ends
            page = Page(self, self.read())
            page.write(page.books.without_dead(is_dead))
            yield page

    def read(self) -> Books:
        """Return what the books say; empty ones where there are none that can be believed."""
        try:
            return parse_books(self.file.read_text(encoding="utf-8")) or Books()
        except (OSError, UnicodeDecodeError):
            return Books()

    def write(self, books: Books) -> None:
        """Write the books, whole or not at all."""
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=self.file.parent, prefix=f".{FILE}.", delete=False
        ) as out:
            partial = Path(out.name)
            try:
                out.write(format_books(books))
                out.flush()
                partial.replace(self.file)
            except BaseException:
                partial.unlink(missing_ok=True)
                raise


def pull_speed(cache: Path) -> float | None:
    """Return how fast earlier pulls were, in bytes (compressed) a second; None where none is known."""
    return Ledger(cache).read().bytes_per_second
