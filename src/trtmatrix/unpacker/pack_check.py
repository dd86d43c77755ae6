"""What a pack is, and whether every byte of one is as it was written. A part of the pack's own script.

Python 3.8 runs it, with nothing but its standard library: so what that cannot evaluate is quoted.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    Json = dict[str, Any]

SCHEMA = 1
HEADER = 512
"""Bytes at a part's start that say whose it is: ``tail -q -c +513 images.* | docker load`` works by hand."""

BLOCK = 1 << 20
MANIFEST, SUMS, SCRIPT = "manifest.json", "SHA256SUMS", "unpack"
PART = re.compile(r"(files|images)\.\d{3,}")
SHA256 = re.compile(r"[0-9a-f]{64}")
MOST = 1 << 60
"""Bytes that nothing has: a larger size is a mistake."""

GLIBC = "2.28"
"""What the other host is taken to have: any distribution since 2018, https://peps.python.org/pep-0600/."""

VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
IMAGE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]*")
IMAGE_ID = re.compile(r"sha256:[0-9a-f]{64}")
PATTERNS = {
    ("", "pack"): re.compile(r"[0-9a-z][0-9a-z-]{0,63}"),
    ("", "commit"): re.compile(r"([0-9a-f]{40,64})?"),
    ("", "platform"): re.compile(r"[a-z0-9]+(/[a-z0-9]+)+"),
    ("", "pythons"): re.compile(r"3\.[0-9]{1,3}"),
    ("", "versions"): VERSION,
    ("parts", "name"): PART,
    ("parts", "sha256"): SHA256,
    ("files", "sha256"): SHA256,
    ("images", "id"): IMAGE_ID,
    ("images", "names"): IMAGE_NAME,
    ("images", "versions"): VERSION,
    ("images", "manifest"): re.compile(f"({IMAGE_ID.pattern})?"),
}
"""What a text of the manifest, or each of a list, must be: some go into commands."""

LITTER = re.compile(
    r"lost\+found|\.Trash.*|\$RECYCLE\.BIN|System Volume Information|\.Spotlight-V100|\.fseventsd"
)
"""Folders that systems make at the root of a disk."""
DAMAGED, USAGE, FAILED, INTERRUPTED = 1, 2, 3, 130


class Refused(Exception):
    """What ends this program: words for the user, and an exit code."""

    def __init__(self, words: str, code: int) -> None:
        """Keep both."""
        super().__init__(words)
        self.code = code


def part_header(pack: str, name: str) -> bytes:
    """Return the first bytes of a part, readable as text: which part of which pack it is."""
    text = f"trtmatrix pack {SCHEMA}\npack: {pack}\npart: {name}\n"
    return text.encode().ljust(HEADER - 1, b" ") + b"\n"


FIELDS: "dict[str, dict[str, type]]" = {
    "": {
        "schema": int, "pack": str, "made": str, "by": str, "commit": str, "changed": bool, "platform": str,
        "pythons": list, "versions": list, "parts": list, "files": list, "images": list,
    },
    "parts": {"name": str, "size": int, "sha256": str},
    "files": {"name": str, "size": int, "sha256": str},
    "images": {"id": str, "names": list, "versions": list, "size": int, "manifest": str},
}  # fmt: skip
"""What the manifest and each entry of its lists must hold; nothing else may be there."""


def parse_manifest(text: str) -> "Json":
    """Read a pack's manifest; ``ValueError`` says what it lacks."""
    try:
        data = json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    _check_fields(data, "")
    if data["schema"] != SCHEMA:
        raise ValueError(f"it is of schema {data['schema']}, and this program reads {SCHEMA}")
    for key in ("parts", "files", "images"):
        for entry in data[key]:
            _check_fields(entry, key)
    for key in ("parts", "files"):
        if wrong := wrong_names(entry["name"] for entry in data[key]):
            raise ValueError(wrong[0])
    for key in FIELDS:
        for entry in data[key] if key else [data]:
            _check_words(entry, key)
    return dict(data)


def wrong_names(names: "Iterable[str]") -> "list[str]":
    """Say of each name that no file of a pack can have what is wrong with it."""
    known = sorted(names)
    wrong = [f"{name!a} is no name for a file of a pack" for name in known if not is_plain(name)]
    folders = {name.rpartition("/")[0].lower() for name in known}
    folders |= {
        "/".join(folder.split("/")[:count]) for folder in folders for count in range(folder.count("/") + 1)
    }
    seen: dict[str, str] = {}
    for name in known:
        if name.lower() in seen:
            wrong.append(f"a name stands twice: {seen[name.lower()]!a} and {name!a}")
        elif name.lower() in folders:
            wrong.append(f"{name!a} is a file and a folder")
        seen[name.lower()] = name
    return wrong


def _check_words(entry: "Json", key: str) -> None:
    for (place, name), pattern in PATTERNS.items():
        values = entry[name] if place == key and isinstance(entry[name], list) else [entry.get(name)]
        for value in values if place == key else ():
            if not isinstance(value, str) or not pattern.fullmatch(value):
                raise ValueError(f"{name} of {key or 'it'} cannot be {value!a}"[:300])
    if key and not 0 <= entry["size"] < MOST:
        raise ValueError(f"a size of {key} is none")


def _check_fields(data: Any, key: str) -> None:  # noqa: ANN401 - JSON
    where = f"an entry of {key}" if key else "it"
    if not isinstance(data, dict):
        raise ValueError(f"{where} is no object")  # noqa: TRY004 - of the file, not of an argument
    for name, kind in FIELDS[key].items():
        if not isinstance(data.get(name), kind) or (kind is int and isinstance(data[name], bool)):
            raise ValueError(f"{where} lacks {name}, or that is no {kind.__name__}")
    if extra := sorted(set(data) - set(FIELDS[key])):
        raise ValueError(f"{where} has {', '.join(map(repr, extra))}, which nobody knows")


