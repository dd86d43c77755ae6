"""Lost or changed files are this host's trouble, mended and told: no verdict, and no neighbour's trouble.

All cells run in real containers, three times: undisturbed; after and while their prepared cases are
disturbed; and after some of their records are: the command that finds damaged ones sets them aside and ends.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.containers.conftest import Done, Project
from tests.faults.disturbing import (
    BETWEEN,
    CHANGES,
    FAULTS,
    MEANWHILE,
    RECORDS,
    disturb,
    disturbing,
    hold,
    let_go,
    on_faults,
)

pytestmark = pytest.mark.xdist_group("cells")
"""They share their runs."""


class Disturbed:
    """The runs."""

    def __init__(self, folder: Path) -> None:
        self.project = project = Project(folder)
        for fault in MEANWHILE:
            let_go(project, fault)
        self.undisturbed = on_faults(project, *FAULTS)
        prepared = (project.cache / "cases").glob("*/case.json")
        self.folders = {json.loads(file.read_text())["case"]: file.parent for file in prepared}
        for fault in BETWEEN:
            disturb(fault, self.folders[fault])
        for fault in MEANWHILE:
            hold(project, fault)
        with disturbing(project, self.folders):
            self.disturbed = on_faults(project, *FAULTS, more=("--rerun",))
        let_go(project, "while-quota")
        for fault in RECORDS:
            for file in list(project.results.rglob(f"{fault}/*.json")):
                CHANGES[fault.removeprefix("record-")](file)
        self.refused = on_faults(project, *FAULTS)
        self.next = on_faults(project, *FAULTS)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Disturbed:
    return Disturbed(tmp_path_factory.mktemp("faults"))


def verdicts(done: Done, *cases: str) -> list[tuple[str, str | None, str]]:
    return [(cell["verdict"], cell["cause"], cell["reason"]) for cell in map(done.cell, cases)]


def neighbours(fault: str) -> tuple[str, str]:
    return f"right-beside-{fault}", f"wrong-beside-{fault}"


def test_there_are_as_many_faults_as_there_must_be(seen: Disturbed) -> None:
    assert len(set(FAULTS)) == len(FAULTS) >= 60
    assert len(seen.undisturbed.data["cells"]) == 3 * len(FAULTS)
    assert {cell["verdict"] for cell in seen.undisturbed.data["cells"] if "wrong" not in cell["case"]} == {
        "PASS"
    }


@pytest.mark.parametrize("fault", FAULTS)
def test_neighbours_are_judged_by_what_they_are(seen: Disturbed, fault: str) -> None:
    for done in (seen.undisturbed, seen.disturbed, seen.next):
        assert [verdict for verdict, *_ in verdicts(done, *neighbours(fault))] == ["PASS", "FAIL"]


@pytest.mark.parametrize("fault", BETWEEN)
def test_a_changed_case_is_prepared_anew_and_told(seen: Disturbed, fault: str) -> None:
    assert verdicts(seen.disturbed, fault) == verdicts(seen.undisturbed, fault)
    if fault != "case-gone":  # what is not there is prepared without a word
        (line,) = [line for line in seen.disturbed.told.splitlines() if str(seen.folders[fault]) in line]
        assert "prepared anew" in line


@pytest.mark.parametrize("fault", MEANWHILE)
def test_a_case_that_changes_while_it_runs_gives_no_verdict(seen: Disturbed, fault: str) -> None:
    ((verdict, cause, reason),) = verdicts(seen.disturbed, fault)
    assert (verdict, cause) == ("NO VERDICT", "launcher failed"), reason
    assert "trouble of this host" in reason


@pytest.mark.parametrize("fault", RECORDS)
def test_a_damaged_record_is_named_and_set_aside(seen: Disturbed, fault: str) -> None:
    told = [line for line in seen.refused.told.splitlines() if f"/{fault}/" in line]
    assert len(told) >= 2 * (fault != "record-gone"), "one of each run"
    assert seen.refused.code == 2


def test_trouble_of_this_host_is_the_machinery_s(seen: Disturbed) -> None:
    assert [done.code for done in (seen.undisturbed, seen.disturbed, seen.next)] == [0, 3, 0]


def test_the_next_run_shows_what_an_undisturbed_one_would(seen: Disturbed) -> None:
    """What was no verdict is run again, and what has lost its records; nothing else."""
    cases = [cell["case"] for cell in seen.undisturbed.data["cells"]]
    assert verdicts(seen.next, *cases) == verdicts(seen.undisturbed, *cases)
    executed = {cell["case"] for cell in seen.next.data["cells"] if cell["executed"]}
    assert executed == {*MEANWHILE, *RECORDS}
    assert seen.project.jobs() == []
