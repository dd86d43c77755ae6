"""The books of what this tool pulled, and who uses which image just now. Pure.

An image goes only where these books say that the tool brought it, and that no run that lives uses it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

SCHEMA = 1
SPEEDS = 10
"""Pulls whose speed is remembered."""

IsDead = Callable[[str], bool]
"""Whether an owner (see effects.owner) is known to be gone."""


@dataclass(frozen=True, kw_only=True)
class PulledImage:
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


@dataclass(frozen=True, kw_only=True)
class Use:
    """A run that uses an image just now."""

    engine: str
    image_id: str
    owner: str


@dataclass(frozen=True, kw_only=True)
class Speed:
    """How many bytes came in how many seconds."""

    size: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Books:
    """All of it; each change gives new books."""

    pulled: tuple[PulledImage, ...] = ()
    uses: tuple[Use, ...] = ()
    speeds: tuple[Speed, ...] = ()

    def begin(self, image: PulledImage) -> Books:
        """Note that a pull begins."""
        return replace(self, pulled=(*self.pulled, image))

    def forget(self, image: PulledImage) -> Books:
        """Strike just this: another run's pull of the same reference stays."""
        return replace(self, pulled=tuple(item for item in self.pulled if item != image))

    def finish(self, image: PulledImage, image_id: str, speed: Speed) -> Books:
        """Note that a pull has ended well; its owner uses what came."""
        same = [i for i in self.ours(image.engine, image_id) if i.reference == image.reference]
        others = tuple(item for item in self.forget(image).pulled if item not in same)
        pulled = (*others, replace(image, image_id=image_id))
        books = replace(self, pulled=pulled).use(image.engine, image_id, image.owner)
        known = self.speeds if speed.size == 0 or speed.seconds <= 0 else (*self.speeds, speed)
        return replace(books, speeds=known[-SPEEDS:])

    def use(self, engine: str, image_id: str, owner: str) -> Books:
        """Note that a run uses an image."""
        books = self.release(engine, image_id, owner)
        return replace(books, uses=(*books.uses, Use(engine=engine, image_id=image_id, owner=owner)))

    def release(self, engine: str, image_id: str, owner: str) -> Books:
        """Note that a run uses an image no more."""
        gone = Use(engine=engine, image_id=image_id, owner=owner)
        return replace(self, uses=tuple(use for use in self.uses if use != gone))

    def set_drop(self, engine: str, image_id: str, *, drop: bool) -> Books:
        """Say whether an image is to go."""
        ours = self.ours(engine, image_id)
        return replace(self, pulled=tuple(replace(i, drop=drop) if i in ours else i for i in self.pulled))

    def ours(self, engine: str, image_id: str) -> tuple[PulledImage, ...]:
        """Return the pulls that brought an image here; none where this tool did not."""
        return tuple(item for item in self.of(engine) if item.image_id == image_id)

    def is_used(self, engine: str, image_id: str) -> bool:
        """Whether a run uses an image just now."""
        return any((use.engine, use.image_id) == (engine, image_id) for use in self.uses)

    def without_dead(self, is_dead: IsDead) -> Books:
        """Strike the uses of runs that are gone, and their pulls that had not ended.

        What such a pull may have left is nobody's: somebody may have pulled it by hand since.
        """
        dead = {owner for owner in (*_owners(self.uses), *_owners(self.pulled)) if is_dead(owner)}
        return replace(
            self,
            uses=tuple(use for use in self.uses if use.owner not in dead),
            pulled=tuple(item for item in self.pulled if item.image_id or item.owner not in dead),
        )

    def leftovers(self, engine: str, is_dead: IsDead) -> tuple[str, ...]:
        """Return the IDs of images that were to go, whose runs are gone, and that nobody uses."""
        left = [item for item in self.of(engine) if item.drop and is_dead(item.owner)]
        found = [item.image_id for item in left if not self.is_used(engine, item.image_id)]
        return tuple(dict.fromkeys(found))

    def of(self, engine: str) -> tuple[PulledImage, ...]:
        """Return what has come to an engine."""
        return tuple(item for item in self.pulled if item.engine == engine and item.image_id)

    @property
    def bytes_per_second(self) -> float | None:
        """How fast pulls were, or None where none is known."""
        seconds = sum(speed.seconds for speed in self.speeds)
        return sum(speed.size for speed in self.speeds) / seconds if seconds > 0 else None


def _owners(items: Sequence[Use | PulledImage]) -> list[str]:
    return [item.owner for item in items]


def parse_books(text: str) -> Books | None:
    """Read books, or None where they cannot be believed: then nothing counts as pulled by this tool."""
    try:
        data: Any = json.loads(text)
        if data["schema"] != SCHEMA:
            return None
        books = Books(
            pulled=tuple(PulledImage(**item) for item in data["pulled"]),
            uses=tuple(Use(**item) for item in data["uses"]),
            speeds=tuple(Speed(**item) for item in data["speeds"]),
        )
    except (ValueError, TypeError, KeyError):
        return None
    return books if format_books(books) == text and _is_sound(books) else None


def _is_sound(books: Books) -> bool:
    """Whether every value is of its kind: dataclasses take what they are given."""
    texts = [value for item in (*books.pulled, *books.uses) for name, value in vars(item).items()
             if name != "drop"]  # fmt: skip
    numbers = [value for speed in books.speeds for value in vars(speed).values()]
    return (
        all(isinstance(text, str) for text in texts)
        and all(isinstance(item.drop, bool) for item in books.pulled)
        and all(isinstance(number, (int, float)) and not isinstance(number, bool) for number in numbers)
    )


def format_books(books: Books) -> str:
    """Write books as JSON."""
    return json.dumps({"schema": SCHEMA, **asdict(books)}, indent=1) + "\n"
