"""The border: what came out of a container, an archive, a pack, a merge or the results folder is read here.

Regular files alone, reached without following a link and without waiting, each of a bounded size; strict
JSON; arrays by their header and never by pickle. Whatever is wrong is a :class:`BorderError`, which costs
that file or cell alone. Nothing else opens such files.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:  # a run that is served starts without NumPy
    import numpy as np
    from numpy.typing import NDArray

RECORD = 1 << 26  # bytes that a record, or any other JSON, may have
ARRAY = 1 << 36  # bytes that an array may have
NAME = 200  # bytes that the name of an output may have
BLOCK = 1 << 20

_HEADER = 1 << 16  # bytes in which an array's header must end; NumPy itself takes 10,000
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY


class BorderError(ValueError):
    """A file, or what is in it, cannot be used; the message says why, and names no path."""


# --- Files


@contextlib.contextmanager
def opened(file: Path | str, largest: int = RECORD) -> Iterator[tuple[IO[bytes], int]]:
    """Open a regular file; gives a stream and its size in bytes.

    :class:`BorderError` where it is anything else, a link too, or larger; ``OSError`` where nothing is there.
    """
    wrong = BorderError(f"is no regular file of at most {largest:,} bytes")
    try:
        descriptor = os.open(file, _FLAGS)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENXIO}:  # a link, a socket
            raise wrong from error
        raise
    facts = os.fstat(descriptor)
    if not stat.S_ISREG(facts.st_mode) or facts.st_size > largest:
        os.close(descriptor)
        raise wrong
    with os.fdopen(descriptor, "rb") as stream:
        yield stream, facts.st_size


def read_file(file: Path | str, largest: int = RECORD) -> bytes:
    """Return the content of a file; see :func:`opened`."""
    with opened(file, largest) as (stream, size):
        return stream.read(size)


def read_json(file: Path) -> dict[str, Any]:
    """Return the JSON object in a file; see :func:`opened`."""
    try:
        data = orjson.loads(read_file(file))
    except orjson.JSONDecodeError as error:
        raise BorderError(f"is no JSON that can be used: {error}") from error
    if not isinstance(data, dict):
        raise BorderError(f"is no JSON object but {type(data).__name__}")
    return data


def check_name(name: str) -> str:
    """Return a name that can be a file's, with what is put behind it, in one folder alone."""
    if not name or "/" in name or "\0" in name or len(name.encode("utf-8", "replace")) > NAME:
        raise BorderError(f"{name[:NAME]!r} is no plain name")
    return name


def remove_tree(folder: Path) -> None:
    """Remove a folder with all in it, however deep, as far as that can be done; no link is followed."""
    try:
        shutil.rmtree(folder)
    except (OSError, RecursionError):  # deeper than Python goes, or its owner may not look into a part of it
        if folder.is_dir() and not folder.is_symlink():
            for command in (["chmod", "-R", "u+rwX"], ["rm", "-rf"]):
                subprocess.run([*command, "--", folder], stderr=subprocess.DEVNULL, check=False)


# --- Arrays


def read_head(stream: IO[bytes], size: int) -> tuple[np.dtype[Any], tuple[int, ...], bool]:
    """Read the header of a ``.npy`` that has so many bytes in all; the stream stands behind it then.

    Returns dtype and shape, and whether elements lie in Fortran's order. :class:`BorderError` where it is
    none, holds no numbers, or promises other than the file has.
    """
    from numpy.lib import format as npy

    room = BytesIO(stream.read(min(size, _HEADER)))
    try:
        version = npy.read_magic(room)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, fortran, dtype = read(room)
    except Exception as error:  # NumPy reads Python's own syntax, and raises whatever that does
        raise BorderError(f"is no array: {str(error)[:200]}") from error
    start = room.tell()
    numbers = dtype.itemsize and not (dtype.hasobject or dtype.fields or dtype.subdtype)
    if not numbers or min(shape, default=0) < 0 or start + math.prod(shape) * dtype.itemsize != size:
        words = f"{dtype} {list(shape)}"[:200]
        raise BorderError(f"is no array of numbers: its header says {words}, for {size - start:,} bytes")
    stream.seek(start)
    return dtype, tuple(shape), bool(fortran)


def read_array(stream: IO[bytes], size: int) -> NDArray[Any]:
    """Return the array in a ``.npy``; memory is taken as its numbers come, not as its header promises."""
    import numpy as np

    (dtype, shape, fortran), data = read_head(stream, size), bytearray()
    while block := stream.read(BLOCK):
        data += block
    try:
        return np.frombuffer(data, dtype).reshape(shape, order="F" if fortran else "C")
    except ValueError as error:  # it ends too early, or has no elements in more room than there is
        raise BorderError(f"is no array: {error}") from error


@contextlib.contextmanager
def opened_npz(file: Path, name: str) -> Iterator[tuple[IO[bytes], int]]:
    """Open the ``.npy`` of an array in a ``.npz``; gives a stream and its size in bytes.

    :class:`BorderError` where there is none, also for what turns out to be wrong with it inside the block.
    """
    import zlib
    from zipfile import BadZipFile, ZipFile

    with opened(file, ARRAY) as (packed, _):
        try:
            with ZipFile(packed) as archive:
                sizes = {info.filename: info.file_size for info in archive.infolist()}
                if (size := sizes.get(f"{name}.npy", -1)) not in range(ARRAY + 1):
                    raise BorderError(f"holds no array {name} of at most {ARRAY:,} bytes")
                with archive.open(f"{name}.npy") as stream:
                    yield stream, size
        except (BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, UnicodeError) as error:
            raise BorderError(f"is damaged, or no .npz: {error}") from error
