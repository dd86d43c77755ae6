"""Every Dockerfile pins what it is built on and what it installs, and is linted."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SAMPLES = ROOT / "tests" / "unit" / "code"
"""Files that are read and never built."""

PINNED = re.compile(r"scratch|\S+@sha256:[0-9a-f]{64}")
INSTALL = re.compile(r"\bpip[\"'\]}@[]*\s.*\b(install|download)\b")


def found(pattern: str) -> list[Path]:
    """The project's own files of a pattern, without what lies in ignored folders and in samples."""
    tops = [path for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")]
    files = [file for top in tops for file in top.rglob(pattern)]
    return sorted(file for file in files if SAMPLES not in file.parents and "node_modules" not in file.parts)


DOCKERFILES = [*found("Dockerfile*"), *found("*.dockerfile")]


def instructions(text: str) -> Iterator[str]:
    """Yield each instruction on one line, without comments."""
    kept = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    yield from filter(None, (line.strip() for line in re.sub(r"\\\n\s*", " ", kept).splitlines()))


def test_there_are_dockerfiles_and_each_is_linted() -> None:
    assert [str(file.relative_to(ROOT)) for file in DOCKERFILES] == [
        "docker/test/Dockerfile", "docker/wheels/Dockerfile",
    ]  # fmt: skip
    (line,) = re.findall(r'session\.run\("hadolint", (.*)\)', (ROOT / "noxfile.py").read_text())
    assert set(re.findall(r'"([^"]+)"', line)) == {str(file.relative_to(ROOT)) for file in DOCKERFILES}


@pytest.mark.parametrize("file", DOCKERFILES, ids=lambda file: file.parent.name)
def test_a_dockerfile_pins_its_base_and_its_wheels(file: Path) -> None:
    lines = list(instructions(file.read_text(encoding="utf-8")))
    given = {f"${{{line.split(maxsplit=1)[1]}}}" for line in lines if line.startswith("ARG ")}
    bases = [line.split()[1] for line in lines if re.match(r"FROM\s", line, re.IGNORECASE)]
    assert bases
    assert [base for base in bases if not PINNED.fullmatch(base) and base not in given] == []
    calls = [call for line in lines for call in re.split(r"&&|\|\||;", line)]
    assert [call for call in calls if INSTALL.search(call) and "--require-hashes" not in call] == []
