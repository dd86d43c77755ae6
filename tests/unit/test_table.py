"""The words, the marks, and how entries are grouped and counted."""

from __future__ import annotations

from enum import Enum
from pathlib import Path

import pytest
from builders import (
    H200,
    make_case,
    make_cell,
    make_control,
    make_entry,
    make_expectation,
    make_reported,
    make_repro,
    make_unknown,
    make_version,
)
from goldenfile import check_golden
from hypothesis import given
from shown import PATIENT, many_entries, sample_entries

from trtmatrix.core import words
from trtmatrix.core.compare import Entry
from trtmatrix.core.details import record_file
from trtmatrix.core.model import Cause, Evidence, Exclusion, Gpu, Outcome, Product, Verdict
from trtmatrix.core.record import record_from
from trtmatrix.core.summary import (
    Counts,
    count_products,
    detail_line,
    find_contradicted,
    find_surprises,
    find_unanswered,
    headline,
)
from trtmatrix.core.table import describe_gpu, make_tables, one_line
from trtmatrix.core.words import cell_text, legend, outcome_word

FAILS_AT_10_7 = make_repro(make_case(), expectations=(make_expectation(),))
MISSING = Exclusion.IMAGE_NOT_PULLED


@pytest.mark.parametrize(
    ("mapping", "members"),
    [
        (words.VERDICT_WORDS, Verdict),
        (words.VERDICT_MEANINGS, Verdict),
        (words.CAUSE_WORDS, Cause),
        (words.PRODUCT_NAMES, Product),
        (words.EVIDENCE_MEANINGS, Evidence),
    ],
)
def test_every_member_has_words(mapping: dict[Enum, str], members: type[Enum]) -> None:
    assert set(mapping) == set(members)
    assert all(mapping.values())


def test_short_words_are_short_and_distinct() -> None:
    short = [*words.VERDICT_WORDS.values(), *words.CAUSE_WORDS.values()]
    assert max(map(len, short)) <= 9
    assert len(set(short)) == len(short)


@pytest.mark.parametrize("cause", Cause)
def test_no_verdict_shows_its_cause(cause: Cause) -> None:
    outcome = Outcome(verdict=Verdict.NO_VERDICT, cause=cause)
    assert outcome_word(outcome) == words.CAUSE_WORDS[cause]


CONTROL = make_control()
MARKS: list[tuple[Entry | None, str]] = [
    (make_entry(value=175.2), "PASS 175"),
    (make_entry(value=1373.4), "FAIL! 1373"),
    (make_entry(make_cell(FAILS_AT_10_7), 1373.4), "FAIL 1373"),
    (make_entry(make_cell(FAILS_AT_10_7), 175.0), "PASS! 175"),
    (make_entry(make_cell(case=CONTROL), 1366.0), "FAIL 1366"),
    (make_entry(make_cell(case=CONTROL), 175.0), "PASS! 175"),
    (make_entry(evidence=Evidence.RECORDED), "[PASS 175]"),
    (make_entry(value=float("nan"), evidence=Evidence.RECORDED), "[FAIL! NaN]"),
    (make_entry(evidence=Evidence.RECORDED, excluded=Exclusion.UNSUPPORTED_GPU), "[PASS 175]"),
    (make_entry(ended=Cause.TIME_OUT.value), "TIME-OUT"),
    (make_entry(ended="built"), "BUILT"),
    (make_reported(make_cell(FAILS_AT_10_7)), "(FAIL)"),
    (make_unknown(), "·"),
    (make_unknown(excluded=Exclusion.IMAGE_NOT_PULLED), "·"),
    (make_unknown(excluded=Exclusion.UNSUPPORTED_GPU), "–"),
    (None, ""),
]


@pytest.mark.parametrize(("entry", "text"), MARKS, ids=[text or "blank" for _, text in MARKS])
def test_a_cell_shows_its_evidence(entry: Entry | None, text: str) -> None:
    assert cell_text(entry) == text


