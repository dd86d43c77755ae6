"""Makes files ready for an archive: private text taken out, arrays written, graphs cleaned, digests taken."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any

from trtmatrix.core.bundle.facts import IMAGE, LIMIT_BYTES, LeftOut
from trtmatrix.core.bundle.manifest import OVERHEAD, RESERVE, Item, choose, write_size
from trtmatrix.core.errors import MachineryError, UsageError
from trtmatrix.core.privacy import is_ordinary
from trtmatrix.core.redact import Private, Secrets, as_markdown, redact, redact_code, redact_json
from trtmatrix.effects.npz import COARSE, FINER, bits_for, coarsen, narrow, write_npz

if TYPE_CHECKING:
    from numpy.typing import NDArray

ONNX = ".onnx"
TEXTS = frozenset({".json", ".log", ".md", ".py", ".sh", ".txt", ".yaml", ".yml", ".csv", ".toml"})
"""Ends of names of files that are texts, whatever bytes are in them."""

LARGE = 64_000_000
"""Bytes from which on a file that is no graph is not held in memory."""

HOPELESS = 8 * LIMIT_BYTES
"""Bytes after which a file is taken as one that cannot be compressed: it fits in no case."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """A file for an archive: its content is one of ``text``, ``data``, ``file`` and ``arrays``.

    ``name``: relative, with ``/``. ``arrays``: by name, each an array or the file ``.npy`` that holds it;
    ``coarse``: their shape alone counts, and they are rounded to a bit or so before they are left out.
    ``floors``: of float64 arrays, the noise floor (relative L2): where all does not fit they are rounded, far
    below it. ``what``, ``rank``, ``weights``: see :class:`Item`.
    """

    name: str
    text: str | None = None
    data: bytes | None = None
    file: Path | None = None
    arrays: Mapping[str, NDArray[Any] | Path] | None = None
    floors: Mapping[str, float] = field(default_factory=dict)
    coarse: bool = False
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

    Weights beside a graph whose names are private get others, in the graph too. :class:`UsageError` where a
    file cannot be read.
    """
    renamed: dict[str, str] = {}
    packed = []
    for part in parts:
        check_name(part.name)
    for part in sorted(parts, key=lambda part: not part.name.endswith(ONNX)):  # graphs name the others
        try:
            packed.append(_pack(part, secrets, renamed))
        except OSError as error:
            where = part.file or part.name
            raise UsageError(f"{where}: cannot be read: {error.strerror or error}") from error
    order = {id(part): index for index, part in enumerate(parts)}
    return tuple(sorted(packed, key=lambda one: order[id(one.part)]))


def check_name(name: str) -> None:
    """:class:`MachineryError` where a name is not relative and plain."""
    if not name.isprintable() or any(word in {"", ".", ".."} for word in name.split("/")):
        raise MachineryError(f"{name!r} is no name for a file of an archive")


def _pack(part: Part, secrets: Secrets, renamed: dict[str, str]) -> Packed:
    name = renamed.get(part.name) or "/".join(public_name(word, secrets) for word in part.name.split("/"))
    told = ["it has another name, as its own holds something private"] if name != part.name else []
    if part.arrays is not None:
        data = write_npz({key: load_array(array) for key, array in part.arrays.items()})
        told += _private_names("array", part.arrays, secrets)
        return _packed(part, name, data, {}, told)
    if part.text is not None:
        return _packed_text(part, name, part.text, secrets, told)
    if part.file is not None and _is_large(part.file, name):
        return _packed_file(part, name, part.file, told)
    data = part.data if part.data is not None else _read(part)
    if name.endswith(ONNX):
        return _packed_graph(part, name, data, secrets, renamed)
    if is_text(name, data) and not part.weights:
        return _packed_text(part, name, data.decode("utf-8", "surrogateescape"), secrets, told)
    return _packed(part, name, data, {}, told + _private_bytes(data, secrets))


