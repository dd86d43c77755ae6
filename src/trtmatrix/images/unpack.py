"""``unpack``: checks a pack and loads it, by the script that lies in every pack (``unpack.sh``).

The script is this program's own, never the pack's.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).with_name("unpack.sh")


@dataclass(frozen=True, kw_only=True)
class UnpackOptions:
    """What the command line says, as the script takes it."""

    folder: Path
    into: Path | None = None
    check: bool = False
    python: str | None = None
    no_images: bool = False
    no_venv: bool = False


def unpack_command(options: UnpackOptions) -> int:
    """Run the script; returns its exit code."""
    words = ["/bin/sh", str(SOURCE), str(options.folder.absolute())]
    words += [f"--into={options.into}"] if options.into else []
    words += [f"--python={options.python}"] if options.python else []
    flags = {"--check": options.check, "--no-images": options.no_images, "--no-venv": options.no_venv}
    return subprocess.run([*words, *(flag for flag, on in flags.items() if on)], check=False).returncode
