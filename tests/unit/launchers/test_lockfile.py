"""What is pinned: images by matrix.lock, wheels by their locks and indexes, all that a Dockerfile takes."""

import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from goldenfile import check_golden
from hypothesis import given, settings
from hypothesis import strategies as st
from locks import digest_of, lock_of, make_image, make_platform

from trtmatrix.common.errors import ConfigError
from trtmatrix.common.paths import Project
from trtmatrix.images.lock import format_matrix_lock
from trtmatrix.launchers.wheels import LockedWheel, index_options, parse_lock
from trtmatrix.plan.context import read_matrix
from trtmatrix.plan.lockfile import parse_matrix_lock
from trtmatrix.suite.matrix import ImageOrigin

ROOT = Path(__file__).resolve().parents[3]
VERSIONS = read_matrix(ROOT / "matrix.yaml").versions
LOCK = lock_of(make_image())
TEXT = format_matrix_lock(LOCK)

texts = st.text(st.characters(exclude_categories=["Cs"]))
named = st.dictionaries(texts, texts, max_size=3)


@settings(max_examples=40)
@given(named)
def test_whatever_an_image_says_reads_back_the_same(says: dict[str, str]) -> None:
    platforms = {name: make_platform(says=says) for name in ("linux/amd64", "a/b/c")}
    lock = lock_of(make_image(platforms=platforms))
    text = format_matrix_lock(lock)
    text.encode()
    assert parse_matrix_lock(text) == lock
    assert format_matrix_lock(parse_matrix_lock(text)) == text


ONE, TWO = "1" * 64, "2" * 64
WHEELS = f"""\
# What these are.

# read: somewhere
a-wheel==1.0 --hash=sha256:{ONE}
b==2.0.post1.dev2 --hash=sha256:{TWO}
"""


MISTAKES = [
    ("image_id:", "imgae_id:"), (f"manifest: {digest_of('b')}", "manifest: sha256:b"),
    ("schema: 1", "schema: 2"), ("schema: 1", "<<<<<<< HEAD\nschema: 1"),
    ("schema: 1", "schema: 1\nimages: {}"),
]  # fmt: skip


NOT_MEANT = [
    (WHEELS, ["a-wheel==1.0"]), (f"a==1 --hash=sha256:{ONE}\n" * 2, ["a==1"]), ("a==1\n", ["a==1"]),
    (f"a==1 --hash=sha256:{ONE[1:]}\n", ["a==1"]), ("", ["a==1.*"]),
]  # fmt: skip


def told_of(parse: Callable[[], object]) -> str:
    with pytest.raises(ConfigError) as caught:
        parse()
    return "\n".join(caught.value.problems)


def test_a_mistake_is_told_with_line_and_remedy() -> None:
    found = [told_of(partial(parse_matrix_lock, TEXT.replace(*mistake), "m.lock")) for mistake in MISTAKES]
    found += [told_of(partial(parse_lock, text, wheels, "x.txt")) for text, wheels in NOT_MEANT]
    check_golden("locks.txt", "\n\n".join(found) + "\n")


def test_the_project_s_own_lock_can_be_read() -> None:
    project = Project(matrix=ROOT / "matrix.yaml", repros=ROOT, results=ROOT, cache=ROOT)
    assert parse_matrix_lock(project.lock.read_text(encoding="utf-8")).schema == 1


# Wheels

LOCKS = ROOT / "docker" / "wheels" / "locks"


def test_each_wheel_of_the_matrix_gets_its_hash_and_the_comment_above() -> None:
    assert parse_lock(WHEELS, ["b==2.0.post1.dev2", "a-wheel==1.0"], "x.txt") == (
        LockedWheel(wheel="b==2.0.post1.dev2", sha256=TWO, source="read: somewhere"),
        LockedWheel(wheel="a-wheel==1.0", sha256=ONE, source="read: somewhere"),
    )


def test_every_image_of_ours_and_no_other_has_a_lock_that_fits_the_matrix() -> None:
    origins = {version.name: version.origin for version in VERSIONS}
    ours = {name: o.build for name, o in origins.items() if isinstance(o, ImageOrigin) and o.build}
    assert {file.stem for file in LOCKS.iterdir()} == set(ours)
    for name, build in ours.items():
        pins = parse_lock((LOCKS / f"{name}.txt").read_text(encoding="utf-8"), build.wheels, name)
        assert all(pin.source for pin in pins if pin.sha256), name
        without = [pin.wheel for pin in pins if not pin.sha256]
        assert without == [] or name == "10.0.0", "no hashes of its wheels were to be had"


def test_the_indexes_of_pip_s_own_settings_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "pip.conf").write_text("[global]\nindex-url = https://b.example/simple\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "file:///a file:///b")
    extra = ["--index=file:///a", "--index=file:///b", "--index-strategy=unsafe-best-match"]
    assert sorted(index_options()) == sorted(["--default-index=https://b.example/simple", *extra])
    monkeypatch.setenv("PIP_INDEX_URL", "https://a.example/simple")
    assert "--default-index=https://a.example/simple" in index_options()


# Dockerfiles

PINNED = re.compile(r"scratch|\S+@sha256:[0-9a-f]{64}")
INSTALL = re.compile(r"\bpip[\"'\]}@[]*\s.*\b(install|download)\b")
DOCKERFILES = ["docker/test/Dockerfile", "docker/wheels/Dockerfile"]


def test_each_dockerfile_is_linted() -> None:
    files = sorted({*ROOT.glob("[!.]*/**/Dockerfile*"), *ROOT.glob("[!.]*/**/*.dockerfile")})
    names = [file.relative_to(ROOT).as_posix() for file in files if "node_modules" not in file.parts]
    assert [name for name in names if not name.startswith("tests/unit/code/")] == DOCKERFILES  # samples
    (line,) = re.findall(r'session\.run\("hadolint", (.*)\)', (ROOT / "noxfile.py").read_text())
    assert re.findall(r'"([^"]+)"', line) == DOCKERFILES


@pytest.mark.parametrize("name", DOCKERFILES)
def test_a_dockerfile_pins_its_base_and_its_wheels(name: str) -> None:
    text = re.sub(r"^\s*#.*\n", "", (ROOT / name).read_text(encoding="utf-8"), flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", " ", text).splitlines()
    given = {f"${{{line.split(maxsplit=1)[1]}}}" for line in lines if line.startswith("ARG ")}
    bases = [line.split()[1] for line in lines if re.match(r"FROM\s", line, re.IGNORECASE)]
    assert bases
    assert [base for base in bases if not PINNED.fullmatch(base) and base not in given] == []
    calls = [call for line in lines for call in re.split(r"&&|\|\||;", line)]
    assert [call for call in calls if INSTALL.search(call) and "--require-hashes" not in call] == []