def test_a_report_about_a_version_that_cannot_use_this_gpu_is_not_shown_as_evidence() -> None:
    cell = make_cell(FAILS_AT_10_7)
    assert cell_text(make_reported(cell, excluded=Exclusion.UNSUPPORTED_GPU)) == "–"


def test_the_legend_lists_only_what_occurs() -> None:
    assert legend([make_entry()]) == [
        ("plain", "measured here"),
        ("PASS", "within the case's limits"),
    ]
    assert legend([make_unknown()]) == [("·", "no evidence")]
    assert legend([]) == []
    assert legend([make_entry(ended="crashed")]) == [("plain", "measured here")]


def test_one_table_for_each_gpu_and_a_last_one_for_the_cpu() -> None:
    l4 = Gpu(slug="l4", name="L4", compute="8.9")
    cells = [make_cell(version=name, gpu=gpu) for name, gpu in (
        ("onnxruntime-1.31.1", None), ("10.7.0", H200), ("10.7.0", l4), ("tensorrt-rtx-1.4", None),
    )]  # fmt: skip
    assert [table.title for table in make_tables([make_entry(cell) for cell in cells])] == [
        "TensorRT: NVIDIA H200 · compute capability 9.0 · driver 580.159",
        "TensorRT: L4 · compute capability 8.9",
        "CPU: graphs checked (onnxruntime), parsed and built (tensorrt-rtx)",
    ]


def test_a_gpu_is_described_as_far_as_it_is_known() -> None:
    assert describe_gpu(Gpu(slug="none", name="no NVIDIA GPU here")) == "no NVIDIA GPU here"


def test_columns_stand_in_release_order_within_a_product() -> None:
    cpu = make_tables(sample_entries())[1]
    assert [v.name for v in cpu.columns] == [
        "onnxruntime-1.31.1",
        "tensorrt-rtx-1.4",
        "tensorrt-rtx-1.10",
    ]


def test_rows_without_evidence_are_folded_unless_all_are_wanted() -> None:
    entries = [make_entry(make_cell(case=make_case("a")))]
    entries += [make_unknown(make_cell(case=make_case(name))) for name in ("b", "c")]
    entries.append(make_unknown(make_cell(case=make_case("d")), Exclusion.UNSUPPORTED_GPU, "too new"))
    (section,) = make_tables(entries)[0].sections
    assert [row.label for row in section.rows] == ["a"]
    assert section.fold_line == "… 3 more cases without evidence here"
    (section,) = make_tables(entries[1:2])[0].sections
    assert section.fold_line == "… 1 case without evidence here"
    (section,) = make_tables(entries, all_rows=True)[0].sections
    assert [row.label for row in section.rows] == ["a", "b", "c", "d"]
    assert section.fold_line == ""


@PATIENT
@given(many_entries())
def test_every_cell_is_in_exactly_one_table(entries: tuple[Entry, ...]) -> None:
    tabled = [entry.cell.id for table in make_tables(entries) for entry in table.entries()]
    assert sorted(tabled) == sorted(entry.cell.id for entry in entries)


def test_a_headline_counts_even_nothing() -> None:
    (counts,) = count_products([])
    assert headline(counts) == "0 TensorRT cells measured"
    assert detail_line(counts) == ""


def test_a_headline_says_why_cells_were_not_run() -> None:
    cells = [make_cell(case=make_case(f"c{i}")) for i in range(9)]
    entries = [make_entry(cells[0]), make_entry(cells[1], executed=False)]
    entries += [make_entry(cells[2], ended="crashed"), make_entry(cells[3], ended="built")]
    entries += [make_entry(cells[4], evidence=Evidence.RECORDED)]
    entries += [make_unknown(cell, MISSING, str(cell.id)) for cell in cells[5:7]]
    why = "no Torch-TensorRT in the image"
    entries += [make_unknown(cells[7], Exclusion.COMPONENT_MISSING, why), make_unknown(cells[8])]
    (counts,) = count_products(entries)
    assert headline(counts) == (
        "2 TensorRT cells measured, 1 parsed and built, 1 without a verdict, 1 recorded elsewhere "
        "or before a change, 4 not run: 2 image not pulled (doctor says how), "
        "1 no Torch-TensorRT in the image, 1 not tried yet"
    )
    assert detail_line(counts) == (
        "3 executed now, 1 from the store; 2 PASS, 1 CRASHED, 1 BUILT, 1 [PASS]; 0 surprises"
    )


