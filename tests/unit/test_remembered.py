"""What was parsed is remembered by content: never stale, never believed where it is damaged or foreign."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from reprosource import SOURCE
from test_config import GOOD

import trtmatrix
import trtprobe
from trtmatrix.context import read_matrix
from trtmatrix.core.errors import ConfigError
from trtmatrix.effects import code as own
from trtmatrix.effects.code import digest_own_code, digest_program
from trtmatrix.effects.remembered import KEPT, Remembered
from trtmatrix.effects.repro_files import read_repros


class Counting:
    """Computes, and counts how often it was asked to."""

    def __init__(self, value: object = (1, "a")) -> None:
        self.value, self.calls = value, 0

    def __call__(self) -> object:
        self.calls += 1
        return self.value


def recall(cache: Path, compute: Counting, kind: str = "k", content: str = "c", program: str = "p") -> object:
    return Remembered(cache, program).recall(kind, content, compute)


def only_file(cache: Path) -> Path:
    (file,) = (cache / "parsed").iterdir()
    return file


def test_what_is_known_is_not_computed_again(tmp_path: Path) -> None:
    compute = Counting()
    assert [recall(tmp_path, compute) for _ in range(3)] == [(1, "a")] * 3
    assert compute.calls == 1


@pytest.mark.parametrize("other", [{"kind": "l"}, {"content": "d"}, {"program": "q"}])
def test_another_kind_content_or_program_is_computed(other: dict[str, str], tmp_path: Path) -> None:
    recall(tmp_path, Counting("old"))
    assert recall(tmp_path, Counting("new"), **other) == "new"


def test_an_error_is_computed_anew_each_time(tmp_path: Path) -> None:
    def fail() -> None:
        raise ConfigError(["a mistake"])

    for _ in range(2):
        with pytest.raises(ConfigError, match="a mistake"):
            Remembered(tmp_path, "p").recall("k", "c", fail)
    assert not (tmp_path / "parsed").exists()


def whole(payload: bytes) -> bytes:
    return sha256(payload).digest() + payload


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "cut short": lambda content: content[:-1],
    "empty": lambda _: b"",
    "a bit flipped": lambda content: content.replace(b"old", b"olt"),
    "another file": lambda _: b"x" * 200,
    "a pickle of somebody's": lambda _: bytes(32) + pickle.dumps(["planted"]),
    "whole, but no pickle": lambda _: whole(b"no pickle"),
    "of a class that is no more": lambda _: whole(b"cno_such_module\nNoClass\n."),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_file_is_computed_and_written_anew(name: str, tmp_path: Path) -> None:
    recall(tmp_path, Counting("old"))
    file = only_file(tmp_path)
    file.write_bytes(DAMAGE[name](file.read_bytes()))
    compute = Counting("new")
    assert [recall(tmp_path, compute), recall(tmp_path, compute)] == ["new", "new"]
    assert compute.calls == 1


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_a_file_that_others_may_write_is_not_read(mode: int, tmp_path: Path) -> None:
    recall(tmp_path, Counting("old"))
    only_file(tmp_path).chmod(mode)
    assert recall(tmp_path, Counting("new")) == "new"


def test_a_file_of_somebody_else_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recall(tmp_path, Counting("old"))
    monkeypatch.setattr(os, "getuid", lambda: only_file(tmp_path).stat().st_uid + 1)
    assert recall(tmp_path, Counting("new")) == "new"


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.write_text("a file where the folder would be")
    assert recall(cache, Counting()) == (1, "a")


def test_what_cannot_be_pickled_is_not_kept(tmp_path: Path) -> None:
    value = threading.Lock()
    assert recall(tmp_path, Counting(value)) is value
    assert not (tmp_path / "parsed").exists()


def test_the_oldest_files_go(tmp_path: Path) -> None:
    for number in range(KEPT + 5):
        recall(tmp_path, Counting(), content=str(number))
        for file in (tmp_path / "parsed").iterdir():  # the clock of a file system may be coarse
            status = file.stat()
            os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns - 10**9))
    newest, oldest = Counting(), Counting()
    recall(tmp_path, newest, content=str(KEPT + 4))
    recall(tmp_path, oldest, content="0")
    assert (newest.calls, oldest.calls) == (0, 1)
    assert len(list((tmp_path / "parsed").iterdir())) == KEPT


MARK = (
    '\nimport pathlib\nwith (pathlib.Path(__file__).parent / "log").open("a") as log:\n    log.write("x")\n'
)


@pytest.fixture
def repros(tmp_path: Path) -> Path:
    """A folder with a repro that notes how often it is imported."""
    folder = tmp_path / "repros"
    folder.mkdir()
    (folder / "plain.py").write_text(SOURCE + MARK)
    return folder


def imports(folder: Path) -> int:
    log = folder / "log"
    return len(log.read_text()) if log.exists() else 0


def fresh(folder: Path, program: str = "p") -> Any:
    """Read the repros as a new process would, whose modules are not loaded."""
    sys.modules.pop("trtmatrix_repros.plain", None)
    from trtmatrix.effects import repro_files

    repro_files._imported.clear()
    (loaded,) = read_repros(folder, Remembered(folder.parent / "cache", program))
    return loaded


def test_a_repro_that_is_remembered_is_not_imported_before_it_is_used(repros: Path) -> None:
    first = fresh(repros)
    again = fresh(repros)
    assert (again.repro, again.code, imports(repros)) == (first.repro, digest_own_code(), 1)
    assert callable(again.module.prepare)
    assert again.module is again.module
    assert imports(repros) == 2


def test_threads_that_ask_at_once_get_one_module(repros: Path) -> None:
    fresh(repros)
    (repros / "plain.py").write_text(SOURCE + MARK + "import time\ntime.sleep(0.2)\nREADY = True\n")
    fresh(repros)
    before, loaded = imports(repros), fresh(repros)
    with ThreadPoolExecutor(8) as pool:
        modules = list(pool.map(lambda _: (loaded.module, loaded.module.READY), range(8)))
    assert len({id(found) for found, _ in modules}) == 1
    assert imports(repros) == before + 1


def test_a_repro_can_be_handed_to_another_process(repros: Path) -> None:
    loaded = pickle.loads(pickle.dumps(fresh(repros)))  # noqa: S301 - our own
    assert callable(loaded.module.run)


def test_the_module_is_of_the_bytes_that_were_read_or_there_is_none(repros: Path) -> None:
    fresh(repros)
    loaded = fresh(repros)
    (repros / "plain.py").write_text(SOURCE + MARK + "# changed\n")
    with pytest.raises(ConfigError, match=r"plain\.py:1: it changed while this ran"):
        _ = loaded.module


def rewritten(file: Path, old: str, new: str) -> None:
    """Change a file so that neither its size nor its time tells."""
    status, text = file.stat(), file.read_text()
    assert text.count(old) == 1
    assert len(old) == len(new)
    file.write_text(text.replace(old, new))
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_a_change_to_a_repro_is_seen(repros: Path) -> None:
    fresh(repros)
    rewritten(repros / "plain.py", "a title", "b title")
    assert fresh(repros).repro.title == "b title"


def test_a_change_to_a_file_beside_the_repros_is_seen(repros: Path) -> None:
    (repros / "_helper.py").write_text("A = 1\n")
    fresh(repros)
    rewritten(repros / "_helper.py", "A = 1", "A = 2")
    fresh(repros)
    assert imports(repros) == 2


def test_a_mistake_in_a_repro_is_told_each_time(repros: Path) -> None:
    rewritten(repros / "plain.py", '"title"', '"titel"')
    for _ in range(2):
        with pytest.raises(ConfigError, match="perhaps you meant 'title'"):
            fresh(repros)


def test_a_change_to_the_matrix_is_seen(tmp_path: Path) -> None:
    file, remembered = tmp_path / "matrix.yaml", Remembered(tmp_path / "cache", "p")
    file.write_text(GOOD)
    assert read_matrix(file, remembered) == read_matrix(file, remembered) == read_matrix(file)
    rewritten(file, '"release notes"', '"release pages"')
    assert read_matrix(file, remembered).sources["notes"].title == "release pages"
    file.write_text(GOOD + "sourcs: {}\n")
    for _ in range(2):
        with pytest.raises(ConfigError, match="perhaps you meant 'sources'"):
            read_matrix(file, remembered)


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A copy of this program."""
    for package in (trtmatrix, trtprobe):
        root = Path(str(package.__file__)).parent
        shutil.copytree(root, tmp_path / "src" / root.name, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "src"


@pytest.mark.parametrize(
    "name", ["authoring/graph.py", "core/reprofile.py", "effects/noise.py", "__init__.py"]
)
def test_a_change_anywhere_in_the_program_makes_another_program(name: str, packages: Path) -> None:
    before = digest_program([packages])
    file = packages / "trtmatrix" / name
    rewritten(file, file.read_text(), file.read_text()[:-2] + "#\n")
    assert digest_program([packages]) != before
    assert digest_program([packages]) == digest_program([packages])


def test_another_python_is_another_program(monkeypatch: pytest.MonkeyPatch) -> None:
    before = digest_program()
    monkeypatch.setattr(sys, "version", sys.version + "+")
    assert digest_program() != before


def test_what_is_installed_meanwhile_makes_another_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.setattr(sys, "path", [*sys.path, str(folder)])
    before = digest_program()
    os.utime(folder, ns=(0, 0))
    assert digest_program() != before


IMPORTING = """
from trtmatrix.authoring.made_up import N
""" + SOURCE.replace('"n": 1', '"n": N')


def test_a_repro_is_read_again_when_what_it_imports_changes(packages: Path, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    (folder / "repros").mkdir(parents=True)
    (folder / "repros" / "plain.py").write_text(IMPORTING)
    (folder / "matrix.yaml").write_text(GOOD)
    made_up = packages / "trtmatrix" / "authoring" / "made_up.py"

    def listed() -> str:
        return subprocess.run(
            [sys.executable, "-B", "-m", "trtmatrix", "list", "--json", "--cache", str(tmp_path / "cache")],
            cwd=folder, env={**os.environ, "PYTHONPATH": str(packages)}, capture_output=True, text=True,
            check=True,
        ).stdout  # fmt: skip

    made_up.write_text("N = 71\n")
    assert '"n": 71' in listed()
    assert '"n": 71' in listed()
    rewritten(made_up, "71", "72")
    assert '"n": 72' in listed()


def test_the_digests_of_our_code_are_remembered(repros: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = fresh(repros).code
    monkeypatch.setattr(own, "digest_files", lambda *_: pytest.fail("it is tokenised again"))
    own.digest_own_code.cache_clear()
    assert fresh(repros).code == known
