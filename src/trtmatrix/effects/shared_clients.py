"""The clients that live: each holds a lock on a file of its own, which ends with its process."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType

from trtmatrix.effects.shared_folder import SharedFolder


class Client:
    """This process as a client of a shared folder, from ``with`` to its end. Use it under the folder's lock."""

    def __init__(self, folder: SharedFolder) -> None:
        """Name the folder; the client is there from ``__enter__`` on."""
        self.folder = folder
        self.id = ""

    def __enter__(self) -> Client:
        """Register."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Follow nothing any more."""

    def follow(self, keys: Iterable[str]) -> None:
        """Follow these arrays beside those that are followed already."""
        raise NotImplementedError

    def leave(self, keys: Iterable[str]) -> None:
        """Follow these arrays no longer."""
        raise NotImplementedError

    def followed_by_others(self) -> frozenset[str]:
        """Return the arrays that other living clients follow."""
        raise NotImplementedError

    def living(self) -> frozenset[str]:
        """Return the ids of all living clients, this one among them."""
        raise NotImplementedError