@PATIENT
@given(many_entries())
def test_the_kinds_of_cells_add_up(entries: tuple[Entry, ...]) -> None:
    def kinds(c: Counts) -> int:
        return c.measured + c.built + c.without_verdict + c.recorded + c.not_run

    found = count_products(entries)
    assert sum(counts.cells for counts in found) == len(entries)
    assert all(kinds(counts) == counts.cells for counts in found)
    assert all(sum(r.count for r in counts.reasons) == counts.not_run for counts in found)


def test_a_surprise_says_what_was_expected_by_whom_and_what_was_seen() -> None:
    (surprise,) = find_surprises([make_entry(make_cell(FAILS_AT_10_7), 175.0)])
    assert str(surprise) == (
        "sdpa-scale/sdpa-tf32@10.7.0#h200: expected FAIL (reported of L4: "
        "https://github.com/NVIDIA/TensorRT/issues/4333), seen PASS: sum of |y - float64| 175"
    )


def test_cells_without_a_verdict_are_grouped_by_cause_and_reason() -> None:
    cells = [make_cell(case=make_case(name)) for name in "abc"]
    entries = [make_entry(cells[0], ended="crashed", detail="signal\n 11")]
    entries += [make_entry(c, ended="time-out", detail="300 s") for c in cells[1:]]
    assert [str(item) for item in find_unanswered(entries)] == [
        "2 × time-out: 300 s (for example sdpa-scale/b@10.7.0#h200)",
        "1 × crashed: signal 11 (cell sdpa-scale/a@10.7.0#h200)",
    ]


def test_contradicted_facts_are_told_once_and_only_of_what_was_measured() -> None:
    version = make_version("10.7.0", torch="2.6.0a0")
    cells = [make_cell(case=make_case(name), version=version) for name in "abc"]
    seen = {"torch": "2.7.1"}
    entries = [make_entry(cell, observed=seen) for cell in cells[:2]]
    assert find_contradicted(entries) == ("10.7.0: torch is 2.7.1, matrix.yaml says 2.6.0a0",)
    assert not find_contradicted([make_entry(cells[2], observed=seen, evidence=Evidence.RECORDED)])


def test_a_records_path_starts_inside_the_results_folder() -> None:
    record = make_entry().record
    assert record is not None
    tail = "h200/10.7.0/sdpa-scale/sdpa-tf32/20250102t030405-00000000.json"
    assert record_file(record_from(record.data, f"/home/me/results/{tail}")) == tail
    assert record_file(record_from(record.data, f"/home/me/results/local/{tail}")) == (f"local/{tail}")


def test_one_line_leaves_out_what_a_terminal_would_obey() -> None:
    assert one_line(" a\x1b[31m\n\tb\u2028c ") == "a [31m b c"
    assert one_line("x" * 400) == "x" * 299 + "…"


def test_a_golden_mismatch_shows_the_difference_and_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UPDATE_GOLDEN", "1")
    check_golden("a.txt", "old\n", tmp_path)
    monkeypatch.delenv("UPDATE_GOLDEN")
    check_golden("a.txt", "old\n", tmp_path)
    with pytest.raises(pytest.fail.Exception, match=r"(?s)-old.*\+new.*UPDATE_GOLDEN=1 pytest"):
        check_golden("a.txt", "new\n", tmp_path)
