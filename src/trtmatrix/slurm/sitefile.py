"""slurm.yaml: what a site says of itself. The keys of the file are the types that the program works with."""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import field
from pathlib import Path
from textwrap import indent
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator
from typing_extensions import Self

from trtmatrix.common.errors import ConfigError, UsageError
from trtmatrix.suite.keys import keys, parse_keys
from trtmatrix.suite.model import slug_of
from trtmatrix.suite.plan import IMAGE_SUFFIXES

FILE, VARIABLE = "slurm.yaml", "TRTMATRIX_SITE"
EXAMPLE = """\
schema: 1
shared: /shared/me/trtmatrix      # a folder that this host and every node see under this path
runtime: pyxis                    # pyxis, apptainer or docker: what starts containers on a node
gpus:
  - name: "NVIDIA H200"           # as nvidia-smi -L writes it
    gres: "gpu:h200:1"            # as sinfo -o %G names the type
    partition: gpu
    account: my-account
"""


def _size(value: object) -> object:
    """Read ``36g`` as bytes, by powers of two."""
    match = re.fullmatch(r"([1-9][0-9]*)([mgt])i?b?", str(value).strip(), re.IGNORECASE)
    if match is None:
        raise ValueError("no size with a unit, such as 36g or 4000m")
    return int(match[1]) << {"m": 20, "g": 30, "t": 40}[match[2].lower()]


Count = Annotated[int, Field(ge=1, le=1_000_000, strict=True)]
Text = Annotated[str, Field(min_length=1)]
Gres = Annotated[str, Field(pattern=r"^gpu(:[\w.+-]+)?:1(,.+)?$")]  # one GPU, in sbatch's words
Folder = Annotated[str, Field(pattern=r"^/[\w.+@/=-]+$")]  # no sign that Slurm or a runtime reads otherwise
Scratch = Annotated[str, Field(pattern=r"^[/$][\w.+@/=${}-]+$")]  # variables of the job may stand in it
Option = Annotated[str, Field(pattern=r"^-[\w-]+(=.*)?$")]  # one word: sbatch takes others for its script
Size = Annotated[int, BeforeValidator(_size), Field(json_schema_extra={"type": "string"})]
Line = Annotated[str, Field(pattern=r"\S")]


@keys
class SiteGpu:
    """How one model of GPU is asked for."""

    name: Text
    gres: Gres
    constraint: Text | None = None
    partition: Text | None = None
    account: Text | None = None
    qos: Text | None = None
    options: tuple[Option, ...] = ()

    @property
    def slug(self) -> str:
        """Its name in a cell's id."""
        return slug_of(self.name)


@keys
class Limits:
    """Limits of the site's jobs: ``minutes`` is a task's longest ``--time``, ``memory`` in bytes is a task's.

    ``running``: tasks of one array at once; ``tasks``: of one array.
    """

    minutes: Annotated[int, Field(ge=1, le=366 * 24 * 60, strict=True)] = 60
    running: Count = 8
    tasks: Count = 64
    cpus: Count = 4
    memory: Size = 36 << 30


@keys
class Site:
    """A cluster: the whole of slurm.yaml. See docs/slurm.md for what each key means."""

    schema: Literal[1]
    shared: Folder
    runtime: Literal["pyxis", "apptainer", "docker"]
    gpus: Annotated[tuple[SiteGpu, ...], Field(min_length=1)]
    python: Folder | None = None
    access: Literal["auto", "toolkit", "cdi", "nodes"] = "auto"
    driver_folder: Folder | None = None
    limits: Limits = Limits()
    setup: tuple[Line, ...] = ()
    scratch: Scratch | None = None
    images: dict[str, Text] = field(default_factory=dict)
    options: tuple[Option, ...] = ()

    @model_validator(mode="after")
    def _fits(self) -> Self:
        twice = [name for name, count in Counter(gpu.slug for gpu in self.gpus).items() if count > 1]
        if twice:
            raise ValueError(f"gpus: {twice[0]} stands twice: partition: a,b lets Slurm choose")
        suffix = IMAGE_SUFFIXES[self.runtime]
        for name, image in self.images.items():
            if image.startswith("/") and not image.endswith(suffix):
                raise ValueError(f"images: {name}: {image} is neither HOST/PATH:TAG nor a {suffix} file")
        return self

    def gpu(self, slug: str) -> SiteGpu:
        """Return the entry of a GPU by its name in a cell's id; ``KeyError`` where there is none."""
        return {gpu.slug: gpu for gpu in self.gpus}[slug]


def read_site(named: Path | None, folder: Path) -> Site:
    """Read the file that ``--site`` names, else TRTMATRIX_SITE, else slurm.yaml in matrix.yaml's folder.

    :class:`UsageError` has an example to paste where there is none, :class:`ConfigError` lists all mistakes.
    """
    path = named or Path(os.environ.get(VARIABLE) or folder / FILE)
    try:
        return parse_keys(Site, path.read_text(encoding="utf-8"), str(path))
    except FileNotFoundError as error:
        raise UsageError(
            f"--executor slurm: there is no {path}, which says how this site is asked for GPUs\n"
            "  write one (docs/slurm.md), or name another by --site:\n\n" + indent(EXAMPLE, "  ")
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([f"{path}: cannot be read: {error}; name the site's file by --site"]) from error
