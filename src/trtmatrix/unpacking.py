"""``unpack``: checks a pack and loads it, by the very script that lies in every pack."""

from __future__ import annotations

import argparse

from trtmatrix.core.errors import ExitCode
from trtmatrix.unpacker.unpack_pack import run


def unpack_command(args: argparse.Namespace) -> ExitCode:
    """Do what ``python3 -I DIR/unpack`` does."""
    return ExitCode(run(args))
