"""How much larger layers are unpacked than as a registry has them: ``python -m bench.unpacking IMAGE``.

An image is saved as the engine has it, and compressed as registries have layers: by gzip at its usual level.
"""

from __future__ import annotations

import sys
import zlib

from trtmatrix.launchers.docker_engine import open_client

LEVEL = 6


def measure(image: str) -> tuple[int, int]:
    """Return the bytes of an image's layers, unpacked and compressed."""
    press = zlib.compressobj(LEVEL, wbits=31)
    plain = pressed = 0
    for chunk in open_client(600).images.get(image).save():
        plain += len(chunk)
        pressed += len(press.compress(chunk))
    return plain, pressed + len(press.flush())


if __name__ == "__main__":
    for name in sys.argv[1:]:
        whole, small = measure(name)
        print(f"{name}: {whole / 1e9:.2f} GB unpacked, {small / 1e9:.2f} GB compressed: {whole / small:.2f}")
