"""What ``bundle verify`` does not believe: scripts, results, rules and names that somebody else wrote."""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.bundles.archives import change, digest_of, put, read_files
from tests.bundles.conftest import Made, outcome_beside, refused
from trtmatrix import bundle_verify
from trtmatrix.bundle_measure import measure_here
from trtmatrix.bundle_scripts import check_scripts
from trtmatrix.bundle_verify import forget_outcome
from trtmatrix.core.bundle.outcome import Verified
from trtmatrix.core.bundle.script_check import is_rendered
from trtmatrix.core.errors import UsageError
from trtmatrix.core.model import Product
from trtmatrix.core.record import parse_record

CANNED = """\
import json, pathlib, sys
out = pathlib.Path(sys.argv[sys.argv.index("--out") + 1])
record = json.loads(pathlib.Path("/archive/record.json").read_text())
(out / "result.json").write_text(json.dumps(record))
{more}
sys.exit(1)
"""
RIGHT_OUTPUTS = '(out / "outputs-1.npz").write_bytes(pathlib.Path("/archive/outputs-good.npz").read_bytes())'


def test_a_result_without_outputs_is_not_believed(made: Made, tmp_path: Path) -> None:
    forged = {"repro.py": lambda _: CANNED.format(more="").encode()}
    outcome = refused(made, change(made.archive, tmp_path / "a.tar.gz", forged, sums=True))
    assert "left nothing that can be measured" in outcome["problems"][-1]


def test_figures_are_those_of_the_outputs_and_not_the_scripts(made: Made, tmp_path: Path) -> None:
    forged = {"repro.py": lambda _: CANNED.format(more=RIGHT_OUTPUTS).encode()}
    outcome = refused(made, change(made.archive, tmp_path / "a.tar.gz", forged, sums=True))
    assert outcome["verdict"] == "PASS"
    assert any("says y: relative L2 error" in problem for problem in outcome["problems"])


def test_a_script_that_is_another_is_named(made: Made, tmp_path: Path) -> None:
    other = {"repro.py": lambda source: source + b"# more\n"}
    archive = change(made.archive, tmp_path / "a.tar.gz", other, sums=True)
    done = made.verify(archive)
    assert done.code == 0
    assert any("repro.py is" in note for note in done.data["notes"])


def test_a_shell_script_that_is_another_is_not_run_here(made: Made, tmp_path: Path) -> None:
    mark = tmp_path / "was-run"
    other = {"reproduce.sh": put("set -u\n", f"set -u\ntouch {mark}\n")}
    done = made.verify(change(made.archive, tmp_path / "a.tar.gz", other, sums=True))
    assert done.code == 2
    assert "reproduce.sh is not what this version writes" in done.told
    assert "&& sh reproduce.sh" in done.told
    assert not mark.exists()
    assert not outcome_beside(tmp_path / "a.tar.gz")["verified"]


def test_what_would_run_outside_of_containers_must_be_this_versions_own(made: Made, tmp_path: Path) -> None:
    files = read_files(made.archive)
    for name, data in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    record = parse_record(files["record.json"].decode(), "record.json")
    expected = json.loads(files["expected.json"])
    assert check_scripts(Path("a.tar.gz"), tmp_path, record, expected, None) != []
    record.digests.pop("runtime")  # type: ignore[attr-defined]  # a plain object
    with pytest.raises(UsageError, match="run outside of any container"):
        check_scripts(Path("a.tar.gz"), tmp_path, record, expected, None)
    (tmp_path / "reproduce.sh").write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(UsageError, match=r"reproduce\.sh is not .* say --trust"):
        check_scripts(Path("a.tar.gz"), tmp_path, record, expected, None)
    notes = check_scripts(Path("a.tar.gz"), tmp_path, record, expected, None, trust=True)
    assert "it was trusted" in notes[0]


@pytest.mark.parametrize("line", ["`touch x`", "$(touch x)", "a; touch x", "'a'; touch x"])
def test_no_command_fits_where_a_name_is_meant(made: Made, line: str) -> None:
    script = read_files(made.archive)["reproduce.sh"].decode()
    assert is_rendered(script, Product.ONNXRUNTIME)
    assert not is_rendered(script.replace("\nreference=''", f"\nreference={line}"), Product.ONNXRUNTIME)


def test_the_records_own_digest_of_the_inputs_decides(made: Made, tmp_path: Path) -> None:
    model = read_files(made.archive)["model.onnx"]
    other = model.replace(b"attention", b"attentior")

    def without(content: bytes) -> bytes:
        data = json.loads(content.replace(digest_of(model).encode(), digest_of(other).encode()))
        return json.dumps(data).encode()

    changes = {"model.onnx": put("attention", "attentior"), "expected.json": without}
    outcome = refused(made, change(made.archive, tmp_path / "a.tar.gz", changes, sums=True))
    assert "is not what record.json was made with" in outcome["problems"][0]


