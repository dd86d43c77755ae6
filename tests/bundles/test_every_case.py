"""The script of an archive says what the judge says, for every kind of graph of the suite."""

import json
import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import onnx
import pytest
from projects import ROOT

from tests.probe.pythons import cache_folder, environment
from trtmatrix.bugs.script import fill_template, limits_of, read_recipe, script_values
from trtmatrix.judge.judge import judge, subject_of
from trtmatrix.judge.noise import read_calibration
from trtmatrix.judge.record import Record, record_from
from trtmatrix.onnxmodel.graphs import opset_of
from trtmatrix.plan.context import read_matrix
from trtmatrix.prepare.cases import CaseCache, read_noise_file
from trtmatrix.suite.cells import Cell
from trtmatrix.suite.model import CPU as CPU_ITSELF
from trtmatrix.suite.model import CellId, Product, Verdict
from trtmatrix.suite.repro_files import read_repros
from trtmatrix.suite.repros import Case, Repro

DRIVER = Path(__file__).with_name("script_driver.py")
ONNXRUNTIMES = {"3.8": "onnxruntime==1.16.3", "3.12": "onnxruntime==1.20.1"}
EVERY = {"3.8": 5, "3.12": 1}
"""The oldest Python sees every fifth graph: what differs there is the language, not the graphs."""

NEWEST_OPSET = {"3.8": 19, "3.12": 21}  # what these releases of ONNX Runtime read
MOST = {"batch": 2, "length": 64, "queries": 64, "keys": 64}  # sizes are cut: no limit follows from them
CODES = {Verdict.FAIL: 1, Verdict.PASS: 0, Verdict.INVALID: 125}
CPU = Product.ONNXRUNTIME


def record_of(repro: str, case: str, noise: dict[str, Any], measurements: Any) -> Record:
    now = "2025-01-02T03:04:05.000Z"
    return record_from({
        "schema": 1, "cell": vars(CellId(repro=repro, case=case, version="onnxruntime-1.31.1", gpu="cpu")),
        "run": "20250102t030405-00000000", "started": now, "finished": now, "digests": {}, "gpu": {},
        "product": CPU.value, "ended": "ran", "detail": "", "noise": noise, "measurements": measurements,
        "observed": {"library": "1.31.1"},
    })  # fmt: skip


def kinds_of(repro: Repro) -> Iterator[Case]:
    """Yield the first case of each kind and precision, with sizes that are cut."""
    found = set()
    for case in repro.cases:
        kind = (*(value for value in case.params.values() if isinstance(value, (str, bool))), case.control)
        if CPU in case.products and kind not in found:
            found.add(kind)
            most = {name: min(case.params[name], MOST[name]) for name in MOST.keys() & case.params.keys()}
            yield replace(case, params={**case.params, **most})


def content_of(*folders: Path) -> str:
    """A name for what the arrays of folders hold: equal ones share a file in the cache."""
    files = sorted(file for folder in folders for file in folder.rglob("*.npy"))
    return " ".join(f"{file.name}:{file.stat().st_ino}" for file in files)


@pytest.mark.parametrize("python", ONNXRUNTIMES)
def test_the_script_says_what_the_judge_says(python: str, tmp_path: Path) -> None:
    """The same outputs are judged by the script, and measured by the probe and judged by the judge."""
    calibration, cases = read_calibration(), CaseCache(cache_folder() / "cases-of-all-repros")
    version = next(v for v in read_matrix(ROOT / "matrix.yaml").versions if v.name == "onnxruntime-1.31.1")
    jobs: list[tuple[str, dict[str, str], Any]] = []
    for loaded in read_repros(ROOT / "repros"):
        if loaded.repro.id == "streams":  # it measures by itself what fails
            continue
        for case in kinds_of(loaded.repro):
            folder = cases.prepare(loaded, case)
            recipe = read_recipe(loaded.file, case.params, folder, CPU)
            assert recipe is not None, case.id
            noise = read_noise_file(folder)
            nothing = record_of(loaded.repro.id, case.id, noise, {"outputs": {}, "scalars": {}})
            cell = Cell(repro=loaded.repro, case=case, version=version, gpu=CPU_ITSELF)
            subject = subject_of(nothing, cell, calibration)
            own = [name for name in recipe.outputs if name not in recipe.marked]
            limits = limits_of(subject, {name: name for name in own})
            script = tmp_path / f"{loaded.repro.id}-{case.id}.py"
            script.write_text(fill_template(script_values(recipe, subject, limits, recorded={}, builds=1)))
            check = folder / "check.onnx"
            model = check if check.is_file() else folder / "model.onnx"
            if opset_of(onnx.load(model, load_external_data=False)) > NEWEST_OPSET[python]:
                continue
            key = sha256(model.read_bytes()).hexdigest() + content_of(folder / "inputs")
            arrays = content_of(folder / "reference", folder / "defects")
            job = {
                "script": str(script), "model": str(model), "case": str(folder), "key": key, "arrays": arrays,
            }  # fmt: skip
            jobs.append((key, job, (cell, noise)))
    jobs = sorted(jobs, key=lambda item: item[0])[:: EVERY[python]]
    subjects = [subject for _, _, subject in jobs]
    done = subprocess.run(
        [environment(python, (ONNXRUNTIMES[python], "numpy")), DRIVER],
        input=json.dumps([job for _, job, _ in jobs]), check=False, capture_output=True,
        text=True, env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == len(jobs) > 140 / EVERY[python]
    differ, seen = [], Counter[int]()
    for (cell, noise), one in zip(subjects, found, strict=True):
        scalars = dict.fromkeys(cell.case.limits, 0.0)  # what the repro measures by itself is right
        record = record_of(cell.repro.id, cell.case.id, noise, {**one["measurements"], "scalars": scalars})
        outcome = judge([record], cell, calibration)
        seen[one["code"]] += 1
        if CODES[outcome.verdict] != one["code"]:
            differ.append(f"{cell.id}: {outcome.verdict.value} {outcome.reason}; {one['said']}")
    assert not differ, "\n".join(differ)
    assert seen[0] > 100 / EVERY[python]
    assert seen[1] > 10 / EVERY[python]
