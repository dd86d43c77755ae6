"""How an archive's repro.py ends: crashes, time-outs, builds that differ, files that are not there."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.probe.graphs import add_weights
from tests.probe.jobs import GRAPH, MAIN, X, gone, stand_in, write_case
from tests.probe.scripts import Script, entry_of, recorded, run_by_hand, write_script
from tests.probe.test_scripts import version_of
from trtmatrix.core.bundle import facts
from trtmatrix.core.model import Case, Cause, Figure, Product, Repro
from trtmatrix.onnxmodel.writing import Page, write_page

HEAD = '''\
"""A made up finding: "quoted" and \\\\ more."""

from __future__ import annotations

import os
import signal
import time
from typing import Any, Dict

import numpy as np

CALLS = []
OFFSET = {offset}


def unused() -> None:
    import nowhere


def run(params: Dict[str, Any], files: Any, trt: Any) -> Any:
    CALLS.append(1)
    outputs = trt.build(files.model).run(files.inputs)
{body}
'''
RIGHT = "    return outputs"
WRONG = '    return {"y": outputs["y"] + np.float32(OFFSET)}'
SECOND_WRONG = '    return {"y": outputs["y"] + np.float32(OFFSET if len(CALLS) == 2 else 0)}'
NAN = '    return {"y": outputs["y"] * np.float32("nan")}'
CRASH = "    os.kill(os.getpid(), signal.SIGSEGV)"
RAISE = '    raise ZeroDivisionError("by the repro")'
LACKS = "    import nowhere_to_be_found"
HANG = '    print("pid", os.getpid(), flush=True)\n    time.sleep(600)'
COUNT = '    trt.count("wrong", 1)\n    trt.count("trials", 10)\n    return {}'


def archive(
    folder: Path, driver: Path, body: str, after: str = "", graph: Any = GRAPH, ended: str = "", **case: Any
) -> Script:
    """Write the archive of a case whose repro did ``body`` when it was recorded, and does ``after`` now."""
    own = Case(**{"id": "c", "params": {}, "limits": {"max_abs": 0.5}, **case})
    figure = Figure(measure="max_abs", label="error")
    repro = Repro(
        id="made-up", title="made up", upstream="NVIDIA/TensorRT#1", url="", summary="", figure=figure,
        expectations=(), workarounds=(), cases=(own,),
    )  # fmt: skip
    files, environment = write_case(folder / "case", {}, graph), stand_in(driver)
    file = folder / "made_up.py"
    file.write_text(HEAD.format(offset=3, body=body) + MAIN_LINES)
    nothing: dict[str, Any] = {"outputs": {}, "signatures": {}, "scalars": {}, "remark": ""}
    result: dict[str, Any] = {"ended": ended, "detail": "recorded", "observed": {}, "measurements": nothing}
    if not ended:
        result = run_by_hand(file, files, Product.TENSORRT, environment, builds=own.builds)
    entry = entry_of(recorded(result, repro, own, Product.TENSORRT, {}), repro, own, pinned())
    file.write_text(HEAD.format(offset=3, body=after or body))
    write_script(entry, file, files, folder / "archive")
    return Script(folder=folder / "archive", python=MAIN, environment=environment)


MAIN_LINES = (
    '\n\nif __name__ == "__main__":\n    from trtprobe import by_hand\n\n    by_hand.main(__file__)\n'
)


def pinned() -> Any:
    version = version_of(Product.TENSORRT)
    return replace(version, library=replace(version.library, value="10.7.0"))


def test_a_wrong_output_comes_back_and_a_right_one_does_not(driver: Path, tmp_path: Path) -> None:
    code, result, last = archive(tmp_path, driver, WRONG).result()
    assert (code, result["verdict"]) == (1, "FAIL")
    assert last == "THE FAILURE CAME BACK (FAIL): own limit: max_abs; max_abs 3 > 0.5"
    (tmp_path / "other").mkdir()
    code, result, last = archive(tmp_path / "other", driver, WRONG, after=RIGHT).result()
    assert (code, result["verdict"], last) == (0, "PASS", "THE FAILURE IS NOT THERE (PASS): right")


def test_figures_are_printed_beside_the_recorded_ones(driver: Path, tmp_path: Path) -> None:
    done = archive(tmp_path, driver, WRONG).run()
    assert done.returncode == 1
    assert "library  10.7.0 (recorded: 10.7.0)" in done.stdout
    assert [line.split() for line in done.stdout.splitlines() if "largest" in line] == [
        ["y:", "largest", "|y", "-", "r|", "3", "recorded:", "3"]
    ]
    assert not list((tmp_path / "archive").glob("*.json.partial"))
    assert not (tmp_path / "out").exists(), "nothing is written unless it is asked for"


def test_another_failure_is_not_the_recorded_one(driver: Path, tmp_path: Path) -> None:
    code, result, last = archive(tmp_path, driver, WRONG, after=NAN).result()
    assert (code, result["verdict"]) == (125, "FAIL")
    assert "another failure than the recorded one (own limit: max_abs): not finite" in last
    assert result["measurements"]["outputs"]["y"]["nan_unexpected"] == 6


def test_one_of_several_engines_is_enough(driver: Path, tmp_path: Path) -> None:
    script = archive(tmp_path, driver, SECOND_WRONG, builds=3)
    code, result, last = script.result()
    assert (code, result["verdict"], len(result["builds"])) == (1, "FLAKY", 3)
    assert last.startswith("THE FAILURE CAME BACK (FLAKY): 1 of 3 engines: own limit")
    code, result, _ = script.result("--builds=1")
    assert (code, result["verdict"], "builds" in result) == (0, "PASS", False)


ENDINGS: list[tuple[str, str, tuple[str, ...], str]] = [
    (CRASH, "crashed", (), "killed by SIGSEGV"),
    (RAISE, "crashed", (), "raised ZeroDivisionError: by the repro"),
    (HANG, "time-out", ("--seconds=3",), "not done after 3 s"),
]


@pytest.mark.parametrize(("body", "bug", "words", "detail"), ENDINGS)
@pytest.mark.parametrize("is_bug", [True, False])
def test_an_ending_comes_back_where_it_is_the_bug(
    driver: Path, tmp_path: Path, body: str, bug: str, words: tuple[str, ...], detail: str, is_bug: bool
) -> None:
    own: dict[str, Any] = {"bug_is": frozenset({Cause(bug)})} if is_bug else {}
    script = archive(tmp_path, driver, body, ended=bug, limits={}, **own)
    code, result, last = script.result(*words)
    assert (result["ended"], code) == (bug, 1 if is_bug else 125)
    assert detail in result["detail"]
    assert detail in last
    assert last.startswith("THE FAILURE CAME BACK (FAIL)" if is_bug else "CANNOT SAY (NO VERDICT)")


def test_a_build_that_fails_is_told_with_the_products_words(driver: Path, tmp_path: Path) -> None:
    bug = frozenset({Cause.BUILD_FAILED})
    refuses = {**GRAPH, "refuses": [["could not find any supported formats", "INVALID_GRAPH", 0, "Relu"]]}
    script = archive(tmp_path, driver, RIGHT, graph=refuses, limits={}, bug_is=bug)
    code, result, last = script.result()
    assert (code, result["verdict"], result["ended"]) == (1, "FAIL", "build failed")
    assert "could not find any supported formats" in last
    lacks = {**GRAPH, "refuses": [["no importer", "UNSUPPORTED_NODE", 0, "Odd"]]}
    (script.folder / facts.MODEL).write_text(json.dumps(lacks))
    code, result, last = script.result()
    assert (code, result["ended"]) == (125, "unsupported by this version")


def test_what_cannot_run_cannot_be_said(driver: Path, tmp_path: Path) -> None:
    script = archive(tmp_path, driver, WRONG, after=LACKS)
    code, result, last = script.result()
    assert (code, result["ended"]) == (125, "component missing")
    assert last.startswith("CANNOT SAY (NO VERDICT): it did not run: component missing: ModuleNotFoundError")
    code, result, _ = script.result(PYTHONPATH="")
    assert (code, result["ended"]) == (125, "component missing"), "there is no TensorRT"
    assert result["detail"].startswith("tensorrt cannot be imported: ")


def test_counts_are_added_up_over_processes(driver: Path, tmp_path: Path) -> None:
    code, result, last = archive(tmp_path, driver, COUNT, limits={"wrong": 0}, processes=3).result()
    assert (code, result["processes"]) == (1, 3)
    assert result["measurements"]["scalars"] == {"wrong": 3.0, "trials": 30.0}
    assert "wrong 3 > 0" in last


def test_files_that_are_missing_or_changed_are_told(driver: Path, tmp_path: Path) -> None:
    script = archive(tmp_path, driver, WRONG)
    (script.folder / facts.REFERENCE).unlink()
    (script.folder / facts.MODEL).write_text(json.dumps({**GRAPH, "more": 1}))
    done = script.run()
    assert done.returncode == 125
    assert "reference.npz is not there" in done.stdout
    assert "model.onnx is not the file that this was recorded with" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("CANNOT SAY (INVALID): not measured: max_abs")
    (script.folder / facts.EXPECTED).unlink()
    done = script.run()
    assert done.returncode == 125
    assert "there is no expected.json" in done.stdout
    (script.folder / facts.MODEL).unlink()
    done = script.run()
    assert done.returncode == 125
    assert "holds no model.onnx: name the unpacked archive by --files" in done.stderr


USAGE = [("--builds=0",), ("--save-outputs",), ("--files=/nowhere",)]


@pytest.mark.parametrize("words", USAGE)
def test_bad_usage_is_refused_in_a_line(driver: Path, tmp_path: Path, words: tuple[str, ...]) -> None:
    done = archive(tmp_path, driver, RIGHT).run(*words)
    assert done.returncode == 125, "to git bisect 2 is a bad version"
    assert "CANNOT SAY: " in done.stderr
    assert "Traceback" not in done.stderr


BROKEN = ["", "[]", "{", '{"files": {}, "rules": {}, "figures": {}}', '{"files": [], "fails": []}']


@pytest.mark.parametrize("text", BROKEN)
def test_a_broken_expectation_is_no_failure_that_came_back(driver: Path, tmp_path: Path, text: str) -> None:
    script = archive(tmp_path, driver, WRONG)
    (script.folder / facts.EXPECTED).write_text(text)
    done = script.run()
    assert done.returncode == 125
    assert "expected.json cannot be used" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_folder_that_vanishes_is_no_failure_that_came_back(driver: Path, tmp_path: Path) -> None:
    gone = WRONG.replace("    return", '    import shutil\n    shutil.rmtree("out")\n    return')
    done = archive(tmp_path, driver, WRONG, after=gone).run("--out=out")
    assert done.returncode == 125
    assert "result.json cannot be written" in done.stdout.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_outputs_that_cannot_be_saved_are_no_crash_of_the_products(driver: Path, tmp_path: Path) -> None:
    gone = RIGHT.replace("    return", '    import shutil\n    shutil.rmtree("out")\n    return')
    crash = frozenset({Cause("crashed")})
    script = archive(tmp_path, driver, CRASH, after=gone, ended="crashed", limits={}, bug_is=crash)
    assert script.run("--out=out", "--save-outputs").returncode == 125


def test_without_numpy_nothing_is_said(driver: Path, tmp_path: Path) -> None:
    script = archive(tmp_path, driver, WRONG)
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "numpy.py").write_text("raise ModuleNotFoundError('no numpy', name='numpy')")
    done = script.run(PYTHONPATH=str(tmp_path / "hidden"))
    assert done.returncode == 125
    (line,) = done.stderr.splitlines()
    assert line.startswith("CANNOT SAY: ModuleNotFoundError: no numpy (line ")
    assert line.endswith("NumPy is needed: run this by an interpreter that has it and TensorRT")


def test_help_says_what_the_head_says(driver: Path, tmp_path: Path) -> None:
    done = archive(tmp_path, driver, WRONG).run("--help")
    assert done.returncode == 0
    assert "Exit code: 1 the failure came back" in done.stdout


def test_outputs_are_saved_where_that_is_asked_for(driver: Path, tmp_path: Path) -> None:
    archive(tmp_path, driver, WRONG, builds=2).result("--save-outputs")
    for number in (1, 2):
        with np.load(tmp_path / "out" / f"outputs-{number}.npz") as saved:
            assert np.array_equal(saved["y"], np.maximum(X, 0) + 3)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_interrupt_leaves_no_process(driver: Path, tmp_path: Path, number: signal.Signals) -> None:
    script = archive(tmp_path, driver, HANG, ended="time-out")
    command = [str(script.python), "-u", str(script.folder / facts.SCRIPT)]
    log = tmp_path / "log"
    with log.open("w") as stream:
        process = subprocess.Popen(
            command, stdout=stream, stderr=stream, env={**script.environment, "PATH": "/bin"}
        )
    deadline = time.monotonic() + 30
    while "pid " not in log.read_text() and time.monotonic() < deadline:
        time.sleep(0.05)
    pid = int(log.read_text().rpartition("pid ")[2].split()[0])
    process.send_signal(number)
    assert process.wait(20) == 128 + number
    assert "Traceback" not in log.read_text()
    assert gone([pid])


def own_page(**fields: Any) -> str:
    page: dict[str, Any] = {
        "title": 'your model "my\\model".onnx', "summary": "s", "case": "tf32-0", "precision": "tf32",
        "floor": "tf32", "digests": {"model": "0", "inputs": "0"}, "samples": 1, "inputs": {"x": "x"},
        "outputs": {"y": "y"}, "profile": {}, "quantized": (), "tolerance": {"atol": 0.5, "rtol": 0.0},
    }  # fmt: skip
    return write_page(Page(**{**page, **fields}))


def own_model(folder: Path, driver: Path, inputs: Mapping[str, Any], text: str, graph: Any) -> Script:
    """Write the archive of a user's own model, which is right when it is recorded."""
    files = write_case(folder / "case", {"precision": "tf32", "atol": 0.5, "rtol": 0.0}, graph, inputs=inputs)
    (files / "reference").mkdir()
    for name, array in inputs.items():
        np.save(files / "reference" / f"y{name[1:]}.npy", np.maximum(array, 0).astype(np.float64))
    if graph == {}:
        add_weights(files, standin={**GRAPH, "weights": "weights.bin"})
    own = Case(
        id="tf32-0", params={"precision": "tf32"}, limits={"beyond": 0.0}, keep=True,
        tolerance={"atol": 0.5, "rtol": 0.0},
    )  # fmt: skip
    figure = Figure(measure="floors", label="floors")
    repro = Repro(
        id="my-model", title="t", upstream="your own model", url="", summary="", figure=figure,
        expectations=(), workarounds=(), cases=(own,),
    )  # fmt: skip
    file = folder / "my_model.py"
    file.write_text(text)
    result = run_by_hand(file, files, Product.TENSORRT, stand_in(driver))
    entry = entry_of(recorded(result, repro, own, Product.TENSORRT, {}), repro, own, pinned())
    write_script(entry, file, files, folder / "archive")
    return Script(folder=folder / "archive", python=MAIN, environment=stand_in(driver))


def test_a_model_of_ones_own_runs_its_samples_in_one_engine(driver: Path, tmp_path: Path) -> None:
    shape = ["float32", [-1, 3]]
    graph = {"inputs": {"x": shape}, "outputs": {"y": shape}}
    profile = {"x": ((1, 3), (2, 3), (4, 3))}
    text = own_page(samples=2, profile=profile)
    script = own_model(tmp_path, driver, {"x.s0": X, "x.s1": X[:1]}, text, graph)
    code, result, last = script.result()
    assert (code, result["verdict"], sorted(result["measurements"]["outputs"])) == (
        0,
        "PASS",
        ["y.s0", "y.s1"],
    )
    assert result["measurements"]["scalars"] == {"beyond": 0.0}, last


def test_weights_beside_the_model_are_found(driver: Path, tmp_path: Path) -> None:
    script = own_model(tmp_path, driver, {"x": X}, own_page(), {})
    assert (script.folder / "weights.bin").is_file()
    code, result, last = script.result()
    assert (code, result["verdict"]) == (0, "PASS"), last
    (script.folder / "weights.bin").unlink()
    code, result, last = script.result()
    assert (code, result["ended"]) == (125, "build failed"), last