def without(*path: str) -> Callable[[Any], Any]:
    """Return what takes a key out of an object."""

    def alter(data: Any) -> Any:
        place = data
        for key in path[:-1]:
            place = place[key]
        del place[path[-1]]
        return data

    return alter


def leading(name: str) -> Callable[[Any], Any]:
    return lambda data: {**data, "files": {**data["files"], name: "0" * 64}}


@pytest.mark.parametrize(
    ("alter", "said"),
    [
        (lambda _: [], "expected.json"),
        (without("rules"), "rules is missing"),
        (without("files"), "files is missing"),
        (without("rules", "pass"), "rules: pass is missing"),
        (lambda data: {**data, "rules": {**data["rules"], "defects": [3]}}, "a defect is no object"),
        (leading("../../etc/passwd"), "leads out of the archive"),
        (leading("/etc/passwd"), "leads out of the archive"),
    ],
)
def test_rules_that_are_none_are_told(
    made: Made, tmp_path: Path, alter: Callable[[Any], Any], said: str
) -> None:
    changes = {"expected.json": lambda content: json.dumps(alter(json.loads(content))).encode()}
    archive = change(made.archive, tmp_path / "a.tar.gz", changes, sums=True)
    done = made.verify(archive)
    assert done.code == 2, done.told
    assert said in done.told
    assert "Traceback" not in done.told
    assert not outcome_beside(archive)["verified"]


def test_an_old_outcome_does_not_stand_for_an_archive_that_is_cut(made: Made, tmp_path: Path) -> None:
    archive = tmp_path / "a.tar.gz"
    archive.write_bytes(made.archive.read_bytes()[:-2000])
    (tmp_path / "a.tar.gz.verify.json").write_text('{"verified": true}')
    assert made.verify(archive).code == 2
    outcome = outcome_beside(archive)
    assert not outcome["verified"]
    assert "cannot be unpacked" in outcome["problems"][0]


def test_an_outcome_of_these_very_bytes_stays_where_nothing_was_run(made: Made, tmp_path: Path) -> None:
    archive = change(
        made.archive, tmp_path / "a.tar.gz", {"reproduce.sh": put("set -u\n", "set -eu\n")}, sums=True
    )
    older = {"verified": True, "sha256": sha256(archive.read_bytes()).hexdigest()}
    (tmp_path / "a.tar.gz.verify.json").write_text(json.dumps(older))
    assert made.verify(archive).code == 2
    assert outcome_beside(archive) == older


ODD: list[dict[str, object]] = [
    {"builds": ["x"]}, {"builds": {"a": 1}}, {"measurements": []}, {"measurements": {"outputs": {"y": 1}}},
    {"measurements": {"outputs": {"y": {"rel_l2": "a"}}}},
]  # fmt: skip


@pytest.mark.parametrize("odd", ODD)
def test_a_result_of_another_shape_is_told_as_one_that_cannot_be_measured(
    odd: dict[str, object], tmp_path: Path
) -> None:
    np.savez(tmp_path / "reference.npz", y=np.ones(3))
    np.savez(tmp_path / "outputs-1.npz", y=np.ones(3))
    result, (problem,) = measure_here(tmp_path, tmp_path, {"ended": "ran", **odd})
    assert result["ended"] == "probe failed"
    assert "left nothing that can be measured: engine 1" in problem


def test_an_outcome_that_cannot_be_replaced_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.tar.gz.verify.json").mkdir()
    with pytest.raises(UsageError, match="cannot be replaced"):
        forget_outcome(tmp_path / "a.tar.gz")


def test_an_outcome_holds_nothing_private() -> None:
    home = "/home/somebody-else/work/x.py"
    found = Verified(
        file="a.tar.gz", sha256="0" * 64, verified=False, problems=(home,), notes=(home,), reason=home,
        os=home, gpu=home, said=home, image="sha256:" + "1" * 64, library="10.7.0.23", judged_by="x",
    )  # fmt: skip
    public = bundle_verify._public(found)
    assert "somebody-else" not in repr(public) + public.said
    assert (public.image, public.library, public.sha256) == (found.image, "10.7.0.23", "0" * 64)


@pytest.mark.parametrize(
    ("recorded", "now", "problem", "note"),
    [
        ("FAIL", "FLAKY", "here some pass", ""),
        ("FLAKY", "FAIL", "", "here every one does"),
        ("FAIL",) * 2 + ("",) * 2,
    ],
)
def test_another_share_of_engines_that_fail_is_told(recorded: str, now: str, problem: str, note: str) -> None:
    from trtmatrix.bundle_judge import _of_the_engines

    differs, notes = _of_the_engines(recorded, now)
    assert bool(differs) is bool(problem)
    assert problem in differs
    assert note in "".join(notes)