def _is_large(file: Path, name: str) -> bool:
    """Whether a file is so large that it is not held in memory: neither graph nor text."""
    if file.stat().st_size <= LARGE or name.endswith(ONNX):
        return False
    with file.open("rb") as stream:
        return not is_text(name, stream.read(1 << 20))


def _read(part: Part) -> bytes:
    if part.file is None:
        raise MachineryError(f"the part {part.name} of an archive has no content")
    return part.file.read_bytes()


def is_text(name: str, data: bytes) -> bool:
    """Whether a file is one that people read, by its name or as it has no zero bytes."""
    return b"\0" not in data or PurePosixPath(name).suffix in TEXTS


def _packed_text(part: Part, name: str, text: str, secrets: Secrets, told: list[str]) -> Packed:
    if name.endswith(".json"):
        found = redact_json(text, secrets)
    elif name.endswith(".py"):
        found = redact_code(text, secrets)
    else:
        script = name.endswith(".sh") or name.startswith(f"{IMAGE}/")
        found = redact(text, secrets, script=script)
    text = as_markdown(found.text) if name.endswith(".md") else found.text
    return _packed(part, name, _encode(text), found.counts, told)


def _encode(text: str) -> bytes:
    """Return a text's bytes: those that were no UTF-8 as they were."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace")


def _packed(part: Part, name: str, data: bytes, taken: Mapping[Private, int], told: Sequence[str]) -> Packed:
    item = Item(
        name=name, sha256=sha256(data).hexdigest(), size=len(data), packed=len(zlib.compress(data, 9)),
        what=part.what, rank=part.rank, weights=part.weights, taken=taken, told=tuple(told),
    )  # fmt: skip
    return Packed(item=item, part=part, data=data)


def digest_stream(stream: IO[bytes]) -> str:
    """Return the SHA-256 of what is left of a stream (hexadecimal)."""
    total = sha256()
    while block := stream.read(1 << 20):
        total.update(block)
    return total.hexdigest()


def _packed_file(part: Part, name: str, file: Path, told: Sequence[str]) -> Packed:
    """Make a large file ready without holding it in memory; no text is so large."""
    size, squeeze = file.stat().st_size, zlib.compressobj(6)
    with file.open("rb") as stream:
        digest = digest_stream(stream)
        stream.seek(0)
        blocks = iter(lambda: stream.read(1 << 20), b"") if size <= HOPELESS else ()
        squeezed = sum(len(squeeze.compress(block)) for block in blocks) + len(squeeze.flush())
    packed = squeezed if size <= HOPELESS else size
    item = Item(
        name=name, sha256=digest, size=size, packed=packed, what=part.what, rank=part.rank,
        weights=part.weights, told=tuple(told),
    )  # fmt: skip
    return Packed(item=item, part=part, file=file)


def _packed_graph(part: Part, name: str, data: bytes, secrets: Secrets, renamed: dict[str, str]) -> Packed:
    from trtmatrix.onnxmodel.cleaning import clean_graph

    cleaned = clean_graph(data, secrets)
    folder = name.rpartition("/")[0]
    for old, new in cleaned.renamed.items():
        renamed[f"{folder}/{old}".lstrip("/")] = f"{folder}/{new}".lstrip("/")
    return _packed(part, name, cleaned.content, cleaned.taken, cleaned.told)


def _private_names(what: str, names: Iterable[str], secrets: Secrets) -> list[str]:
    """Say which names hold something private; they stay, since others name them too."""
    found = [name for name in sorted(names) if redact(name, secrets).counts]
    return [f"CAREFUL: the {what} {name} has something private in its name, and keeps it" for name in found]


def _private_bytes(data: bytes, secrets: Secrets) -> list[str]:
    """Say which known values are in a file that is no text; it stays as it is."""
    named = {
        Private.USER: [one for one in secrets.users if not is_ordinary(one, secrets.words)],
        Private.HOST: [one for one in secrets.hosts if not is_ordinary(one, secrets.words)],
        Private.HOME: secrets.homes, Private.WORKSPACE: secrets.workspaces, Private.SERIAL: secrets.serials,
        Private.TOKEN: secrets.tokens, Private.VARIABLE: secrets.values,
    }  # fmt: skip
    found = [kind for kind, values in named.items() if _holds(data, values)]
    return [f"CAREFUL: it is no text and holds a {kind.value}, which stays in it" for kind in found]


def _holds(data: bytes, values: Iterable[str]) -> bool:
    long = [value for value in values if len(value) >= 5]
    return any(value.encode(coding) in data for value in long for coding in ("utf-8", "utf-16-le"))


def load_array(array: NDArray[Any] | Path) -> NDArray[Any]:
    """Return an array, mapped where it is a file; :class:`UsageError` where that holds none."""
    import numpy as np

    if not isinstance(array, Path):
        return array
    try:
        loaded: NDArray[Any] = np.load(array, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise UsageError(
            f"{array}: holds no array: {error}: remove the case from the cache, and run it again"
        ) from error
    return loaded


def public_name(name: str, secrets: Secrets) -> str:
    """Return a file's name without what is private in it."""
    return re.sub(r"<([^<>]*)>", r"\1", redact(name, secrets).text)


