"""The command bisect: the version that a failure came in with."""

from __future__ import annotations

import argparse

from trtmatrix.core.errors import ExitCode


def bisect_command(args: argparse.Namespace) -> ExitCode:
    """Not there yet."""
    raise NotImplementedError(args.command)
