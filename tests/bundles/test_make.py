"""``bundle make`` by the real command line, in real containers."""

from __future__ import annotations

import io
import json
import re
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.bundles.archives import read_files
from tests.bundles.conftest import RIGHT, WRONG, Made, run_script

H200 = "controls/wrong-scale-tf32@8.6.0#nvidia-h200"
REPOSITORY = Path(__file__).resolve().parents[2]


def test_an_archive_of_a_failing_cell_is_made_and_shows_the_failure_again(made: Made) -> None:
    assert made.done.code == 0, made.done.told
    outcome = made.done.data["verify"]
    assert outcome["verified"]
    assert (outcome["recorded"], outcome["verdict"], outcome["exit_code"]) == ("FAIL", "FAIL", 1)
    assert outcome["image"] == outcome["image_recorded"]
    assert outcome["judged_by"].startswith("the judge of trtmatrix")
    assert "outputs that were saved were measured here" in outcome["judged_by"]
    assert outcome["notes"] == [], "its scripts are those that this version writes"
    beside = json.loads(made.archive.with_name("attention.tar.gz.verify.json").read_text())
    assert beside["verified"]
    assert beside["sha256"] == made.done.data["sha256"]


def test_it_holds_what_a_maintainer_asks_for(made: Made) -> None:
    files = read_files(made.archive)
    assert {
        "ISSUE.md", "repro.py", "reproduce.sh", "model.onnx", "inputs.npz", "reference.npz",
        "outputs-bad.npz", "outputs-good.npz", "record.json", "record-good.json",
        "environment.json", "expected.json",
        "layers.json", "SHA256SUMS", "polygraphy.sh", "image/history.txt",
    } <= set(files)  # fmt: skip
    assert files["model.onnx"] == (made.project.folder / "model" / "model.onnx").read_bytes()
    assert json.loads(files["record.json"]) == json.loads(made.record(WRONG).read_text())
    assert json.loads(files["record-good.json"]) == json.loads(made.record(RIGHT).read_text())
    bad, good, reference = (
        np.load(io.BytesIO(files[name]))["y"]
        for name in ("outputs-bad.npz", "outputs-good.npz", "reference.npz")
    )
    assert np.abs(good - reference).max() < 1e-4 < 1 < np.abs(bad - reference).max()
    assert len(made.archive.read_bytes()) < 25_000_000


def test_its_text_names_the_versions_and_what_changes_the_failure(made: Made) -> None:
    text = read_files(made.archive)["ISSUE.md"].decode()
    assert text.startswith("Title: Accuracy failure of ONNX Runtime 1.31.1 when running ")
    assert re.search(rf"{WRONG}.*FAIL", text)
    assert re.search(rf"{RIGHT}.*PASS", text)
    assert "one more output marked: weights (Softmax) | stays" in text
    assert "Debian GNU/Linux 12" in text


def test_the_list_of_what_goes_out_names_the_weights(made: Made) -> None:
    assert "THE WEIGHTS OF YOUR OWN MODEL GO OUT, in model.onnx" in made.done.told


def test_made_twice_it_is_the_same_bytes(made: Made, tmp_path: Path) -> None:
    again = tmp_path / "attention.tar.gz"
    assert made.make(again, "--yes", "--no-verify").code == 0
    assert again.read_bytes() == made.archive.read_bytes()
    assert not again.with_name("attention.tar.gz.verify.json").exists()


def test_it_runs_by_hand_from_the_archive_alone(made: Made, tmp_path: Path) -> None:
    with tarfile.open(made.archive) as packed:
        packed.extractall(tmp_path, filter="data")
    done = run_script(tmp_path / "attention")
    assert done.returncode == 1, done.stderr
    assert "THE FAILURE CAME BACK" in done.stdout
    assert json.loads((tmp_path / "attention" / "out" / "result.json").read_text())["verdict"] == "FAIL"


def test_nothing_is_written_where_nobody_can_be_asked(made: Made, tmp_path: Path) -> None:
    done = made.make(tmp_path / "x.tar.gz", "--no-verify")
    assert done.code == 2
    assert "--yes" in done.told
    assert not list(tmp_path.iterdir())


