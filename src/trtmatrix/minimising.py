"""The command minimise: the smallest graph and shapes that still fail in the same way."""

from __future__ import annotations

import argparse

from trtmatrix.core.errors import ExitCode


def minimise_command(args: argparse.Namespace) -> ExitCode:
    """Not there yet."""
    raise NotImplementedError(args.command)
