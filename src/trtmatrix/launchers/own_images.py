"""``--image``: what the user has stand for images of matrix.yaml, references or files. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from trtmatrix.common.errors import UsageError
from trtmatrix.launchers.references import parse_reference
from trtmatrix.suite.image_names import SUFFIXES
from trtmatrix.suite.matrix import ImageOrigin, Matrix, Version

FILES = tuple(dict.fromkeys(SUFFIXES.values()))


def with_own_images(
    matrix: Matrix, texts: Sequence[str], engine: str, read_file: Callable[[str], ImageOrigin]
) -> Matrix:
    """Return the matrix with the images of ``texts`` (``VERSION=REFERENCE|FILE``) in place of its own.

    What is locked or built of an image that is replaced says nothing of the one that replaces it.
    ``read_file`` returns a file as an origin. :class:`UsageError` where a text cannot be obeyed.
    """
    origins: dict[str, ImageOrigin] = {}
    for text in texts:
        name, equals, image = text.partition("=")
        if not (equals and name and image):
            raise UsageError(f"--image {text}: write VERSION=REFERENCE or VERSION=FILE")
        _check_version(text, name, matrix.versions)
        if name in origins:
            raise UsageError(f"--image {text}: {name} has an image by another --image: leave one out")
        if is_path(image):
            _check_suffix(text, image, engine)
            origins[name] = read_file(image)
        else:
            parse_reference(image)
            origins[name] = ImageOrigin(image=image)
    versions = (replace(v, origin=origins[v.name]) if v.name in origins else v for v in matrix.versions)
    return replace(matrix, versions=tuple(versions))


def is_path(image: str) -> bool:
    """Whether an image is named by its file; no reference ends or begins so."""
    return image.startswith(("/", "./", "../", "~")) or image.endswith(FILES)


def _check_version(text: str, name: str, versions: Sequence[Version]) -> None:
    in_images = [v.name for v in versions if isinstance(v.origin, ImageOrigin)]
    if name not in in_images:
        why = "runs in no image" if name in {v.name for v in versions} else "is no version of matrix.yaml"
        raise UsageError(f"--image {text}: {name} {why}\n  name one of {', '.join(in_images)}")


def _check_suffix(text: str, image: str, engine: str) -> None:
    if not image.endswith(SUFFIXES[engine]):
        taken = "; ".join(f"--engine {name}: {suffix}" for name, suffix in SUFFIXES.items())
        raise UsageError(
            f"--image {text}: --engine {engine} takes files that end in {SUFFIXES[engine]}\n  {taken}"
        )