def test_a_dockerfile_that_was_named_goes_out_with_its_build_line(made: Made, tmp_path: Path) -> None:
    dockerfile = tmp_path / "Dockerfile"
    dockerfile.write_text("FROM trtmatrix/test-defective:latest\n")
    target = tmp_path / "x.tar.gz"
    assert made.make(target, "--yes", "--no-verify", "--no-changes", f"--dockerfile={dockerfile}").code == 0
    files = read_files(target)
    assert files["image/Dockerfile"] == dockerfile.read_bytes()
    assert b"docker build --tag trtmatrix/test-defective:latest image" in files["reproduce.sh"]
    assert "image/history.txt" not in files


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda cell: cell.replace(WRONG, RIGHT), "it does not fail, it is PASS"),
        (lambda cell: cell.replace(WRONG, "onnxruntime-9"), f"perhaps you meant {WRONG}"),
        (lambda cell: cell.replace("#cpu", "#nvidia-l4"), "ends in #cpu"),
        (lambda cell: "controls/matmul-softmax-tf32@" + cell.partition("@")[2], "there is no record of it"),
        (lambda cell: "nothing/here@" + cell.partition("@")[2], "name it by --model"),
        (lambda cell: cell.partition("@")[0], "is no cell id"),
    ],
)
def test_a_cell_without_a_failure_is_told_with_what_to_type(
    made: Made, tmp_path: Path, edit: Callable[[str], str], said: str
) -> None:
    done = made.make(tmp_path / "x.tar.gz", "--yes", cell=edit(made.cell))
    assert done.code == 2
    assert said in done.told
    assert (
        "python -m trtmatrix" in done.told
        or "perhaps" in done.told
        or "--model" in done.told
        or "#cpu" in said
    )
    assert "Traceback" not in done.told
    assert not list(tmp_path.iterdir())


def test_a_control_is_shown_as_one(made: Made, tmp_path: Path) -> None:
    project = made.project
    assert project.call("run", "--repro=controls", "--case=wrong-scale-fp32", f"--trt={RIGHT}").code == 0
    target = tmp_path / "x.tar.gz"
    done = made.make(target, "--yes", "--json", cell=f"controls/wrong-scale-fp32@{RIGHT}#cpu")
    assert done.code == 0, done.told
    assert done.data["verify"]["verified"]
    assert done.data["verify"]["notes"] == []
    assert "c of lost-scale" in [figure["name"] for figure in done.data["verify"]["figures"]]
    assert b"A control, not a bug report" in read_files(target)["ISSUE.md"]


def test_published_records_of_another_host_make_an_archive_too(made: Made, tmp_path: Path) -> None:
    target, cache = tmp_path / "x.tar.gz", made.project.folder / "cache"
    files = [f"--{name}={REPOSITORY / file}" for name, file in
             (("matrix", "matrix.yaml"), ("repros", "repros"), ("results", "results"))]  # fmt: skip
    done = made.project.call_bare(
        "bundle", "make", H200, *files, f"--cache={cache}", f"--to={target}", "--yes", "--no-verify",
        "--no-changes", "--json",
    )  # fmt: skip
    assert done.code == 0, done.told
    assert done.data["verify"] is None
    found = read_files(target)
    text = found["ISSUE.md"].decode()
    assert "The outputs of this run are not on this host: y." in text
    assert "NVIDIA H200" in text
    assert "Dockerfile" in "".join(found)
    assert b"tensorrt==8.6.0 --hash=sha256:" in found["image/requirements.txt"]
    assert json.loads(found["environment.json"])["clocks"]["sm_mhz"] == 1980
    assert b"--gpus" in found["reproduce.sh"]


def test_files_of_the_users_own_go_in_by_name_alone(made: Made, tmp_path: Path) -> None:
    engine, archive = tmp_path / "model.plan", tmp_path / "with-engine.tar.gz"
    engine.write_bytes(b"a plan")
    assert "model.plan" not in read_files(made.archive)
    assert made.make(archive, "--yes", "--no-verify", "--attach", str(engine)).code == 0
    assert read_files(archive)["model.plan"] == b"a plan"
    taken = tmp_path / "record.json"
    taken.write_text("{}")
    for file, words in ((tmp_path / "none.plan", "there is no such file"), (taken, "record.json already")):
        refused = made.make(tmp_path / "no.tar.gz", "--yes", "--attach", str(file))
        assert refused.code == 2
        assert words in refused.told
    assert not (tmp_path / "no.tar.gz").exists()
