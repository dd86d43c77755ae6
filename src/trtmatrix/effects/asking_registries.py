"""Asks registries for many images at once; what one does not answer keeps no other from being asked."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from trtmatrix.core.lock import LockedImage
from trtmatrix.core.lock_changes import Answer, Unresolved
from trtmatrix.core.registry import RegistryError

AT_ONCE = 4
"""Questions under way: registries limit how often they are asked."""

T = TypeVar("T")


class Asked(Protocol):
    """What answers for registries: :class:`trtmatrix.effects.registry.Registry`."""

    def resolve(self, image: str, ask: str | None = None) -> LockedImage:
        """Return what an image's name stands for now."""
        ...


def resolve_all(registry: Asked, images: Mapping[str, str | None]) -> dict[str, Answer]:
    """Return the answer for each image. ``images``: name → what is asked for it, where that is a mirror's."""

    def resolve(image: str) -> Answer:
        try:
            return registry.resolve(image, images[image])
        except RegistryError as error:
            return Unresolved(trouble=error.trouble, message=str(error))

    return _each(resolve, images)


def _each(ask: Callable[[str], T], names: Mapping[str, object]) -> dict[str, T]:
    """Return what each name is answered, in order; the threads hold up no interrupt."""
    left: queue.SimpleQueue[str] = queue.SimpleQueue()
    answered: queue.SimpleQueue[tuple[str, T | BaseException]] = queue.SimpleQueue()
    for name in names:
        left.put(name)

    def work() -> None:
        while not left.empty():
            try:
                name = left.get_nowait()
            except queue.Empty:
                return
            try:
                answered.put((name, ask(name)))
            except BaseException as error:  # noqa: BLE001 - it is raised again where it is waited for
                answered.put((name, error))

    for _ in range(min(AT_ONCE, len(names))):
        threading.Thread(target=work, daemon=True).start()
    found = dict(answered.get() for _ in names)
    results: dict[str, T] = {}
    for name in names:
        result = found[name]
        if isinstance(result, BaseException):
            raise result
        results[name] = result
    return results
