"""Finds and reads the site's settings: slurm.yaml."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path

from trtmatrix.core.errors import ConfigError, UsageError
from trtmatrix.core.slurm.site import Site

FILE, VARIABLE = "slurm.yaml", "TRTMATRIX_SITE"


def read_site(
    named: Path | None, folder: Path, versions: Collection[str] | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Site:  # fmt: skip
    """Read the file that ``--site`` names, else TRTMATRIX_SITE, else slurm.yaml in matrix.yaml's folder.

    :class:`UsageError` with an example to paste where there is none; :class:`ConfigError` lists mistakes.
    """
    from trtmatrix.core.slurm.sitefile import parse_site  # pydantic: slow, and for who runs on Slurm alone

    path = find_site(named, folder, environment)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise UsageError(_missing(path, named, environment)) from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([f"{path}: cannot be read: {error}; name the site's settings by --site"]) from error
    return parse_site(text, str(path), versions)


def find_site(named: Path | None, folder: Path, environment: Mapping[str, str] = os.environ) -> Path:
    """Return where the site's settings are to be; whether they are there is not asked."""
    if named is not None:
        return named
    told = environment.get(VARIABLE)
    return Path(told) if told else folder / FILE


def _missing(path: Path, named: Path | None, environment: Mapping[str, str]) -> str:
    from trtmatrix.core.slurm.sitefile import EXAMPLE

    by = "--site" if named is not None else VARIABLE if environment.get(VARIABLE) else "--executor slurm"
    example = "\n".join(f"  {line}" for line in EXAMPLE.splitlines())
    return (
        f"{by}: there is no {path}, which says how this site is asked for GPUs\n"
        f"  write one (docs/slurm.md; docs/examples/slurm has more), or name another by --site:\n\n{example}"
    )
