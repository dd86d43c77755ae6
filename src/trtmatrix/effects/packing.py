"""Makes files ready for an archive: private text taken out, arrays written, graphs cleaned, digests taken."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trtmatrix.core.bundle.facts import LIMIT_BYTES, LeftOut
from trtmatrix.core.bundle.manifest import OVERHEAD, RESERVE, Item, choose
from trtmatrix.core.redact import Redacted, Secrets, redact, redact_code, redact_json

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class Part:
    """A file that is to go into an archive: its content is one of ``text``, ``data``, ``file`` and ``arrays``.

    ``name``: relative, with ``/``. ``arrays``: by name, each an array or the file ``.npy`` that holds it.
    ``floors``: of float64 arrays, the noise floor (relative L2): where all does not fit they are rounded, far
    below it. ``what``, ``rank``, ``weights``: see :class:`Item`.
    """

    name: str
    text: str | None = None
    data: bytes | None = None
    file: Path | None = None
    arrays: Mapping[str, NDArray[Any] | Path] | None = None
    floors: Mapping[str, float] = field(default_factory=dict)
    what: str = ""
    rank: int = 0
    weights: bool = False


@dataclass(frozen=True, kw_only=True)
class Packed:
    """A part as it will lie in the archive: in memory, or the file whose bytes are taken as they are."""

    item: Item
    part: Part
    data: bytes | None = None
    file: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What goes in, what does not, and what was rounded to make room, in sentences."""

    kept: tuple[Packed, ...]
    left_out: tuple[LeftOut, ...] = ()
    told: tuple[str, ...] = ()


def pack_parts(parts: Sequence[Part], secrets: Secrets) -> tuple[Packed, ...]:
    """Make parts ready: every text without what is private, every graph without private notes.

    :class:`UsageError` where a file cannot be read.
    """
    raise NotImplementedError


def choose_parts(packed: Sequence[Packed], *, limit: int = LIMIT_BYTES, reserve: int = RESERVE) -> Choice:
    """Choose what fits: first arrays with a noise floor are rounded, then the highest ranks are left out.

    ``reserve``: bytes for what is packed afterwards. :class:`UsageError` where what must be in does not fit.
    """
    raise NotImplementedError
