"""The command bundle: the archive that shows a failing cell to its maintainers."""

from __future__ import annotations

import argparse

from trtmatrix.core.errors import ExitCode


def bundle_command(args: argparse.Namespace) -> ExitCode:
    """Not there yet."""
    raise NotImplementedError(args.command)
