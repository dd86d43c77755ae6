"""Lost or changed files are this host's trouble, mended and told: no verdict, and no neighbour's trouble.

All cells run in real containers, three times: undisturbed; after and while their prepared cases are
disturbed; and after some of their records are: the command that finds damaged ones sets them aside and ends.
"""

import json
from pathlib import Path

import pytest

from tests.containers.conftest import Project
from tests.faults.disturbing import (
    BETWEEN,
    CHANGES,
    FAIL,
    FAULTS,
    MEANWHILE,
    PASS,
    RECORDS,
    disturb,
    disturbing,
    hold,
    let_go,
    verdicts,
    words_on,
)

AFTER = [f"after-{fault}" for fault in FAULTS]


class Disturbed:
    """The runs."""

    def __init__(self, folder: Path) -> None:
        self.project = project = Project(folder)
        words = words_on(*FAULTS, *AFTER)
        for fault in MEANWHILE:
            let_go(project, fault)
        self.undisturbed = project.run(*words)
        prepared = (project.cache / "cases").glob("*/case.json")
        self.folders = {json.loads(file.read_text())["case"]: file.parent for file in prepared}
        for fault in BETWEEN:
            disturb(fault, self.folders[fault])
        for fault in MEANWHILE:
            hold(project, fault)
        with disturbing(project, self.folders):
            self.disturbed = project.run(*words, "--rerun")
        let_go(project, "while-quota")
        for fault in RECORDS:
            for file in list(project.results.rglob(f"{fault}/*.json")):
                CHANGES[fault.removeprefix("record-")](file)
        self.refused = project.run(*words)
        self.next = project.run(*words)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Disturbed:
    return Disturbed(tmp_path_factory.mktemp("faults"))


def test_what_is_not_disturbed_is_judged_by_what_it_is(seen: Disturbed) -> None:
    assert len(set(FAULTS)) == len(FAULTS) >= 60
    assert verdicts(seen.undisturbed, *FAULTS) == [PASS] * len(FAULTS)
    for done in (seen.undisturbed, seen.disturbed, seen.next):
        assert verdicts(done, *AFTER) == [FAIL] * len(FAULTS)


@pytest.mark.parametrize("fault", BETWEEN)
def test_a_changed_case_is_prepared_anew_and_told(seen: Disturbed, fault: str) -> None:
    assert verdicts(seen.disturbed, fault) == [PASS]
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
    assert verdicts(seen.next, *FAULTS) == [PASS] * len(FAULTS)
    executed = {cell["case"] for cell in seen.next.data["cells"] if cell["executed"]}
    assert executed == {*MEANWHILE, *RECORDS}
    assert seen.project.jobs() == []
