"""slurm.yaml: what a site says of itself. The keys of the file are the types that the program works with."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr, ValidationError

from trtmatrix.core import matrixkeys
from trtmatrix.core.errors import ConfigError, UsageError, shorten
from trtmatrix.core.gpu_names import slug_of
from trtmatrix.core.keyproblems import in_order, is_echo, key_problem, near, problem_at, unknown_key
from trtmatrix.core.matrixkeys import Keys, schema_number
from trtmatrix.core.yamltext import Document, parse_yaml

FILE, VARIABLE = "slurm.yaml", "TRTMATRIX_SITE"
SUFFIXES = {"docker": ".tar", "apptainer": ".sif", "pyxis": ".sqsh"}
"""What the file of an image ends with, by runtime."""

OWN = {
    "array": "a", "comment": "", "cpus-per-task": "c", "dependency": "d", "error": "e", "export": "",
    "gpus": "G", "gpus-per-node": "", "gpus-per-task": "", "gres": "", "input": "i", "job-name": "J",
    "mem": "", "mem-per-cpu": "", "mem-per-gpu": "", "no-requeue": "", "nodes": "N", "ntasks": "n",
    "ntasks-per-node": "", "output": "o", "parsable": "", "requeue": "", "test-only": "", "time": "t",
    "wait": "W", "wrap": "", "chdir": "D", "signal": "", "clusters": "M",
}  # fmt: skip
"""Options of sbatch that are set for each job, or that change what a job is; each with its letter."""
NO_LOGIN = "--export=NIL"
"""The one ``--export`` that a site may have (https://slurm.schedmd.com/sbatch.html#OPT_export)."""
KEYED = {"partition": "p", "account": "A", "qos": "q", "constraint": "C"}

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
"""A small site file, to paste and change."""


class Runtime(str, Enum):
    """What starts a container on a node: the task's ``--engine``."""

    PYXIS = "pyxis"
    APPTAINER = "apptainer"
    DOCKER = "docker"


class Access(str, Enum):
    """How Docker gives a container its GPU; ``auto``: as the node's engine is found to do it."""

    AUTO = "auto"
    TOOLKIT = "toolkit"
    CDI = "cdi"
    NODES = "nodes"


def _gres(value: str) -> str:
    """Refuse what does not ask for exactly one whole GPU, in sbatch's words (``gpu:h200:1``, ``gpu:1``)."""
    asked = [part for part in value.split(",") if re.match(r"gpu\b", part)]
    match = re.fullmatch(r"gpu(?::([A-Za-z0-9_.+-]+))?(?::([0-9]+))?", asked[0]) if len(asked) == 1 else None
    if match is None:
        raise ValueError("asks for no GPU or for several kinds: write gpu:TYPE:1 as sinfo -o %G has it")
    kind, count = match.groups()
    if count is None and kind is not None and kind[0].isdigit():  # gpu:2; gpu:2080ti is refused by sbatch
        if not kind.isdigit():
            raise ValueError(f"sbatch reads a number after gpu: as a count: write gpu:{kind}:1")
        kind, count = None, kind
    if count not in {None, "1"}:
        raise ValueError(f"asks for {count} GPUs, and a cell runs on one: write gpu:{kind or 'TYPE'}:1")
    if kind and re.search(r"\d+g\.\d+gb", kind, re.IGNORECASE):
        raise ValueError(f"{kind} is a part of a GPU (MIG), and cells run on whole ones: name their type")
    return value


def _gpu_name(value: str) -> str:
    if match := re.match(r"GPU [0-9]+: (.*?) \(UUID", value):
        raise ValueError(f'write the name alone: "{match[1]}"')
    return value


def _path(value: str) -> str:
    """Refuse what is no absolute path; variables of the job may stand in it where ``$`` is allowed."""
    if not value.startswith("/") or not value.strip("/") or ".." in value.split("/"):
        raise ValueError("write an absolute path, such as /shared/me/trtmatrix")
    if bad := next((sign for sign in " %\\:,\"'$`#\n\t" if sign in value), None):
        raise ValueError(f"has {bad!r}, which Slurm or a container runtime reads as something else")
    return value.rstrip("/")


def _scratch(value: str) -> str:
    plain = re.sub(r"\$(?:[A-Za-z_]\w*|\{[A-Za-z_]\w*\})", "/x", value)
    _path(plain)
    return value.rstrip("/")


def _size(value: object) -> object:
    """Read ``36g`` as bytes, by powers of two."""
    match = re.fullmatch(r"([1-9][0-9]*)([mgt])i?b?", str(value).strip(), re.IGNORECASE)
    if match is None:
        raise ValueError("no size with a unit, such as 36g or 4000m")
    size = int(match[1]) << {"m": 20, "g": 30, "t": 40}[match[2].lower()]
    if size < 64 << 20:
        raise ValueError("too little: a container with less than 64m does not even start")
    return size


def _line(value: str) -> str:
    if not value.strip() or "\0" in value:
        raise ValueError("must be a line of shell, such as module load apptainer")
    return value


def _has_option(word: str, option: str, letter: str) -> bool:
    short = bool(letter) and word.startswith(f"-{letter}") and not word.startswith("--")
    return word.partition("=")[0] == f"--{option}" or short


def _options(values: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse options that would undo what is set for each job, and words that sbatch takes for its script."""
    if values and not values[0].startswith("-"):
        raise ValueError(f"sbatch would take {values[0]!r} for its script: options begin with -")
    for value in values:
        if value == NO_LOGIN:
            continue
        if any(_has_option(value, option, letter) for option, letter in OWN.items()):
            raise ValueError(f"{value.partition('=')[0]}: this is set for each job: remove it")
        if re.search(r"\s", value.partition("=")[0]) or "\n" in value:
            raise ValueError(f'{value!r} is one word to sbatch: write ["--option=value"]')
    return values


def _gpu_options(values: tuple[str, ...]) -> tuple[str, ...]:
    for value in _options(values):
        for key, letter in KEYED.items():
            if _has_option(value, key, letter):
                raise ValueError(f"{value.partition('=')[0]}: write it as {key}: beside name: and gres:")
    return values


Count = Annotated[int, Field(ge=1, le=1_000_000, strict=True)]
Text = Annotated[str, Field(min_length=1)]
Folder = Annotated[str, AfterValidator(_path)]
Size = Annotated[int, BeforeValidator(_size), Field(json_schema_extra={"type": "string"})]
Line = Annotated[str, AfterValidator(_line)]


class SiteGpu(Keys):
    """How one model of GPU is asked for."""

    name: Annotated[str, AfterValidator(_gpu_name)]
    gres: Annotated[str, AfterValidator(_gres)]
    constraint: Text | None = None
    partition: Text | None = None
    account: Text | None = None
    qos: Text | None = None
    options: Annotated[tuple[Text, ...], AfterValidator(_gpu_options)] = ()

    @property
    def slug(self) -> str:
        """Its name in a cell's id."""
        return slug_of(self.name)


class Limits(Keys):
    """Limits of the site's jobs: ``minutes`` is a task's longest ``--time``, ``memory`` in bytes is a task's.

    ``running``: tasks of one array at once; ``tasks``: of one array.
    """

    minutes: Annotated[int, Field(ge=1, le=366 * 24 * 60, strict=True)] = 60
    running: Count = 8
    tasks: Count = 64
    cpus: Count = 4
    memory: Size = 36 << 30


class Site(Keys):
    """A cluster: the whole of slurm.yaml. See docs/slurm.md for what each key means."""

    schema_: Annotated[Literal[1], BeforeValidator(schema_number)] = Field(alias="schema")
    shared: Folder
    runtime: Runtime
    gpus: Annotated[tuple[SiteGpu, ...], Field(min_length=1)]
    python: Folder | None = None
    access: Access = Access.AUTO
    driver_folder: Folder | None = None
    limits: Limits = Limits()
    setup: tuple[Line, ...] = ()
    scratch: Annotated[str, AfterValidator(_scratch)] | None = None
    images: dict[str, Text] = Field(default_factory=dict)
    options: Annotated[tuple[Text, ...], AfterValidator(_options)] = ()
    _file: str = PrivateAttr(default=FILE)

    @property
    def file(self) -> str:
        """The file that it was read from."""
        return self._file

    def gpu(self, slug: str) -> SiteGpu:
        """Return the entry of a GPU by its name in a cell's id; ``KeyError`` where there is none."""
        return {gpu.slug: gpu for gpu in self.gpus}[slug]


def parse_site(text: str, file: str = FILE, versions: Collection[str] | None = None) -> Site:
    """Read slurm.yaml's text; :class:`ConfigError` lists every mistake with line and remedy.

    ``versions``: those of matrix.yaml, of which ``images`` may name some.
    """
    document = parse_yaml(text, file)
    value = document.value if isinstance(document.value, dict) else {}
    cross = [*_doubles(value), *_images(value, versions), *_docker_alone(value)]
    problems = [*document.problems, *(problem_at(document, path, words) for path, words in cross)]
    try:
        site = Site.model_validate(document.value)
    except ValidationError as error:
        problems += [_problem(detail, document) for detail in error.errors() if not is_echo(detail)]
        raise ConfigError(in_order(problems, file)) from error
    if problems:
        raise ConfigError(in_order(problems, file))
    site._file = file  # noqa: SLF001 - pydantic's way to keep what is no key
    return site


def _problem(detail: Any, document: Document) -> str:  # noqa: ANN401 - pydantic_core's ErrorDetails
    path = detail["loc"]
    if detail["type"] != "extra_forbidden":
        return problem_at(document, path, key_problem(detail, path, document))
    model: type[Keys] = {"gpus": SiteGpu, "limits": Limits}.get(str(path[0]) if path[1:] else "", Site)
    known = [field.alias or name for name, field in model.model_fields.items()]
    return problem_at(document, path, unknown_key(str(path[-1]), known))


Problem = tuple[tuple[str | int, ...], str]


def _doubles(value: Mapping[str, Any]) -> Iterator[Problem]:
    entries = value.get("gpus")
    seen: set[str] = set()
    for index, entry in enumerate(entries if isinstance(entries, list) else []):
        name = entry.get("name") if isinstance(entry, dict) else None
        if isinstance(name, str) and slug_of(name) in seen:
            words = f"{shorten(name)} stands twice: remove one; partition: a,b lets Slurm choose"
            yield ("gpus", index, "name"), words
        seen.add(slug_of(str(name)))


def _docker_alone(value: Mapping[str, Any]) -> Iterator[Problem]:
    for key in ("access", "driver_folder"):
        if key in value and value.get("runtime") in ("pyxis", "apptainer"):
            yield (key,), f"only Docker looks at it; {value['runtime']} gives the job's GPU itself: remove it"


def _images(value: Mapping[str, Any], versions: Collection[str] | None) -> Iterator[Problem]:
    """Yield what is wrong with images: a version that is not known, a file that the runtime cannot start."""
    images = value.get("images")
    suffix = SUFFIXES.get(str(value.get("runtime")), "")
    for name, image in (images if isinstance(images, dict) else {}).items():
        path = ("images", name)
        if versions is not None and name not in versions:
            yield path, f"matrix.yaml has no such version{near(str(name), list(versions))}"
        if not isinstance(image, str) or re.fullmatch(matrixkeys.IMAGE, image):
            continue
        if not image.startswith("/") and image.endswith(tuple(SUFFIXES.values())):
            yield path, f"{shorten(image)}: write the absolute path that every node sees"
        elif suffix and not (image.startswith("/") and image.endswith(suffix)):
            plain = re.sub(r"^\w+://", "", image).replace("#", "/")
            better = f': write "{plain}"' if re.fullmatch(matrixkeys.IMAGE, plain) else ""
            yield path, f"{shorten(image)} is neither an image with a tag nor a {suffix} file{better}"


def find_site(named: Path | None, folder: Path, environment: Mapping[str, str] = os.environ) -> Path:
    """Return where the site's settings are to be: ``--site``, TRTMATRIX_SITE, else beside matrix.yaml."""
    return named or Path(environment.get(VARIABLE) or folder / FILE)


def read_site(named: Path | None, folder: Path, versions: Sequence[str] | None = None) -> Site:
    """Read the site's settings; :class:`UsageError` with an example to paste where there is none."""
    path = find_site(named, folder)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        example = "\n".join(f"  {line}" for line in EXAMPLE.splitlines())
        raise UsageError(
            f"--executor slurm: there is no {path}, which says how this site is asked for GPUs\n"
            f"  write one (docs/slurm.md), or name another by --site:\n\n{example}"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([f"{path}: cannot be read: {error}; name the site's file by --site"]) from error
    return parse_site(text, str(path), versions)


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of slurm.yaml, for editors."""
    schema = Site.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
