"""An archive's repro.py against the probe: the same case gives the same, with nothing of ours there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.probe.jobs import HERE, MAIN, X, stand_in, write_case
from tests.probe.pythons import environment, environment_of, find_pythons
from tests.probe.scripts import Script, entry_of, recorded, run_by_hand, write_script
from trtmatrix.context import read_matrix
from trtmatrix.core.model import Case, Product
from trtmatrix.effects.cases import CaseCache, read_noise_file
from trtmatrix.effects.repro_files import LoadedRepro, read_repros

ROOT = HERE.parents[1]
TINY: dict[str, Any] = {"batch": 1, "length": 24, "heads": 2, "head_size": 8}
SMALL: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "controls": ("wrong-scale-fp32", {}),
    "sdpa-scale": ("sdpa-tf32", TINY),
    "gemm-mha-v2": ("fp16-masked", TINY),
    "flash-attention": ("window-512-fp16", {"batch": 1, "heads": 2, "queries": 12, "keys": 12}),
    "mha-tracker": ("whole-fp32", {"length": 20, "batch": 2, "embed": 16, "heads": 2, "hidden": 32}),
    "deformable-plugin": (
        "workaround-int32-fp32",
        {"batch": 1, "heads": 2, "channels": 4, "queries": 10, "points": 2, "levels": "5x6 3x4"},
    ),
    "streams": ("producer-event", {}),
}
"""A case of each repro that ONNX Runtime can run, and parameters that make it quick."""

ONNXRUNTIMES = {"3.8": "onnxruntime==1.16.3", "3.12": "onnxruntime==1.20.1"}


@cache
def loaded(name: str) -> LoadedRepro:
    return next(one for one in read_repros(ROOT / "repros") if one.repro.id == name)


@cache
def version_of(product: Product) -> Any:
    return next(one for one in read_matrix(ROOT / "matrix.yaml").versions if one.product is product)


def small(name: str) -> tuple[LoadedRepro, Case]:
    repro, (case_id, params) = loaded(name), SMALL[name]
    case = next(case for case in repro.repro.cases if case.id == case_id)
    return repro, replace(
        case, params={**case.params, **params}, noise_key="small" if params else case.noise_key
    )


def prepare(
    name: str, product: Product, case_folder: Path, folder: Path, python: Path, known: Mapping[str, str]
) -> Any:
    """Run a case by hand and write its script; returns that, the probe's result and what is expected."""
    repro, case = small(name)
    result = run_by_hand(repro.file, case_folder, product, known, python)
    record = recorded(result, repro.repro, case, product, read_noise_file(case_folder))
    version = replace(
        version_of(product), library=replace(version_of(product).library, value=record.observed["library"])
    )
    entry = entry_of(record, repro.repro, case, version)
    expected = write_script(entry, repro.file, case_folder, folder / "archive")
    return Script(folder=folder / "archive", python=python, environment=known), result, expected


def measured(result: Mapping[str, Any]) -> Any:
    """What a result measured, times apart."""
    found = result["measurements"]
    scalars = {
        name: value for name, value in found["scalars"].items() if not name.endswith(("ms", "speedup"))
    }
    return {**found, "scalars": scalars}


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> CaseCache:
    return CaseCache(tmp_path_factory.mktemp("cache"))


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("number", ONNXRUNTIMES)
def test_onnx_runtime_gives_what_it_gives_the_probe(
    number: str, name: str, cases: CaseCache, tmp_path: Path
) -> None:
    if number not in find_pythons():
        pytest.skip(f"no Python {number} here")
    python = environment(number, ("numpy", ONNXRUNTIMES[number]))
    case_folder = cases.prepare(*small(name))
    script, result, expected = prepare(name, Product.ONNXRUNTIME, case_folder, tmp_path, python, {})
    code, again, last = script.result()
    assert (again["ended"], again["detail"]) == (result["ended"], result["detail"]) == ("ran", "")
    assert measured(again) == measured(result)
    failing = expected["verdict"] == "FAIL"
    assert (code, again["verdict"], again["exit_code"]) == (
        int(failing),
        expected["verdict"],
        int(failing),
    ), last
    assert last.startswith(
        "THE FAILURE CAME BACK (FAIL): " if failing else "THE FAILURE IS NOT THERE (PASS): "
    )
    assert again["observed"]["library"] == result["observed"]["library"]
    assert again["platform"]["packages"]["onnxruntime"] == ONNXRUNTIMES[number].partition("==")[2]


def graph(dtype: str = "float32", *inputs: str, **more: Any) -> dict[str, Any]:
    """A stand-in's graph over ``inputs`` and y."""
    shape = [dtype, [2, 3]]
    return {"inputs": dict.fromkeys(inputs or ("x",), shape), "outputs": {"y": shape}, **more}


SOFTMAX = {"layers": [{"type": "SOFTMAX", "output": "/Softmax_output_0"}]}
STANDINS: Mapping[str, tuple[Any, Mapping[str, Any]]] = {
    "controls": (graph(), {}),
    "sdpa-scale": (graph(), TINY),
    "gemm-mha-v2": (graph("float16", **SOFTMAX), {**TINY, "outputs": "/Softmax_output_0"}),
    "flash-attention": (graph("float16", "q", "k", "v", **SOFTMAX), {}),
    "mha-tracker": (graph(), {"softmax32": True}),
    "deformable-plugin": (graph(plugins=["MultiscaleDeformableAttnPlugin_TRT"]), {}),
    "streams": (graph("float16"), {"delay": 0, "trials": 2}),
}
"""What the stand-in for TensorRT is given in place of each repro's graph."""


@pytest.mark.parametrize("name", STANDINS)
@pytest.mark.parametrize(("release", "number"), [("8.5.3.1", "3.8"), ("11.1.0", "3.12")])
def test_tensorrt_gives_what_it_gives_the_probe(
    name: str, release: str, number: str, driver: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = environment_of(number) if number in find_pythons() else MAIN
    given, params = STANDINS[name]
    monkeypatch.setitem(SMALL, name, (SMALL[name][0], {**SMALL[name][1], **params}))
    x = X.astype(given["outputs"]["y"][0])
    folder = write_case(
        tmp_path / "case", small(name)[1].params, given, inputs=dict.fromkeys(given["inputs"], x)
    )
    (folder / "reference").mkdir()
    np.save(folder / "reference" / "y.npy", np.maximum(x, 0).astype(np.float64))
    environment_ = {**stand_in(driver), "STANDIN_TENSORRT": release}
    script, result, _ = prepare(name, Product.TENSORRT, folder, tmp_path, python, environment_)
    code, again, last = script.result()
    assert (again["ended"], again["detail"]) == (result["ended"], result["detail"])
    processes = again.get("processes", 1)  # a script counts over all, by hand there is one
    result["measurements"]["scalars"].update({k: n * processes for k, n in result["counts"].items()})
    assert measured(again) == measured(result)
    names = ("layers", "tactics", "gpu", "compute", "engine_bytes", "level_ignored", "fusion", "kernels")
    assert [again["engine"].get(key) for key in names] == [result["engine"].get(key) for key in names]
    assert code in {0, 125}, last
    assert (code == 125) is (again["ended"] != "ran" or again["verdict"] == "INVALID")
