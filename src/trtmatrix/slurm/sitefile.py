"""slurm.yaml: what a site says of itself. The keys of the file are the types that the program works with."""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import field
from pathlib import Path
from textwrap import indent
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from typing_extensions import Self

from trtmatrix.common.errors import ConfigError, UsageError
from trtmatrix.launchers.references import FILES
from trtmatrix.suite.keys import keys, parse_keys, schema_number
from trtmatrix.suite.model import slug_of
from trtmatrix.suite.plan import IMAGE_SUFFIXES

FILE, VARIABLE = "slurm.yaml", "TRTMATRIX_SITE"
OWN = re.compile(
    r"--(array|clusters?|comment|cpus-per-task|dependency|error|export|gpus(-per-\w+)?|gres|input|job-name|mem"
    r"(-per-\w+)?|(no-)?requeue|nodes|ntasks(-per-node)?|output|parsable|test-only|time|wait|wrap|chdir|signal)"
    r"(=|$)|-[acdeGiJMNnotWD](?!-)"
)
"""Options of sbatch that are set for each job, or that change what a job is."""
NO_LOGIN = "--export=NIL"
"""The one ``--export`` that a site may have (https://slurm.schedmd.com/sbatch.html#OPT_export)."""
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


def _gres(value: str) -> str:
    """Refuse what does not ask for exactly one whole GPU, in sbatch's words (``gpu:h200:1``, ``gpu:1``)."""
    asked = [part for part in value.split(",") if re.match(r"gpu\b", part)]
    # sbatch reads a number after gpu: as a count, so a type that begins with one needs its own.
    whole = re.fullmatch(r"gpu(:([A-Za-z_][\w.+-]*|\w[\w.+-]*(?=:1$)))?(:1)?", "".join(asked), re.ASCII)
    if len(asked) != 1 or whole is None:
        raise ValueError("asks not for one GPU: write gpu:TYPE:1 as sinfo -o %G has it")
    if re.search(r"\d+g\.\d+gb", value, re.IGNORECASE):
        raise ValueError(f"{value} is a part of a GPU (MIG), and cells run on whole ones: name their type")
    return value


def _name(value: str) -> str:
    if ":" in value or not re.search("[A-Za-z]", value):
        raise ValueError('write the name alone as nvidia-smi -L does, such as "NVIDIA H200"')
    return value


def _path(value: str) -> str:
    """Refuse what is no absolute path of plain signs; variables of the job may stand in a scratch folder."""
    if not value.startswith("/") or not value.strip("/") or ".." in value.split("/"):
        raise ValueError("write an absolute path, such as /shared/me/trtmatrix")
    if bad := re.search(r"[\s%\\:,\"'$`#]", value):
        raise ValueError(f"has {bad[0]!r}, which Slurm or a container runtime reads as something else")
    return value.rstrip("/")


def _scratch(value: str) -> str:
    _path(re.sub(r"\$(?:[A-Za-z_]\w*|\{[A-Za-z_]\w*\})", "/x", value))
    return value.rstrip("/")


def _size(value: object) -> object:
    """Read ``36g`` as bytes, by powers of two."""
    match = re.fullmatch(r"([1-9][0-9]*)([mgt])i?b?", str(value).strip(), re.IGNORECASE)
    if match is None:
        raise ValueError("no size with a unit, such as 36g or 4000m")
    return int(match[1]) << {"m": 20, "g": 30, "t": 40}[match[2].lower()]


def _options(values: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse options that would undo what is set for each job, and words that sbatch takes for its script."""
    if values and not values[0].startswith("-"):
        raise ValueError(f"sbatch would take {values[0]!r} for its script: options begin with -")
    for value in values:
        if value != NO_LOGIN and OWN.match(value):
            raise ValueError(f"{value.partition('=')[0]}: this is set for each job: remove it")
        if re.search(r"\s", value.partition("=")[0]):
            raise ValueError(f'{value!r} is one word to sbatch: write ["--option=value"]')
    return values


Count = Annotated[int, Field(ge=1, le=1_000_000, strict=True)]
Text = Annotated[str, Field(min_length=1)]
Folder = Annotated[str, AfterValidator(_path)]
Size = Annotated[int, BeforeValidator(_size), Field(json_schema_extra={"type": "string"})]
Line = Annotated[str, Field(pattern=r"\S")]


@keys
class SiteGpu:
    """How one model of GPU is asked for."""

    name: Annotated[str, AfterValidator(_name)]
    gres: Annotated[str, AfterValidator(_gres)]
    constraint: Text | None = None
    partition: Text | None = None
    account: Text | None = None
    qos: Text | None = None
    options: Annotated[tuple[Text, ...], AfterValidator(_options)] = ()

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

    schema: Annotated[Literal[1], BeforeValidator(schema_number)]
    shared: Folder
    runtime: Literal["pyxis", "apptainer", "docker"]
    gpus: Annotated[tuple[SiteGpu, ...], Field(min_length=1)]
    python: Folder | None = None
    access: Literal["auto", "toolkit", "cdi", "nodes"] = "auto"
    driver_folder: Folder | None = None
    limits: Limits = Limits()
    setup: tuple[Line, ...] = ()
    scratch: Annotated[str, AfterValidator(_scratch)] | None = None
    images: dict[str, Text] = field(default_factory=dict)
    options: Annotated[tuple[Text, ...], AfterValidator(_options)] = ()

    @model_validator(mode="after")
    def _fits(self) -> Self:
        twice = [name for name, count in Counter(gpu.slug for gpu in self.gpus).items() if count > 1]
        if twice:
            raise ValueError(f"gpus: {twice[0]} stands twice: partition: a,b lets Slurm choose")
        if self.runtime != "docker" and (self.access != "auto" or self.driver_folder):
            raise ValueError(f"runtime: {self.runtime} takes no access and no driver_folder: remove them")
        suffix = IMAGE_SUFFIXES[self.runtime]
        for name, image in self.images.items():
            file = image.startswith("/") and image.endswith(suffix)
            if not file and (re.search(r"://|#", image) or image.endswith(FILES) or image.startswith("/")):
                raise ValueError(
                    f"images: {name}: {image} is neither HOST/PATH:TAG nor the path of a {suffix} file"
                )
        return self

    def gpu(self, slug: str) -> SiteGpu:
        """Return the entry of a GPU by its name in a cell's id; ``KeyError`` where there is none."""
        return {gpu.slug: gpu for gpu in self.gpus}[slug]


def parse_site(text: str, file: str = FILE) -> Site:
    """Read slurm.yaml's text; :class:`ConfigError` lists every mistake with line and remedy."""
    return parse_keys(Site, text, file)


def read_site(named: Path | None, folder: Path) -> Site:
    """Read the file that ``--site`` names, else TRTMATRIX_SITE, else slurm.yaml in matrix.yaml's folder.

    :class:`UsageError` with an example to paste where there is none.
    """
    path = named or Path(os.environ.get(VARIABLE) or folder / FILE)
    try:
        return parse_site(path.read_text(encoding="utf-8"), str(path))
    except FileNotFoundError as error:
        raise UsageError(
            f"--executor slurm: there is no {path}, which says how this site is asked for GPUs\n"
            "  write one (docs/slurm.md), or name another by --site:\n\n" + indent(EXAMPLE, "  ")
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([f"{path}: cannot be read: {error}; name the site's file by --site"]) from error