def choose_parts(packed: Sequence[Packed], *, limit: int = LIMIT_BYTES, reserve: int = RESERVE) -> Choice:
    """Choose what fits: first arrays with a noise floor are rounded, then the highest ranks are left out.

    ``reserve``: bytes for what is packed afterwards. :class:`UsageError` where what must be in does not fit.
    """
    told: list[str] = []
    if packed_size(packed) + reserve > limit:
        packed = [_narrowed(one, told) for one in packed]
    left_out = choose([one.item for one in packed], limit, reserve)
    names = {one.name for one in left_out}
    kept = tuple(one for one in packed if one.item.name not in names)
    if packed_size(kept) + reserve > limit:
        raise UsageError(_too_large(kept, limit))
    return Choice(kept=kept, left_out=left_out, told=tuple(told))


def packed_size(packed: Iterable[Packed]) -> int:
    """Return about how many bytes an archive of these has."""
    return sum(one.item.packed + OVERHEAD for one in packed)


def _narrowed(one: Packed, told: list[str]) -> Packed:
    """Return a part with its arrays rounded far below their noise floors, where that makes it smaller."""
    arrays, floors, coarse = one.part.arrays, one.part.floors, one.part.coarse
    if arrays is None or not (floors or coarse):
        return one
    loaded = {key: load_array(array) for key, array in arrays.items()}
    rounded = {key: coarsen(x) if coarse else narrow(x, floors.get(key, 0.0)) for key, x in loaded.items()}
    changed = [key for key in sorted(rounded) if rounded[key] is not loaded[key]]
    smaller = _packed(one.part, one.item.name, write_npz(rounded), {}, one.item.told) if changed else one
    if smaller.item.packed >= one.item.packed:
        return one
    note = f"rounded so that all fits, {_rounding(changed, floors, coarse=coarse)}"
    told.append(f"{one.item.name}: {note}")
    return replace(smaller, item=replace(smaller.item, told=(*one.item.told, note)))


def _rounding(changed: Sequence[str], floors: Mapping[str, float], *, coarse: bool) -> str:
    if coarse:
        return f"to {COARSE} bit of mantissa: their shape is what counts"
    words = ", ".join(f"{key} to {bits_for(floors[key])} bits" for key in changed)
    return f"at most 1/{FINER} of the noise floor: {words}"


def _too_large(kept: Sequence[Packed], limit: int) -> str:
    largest = sorted(kept, key=lambda one: -one.item.packed)[:3]
    names = ", ".join(f"{one.item.name} {write_size(one.item.packed)}" for one in largest)
    return (
        f"what the archive must hold takes about {write_size(packed_size(kept))} of {write_size(limit)} "
        f"({names}): make the case smaller first: nox -s minimise -- CELL"
    )
