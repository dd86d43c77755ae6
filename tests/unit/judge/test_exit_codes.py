"""Entries to exit codes: all that apply are found, and what was refused is not run."""

from __future__ import annotations

import dataclasses

import pytest
from builders import (
    make_cell,
    make_entry,
    make_unknown,
)

from trtmatrix.common.errors import ExitCode
from trtmatrix.judge.compare import exit_codes, without_refused
from trtmatrix.judge.entry import Entry
from trtmatrix.suite.model import Cause, Evidence, Exclusion

SURPRISING = make_entry(value=9999.0)
BROKEN = make_entry(ended=Cause.LAUNCHER_FAILED.value)
OUT = make_unknown(excluded=Exclusion.IMAGE_NOT_PULLED)
LACKING = make_unknown(excluded=Exclusion.COMPONENT_MISSING)


def companion(entry: Entry) -> Entry:
    return dataclasses.replace(entry, cell=dataclasses.replace(entry.cell, companion=True))


OK, BAD, TROUBLE, NOTHING = ExitCode.AS_EXPECTED, ExitCode.SURPRISE, ExitCode.MACHINERY, ExitCode.NOTHING


@pytest.mark.parametrize(
    ("entries", "by_name", "gpu_here", "ran", "codes"),
    [
        ([make_entry()], False, True, True, {OK}),
        ([make_entry()], False, True, False, {OK, NOTHING}),
        ([], False, False, False, {OK, NOTHING}),
        ([SURPRISING, BROKEN], False, True, True, {OK, BAD, TROUBLE}),
        ([make_entry(value=9999.0, evidence=Evidence.RECORDED)], False, False, True, {OK, NOTHING}),
        ([make_entry(), make_entry(ended=Cause.CRASHED.value)], False, True, True, {OK}),
        ([make_entry(ended=Cause.CRASHED.value)], False, True, True, {OK, TROUBLE}),
        ([make_entry(), OUT], False, True, True, {OK}),
        ([LACKING], True, True, False, {OK, TROUBLE, NOTHING}),
        ([make_entry(make_cell(version="10.8.0")), LACKING], True, True, True, {OK, TROUBLE}),
        ([OUT], False, True, False, {OK, TROUBLE, NOTHING}),
        ([OUT], False, False, False, {OK, NOTHING}),
        ([make_entry(), companion(OUT)], True, True, True, {OK}),
        ([make_entry(), companion(SURPRISING)], True, True, True, {OK, BAD}),
        ([OUT, companion(make_entry())], False, True, True, {OK, TROUBLE, NOTHING}),
    ],
)
def test_every_exit_code_that_applies_is_found(
    entries: list[Entry],
    by_name: bool,
    gpu_here: bool,
    ran: bool,
    codes: set[ExitCode],
) -> None:
    assert exit_codes(entries, by_name=by_name, gpu_here=gpu_here, ran=ran) == codes


@pytest.mark.parametrize(("gpu_named", "codes"), [(False, {OK}), (True, {OK, TROUBLE})])
def test_a_gpu_that_is_shown_for_its_records_alone_was_not_asked_for(
    gpu_named: bool, codes: set[ExitCode]
) -> None:
    elsewhere = make_unknown(excluded=Exclusion.OTHER_GPU)
    entries = [make_entry(), elsewhere]
    assert exit_codes(entries, by_name=True, gpu_here=True, ran=True, gpu_named=gpu_named) == codes


def test_a_cell_that_was_to_run_again_and_was_refused_is_not_run() -> None:
    ran = dataclasses.replace(make_entry(make_cell(version="10.8.0")), executed=True)
    refused = dataclasses.replace(make_entry(excluded=Exclusion.NO_MEMORY), executed=False)
    for entries in ([ran, refused], [refused]):
        shown = without_refused(entries)
        assert shown[:-1] == tuple(entries[:-1])
        assert (shown[-1].evidence, shown[-1].outcome, shown[-1].record) == (Evidence.NONE, None, None)
        assert shown[-1].excluded == refused.excluded
        assert TROUBLE in exit_codes(shown, by_name=True, gpu_here=True, ran=len(entries) > 1)
    tried = dataclasses.replace(refused, executed=True)
    assert without_refused([tried, OUT]) == (tried, OUT)