def is_plain(name: str) -> bool:
    """Whether a name is relative, plain, and leads nowhere else."""
    parts = name.split("/")
    good = name.isprintable() and "\\" not in name and ":" not in name
    return good and not any(part in {"", ".", ".."} for part in parts)


def is_litter(path: Path) -> bool:
    """Whether this is a folder that a system makes at the root of a disk."""
    return bool(LITTER.fullmatch(path.name)) and path.is_dir() and not path.is_symlink()


def check_pack(folder: Path, besides: str = "") -> "Json":
    """Return the manifest of a pack; :class:`Refused` names every file that is not as it was written.

    ``besides``: the name of what else may lie in its folder.
    """
    if not (folder / MANIFEST).is_file():
        raise Refused(
            f"{folder}: no {MANIFEST}: this is no pack, or writing it was cut off: pack again", DAMAGED
        )
    try:
        sums = parse_sums((folder / SUMS).read_text(encoding="utf-8"))
        text = (folder / MANIFEST).read_bytes()
        manifest = parse_manifest(text.decode("utf-8"))
    except (OSError, ValueError) as error:
        raise Refused(f"{folder}: {SUMS} or {MANIFEST} cannot be used: {error}", DAMAGED) from error
    problems = []
    if sums.pop(MANIFEST, "") != hashlib.sha256(text).hexdigest():
        problems.append(f"{MANIFEST} differs from what {SUMS} says")
    if sums.pop(SCRIPT, "") != digest_file(folder / SCRIPT):
        problems.append(f"{SCRIPT} differs from what {SUMS} says")
    if sums != {part["name"]: part["sha256"] for part in manifest["parts"]}:
        problems.append(f"{SUMS} has other digests of the parts than {MANIFEST}")
    known = {MANIFEST, SUMS, SCRIPT, besides, *(part["name"] for part in manifest["parts"])}
    found = sorted(path.name for path in folder.iterdir() if path.name not in known and not is_litter(path))
    problems += [
        f"{name if is_plain(name) else ascii(name)} is extra: it is none of this pack's, move it away"
        for name in found
    ]
    with ThreadPoolExecutor(max_workers=2) as pool:  # hashing waits for no lock of Python's
        problems += filter(
            None, pool.map(lambda part: _check_part(folder, part, manifest), manifest["parts"])
        )
    if problems:
        lines = "".join(f"\n  {one}" for one in problems)
        raise Refused(
            f"{folder}: is not the pack {manifest['pack']} as it was made; nothing was loaded:{lines}\n"
            "  copy what is named again from where the pack was made, then start this once more", DAMAGED
        )  # fmt: skip
    return manifest


def parse_sums(text: str) -> "dict[str, str]":
    """Read what ``sha256sum`` writes: name → digest; ``ValueError`` names the line that is none."""
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        digest, _, name = line.partition("  ")
        if not SHA256.fullmatch(digest) or not is_plain(name) or name in found:
            raise ValueError(f"line {number} of {SUMS} is no digest of a file, or names one again")
        found[name] = digest
    return found


def digest_file(file: Path) -> str:
    """Return the SHA-256 of a file, or nothing where it cannot be read."""
    total, block = hashlib.sha256(), memoryview(bytearray(BLOCK))
    try:
        with file.open("rb", buffering=0) as stream:
            while count := stream.readinto(block):
                total.update(block[:count])
    except OSError:
        return ""
    return total.hexdigest()


def _check_part(folder: Path, part: "Json", manifest: "Json") -> str:
    """Say what is wrong with a part, or nothing."""
    file, name = folder / part["name"], part["name"]
    if not file.is_file():
        return f"{name} is missing"
    with file.open("rb") as stream:
        header = stream.read(HEADER)
    other = re.match(rb"trtmatrix pack \d+\npack: ([\w-]+)\npart: ([\w.]+)\n", header)
    if other and header != part_header(manifest["pack"], name):
        return f"{name} is {other[2].decode()} of the pack {other[1].decode()}, not of this one"
    size = file.stat().st_size
    if size != part["size"]:
        return (
            f"{name} has {size:,} bytes, and {part['size']:,} were written: it is cut short, or not this part"
        )
    found = digest_file(file)
    return (
        ""
        if found == part["sha256"]
        else f"{name} differs: sha256 {found or 'unreadable'}, not {part['sha256']}"
    )


def read_stream(folder: Path, manifest: "Json", kind: str) -> "Iterator[bytes]":
    """Yield the bytes of all parts of a kind, one part after another, without their headers."""
    for part in manifest["parts"]:
        if part["name"].startswith(f"{kind}."):
            with (folder / part["name"]).open("rb", buffering=0) as stream:
                stream.seek(HEADER)
                while block := stream.read(BLOCK):
                    yield block


def stream_size(manifest: "Json", kind: str) -> int:
    """Return the bytes of all parts of a kind, without their headers."""
    return sum(p["size"] - HEADER for p in manifest["parts"] if p["name"].startswith(f"{kind}."))


class Joined:
    """A stream of blocks that is read like a file."""

    def __init__(self, blocks: "Iterator[bytes]") -> None:
        """Keep the blocks."""
        self._blocks, self._rest = blocks, memoryview(b"")

    def read(self, count: int) -> bytes:
        """Return so many bytes, fewer at the end alone."""
        found: list[bytes] = []
        while count > 0:
            if not self._rest:
                self._rest = memoryview(next(self._blocks, b""))
                if not self._rest:
                    break
            found.append(bytes(self._rest[:count]))
            self._rest = self._rest[len(found[-1]) :]
            count -= len(found[-1])
        return b"".join(found)
