"""Projects in folders of their own: matrix.yaml of a few words, and the command line over such a project."""

import json
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parents[2]

Column = tuple[str, str | Mapping[str, Any], str]
"""A version's name, its origin (an image's name, or what matrix.yaml has there) and its library's version."""


def matrix_text(*columns: Column) -> str:
    """Return matrix.yaml with these columns; JSON is YAML."""
    versions = [
        {
            "version": version, "product": version.rpartition("-")[0] or "tensorrt",
            "origin": {"image": origin} if isinstance(origin, str) else origin,
            "library": {"value": library, "known": "measured", "source": "here"},
        }
        for version, origin, library in columns
    ]  # fmt: skip
    return json.dumps(
        {"schema": 1, "sources": {"here": {"title": "This test"}}, "versions": versions}, indent=1
    )


def write_wheel(
    folder: Path, name: str, version: str, files: Mapping[str, str], *needs: str, tag: str = "py3-none-any"
) -> Path:
    """Write a wheel that pip installs."""
    info = f"{name}-{version}.dist-info"
    metadata = [
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}",
        *(f"Requires-Dist: {n}" for n in needs),
    ]
    facts = {
        f"{info}/METADATA": "\n".join(metadata) + "\n",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: false\nTag: {tag}\n",
    }
    record = "".join(f"{file},,\n" for file in [*files, *facts, f"{info}/RECORD"])
    path = folder / f"{name}-{version}-{tag}.whl"
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as wheel:
        for file, text in {**files, **facts, f"{info}/RECORD": record}.items():
            wheel.writestr(zipfile.ZipInfo(file), text)
    return path


def strict_json(text: str) -> Any:
    """Read JSON in which a bare NaN or Infinity is an error."""

    def refuse(token: str) -> NoReturn:
        raise AssertionError(f"a bare {token} in JSON")

    return json.loads(text, parse_constant=refuse)


def records_below(results: Path) -> list[dict[str, Any]]:
    """Return all records; each file must be whole, strict JSON. Beside them a run leaves its log and page."""
    files = sorted(path for path in results.rglob("*") if path.is_file())
    files = [path for path in files if path.name not in {"last-run.txt", "report.html"}]
    assert [path for path in files if path.suffix != ".json"] == []
    return [strict_json(path.read_text()) for path in files]


def files_of(folder: Path, repros: Path) -> list[str]:
    """Return the options that name a project's files."""
    return [
        f"--matrix={folder / 'matrix.yaml'}", f"--repros={repros}",
        f"--results={folder / 'results'}", f"--cache={folder / 'cache'}",
    ]  # fmt: skip


def command(verb: str, folder: Path, repros: Path, *words: str) -> list[str]:
    """Return the command line of ``trtmatrix`` over a project."""
    return [sys.executable, "-m", "trtmatrix", verb, *files_of(folder, repros), *words]
