"""Why cells are run, again or at all; what is not told a reason is served, and nothing else is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import H200, make_case, make_cell, make_matrix, make_record, make_repro, make_unknown
from reprosource import SOURCE

from trtmatrix.common.paths import Project
from trtmatrix.judge.compare import is_current, make_entries
from trtmatrix.judge.entry import Entry, Stored
from trtmatrix.launchers.gpu import GpuScan
from trtmatrix.plan.context import Context
from trtmatrix.plan.order import find_changes, origin_digests
from trtmatrix.plan.survey import Survey, digests_now, entries_of
from trtmatrix.run.perform import Options, find_reasons
from trtmatrix.suite.cells import Cell, Selection, expand
from trtmatrix.suite.matrix import ImageOrigin, Pin
from trtmatrix.suite.model import NO_GPU, Cause, Exclusion
from trtmatrix.suite.plan import Engine, Excluded, Host, Pull, make_plan
from trtmatrix.suite.repro_files import read_repros

CELL = make_cell(make_repro(make_case()))
NOW = {
    "repro": "a" * 32 + "b" * 32, "case": "c", "asked": "d", "probe": "e", "image": "sha256:" + "f" * 64,
    "runtime": "container",
}  # fmt: skip
GPU = {"name": H200.name, "variant": H200.variant, "driver": H200.driver}
SHARED: dict[str, Any] = {"worker": {"position": 4}}
PLAIN = Options()


def entry(*records: dict[str, Any], local: bool = True, excluded: bool = False) -> Entry:
    """What the cell shows of such records, the oldest first; they are current unless they say otherwise."""
    stored = []
    for number, more in enumerate(records):
        made = {
            "run": f"r{number}", "started": f"2026-11-2{number}T08:00:00.000Z", "digests": NOW, "gpu": GPU,
            **more,
        }  # fmt: skip
        stored.append(Stored(record=make_record(CELL, **made), local=local))
    reasons = [Excluded(cell=CELL, why=Exclusion.IMAGE_NOT_PULLED)] if excluded else []
    (made_entry,) = make_entries([CELL], stored, {CELL.id: NOW}, reasons)
    return made_entry


def changed(**digests: str) -> Entry:
    return entry({"digests": {**NOW, **digests}})


FEW, ALONE = Options(rebuilds=3), {"value": 9999.0, "others": (9999.0,) * 2, "confirms": "r0"}
DOUBTED: dict[str, Any] = {"value": 9999.0, **SHARED}
CHANGES: dict[str, Entry] = {
    "repro sdpa-scale": changed(repro="0" * 32 + "b" * 32),
    "what repros are built with (trtmatrix.authoring)": changed(repro="a" * 32 + "0" * 32),
    "parameters of sdpa-scale/sdpa-tf32": changed(case="0"),
    "defects, engines or time limit of sdpa-scale/sdpa-tf32": changed(asked="0"),
    "probe": changed(probe="0"),
    "image of 10.7.0 000000000000 → ffffffffffff": changed(image="sha256:" + "0" * 64),
    "runtime host → container": changed(runtime="host"),
    "driver 535.1 → 580.159": entry({"gpu": {**GPU, "driver": "535.1"}}),
    "GPU's variant 1g.18gb → none": entry({"gpu": {**GPU, "variant": "1g.18gb"}}),
    "repro sdpa-scale; parameters of sdpa-scale/sdpa-tf32; defects, engines or time limit of "
    "sdpa-scale/sdpa-tf32; probe; image of 10.7.0 ? → ffffffffffff; runtime ? → container":
    entry({"digests": {}}),
}  # fmt: skip
REASONS: list[tuple[Entry, Options, bool, str]] = [
    *((item, PLAIN, True, f"{what} changed since 2026-11-20") for what, item in CHANGES.items()),
    (make_unknown(CELL), PLAIN, True, "no record"),
    (entry({}, local=False), PLAIN, True, "its records were published, not measured here"),
    (entry({"ended": Cause.LAUNCHER_FAILED.value}), PLAIN, True,
     "the last run failed for a reason that may be gone: launcher failed"),
    (entry({}), FEW, True, "1 engine of the 3 asked for (--rebuilds)"),
    (entry(DOUBTED), PLAIN, True,
     "it must be confirmed by 3 engines in a fresh process (FAIL (1 build))"),
    (entry({}), Options(rerun=True), True, "--rerun"),
    (entry(DOUBTED, ALONE), PLAIN, False, "confirmed"), (entry({}), PLAIN, False, "served"),
    (entry({"ended": "crashed"}), PLAIN, False, "a fact"),
    (entry(DOUBTED, excluded=True), PLAIN, False, "not here"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("shown", "options", "again", "words"), REASONS, ids=[words for *_, words in REASONS]
)
def test_what_has_a_reason_is_not_served(shown: Entry, options: Options, again: bool, words: str) -> None:
    reason = find_reasons([shown], options, {shown.cell.id: NOW}).get(shown.cell.id)
    assert reason == (words if again else None)
    assert bool(find_reasons([shown], options)) is again


def why(folder: Path, stored: list[Stored]) -> tuple[str, Cell, dict[str, str]]:
    """Why the one cell of a folder's repro is run by ONNX Runtime, the cell, and its digests now."""
    loaded = {item.repro.id: item for item in read_repros(folder)}
    version = make_cell(version="onnxruntime-1.31.1").version
    matrix, selection = replace(make_matrix(), versions=(version,)), Selection()
    context = Context(
        project=Project(matrix=folder, repros=folder, results=folder, cache=folder), matrix=matrix,
        repros=loaded, selection=selection, pythons=(), controls=False,
    )  # fmt: skip
    host, scan = Host(engine=Engine(available=False)), GpuScan(gpus=(), reason="none")
    cells = expand(matrix, context.plain_repros, [NO_GPU], selection)
    plan = make_plan(cells, host, selection, Pull.NEVER)
    survey = Survey(host=host, scan=scan, cells=cells, plan=plan, stored=tuple(stored))
    digests = digests_now(context, survey)
    reasons = find_reasons(entries_of(context, survey, survey.stored), PLAIN, digests)
    return "".join(reasons.values()), cells[0], dict(digests[cells[0].id])


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("def cases", "# a comment\ndef cases", ""), ('"a title"', '"another"', ""),
        ('{"sum_abs": 1.0}', '{"sum_abs": 3.0}', ""), ('"n": 1', '"n": 2', "parameters of a/plain changed"),
        ('"limits"', '"seconds": 9, "limits"', "defects, engines or time limit of a/plain changed"),
        ("trt):\n    return {}", "trt):\n    return {1: 2}", "repro a changed"),
    ],
)  # fmt: skip
def test_only_what_a_run_can_see_has_a_cell_run_again(old: str, new: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(SOURCE)
    said, cell, digests = why(tmp_path, [])
    assert (said, SOURCE.count(old)) == ("no record", 1)
    made = make_record(cell, run="r0", started="2026-11-20T08:00:00.000Z", digests=digests)
    (tmp_path / "a.py").write_text(SOURCE.replace(old, new))
    again = why(tmp_path, [Stored(record=made, local=True)])[0]
    assert again == (f"{words} since 2026-11-20" if words else "")


AGAIN = {
    Cause.INTERRUPTED, Cause.LAUNCHER_FAILED, Cause.PROBE_FAILED, Cause.VERSION_MISMATCH, Cause.IMAGE_MISSING,
    Cause.COMPONENT_MISSING, Cause.DRIVER_TOO_OLD, Cause.OUT_OF_GPU_MEMORY, Cause.OUT_OF_HOST_MEMORY,
}  # fmt: skip


@pytest.mark.parametrize("cause", Cause)
def test_what_may_come_out_otherwise_is_tried_again(cause: Cause) -> None:
    assert bool(find_reasons([entry({"ended": cause.value})], PLAIN)) is (cause in AGAIN)


LOCK = Pin(manifest="sha256:m", ids=("sha256:c", "sha256:m", "sha256:i"))


@pytest.mark.parametrize("ids", [frozenset[str](), frozenset({"sha256:c"})])
def test_a_locked_image_is_known_also_where_it_is_gone(ids: frozenset[str]) -> None:
    origin = ImageOrigin(image="nvcr.io/nvidia/pytorch:24.12-py3", pin=LOCK)
    cell = make_cell(version=replace(CELL.version, origin=origin), gpu=H200)
    wanted = origin_digests(cell, Host(engine=Engine(available=True, ids=ids), gpus=(H200,)), on_host=False)
    for image, current in (("sha256:c", True), ("sha256:m", True), ("sha256:old", False)):
        record = make_record(cell, digests={"runtime": "container", "image": image}, gpu=GPU)
        assert is_current(record, wanted, cell) is current
        assert bool(find_changes(record, wanted, cell)) is not current
