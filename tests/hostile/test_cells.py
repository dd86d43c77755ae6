"""Each attack costs its own cell alone: of the next one, right is measured as right and wrong as wrong."""

import contextlib
import importlib.util
import stat
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.calling import Done
from tests.containers import conftest
from tests.containers.conftest import GOOD, OUTPUT, Project

HERE = Path(__file__).resolve().parent


def load_attacks() -> dict[str, tuple[str, ...]]:
    spec = importlib.util.spec_from_file_location("attacks", HERE / "repros" / "attacks.py")
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {
        group: tuple(name if group in {"own", "ends"} else f"{group}-{name}" for name in attacks)
        for group, attacks in module.GROUPS.items()
    }


GROUPS = load_attacks()
ATTACKS = [name for names in GROUPS.values() for name in names]


class Hostile:
    """One run over all attacks, and the largest that its folders were while it ran."""

    def __init__(self, folder: Path) -> None:
        self.project, self.largest, self.over = Project(folder), 0, threading.Event()
        watch = threading.Thread(target=self._watch, daemon=True)
        watch.start()
        self.done = self.run("--no-confirm", seconds=400)
        self.over.set()
        watch.join()
        self.records = {record["cell"]["case"]: record for record in self.project.records()}

    def run(self, *words: str, seconds: float = 120) -> Done:
        return self.project.run("--trt", GOOD, f"--repros={HERE / 'repros'}", *words, seconds=seconds)

    def _watch(self) -> None:
        while not self.over.wait(0.3):
            with contextlib.suppress(FileNotFoundError):  # a job's folder goes while it is looked through
                files = [path.lstat() for path in (self.project.cache / "jobs").rglob("*")]
                self.largest = max(self.largest, sum(file.st_blocks * 512 for file in files))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Hostile:
    subprocess.run([str(conftest.BUILD)], check=True)
    return Hostile(tmp_path_factory.mktemp("hostile"))


def test_there_are_as_many_attacks_as_there_must_be() -> None:
    assert len(set(ATTACKS)) == len(ATTACKS) >= 160
    assert {"fills-the-disk", "kills-the-supervisor", "sinks", "forks-for-ever"} < set(ATTACKS)


NEIGHBOURS = {f"after-{attack}" for attack in ATTACKS}


@pytest.mark.parametrize("case", sorted(NEIGHBOURS))
def test_what_a_neighbour_gives_is_measured_as_it_is(hostile: Hostile, case: str) -> None:
    cell = hostile.done.cell(case)
    assert (cell["verdict"], cell["reason"]) == ("FAIL", "max_abs 1 > 0")
    measured = hostile.records[case]["measurements"]["outputs"]
    assert {name: values["max_abs"] for name, values in measured.items()} == {"right": 0, "wrong": 1}


def test_the_next_run_shows_what_an_undisturbed_one_would(hostile: Hostile) -> None:
    """Every neighbour is served from its record."""
    cells = hostile.run("--case", "after-*").data["cells"]
    assert {(cell["case"], cell["verdict"], cell["executed"]) for cell in cells} == {
        (case, "FAIL", False) for case in NEIGHBOURS
    }


HELD = ("forges-records", "knocks-at-the-host", "looks-into-the-supervisor", "fills-the-disk", "fills-unseen",
        "leaves-setuid", "removes-all", *GROUPS["asks"], *GROUPS["reaches"])  # fmt: skip


@pytest.mark.parametrize("attack", HELD)
def test_no_step_of_it_comes_through(hostile: Hostile, attack: str) -> None:
    record = hostile.records[attack]
    assert record["ended"] == "ran", record["detail"]
    assert record["measurements"]["scalars"] == {"reached": 0}, record["log"]


@pytest.mark.parametrize("attack", [*GROUPS["hands-over"], *GROUPS["tells"]])
def test_what_is_no_array_and_no_result_is_none(hostile: Hostile, attack: str) -> None:
    record = hostile.records[attack]
    assert (record["ended"], record["measurements"]["outputs"]) == ("crashed", {})
    assert record["detail"] == record["worker"]["ended"] != ""


@pytest.mark.parametrize("attack", GROUPS["tells-oddly"])
def test_what_a_result_says_beside_its_numbers_decides_nothing(hostile: Hostile, attack: str) -> None:
    record = hostile.records[attack]
    assert "processes" not in record
    assert "kept" not in record
    assert len(record["detail"]) <= 5000


ENDED = {
    "time-out": ["stops-itself", "sleeps", "spins", "hears-nothing", "forks-for-ever"],
    "out of host memory": ["eats-memory", "eats-memory-unseen"],
    "crashed": ["exits", "aborts", "faults", "leaves", "breaks-off", "becomes-another", "kills-itself",
                "kills-its-group", "closes-all-files", "raises-much"],
    "ran": ["makes-files", "makes-outputs", "sinks", "sinks-in-outputs", "prints-much", "prints-no-text"],
}  # fmt: skip


@pytest.mark.parametrize(("attack", "ended"), [(name, how) for how, names in ENDED.items() for name in names])
def test_how_a_cell_ends_is_told_as_it_was(hostile: Hostile, attack: str, ended: str) -> None:
    assert hostile.records[attack]["ended"] == ended


@pytest.mark.parametrize(
    ("attack", "detail"),
    [("hands-over-a-pipe", "what was handed over is no sealed memory"),
     ("hands-over-nonsense", "what was handed over is no array: EOF: reading magic string"),
     ("hands-over-what-changes", "what was handed over is no sealed memory"),
     ("names-a-path", "the output ../../../../../../tmp/trtmatrix-was-here of build 0")],
)  # fmt: skip
def test_what_cannot_be_believed_is_refused_with_a_reason(hostile: Hostile, attack: str, detail: str) -> None:
    record = hostile.records[attack]
    assert record["ended"] == "crashed"
    assert record["detail"].startswith(detail)
    assert not Path("/tmp/trtmatrix-was-here.npy").exists()  # noqa: S108 - where the attack aims


CHANGES = [name for name in GROUPS["changes"] if not name.startswith("changes-other-")]
"""Another module of the same name is not looked for: what has imported the right one keeps it."""


@pytest.mark.parametrize("attack", ["swaps-the-product", *CHANGES])
def test_a_changed_process_serves_no_other_cell(hostile: Hostile, attack: str) -> None:
    ended = hostile.records[attack]["worker"]["ended"]
    assert "the cell changed or left: " in ended or hostile.records[attack]["ended"] == "crashed"


def test_a_cell_is_who_the_host_says(hostile: Hostile) -> None:
    names = {(r["cell"]["version"], r["cell"]["gpu"], r["product"]) for r in hostile.records.values()}
    assert names == {(GOOD, "cpu", "onnxruntime")}
    assert hostile.records.keys() == {*ATTACKS, *NEIGHBOURS}


def test_no_disk_is_filled_and_no_setuid_file_is_left(hostile: Hostile) -> None:
    assert hostile.largest < OUTPUT
    modes = [path.lstat().st_mode for path in hostile.project.folder.rglob("*")]
    assert not [mode for mode in modes if mode & (stat.S_ISUID | stat.S_ISGID) and stat.S_ISREG(mode)]
    assert hostile.project.jobs() == []


@pytest.mark.parametrize("attack", ["stops-the-supervisor", "kills-the-supervisor"])
def test_a_supervisor_that_is_gone_costs_its_own_cell(hostile: Hostile, attack: str) -> None:
    cause = hostile.done.cell(attack)["cause"]
    assert cause == ("interrupted" if attack.startswith("kills") else "probe failed")
