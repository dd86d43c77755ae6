"""Wheels: their locks, which matrix.yaml decides, and the indexes that they come from."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trtmatrix.common.errors import ConfigError
from trtmatrix.launchers.wheels import LockedWheel, index_options, parse_lock
from trtmatrix.plan.context import read_matrix
from trtmatrix.suite.matrix import ImageOrigin

ROOT = Path(__file__).resolve().parents[3]
LOCKS = ROOT / "docker" / "wheels" / "locks"
ONE, TWO = "1" * 64, "2" * 64
LOCK = f"""\
# What these are.

# read: somewhere
a-wheel==1.0 --hash=sha256:{ONE}
b==2.0.post1.dev2 --hash=sha256:{TWO}
"""


def test_each_wheel_of_the_matrix_gets_its_hash_and_the_comment_above() -> None:
    assert parse_lock(LOCK, ["b==2.0.post1.dev2", "a-wheel==1.0"], "x.txt") == (
        LockedWheel(wheel="b==2.0.post1.dev2", sha256=TWO, source="read: somewhere"),
        LockedWheel(wheel="a-wheel==1.0", sha256=ONE, source="read: somewhere"),
    )


@pytest.mark.parametrize(
    ("text", "wheels", "problem"),
    [
        (LOCK, ["a-wheel==1.0"], "x.txt:5: b==2.0.post1.dev2 is not in matrix.yaml: remove this line"),
        (f"a==1 --hash=sha256:{ONE}\n" * 2, ["a==1"], "x.txt:2: a==1 stands twice: remove one"),
        (f"a==1 --hash=sha256:{ONE[1:]}\n", ["a==1"], "x.txt:1: write NAME==VERSION --hash=sha256:"),
        ("a==1\n", ["a==1"], "x.txt:1: write NAME==VERSION"),
        ("", ["a==1.*"], "matrix.yaml: a==1.*: write NAME==VERSION"),
    ],
)
def test_what_is_not_meant_is_refused(text: str, wheels: list[str], problem: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_lock(text, wheels, "x.txt")
    assert any(line.startswith(problem) for line in raised.value.problems), raised.value.problems


def test_every_image_of_ours_and_no_other_has_a_lock_that_fits_the_matrix() -> None:
    origins = {version.name: version.origin for version in read_matrix(ROOT / "matrix.yaml").versions}
    builds = {name: each.build for name, each in origins.items() if isinstance(each, ImageOrigin)}
    ours = {name: build for name, build in builds.items() if build is not None}
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
