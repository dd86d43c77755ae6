"""``pack --records`` and ``merge`` by the command line: a round trip, conflicts, what is kept out."""

import gzip
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from merges import CELL, NAN, Place, make_place, record_data
from operators.operatorrecords import OLD
from reprosource import SOURCE

from trtmatrix.common.errors import ExitCode
from trtmatrix.common.text import to_json
from trtmatrix.judge.record import record_from
from trtmatrix.records import operators, store
from trtmatrix.records.operators import record_text
from trtmatrix.records.store import kept_file
from trtmatrix.suite.model import CellId

WHERE = "nvidia-h200/10.7.0/plain/plain"


@pytest.fixture
def there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Place:
    return make_place(tmp_path / "there", capsys)


@pytest.fixture
def here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Place:
    return make_place(tmp_path / "here", capsys)


def test_records_travel_byte_for_byte_with_their_outputs(there: Place, here: Place) -> None:
    kept = there.keep(1.0, NAN)
    one = there.measure("r1", NAN, kept=kept)
    other = there.measure("r2", cell=replace(CELL, version="onnxruntime-1.31.1", gpu="cpu"),
                          product="onnxruntime", gpu={})  # fmt: skip
    code, pack, told = there.pack()
    assert code is ExitCode.AS_EXPECTED
    assert "2 records, 1 kept output," in told
    assert f"merge {pack.name}" in told
    code, text = here.merge(pack)
    assert code is ExitCode.AS_EXPECTED, text
    assert "2 new" in text
    assert "1 kept output came along" in text
    assert here.files() == {
        f"{WHERE}/r1.json": Path(one.file).read_bytes(),
        "cpu/onnxruntime-1.31.1/plain/plain/r2.json": Path(other.file).read_bytes(),
    }
    assert kept_file(here.cache, kept["y"]["sha256"]).is_file()
    assert not list(here.cache.glob("merge-*"))
    shown = {cell["id"]: cell["evidence"] for cell in here.table()}
    assert shown == {str(one.cell): "recorded", str(other.cell): "recorded"}
    before = here.files()
    assert here.merge(pack)[0] is ExitCode.AS_EXPECTED
    assert "2 here already" in here.merge(pack, there.results)[1]
    assert here.files() == before


def test_a_pack_holds_all_that_was_measured_there_and_nothing_else(there: Place) -> None:
    assert there.pack()[0] is ExitCode.NOTHING
    there.measure("r1")
    there.measure("r2", cell=replace(CELL, repro="my-model", case="model"))
    store.write_record(there.results, record_from(record_data("r3")))
    code, file, told = there.pack()
    assert code is ExitCode.AS_EXPECTED, told
    with tarfile.open(file) as archive:
        assert sorted(Path(n).stem for n in archive.getnames() if "/records/" in n) == ["r1", "r2"]
    code, _, told = there.pack("--gpu=h200")
    assert (code, "takes all records" in told) == (ExitCode.USAGE, True)


def test_a_pack_of_one_changed_byte_is_refused_by_name(there: Place, here: Place) -> None:
    there.measure("r1")
    _, pack, _ = there.pack()
    top = pack.name.removesuffix(".tar.gz")
    with tarfile.open(pack) as archive:
        archive.extractall(there.folder / "open", filter="data")
    record = there.folder / "open" / top / "records" / WHERE / "r1.json"
    record.write_bytes(record.read_bytes().replace(b'"detail": ""', b'"detail": "x"').replace(b"580", b"581"))
    with tarfile.open(there.folder / "changed.tar.gz", "w:gz") as archive:
        archive.add(there.folder / "open" / top, top)
    for source in (there.folder / "changed.tar.gz", there.folder / "open" / top):
        code, text = here.merge(source)
        assert code is ExitCode.USAGE
        assert f"records/{WHERE}/r1.json: " in text
    (there.folder / "cut.tar.gz").write_bytes(pack.read_bytes()[:-400])
    assert "cut short, or no archive of pack --records" in here.merge(there.folder / "cut.tar.gz")[1]
    assert here.files() == {}


def test_a_forged_output_is_kept_out(there: Place, here: Place) -> None:
    kept = there.keep(1.0)
    there.measure(kept=kept)
    other = there.keep(2.0)
    outputs = there.cache / "outputs"
    digest = kept["y"]["sha256"]
    (outputs / f"{other['y']['sha256']}.npz").replace(outputs / f"{digest}.npz")
    code, text = here.merge(there.pack()[1])
    assert code is ExitCode.USAGE
    assert f"outputs/{digest}.npz: does not hold what its name says" in text
    assert not kept_file(here.cache, digest).exists()
    assert list(here.files()) == [f"{WHERE}/r1.json"]


def test_a_record_that_contradicts_one_here_is_shown_and_kept_out(there: Place, here: Place) -> None:
    there.measure("r1", 1.0)
    here.merge(there.results)
    before = here.files()
    forged = there.folder / "r1.json"
    forged.write_text(to_json(record_data("r1", 9.0)))
    for _ in range(2):
        code, text = here.merge(forged)
        assert code is ExitCode.SURPRISE
        assert f"conflict: {WHERE}/r1.json: {here.results / WHERE / 'r1.json'} stays as it is" in text
        assert f"came: {forged}" in text
        assert "measurements.outputs.y.sum_abs: 1.0 | 9.0" in text
        assert here.files() == before
    assert here.merge(there.results)[0] is ExitCode.AS_EXPECTED


