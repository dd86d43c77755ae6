"""Reads slurm.yaml's text: every mistake at once, each with file, line, key and remedy."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from trtmatrix.core import matrixkeys
from trtmatrix.core.errors import ConfigError, shorten
from trtmatrix.core.gpu_names import slug_of
from trtmatrix.core.keyproblems import in_order, is_echo, key_problem, near, problem_at, unknown_key
from trtmatrix.core.slurm import sitekeys as keys
from trtmatrix.core.slurm.images import FILES
from trtmatrix.core.slurm.site import NodeRuntime, Site
from trtmatrix.core.slurm.sitevalues import SLURM_TIME, slurm_minutes
from trtmatrix.core.yamltext import Document, Path, parse_yaml

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


def parse_site(text: str, file: str = "slurm.yaml", versions: Collection[str] | None = None) -> Site:
    """Read slurm.yaml's text; :class:`ConfigError` lists every mistake with line and remedy.

    ``versions``: those of matrix.yaml, where what ``images`` names is to be one of them.
    """
    document = parse_yaml(text, file)
    problems = [*document.problems, *_cross_check(document, versions)]
    try:
        raw = keys.Site.model_validate(document.value)
    except ValidationError as error:
        problems += [_line(detail, document) for detail in error.errors() if not is_echo(detail)]
        raise ConfigError(in_order(problems, file)) from error
    if problems:
        raise ConfigError(in_order(problems, file))
    return keys.to_site(raw, file)


def _line(detail: ErrorDetails, document: Document) -> str:
    loc: Path = detail["loc"]
    if detail["type"] == "extra_forbidden":
        text = unknown_key(str(loc[-1]), _keys_at(loc[:-1]))
    else:
        text = key_problem(detail, loc, document)
    return problem_at(document, loc, text)


def _keys_at(parent: Path) -> list[str]:
    """Return the keys that are allowed beside a wrong one."""
    model = keys.MODELS[str(parent[0]) if parent else ""]
    return [field.alias or name for name, field in model.model_fields.items()]


def _cross_check(document: Document, versions: Collection[str] | None) -> list[str]:
    """Check what no single field shows, in whatever of the file can be read."""
    value = document.value if isinstance(document.value, dict) else {}
    problems = [*_doubles(value), *_times(document), *_docker_alone(value), *_images(value, versions)]
    return [problem_at(document, path, text) for path, text in problems]


def _doubles(value: dict[str, Any]) -> Iterator[tuple[Path, str]]:
    entries = value.get("gpus")
    seen: dict[str, int] = {}
    for i, entry in enumerate(entries if isinstance(entries, list) else []):
        name = entry.get("name") if isinstance(entry, dict) else None
        if not isinstance(name, str):
            continue
        slug = slug_of(name)
        if slug in seen:
            text = f"{shorten(name)} stands twice (first as gpus[{seen[slug]}]): remove one; "
            yield ("gpus", i, "name"), text + "partition: a,b lets Slurm choose between two"
        seen.setdefault(slug, i)


def _times(document: Document) -> Iterator[tuple[Path, str]]:
    """Yield times that YAML 1.1 took for numbers to the base of 60: ``1:30:00`` is 5400 to it."""
    for key in ("minutes", "import_minutes"):
        path: Path = ("limits", key)
        written = document.plain.get(path, "")
        if ":" in written and (match := SLURM_TIME.fullmatch(written)):
            text = f"{written} without quotes is the YAML number {_lookup(document.value, path)}"
            yield path, f"{text}: write the minutes, {slurm_minutes(match)}"


def _docker_alone(value: dict[str, Any]) -> Iterator[tuple[Path, str]]:
    """Yield settings that only Docker looks at, and those that lack each other."""
    runtime, access = value.get("runtime"), value.get("access", "toolkit")
    for key in ("access", "driver_folder"):
        if key in value and runtime in ("pyxis", "apptainer"):
            yield (
                (key,),
                f"only Docker looks at it; {runtime} gives a container the job's GPU itself: remove it",
            )
    if runtime == "docker" and value.get("driver_folder") and access != "nodes":
        yield ("driver_folder",), "is needed with access: nodes alone: remove it"


def _images(value: dict[str, Any], versions: Collection[str] | None) -> Iterator[tuple[Path, str]]:
    images = value.get("images")
    runtime = next((each for each in NodeRuntime if each.value == value.get("runtime")), None)
    for name, image in (images if isinstance(images, dict) else {}).items():
        if versions is not None and name not in versions:
            yield ("images", name), f"matrix.yaml has no such version{near(name, list(versions))}"
        if isinstance(image, str) and image and (text := image_problem(image, runtime)):
            yield ("images", name), text


def image_problem(image: str, runtime: NodeRuntime | None) -> str:
    """Return what is wrong with an image of the site's, or nothing."""
    suffixes = tuple(FILES.values())
    if image.endswith(suffixes) or image.startswith(("/", "~", ".")):
        if not image.startswith("/"):
            return f"{shorten(image)}: write the absolute path that every node sees"
        fitting = (FILES[runtime],) if runtime else suffixes
        if not image.endswith(fitting):
            wanting = runtime.value if runtime else "this"
            return f"{shorten(image)}: {wanting} wants a {' or '.join(fitting)} file"
        return ""
    plain = re.sub(r"^(?:docker|oras|library)://", "", image)
    if re.fullmatch(matrixkeys.IMAGE, image):
        return ""
    if re.fullmatch(matrixkeys.IMAGE, plain.replace("#", "/")):
        return f'{shorten(image)}: write it as Docker does: "{plain.replace("#", "/")}"'
    return f"{shorten(image)} is no image with a tag or a digest, and no file ({', '.join(suffixes)})"


def _lookup(value: Any, path: Path) -> Any:  # noqa: ANN401 - any value of a file
    for part in path:
        value = value[part]
    return value
