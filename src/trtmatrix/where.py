"""Where a command's GPUs are: this host, or the cluster that ``--executor slurm`` means."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from trtmatrix.context import Context

if TYPE_CHECKING:  # where no cluster is asked for, none of its code is imported
    from trtmatrix.cluster import Cluster


def open_where(args: argparse.Namespace, context: Context) -> tuple[Context, Cluster | None]:
    """Return the context, with the site's own images in it, and the cluster where one is asked for."""
    if args.executor != "slurm":
        return context, None
    from trtmatrix.cluster import open_cluster
    from trtmatrix.effects.shared_folder import SharedFolder
    from trtmatrix.effects.site import read_site

    names = [version.name for version in context.matrix.versions]
    site = read_site(args.site, context.project.folder, names)
    folder = SharedFolder(Path(site.shared), lambda text: print(f"trtmatrix: {text}", file=sys.stderr))
    return open_cluster(context, site, folder)
