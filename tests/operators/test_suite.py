"""ONNX's tests through real containers: ONNX Runtime, TensorRT-RTX, and models that crash or hang."""

import re
import signal
from typing import Any

import numpy as np
import onnxruntime
import pytest
from projects import matrix_text

from tests.containers.conftest import IMAGE
from tests.operators.conftest import ORT, RTX, STAND_IN, Project
from tests.waiting import wait_until

LIMIT = ("--limit=200", "--workers=2")
PLANTED = ("--case=test_acos,test_add,test_asin,test_atan", "--case=test_abs,test_relu", "--seconds=4")
"""Models that the stand-in spoils, two others, and a limit for the one that hangs."""


@pytest.fixture(scope="module")
def spoilt(project: Project) -> dict[str, Any]:
    return project.measured(f"--trt={STAND_IN}", *PLANTED, "--workers=2")


def test_onnx_runtime_is_right_wherever_it_takes_the_model(project: Project) -> None:
    record = project.measured(f"--trt={ORT}", *LIMIT)
    assert sum(record["counts"].values()) > 150
    assert set(record["counts"]) <= {"right", "refused by the parser", "refused at run time"}
    assert record["counts"]["right"] > 0.8 * sum(record["counts"].values())
    assert record["facts"]["observed"]["library"] == "1.31.1"
    assert record["facts"]["digests"]["runtime"] == "container"


def test_tensorrt_rtx_parses_and_builds_without_a_gpu(project: Project) -> None:
    record = project.measured(f"--trt={RTX}", *LIMIT)
    assert set(record["counts"]) <= {"built", "refused by the parser", "refused by the builder", "hung"}
    assert record["counts"]["built"] > 50
    assert record["facts"]["seconds"]["bound"] < record["facts"]["seconds"]["wall"]


@pytest.mark.parametrize(("case", "verdict", "detail"), [
    ("test_acos", "crashed", "killed by SIGSEGV; Assertion `d.nbDims < 9` failed"),
    ("test_add", "hung", "not done after 8 s"),
    ("test_asin", "wrong", r"y has the shape \[1, 3, 4, 5\] instead of \[3, 4, 5\]"),
    ("test_atan", "right", ""),
    ("test_relu", "right", ""),
    ("test_abs@9", "right", ""),
])  # fmt: skip
def test_a_spoilt_model_costs_itself(spoilt: dict[str, Any], case: str, verdict: str, detail: str) -> None:
    found = spoilt["rows"][case]
    assert found["verdict"] == verdict
    assert re.fullmatch(detail, found["detail"])


def test_one_that_hangs_first_in_its_process_gets_twice_as_long_in_another(project: Project) -> None:
    record = project.measured(f"--trt={STAND_IN}", "--case=test_add", "--workers=1", "--seconds=2")
    assert {case["detail"] for case in record["rows"].values()} == {"not done after 4 s"}


def test_what_is_wrong_beside_others_and_right_alone_is_flaky(spoilt: dict[str, Any]) -> None:
    flaky = {name: case["before"] for name, case in spoilt["rows"].items() if case["before"]}
    assert set(flaky) & {"test_atan", "test_atan@9"}
    assert set(flaky.values()) == {"wrong"}


def test_every_form_of_a_right_test_is_right_and_a_second_run_of_a_part_agrees(project: Project) -> None:
    """The first is interrupted; the next goes on with it."""
    process = project.start("operators", *project.files, f"--trt={ORT}")
    log = project.results / "local/last-operators.txt"
    wait_until(lambda: log.is_file() and log.read_text().count(": right") > 300, 200, "300 cases are right")
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert project.call("operators", f"--trt={ORT}", "--no-run").code == 4  # it is no record yet
    first = project.measured(f"--trt={ORT}")
    cases = first["rows"]
    known = int(re.findall(r"([\d,]+) are known", log.read_text())[0].replace(",", ""))
    assert (known >= 300, first["facts"]["starts"]) == (True, 1)
    assert first["counts"]["right"] > 2000
    right = {name for name, case in cases.items() if case["verdict"] == "right"}
    assert not [name for name in cases if name.partition("@")[0] in right and name not in right]
    (file,) = project.results.rglob("operators.json.gz")
    assert file.stat().st_size < 300_000
    assert "to be confirmed" not in project.call("operators", f"--trt={ORT}").told  # it is served
    again = project.measured(f"--trt={ORT}", "--rerun", "--limit=600")["rows"]
    assert len(again) > 400
    verdicts = {name: (case["verdict"], case["before"]) for name, case in again.items()}
    assert verdicts == {name: (cases[name]["verdict"], None) for name in again}


def test_a_case_is_written_as_files_that_give_what_is_expected(project: Project) -> None:
    folder = project.folder / "written"
    assert project.call("operators", "--case=test_clip", f"--write={folder}").code == 0
    assert sorted(path.name for path in folder.iterdir()) == ["test_clip", "test_clip@11", "test_clip@11c"]
    for case in folder.iterdir():
        session = onnxruntime.InferenceSession(case / "model.onnx", providers=["CPUExecutionProvider"])
        inputs, expected = (dict(np.load(case / f"{name}.npz")) for name in ("inputs", "expected"))
        (y,) = session.run(None, inputs)
        np.testing.assert_allclose(y, expected["y"])
    assert project.call("operators", "--case=test_clip", f"--write={folder}").code == 2


def test_a_run_of_a_part_is_not_stored_and_one_of_another_library_is_none(project: Project) -> None:
    before = [file.stat().st_mtime_ns for file in project.results.rglob("operators.json.gz")]
    project.call("operators", f"--trt={ORT}", "--case=test_abs", "--rerun")
    assert [file.stat().st_mtime_ns for file in project.results.rglob("operators.json.gz")] == before
    (project.folder / "other.yaml").write_text(matrix_text((ORT, IMAGE, "1.30.0")))
    done = project.call("operators", f"--trt={ORT}", "--case=test_abs", "--matrix=other.yaml")
    assert done.code == 3
    assert "pinned for 1.30.0, the image or wheel ships 1.31.1" in done.told
