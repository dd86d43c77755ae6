"""How somebody else gets a cell's image: by its registry's digest, or built from files that go along."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from trtmatrix.core.bundle.facts import IMAGE, Image
from trtmatrix.core.config import Build, ImageOrigin, Pin, Version, repository_of
from trtmatrix.core.errors import UsageError
from trtmatrix.core.lock_builds import OWN_BASE
from trtmatrix.effects.image_facts import HeldImage, read_history

BUILD, HISTORY = "build.sh", "history.txt"

WHEELS_SCRIPT = """\
#!/bin/sh
# Builds {tag}: the wheels of requirements.txt, each held to its SHA-256, on {base}.
# It needs Docker and the network, and works in a temporary folder.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$here/Dockerfile" "$here/tensorrt.py" "$here/requirements.txt" "$work"
mkdir "$work/wheels"
docker image inspect {base} >/dev/null 2>&1 || {get_base}
docker run --rm --user "$(id -u):$(id -g)" --env HOME=/tmp --volume "$work:/context" \\
  --entrypoint python3 {base} -m pip --disable-pip-version-check download \\
  --quiet --no-cache-dir --no-deps --only-binary=:all: \\
  --require-hashes {index}--dest /context/wheels --requirement /context/requirements.txt
docker build --network=none --build-arg BASE={base} --build-arg RECIPE=archive --tag {tag} "$work"
"""


@dataclass(frozen=True, kw_only=True)
class ImageRecipe:
    """An image, the files of the folder ``image`` by name, and what is to be told of it."""

    image: Image
    files: Mapping[str, bytes] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def make_recipe(
    version: Version,
    origin: ImageOrigin,
    ran: str,
    held: HeldImage | None,
    dockerfile: Path | None,
    builder: Path | None,
    base: Pin | None = None,
) -> ImageRecipe:
    """Return how to get the image of a version that ran as ``ran`` (its own digest).

    ``held``: the image of that name here; ``dockerfile``: what the user says that it was built by;
    ``builder``: the project's script for images from wheels; ``base``: what matrix.lock has of the base.
    :class:`UsageError` where the Dockerfile cannot be read.
    """
    same = held is not None and held.id == ran
    image = Image(name=origin.image, id=ran, tag=_tag(origin.image), reference=_reference(origin, held, ran))
    notes = () if same else (_other_image(origin.image, held),)
    if dockerfile is not None:
        return _by_dockerfile(image, dockerfile, notes)
    if origin.build is not None and builder is not None:
        return _by_wheels(image, version, _pinned(origin.build, base), builder.parent, notes)
    if image.reference:
        return ImageRecipe(image=image, notes=notes)
    return _by_history(image, held if same else None, notes)


def _tag(name: str) -> str:
    """Return the name that a build can give: one without a digest."""
    return name.partition("@")[0]


def _reference(origin: ImageOrigin, held: HeldImage | None, ran: str) -> str:
    """Return the registry's digest of the image that ran: as it is pinned, else as the engine has it."""
    name = origin.image
    if "@sha256:" in name:
        return name
    repository = repository_of(name)
    if origin.pin is not None and ran in origin.pin.ids:
        return f"{repository}@{origin.pin.manifest}"
    if held is None or held.id != ran:
        return ""
    own = [reference for reference in held.references if reference.startswith(f"{repository}@")]
    return next(iter([*own, *held.references]), "")


def _other_image(name: str, held: HeldImage | None) -> str:
    if held is None:
        return f"The image {name} is not on the host that wrote this: how it is there is not known."
    return f"What is called {name} on the host that wrote this is another image ({held.id}) than what ran."


def _by_dockerfile(image: Image, dockerfile: Path, notes: tuple[str, ...]) -> ImageRecipe:
    try:
        content = dockerfile.read_bytes()
    except OSError as error:
        raise UsageError(f"--dockerfile {dockerfile}: cannot be read: {error.strerror}") from error
    told = [line.split()[0] for line in content.decode("utf-8", "replace").splitlines() if line.strip()]
    needs = any(word.upper() in {"COPY", "ADD"} for word in told)
    more = (
        ("The Dockerfile copies files of its build context, which are not in this archive.",) if needs else ()
    )
    return ImageRecipe(
        image=_built(image, f"docker build --tag {shlex.quote(image.tag)} {IMAGE}"),
        files={"Dockerfile": content}, notes=(*notes, *more),
    )  # fmt: skip


def _pinned(build: Build, base: Pin | None) -> Build:
    """Return a build whose base is named by its digest, where that is known."""
    return replace(build, base=f"{repository_of(build.base)}@{base.manifest}") if base else build


def _by_wheels(
    image: Image, version: Version, build: Build, folder: Path, notes: tuple[str, ...]
) -> ImageRecipe:
    """Take what docker/wheels/build builds from, and write its steps as a script that needs Docker alone."""
    lock = folder / "locks" / f"{version.name}.txt"
    files = {name: (folder / name).read_bytes() for name in ("Dockerfile", "tensorrt.py")}
    files["requirements.txt"] = lock.read_bytes() if lock.is_file() else b""
    own = build.base == OWN_BASE
    if own:
        files["base"] = (folder / "base").read_bytes()
    base = shlex.quote(build.base)
    get_base = 'bash "$here/base"' if own else f"docker pull {base}"
    index = f"--index-url {shlex.quote(build.index)} " if build.index else ""
    files[BUILD] = WHEELS_SCRIPT.format(
        tag=shlex.quote(image.tag), base=base, get_base=get_base, index=index
    ).encode()
    return ImageRecipe(image=_built(image, f"sh {IMAGE}/{BUILD}"), files=files, notes=notes)


def _by_history(image: Image, held: HeldImage | None, notes: tuple[str, ...]) -> ImageRecipe:
    """Tell how an image came about that is in no registry and of which no Dockerfile is known."""
    unknown = (
        f"The image {image.name} is in no registry that is known here, and what it was built by was not "
        "named (--dockerfile FILE)."
    )
    if held is None:
        return ImageRecipe(image=image, notes=(*notes, unknown))
    history = read_history(held.id).encode()
    more = f"{unknown} {IMAGE}/{HISTORY} lists its steps as the engine has them."
    return ImageRecipe(image=image, files={HISTORY: history}, notes=(*notes, more))


def _built(image: Image, line: str) -> Image:
    return Image(name=image.name, id=image.id, reference=image.reference, tag=image.tag, build=line)
