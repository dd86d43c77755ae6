"""Reads the API of NVIDIA's releases from the bindings on PyPI: python -m bench.surfaces [DIR].

Each is read by a Python of its own, and only releases that the store lacks; DIR: where the store is written,
if not into the package.

The bindings ask NVIDIA's libraries for a handful of C functions when they are loaded, and call none of them
while their surface is read: with stand-ins of the right names they import on any machine.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import date
from hashlib import sha256
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from trtmatrix.api.section import STORE, parse_store
from trtmatrix.api.types import Origin, Surface, numbers_of
from trtmatrix.common.errors import MachineryError, TrtMatrixError
from trtmatrix.common.paths import probe_folder
from trtmatrix.launchers.wheels import download_wheels, target_options

SURFACE = TypeAdapter(Surface)
PYTHON, GLIBC = "3.10", "2.28"
"""Every release from 8.5 to today has bindings for this Python, and for this glibc of 2018."""
FIXED = ("tensorrt==8.5.3.1", "tensorrt==8.6.0", "tensorrt-bindings==8.6.1")
"""Before 10 the bindings lay in packages of other names; 9.x and 10.0.0 never were on PyPI."""
PACKAGE, FIRST = "tensorrt-cu12-bindings", (10, 0, 1)
KEEP = re.compile(r"^(tensorrt|tensorrt_bindings)/(__init__\.py|tensorrt\.so)$")
"""Of a wheel: 8.5's and 8.6.0's hold the libraries too, more than 1 GB."""
LIBRARIES = ("nvinfer", "nvinfer_plugin", "nvonnxparser", "nvparsers")
SYMBOLS = (
    "createInferBuilder_INTERNAL", "createInferRefitter_INTERNAL", "createInferRuntime_INTERNAL",
    "createNvOnnxParser_INTERNAL", "createNvOnnxParserRefitter_INTERNAL", "getBuilderPluginRegistry",
    "getPluginRegistry", "initLibNvInferPlugins", "getNvOnnxParserVersion",
    # 8.6's UFF and Caffe parsers, as C++ names them
    "_ZN11nvuffparser15createUffParserEv", "_ZN11nvuffparser8FieldMapC1EPKcPKvNS_9FieldTypeEi",
    "_ZN14nvcaffeparser117createCaffeParserEv", "_ZN14nvcaffeparser123shutdownProtobufLibraryEv",
)  # fmt: skip


def main(words: Sequence[str]) -> int:
    """Read each release that the store lacks, and write the store; 3 where one could not be read."""
    file = Path(words[0], STORE.name) if words else STORE
    try:
        surfaces = list(parse_store(file.read_bytes()).values()) if file.is_file() else []
        need_compiler()
        releases = find_releases()
    except TrtMatrixError as error:
        print(error, file=sys.stderr)
        return 3
    known, troubles = len(surfaces), 0
    for requirement in releases:
        if any(requirement.endswith(f"={surface.origin.wheel.split('-')[1]}") for surface in surfaces):
            continue
        try:
            surface = read_bindings(requirement)
        except TrtMatrixError as error:
            troubles += 1
            print(f"{requirement}: {error}", file=sys.stderr, flush=True)
        else:
            surfaces.append(surface)
            print(f"{surface.version}: from {surface.origin.wheel}", file=sys.stderr, flush=True)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(format_store(surfaces), encoding="utf-8")
    print(f"{file}: {len(surfaces)} surfaces, {len(surfaces) - known} of them read now")
    return 3 if troubles else 0


def find_releases() -> tuple[str, ...]:
    """Return the requirement of each release that PyPI has: of one packed again, the first."""
    command = [sys.executable, "-m", "pip", "index", "versions", PACKAGE, "--disable-pip-version-check"]
    command += target_options(PYTHON, GLIBC)[1:]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    line = re.search(r"^Available versions: (.+)$", done.stdout, re.MULTILINE)
    if done.returncode or line is None:
        raise MachineryError(
            f"pip could not say which releases of {PACKAGE} there are: {done.stderr.strip()[-300:]}\n"
            f"  is PyPI reached from here? Try: {sys.executable} -m pip index versions {PACKAGE}"
        )
    found = {numbers_of(version): version for version in line[1].split(", ")}  # the newest come first
    return FIXED + tuple(f"{PACKAGE}=={found[numbers]}" for numbers in sorted(found) if numbers >= FIRST)


def read_bindings(requirement: str) -> Surface:
    """Fetch bindings such as ``tensorrt-bindings==8.6.1`` and return their surface."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        download_wheels([requirement], target_options(PYTHON, GLIBC), folder)
        (wheel,) = folder.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if KEEP.match(name)]
            archive.extractall(scratch, names)
        if not any(name.endswith(".so") for name in names):
            raise MachineryError(f"{wheel.name} holds no bindings that this trtmatrix knows")
        stubs = make_stubs(folder, numbers_of(wheel.name.split("-")[1])[0])
        # pyenv's interpreters are unknown to uv unless it is told their path
        pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
        python = next(map(str, pyenv.glob(f"{PYTHON}*/bin/python")), PYTHON)
        command = [sys.executable, "-m", "uv", "run", "--quiet", "--no-project", f"--python={python}"]
        command += ["python", "-B", str(probe_folder()), "surface", names[0].partition("/")[0]]
        environment = {**os.environ, "PYTHONPATH": scratch, "LD_LIBRARY_PATH": str(stubs)}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        if done.returncode or not done.stdout.strip():
            raise MachineryError(
                f"the bindings in {wheel.name} could not be read: {done.stderr.strip()[-1000:]}\n"
                f"  a function that is missing belongs into SYMBOLS of {Path(__file__).name}; "
                f"a Python that is missing: uv python install {PYTHON}"
            )
        surface = SURFACE.validate_json(done.stdout.splitlines()[-1].encode(), strict=True)
        digest = sha256(wheel.read_bytes()).hexdigest()
    origin = Origin(wheel=wheel.name, sha256=digest, python=PYTHON, extracted=str(date.today()))  # noqa: DTZ011 - a day
    return replace(surface, origin=origin)