def test_of_two_new_records_that_contradict_each_other_none_comes_in(there: Place, here: Place) -> None:
    there.measure("r1", 1.0)
    there.measure("r2", 1.0)
    other = there.folder / "r1.json"
    other.write_text(to_json(record_data("r1", 9.0)))
    for sources in ((there.results, other), (other, there.results)):
        code, text = here.merge(*sources)
        assert code is ExitCode.SURPRISE
        assert f"conflict: {WHERE}/r1.json: none of them is taken in" in text
        assert list(here.files()) == [f"{WHERE}/r2.json"]


def mend(cell: CellId = CELL, **facts: Any) -> str:
    return to_json(record_data("r1", 1.0, cell, **facts))


KEPT_OUT: dict[str, tuple[str, str, str]] = {
    "no record": ("r1.json", "{}", "schema is None, this trtmatrix reads 1"),
    "renamed": ("r2.json", mend(), f"by its content it is {WHERE}/r1.json: it was renamed"),
    "no version": ("r1.json", mend(replace(CELL, version="10.9.0")), "no version 10.9.0 of tensorrt: add it"),
    "other facts": ("r1.json", mend(gpu={"name": "NVIDIA L4"}), "it is nvidia-l4/10.7.0/plain/"),
    "a folder of results": ("r1.json", mend(replace(CELL, gpu="local")), "renamed, moved or edited"),
    "no case": ("r1.json", mend(replace(CELL, case="gone")), "there is no case plain/gone here"),
    "no archive": ("r1.tar.gz", "x", "cannot be unpacked"),
    "no record of operators": ("operators.json.gz", "x", "ends too early"),
}  # fmt: skip


@pytest.mark.parametrize("name", KEPT_OUT)
def test_what_is_kept_out_is_named_with_its_reason_and_left_as_it_is(name: str, here: Place) -> None:
    file_name, text, words = KEPT_OUT[name]
    file = here.folder / file_name
    file.write_text(text)
    code, told = here.merge(file)
    assert (code, here.files()) == (ExitCode.USAGE, {})
    assert f"kept out: {file}: " in told
    assert told.count(str(file)) == 2, "its source's line, and what is kept out of it"
    assert words in told
    assert "Traceback" not in told
    assert "\nnext: mend what is kept out" in told
    assert file.read_text() == text


def test_a_model_of_the_user_s_own_comes_in_once_it_is_prepared_here(there: Place, here: Place) -> None:
    there.measure("r1", cell=replace(CELL, repro="mine"))
    assert here.merge(there.results)[0] is ExitCode.USAGE
    repros = here.cache / "models" / "m" / "repros"
    repros.mkdir(parents=True)
    (repros / "mine.py").write_text(SOURCE)
    assert here.merge(there.results)[0] is ExitCode.AS_EXPECTED
    assert list(here.files()) == ["nvidia-h200/10.7.0/mine/plain/r1.json"]


OPERATORS = replace(OLD, version="10.7.0")
FORGED = {
    "no record": ('{"schema": 1}', "cannot be used: "),
    "another GPU's facts": (
        record_text(replace(OPERATORS, facts={**OLD.facts, "gpu": {"name": "NVIDIA L4"}})), "moved or edited",
    ),
    "out of the results": (record_text(replace(OPERATORS, gpu="nvidia-h200/../../..")), "moved or edited"),
    "no version": (record_text(OLD), "no version 8.5.3.1 of tensorrt: add it"),
}  # fmt: skip


def test_what_operators_came_to_travels_as_cells_do_and_overwrites_nothing(there: Place, here: Place) -> None:
    file = operators.write_record(there.results / "local", OPERATORS)
    there.measure("r1")
    _, pack, told = there.pack()
    assert "2 records" in told
    assert "2 new" in here.merge(pack)[1]
    assert here.files()[f"nvidia-h200/10.7.0/{operators.FILE}"] == file.read_bytes()
    before = here.files()
    assert "2 here already" in here.merge(pack)[1]
    operators.write_record(there.results / "local", replace(OPERATORS, suite="t"))
    code, text = here.merge(there.results)
    assert (code, here.files()) == (ExitCode.SURPRISE, before)
    assert "conflict: nvidia-h200/10.7.0/operators.json.gz: " in text
    assert "suite: s | t" in text


@pytest.mark.parametrize("part", ["", "local"])
def test_of_operators_the_newer_run_counts_wherever_the_other_lies(
    part: str, there: Place, here: Place
) -> None:
    newer = replace(OPERATORS, facts={**OPERATORS.facts, "started": "2026-11-27T12:00:00Z"})
    old = operators.write_record(here.results / part, OPERATORS).relative_to(here.results)
    file = operators.write_record(there.results, newer)
    code, text = here.merge(there.results)
    assert (code, "1 new" in text) == (ExitCode.AS_EXPECTED, True)
    assert (before := here.files()) == {str(old): file.read_bytes()}
    operators.write_record(there.results, OPERATORS)
    assert "1 older than what is here" in here.merge(there.results)[1]
    assert here.files() == before


@pytest.mark.parametrize(("forged", "words"), FORGED.values(), ids=FORGED)
def test_a_forged_record_of_operators_is_kept_out(forged: str, words: str, here: Place) -> None:
    (file := here.folder / operators.FILE).write_bytes(gzip.compress(forged.encode()))
    code, told = here.merge(file)
    assert (code, here.files()) == (ExitCode.USAGE, {})
    assert words in told
