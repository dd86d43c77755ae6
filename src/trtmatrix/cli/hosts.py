"""The options about pins, disks, other hosts: lock, pack, unpack, merge; those of a run, Slurm's too."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

SIZE = re.compile(r"(\d+)\s*([kmgt]?)i?b?", re.IGNORECASE)


def add_network_options(parser: argparse.ArgumentParser) -> None:
    """Add what every command knows: ``--offline`` and the mirror."""
    group = parser.add_argument_group("network")
    group.add_argument("--offline", action="store_true", help="never open a connection; images by their ID")
    group.add_argument(
        "--registry", metavar="HOST/PATH",
        help="a mirror that stands for nvcr.io/nvidia (TRTMATRIX_REGISTRY, else registry: in matrix.yaml)",
    )  # fmt: skip


def add_pin_options(parser: argparse._ArgumentGroup) -> None:
    """Add what a run does about images: ``--locked`` and ``--keep``."""
    parser.add_argument(
        "--locked", action="store_true", help="refuse to run in an image that matrix.lock does not have"
    )
    parser.add_argument(
        "--keep", choices=["none", "locked", "all"], default="all",
        help="which images that this tool pulled stay after their last cell (default: all)",
    )  # fmt: skip


def add_slurm_options(parser: argparse.ArgumentParser) -> None:
    """Add whose GPUs are meant: this host's, or through Slurm those of a cluster."""
    group = parser.add_argument_group("where")
    group.add_argument(
        "--executor", choices=["local", "slurm"], default="local",
        help="this host (default), or the cluster that the site's settings describe (docs/slurm.md)",
    )  # fmt: skip
    group.add_argument(
        "--site", type=Path, metavar="FILE",
        help="the site's settings (TRTMATRIX_SITE, else slurm.yaml beside matrix.yaml)",
    )  # fmt: skip


def add_engine_options(parser: argparse.ArgumentParser) -> None:
    """Add what starts containers, and the images that stand for those of matrix.yaml."""
    group = parser.add_argument_group("containers (docs/engines.md)")
    group.add_argument(
        "--engine", choices=["auto", "docker", "podman", "apptainer", "pyxis"],
        help="what starts them (TRTMATRIX_ENGINE, else auto: Docker, or Podman where there is no Docker)",
    )  # fmt: skip
    group.add_argument(
        "--image", dest="own_images", action="append", default=[], metavar="VERSION=REFERENCE|FILE",
        help="stands for the image of a version: a reference, or a file (.tar of docker save; .sif for "
        "apptainer; .sqsh for pyxis); may be repeated",
    )  # fmt: skip


def add_lock_options(parser: argparse.ArgumentParser) -> None:
    """Add ``lock``'s own."""
    parser.add_argument(
        "--update", action="store_true", help="write what was found into matrix.lock; without it: only show"
    )


def add_pack_options(parser: argparse.ArgumentParser) -> None:
    """Add ``pack``'s own."""
    group = parser.add_argument_group("the pack")
    group.add_argument("--to", type=Path, required=True, metavar="DIR", help="where to write; new or empty")
    group.add_argument(
        "--split", type=read_size, default=0, metavar="SIZE", help="parts of at most so much, such as 4GB"
    )
    group.add_argument(
        "--for-python", action="append", default=[], metavar="X.Y",
        help="Pythons of the other host that wheels are packed for (default: this one's)",
    )  # fmt: skip
    group.add_argument("--records", action="store_true", help="pack records for merge instead, nothing else")


def add_unpack_options(parser: argparse.ArgumentParser) -> None:
    """Add ``unpack``'s own."""
    parser.add_argument("folder", type=Path, metavar="DIR", help="the folder with the pack's parts")
    parser.add_argument(
        "--into", type=Path, metavar="DIR", help="where the suite goes (default: ./trtmatrix)"
    )
    parser.add_argument("--check", action="store_true", help="check every byte, load nothing")
    parser.add_argument("--python", metavar="PATH", help="the Python that the suite is to run with")
    parser.add_argument("--no-images", action="store_true", help="leave the container engine alone")
    parser.add_argument("--no-venv", action="store_true", help="make no environment")


def add_merge_options(parser: argparse.ArgumentParser) -> None:
    """Add ``merge``'s own."""
    parser.add_argument(
        "files", nargs="+", type=Path, metavar="FILE", help="records: .json files, folders, packs of records"
    )


def read_size(text: str) -> int:
    """Read ``512m``, ``4g`` or ``4GB`` as bytes, by powers of two; ``ArgumentTypeError`` where it is none."""
    match = SIZE.fullmatch(text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no size such as 512m or 4GB")
    return int(match[1]) << {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}[match[2].lower()]
