"""Where a command's GPUs are: this host, or the cluster that ``--executor slurm`` means."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from trtmatrix.context import Context
from trtmatrix.core.errors import UsageError

if TYPE_CHECKING:  # where no cluster is asked for, none of its code is imported
    from trtmatrix.cluster import Cluster
    from trtmatrix.core.slurm.site import Site
    from trtmatrix.effects.shared_folder import SharedFolder


READING = frozenset({"table", "report", "publish"})


def tell_of_site(command: str, named: Path | None, folder: Path) -> None:
    """Tell who reads records beside a site's settings that this host's own GPUs are meant."""
    from trtmatrix.effects.site import find_site

    if command in READING and (site := find_site(named, folder)).is_file():
        print(
            f"trtmatrix: this host's own GPUs are meant; with --executor slurm those of {site}",
            file=sys.stderr,
        )


def check_memory(site: Site, memory: int) -> None:
    """Refuse a container that may take more than its job reserves: Docker's stand outside Slurm's cgroup.

    ``memory``: that of a container, in bytes. Of other runtimes a container has what its job has.
    """
    from trtmatrix.core.slurm.site import NodeRuntime

    if site.runtime is NodeRuntime.DOCKER and memory > site.limits.memory:
        container, job = (f"{-(-size >> 20)}m" for size in (memory, site.limits.memory))
        raise UsageError(
            f"--memory: a container may take {container}, and its job reserves {job} of the node "
            f"({site.file}: limits.memory)\n  raise limits: memory there, or type --memory {job}"
        )


def open_where(args: argparse.Namespace, context: Context) -> tuple[Context, Cluster | None]:
    """Return the context, with the site's own images in it, and the cluster where one is asked for."""
    if args.executor != "slurm":
        tell_of_site(args.command, args.site, context.project.folder)
        return context, None
    from trtmatrix.cluster import open_cluster

    site, folder = open_site(args, context)
    check_memory(site, getattr(args, "memory", 0))
    folder.check()
    return open_cluster(context, site, folder)


def open_site(args: argparse.Namespace, context: Context) -> tuple[Site, SharedFolder]:
    """Return the site that a command means, and its shared folder, which is not looked at yet."""
    from trtmatrix.effects.shared_folder import SharedFolder
    from trtmatrix.effects.site import read_site

    names = [version.name for version in context.matrix.versions]
    site = read_site(args.site, context.project.folder, names)
    return site, SharedFolder(Path(site.shared), lambda text: print(f"trtmatrix: {text}", file=sys.stderr))