def make_stubs(folder: Path, number: int) -> Path:
    """Compile stand-ins for the libraries of a major release into a folder; returns it."""
    source = "\n".join(f"void *{symbol}(void) {{ return 0; }}" for symbol in SYMBOLS)
    for name in LIBRARIES:
        compile_library(folder / f"lib{name}.so.{number}", source)
    return folder


def compile_library(path: Path, source: str) -> Path:
    """Compile a shared library whose soname is its file's name; returns its folder."""
    command = [need_compiler(), "-shared", "-fPIC", "-x", "c", "-", f"-Wl,-soname,{path.name}"]
    command += ["-o", str(path)]
    done = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
    if done.returncode:
        raise MachineryError(f"{command[0]} could not compile {path.name}: {done.stderr.strip()[-500:]}")
    return path.parent


def need_compiler() -> str:
    """Return the C compiler; :class:`MachineryError` says what to do where there is none."""
    if found := shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc"):
        return found
    raise MachineryError(
        "there is no C compiler, which the stand-ins for NVIDIA's libraries need\n"
        "  install one (Debian: apt-get install gcc), or name one in CC"
    )


def format_store(surfaces: Iterable[Surface]) -> str:
    """Return many surfaces as one JSON text; a new release adds lines at its end and changes none."""
    heads, parts, known = [], [], dict[str, Any]()
    for surface in sorted(surfaces, key=lambda surface: numbers_of(surface.version)):
        plain = SURFACE.dump_python(surface, mode="json", exclude_defaults=True)
        entries = dict(plain["names"])
        for owner, found in plain["classes"].items():
            entries |= {f"{owner}:{name}": entry for name, entry in found.pop("members", {}).items()}
            entries[owner] = {"kind": "class", **found}
        new = {name: entry for name, entry in sorted(entries.items()) if known.get(name) != entry}
        gone = dict.fromkeys(sorted(known.keys() - entries.keys()))
        heads.append(_line({"version": surface.version, **plain["origin"]}))
        lines = [f"{_line(name)}:{_line(entry)}" for name, entry in {**new, **gone}.items()]
        parts.append(f"{_line(surface.version)}:{{\n" + ",\n".join(lines) + "\n}")
        known = entries
    changes = ",\n".join(parts)
    return '{"surfaces":[\n' + ",\n".join(heads) + '\n],\n"changes":{\n' + changes + "\n}}\n"


def _line(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
