"""Saves images for a pack, all in one stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import docker
import docker.errors
import requests.exceptions

from trtmatrix.core.config import Version
from trtmatrix.core.errors import MachineryError
from trtmatrix.core.pack import PackedImage, bytes_of_layers, packed_images
from trtmatrix.unpacker.pack_check import BLOCK

PIECES = 32
"""Pieces of an engine's answer that are written at once."""


class Saver:
    """What an engine has of images, and the stream of ``docker save``."""

    def __init__(self, client: docker.DockerClient) -> None:
        """Keep the connection."""
        self.client = client

    def images(self, held: dict[str, str], versions: Sequence[Version]) -> tuple[PackedImage, ...]:
        """Return what is to be saved, each image once, with its size."""
        sizes = {one: int(self._inspect(one)["Size"]) for one in set(held.values())}
        tags = [tag for image in sizes for tag in self._inspect(image).get("RepoTags") or ()]
        return packed_images(held, sizes, versions, {tag: str(self._inspect(tag)["Id"]) for tag in tags})

    def size(self, images: Sequence[PackedImage]) -> int:
        """Return about how many bytes the stream will have; layers that images share count once."""
        return bytes_of_layers([self.client.images.get(image.id).history() for image in images])

    def root(self) -> Path:
        """Return where the engine keeps images: while it saves, it writes a copy of all there first."""
        return Path(str(self.client.info().get("DockerRootDir") or ""))

    def _inspect(self, image: str) -> dict[str, Any]:
        return dict(self.client.images.get(image).attrs)

    def stream(self, images: Sequence[PackedImage]) -> Iterator[bytes]:
        """Yield the tar of all images: layers that several share go once.

        By name where it has one that must survive, else by ID. Source: ImageGetAll of
        https://docs.docker.com/reference/api/engine/. :class:`MachineryError` where the engine fails.
        """
        names = [self._reference(image) for image in images]
        api = self.client.api
        try:
            answer = api.get(f"{api.base_url}/images/get", params={"names": names}, stream=True, timeout=None)
            answer.raise_for_status()
            pieces: list[bytes] = []
            for number, piece in enumerate(answer.raw.stream(BLOCK), 1):  # engines send 32 kB at once
                pieces.append(piece)
                if number % PIECES == 0:
                    yield b"".join(pieces)
                    pieces.clear()
            yield b"".join(pieces)
        except requests.exceptions.RequestException as error:
            raise MachineryError(f"the engine cannot save {', '.join(names)}: {str(error)[:500]}") from error

    def _reference(self, image: PackedImage) -> str:
        for name in image.names:
            try:
                if self._inspect(name)["Id"] == image.id:
                    return name
            except docker.errors.ImageNotFound:
                continue
        return image.id
