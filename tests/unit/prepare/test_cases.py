"""Prepared cases: made once, found by content, in processes of their own; what the host emulates of them."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest
from builders import make_case, make_loaded, make_repro
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from onnxmodels import FLOAT, make_model, node

from trtmatrix.authoring.arithmetic import ENSEMBLE, FLOAT64, POSSIBLE, Arithmetic
from trtmatrix.common.errors import MachineryError, UsageError
from trtmatrix.prepare.case_pool import CasePool, Wanted
from trtmatrix.prepare.cases import (
    CaseCache,
    case_digest,
    case_key,
    read_content,
    read_noise_file,
    smallest_exact,
)
from trtmatrix.prepare.noise import measure_members
from trtmatrix.suite.digest import Code
from trtmatrix.suite.repro_files import LoadedRepro, read_repro
from trtprobe.files import CaseFiles

SHARED = np.arange(6, dtype=np.float32).reshape(2, 3)


def identity_model() -> onnx.ModelProto:
    return make_model([node("Identity", "x", "y")], {"x": (FLOAT, [2, 3])}, {"y": (FLOAT, [2, 3])})


class Preparing(ModuleType):
    """A repro's module that counts how often it prepares."""

    def __init__(self, **result: Any) -> None:
        super().__init__("preparing")
        self.calls = 0
        self.result = result

    def prepare(self, params: dict[str, Any]) -> dict[str, Any]:
        self.calls += 1
        if "raise" in params:
            raise ZeroDivisionError("as asked")
        whole = {"model": identity_model(), "inputs": {"x": SHARED}}
        return {**whole, "reference": {"y": SHARED.astype(np.float64)}, **self.result}


def loaded(digest: str = "d", **result: Any) -> LoadedRepro:
    made = make_loaded(make_repro(), Preparing(**result), file="sdpa_scale.py")
    return dataclasses.replace(made, source=f"import trtmatrix.authoring.graph\n{digest} = 1\n")


def files(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def test_a_case_is_prepared_once_and_whole(tmp_path: Path) -> None:
    cache, repro, case = CaseCache(tmp_path), loaded(), make_case()
    folder = cache.prepare(repro, case)
    assert cache.prepare(repro, case) == folder == cache.folder(repro, case)
    assert repro.module.calls == 1
    assert files(folder) == ["case.json", "inputs/x.npy", "model.onnx", "reference/y.npy"]
    assert json.loads((folder / "case.json").read_text())["params"] == {"precision": "tf32"}
    np.testing.assert_array_equal(np.load(folder / "inputs" / "x.npy"), SHARED)
    assert folder.stat().st_mode & 0o777 == 0o755


def test_a_case_may_bring_another_graph_to_check_and_more_arrays(tmp_path: Path) -> None:
    whole = loaded(check=identity_model(), extra={"weight": SHARED}, others={"plain": identity_model()})
    folder = CaseCache(tmp_path).prepare(whole, make_case())
    more = {"check.onnx", "extra/weight.npy", "others/plain.onnx"}
    assert set(files(folder)) == {"case.json", "inputs/x.npy", "model.onnx", "reference/y.npy"} | more
    assert (folder / "extra/weight.npy").samefile(folder / "inputs/x.npy")
    assert (folder / "others/plain.onnx").samefile(folder / "model.onnx"), "equal graphs share one file too"
    assert CaseFiles(folder).others == {"plain": folder / "others/plain.onnx"}


@pytest.mark.parametrize(
    ("change", "same"),
    [({}, True), ({"id": "other"}, True), ({"builds": 3}, True), ({"params": {"precision": "fp16"}}, False)],
)
def test_a_folder_depends_on_the_parameters_and_the_code(change: dict[str, Any], same: bool) -> None:
    case, other = make_case(), dataclasses.replace(make_case(), **change)
    assert (case_key(loaded(), case) == case_key(loaded(), other)) is same
    assert (case_digest(case) == case_digest(other)) is same
    plain = loaded()
    vars(plain)["code"] = Code()
    for part, alike in (("noise", False), ("authoring", False), ("probe", True)):
        made = loaded()
        vars(made)["code"] = Code(**{part: "a"})
        assert (case_key(made, case) == case_key(plain, case)) is alike


def test_what_a_product_is_given_has_a_digest_and_a_reference_is_no_part_of_it(tmp_path: Path) -> None:
    case, other = make_case(), {"reference": {"y": SHARED.astype(np.float64) + 1}}
    plain, judged = (loaded(digest, **given) for digest, given in (("d", {}), ("e", other)))
    extra = loaded("f", extra={"w": SHARED})
    folders = [CaseCache(tmp_path).prepare(repro, case) for repro in (plain, judged, extra)]
    contents = [read_content(folder) for folder in folders]
    assert contents[0] == contents[1] != contents[2]


@pytest.mark.parametrize(
    ("result", "params"),
    [({}, {"raise": 1}), ({"model": None}, {}), ({"inputs": None}, {}), ({"reference": {"y": object()}}, {})],
)
def test_failed_cases_leave_nothing(result: dict[str, Any], params: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="sdpa-tf32") as caught:
        CaseCache(tmp_path).prepare(loaded(**result), make_case(params=params))
    assert "python -m trtmatrix prepare sdpa-scale/sdpa-tf32 --traceback" in str(caught.value)
    assert files(tmp_path) == []


@settings(max_examples=30)
@given(arrays.arrays(np.float64, st.integers(0, 5), elements=st.floats(width=64)))
def test_narrowing_loses_nothing(array: np.ndarray[Any, np.dtype[np.float64]]) -> None:
    narrow = smallest_exact(array)
    np.testing.assert_array_equal(narrow.astype(np.float64), array)


class Emulating(Preparing):
    """A repro's module that emulates y = x·w, in which a half, or nothing at all, may be lost."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, bool]] = []

    def emulate(
        self, params: dict[str, Any], arithmetic: Arithmetic, defect: str = "", seed: int = 0,
        small: bool = False,
    ) -> dict[str, np.ndarray[Any, Any]]:  # fmt: skip
        if params.get("broken"):
            raise ZeroDivisionError("as asked")
        self.asked.append((defect, small))
        draw = np.random.default_rng(seed)
        x, w = (draw.standard_normal((64, 64)).astype(np.float32) for _ in "xw")
        factor = {"": 1.0, "lost-nothing": 1.0, "lost-half": 0.5}[defect]
        return {"y": factor * arithmetic.matmul(x[: 8 if small else 64], w)}

    def prepare(self, params: dict[str, Any]) -> dict[str, Any]:
        reference = self.emulate(params, FLOAT64) if not params.get("broken") else {"y": SHARED.astype(float)}
        self.asked.clear()
        return {**super().prepare(params), "reference": reference}


DEFECTS = ("lost-half", "lost-nothing")


def emulating() -> LoadedRepro:
    return make_loaded(make_repro(), Emulating())


def test_a_case_that_is_emulated_has_its_noise_and_the_shapes_of_its_defects(tmp_path: Path) -> None:
    repro, case = emulating(), make_case(defects=DEFECTS, noise_key="sdpa-scale: precision=tf32")
    folder = CaseCache(tmp_path).prepare(repro, case)
    assert "defects/lost-half/y.npy" in files(folder)
    assert "lost-nothing" not in " ".join(files(folder)), "what changes nothing has no shape"
    d, reference = np.load(folder / "defects/lost-half/y.npy"), np.load(folder / "reference/y.npy")
    assert d.dtype == np.float32
    np.testing.assert_allclose(d, -0.5 * reference, rtol=1e-6)
    noise = read_noise_file(folder)
    assert (noise["key"], noise["precision"]) == ("sdpa-scale: precision=tf32", "tf32")
    assert noise["defects"] == {"lost-half": {"y": pytest.approx(0.5)}}
    errors, c = noise["outputs"]["y"], noise["c"]["lost-half"]
    assert set(errors) == set(c) == {*ENSEMBLE["fp32"], *ENSEMBLE["tf32"], *POSSIBLE["tf32"]}
    assert errors["fp32"] < 1e-6 < 1e-4 < errors["tf32"] < errors["tf32-truncated"] < 1e-2
    assert all(abs(value) < 1e-2 for value in c.values())
    assert "scales" not in noise


def test_noise_that_several_cases_share_is_computed_once(tmp_path: Path) -> None:
    cache, repro = CaseCache(tmp_path), emulating()
    shared: dict[str, Any] = {"defects": DEFECTS, "noise_key": "k"}
    first = cache.prepare(repro, make_case(params={"precision": "tf32", "level": 0}, **shared))
    asked = list(repro.module.asked)
    second = cache.prepare(repro, make_case(params={"precision": "tf32", "level": 3}, **shared))
    assert asked
    assert repro.module.asked == []
    assert (first / "defects/lost-half/y.npy").samefile(second / "defects/lost-half/y.npy")
    assert read_noise_file(first) == read_noise_file(second)
    third = make_case(params={"precision": "tf32", "level": 4}, defects=(), noise_key="k")
    assert read_noise_file(cache.prepare(repro, third))["defects"] == {}


def test_a_member_that_overflows_is_left_out() -> None:
    def emulate(params: object, arithmetic: Arithmetic, *_: object, **__: object) -> dict[str, Any]:
        del params
        x = np.full((2, 2), 300.0)
        return {"y": arithmetic.matmul(x, x), "z": arithmetic.matmul(x, 0.5 * np.eye(2))}

    errors, _ = measure_members(emulate, {"precision": "fp16-flag"}, {})
    assert not [name for name in errors["y"] if name.startswith("fp16")]
    assert {"fp32", "tf32"} <= set(errors["y"])
    assert set(ENSEMBLE["fp16"]) <= set(errors["z"])


# Cases prepared in processes of their own: real ones, over small repros that the tests write.
REPRO = '''\
"""Cases that say in which process they were prepared."""

import os
import signal
import time
from pathlib import Path

import numpy as np

FACTS = {
    "title": "small", "upstream": "", "url": "", "summary": "", "figure": {"measure": "m", "label": ""},
}


def cases():
    return [{"id": n, "params": {"name": n}} for n in ("a", "b", "c", "raises", "is-killed", "waits")]


def prepare(params):
    from trtmatrix.authoring.graph import Graph

    if params["name"] == "raises":
        raise ZeroDivisionError("as asked")
    if params["name"] == "is-killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if params["name"] == "waits":
        partial = Path(__file__).with_name("partial")
        partial.write_text(str(os.getpid()))
        partial.replace(partial.with_name("waiting"))
        time.sleep(600)
    x, graph = np.arange(8, dtype=np.float32), Graph()
    graph.input("x", np.float32, x.shape)
    graph.node("Identity", "x", out="y")
    graph.output("y", np.float32, x.shape)
    seen = np.array([os.getpid(), int(os.environ["OPENBLAS_NUM_THREADS"])])
    made = {"model": graph.model(), "inputs": {"x": x}, "reference": {"y": x.astype(float)}}
    return {**made, "extra": {"seen": seen}}


def run(params, files, trt): ...
'''


@pytest.fixture
def small(tmp_path: Path) -> LoadedRepro:
    (tmp_path / "small.py").write_text(REPRO)
    return read_repro(tmp_path / "small.py")


def wanted(small: LoadedRepro, *names: str) -> list[Wanted]:
    by_id = {case.id: case for case in small.repro.cases}
    return [Wanted(loaded=small, case=by_id[name]) for name in names]


def prepare(pool: CasePool, *groups: list[Wanted]) -> list[str]:
    return [item.case.id for item in pool.prepare(groups, threading.Event())]


def seen(pool: CasePool, item: Wanted) -> tuple[int, int]:
    process, threads = CaseFiles(CaseCache(pool.cache).folder(item.loaded, item.case)).extra["seen"]
    return int(process), int(threads)


@pytest.fixture
def pool(tmp_path: Path) -> CasePool:
    return CasePool(tmp_path / "cache")


def leftovers(pool: CasePool) -> list[Path]:
    return [*pool.cache.glob("jobs/*"), *pool.cache.glob("cases/.*"), *pool.cache.glob("blobs/*.partial")]


def test_cases_are_prepared_elsewhere_with_one_thread_each(pool: CasePool, small: LoadedRepro) -> None:
    together, apart = wanted(small, "a", "b"), wanted(small, "c")
    assert sorted(prepare(pool, together, apart)) == ["a", "b", "c"]
    (first, threads), (second, _) = (seen(pool, item) for item in together)
    assert first == second, "what shares work goes to one process"
    assert first != os.getpid()
    assert threads == 1
    assert leftovers(pool) == []
    assert not Path(f"/proc/{first}").exists()
    folder = CaseCache(pool.cache).folder(small, apart[0].case)
    np.testing.assert_array_equal(CaseFiles(folder).inputs["x"], np.arange(8, dtype=np.float32))
    assert folder.stat().st_mode & 0o777 == 0o755


def test_a_prepare_that_raises_is_told_with_its_traceback(pool: CasePool, small: LoadedRepro) -> None:
    with pytest.raises(UsageError, match="the case raises failed: ZeroDivisionError") as caught:
        prepare(pool, wanted(small, "raises", "a"))
    assert "python -m trtmatrix prepare small/raises --traceback" in str(caught.value)
    assert 'raise ZeroDivisionError("as asked")' in "".join(traceback.format_exception(caught.value))
    assert leftovers(pool) == []


def test_a_process_that_is_killed_is_the_machinery_s_trouble(pool: CasePool, small: LoadedRepro) -> None:
    with pytest.raises(MachineryError, match="was killed: perhaps for lack of memory"):
        prepare(pool, wanted(small, "is-killed"))
    assert leftovers(pool) == []


def test_a_repro_that_was_changed_meanwhile_is_told(pool: CasePool, small: LoadedRepro) -> None:
    small.file.write_text(REPRO.replace("np.arange(8", "np.arange(9"))
    with pytest.raises(UsageError, match=r"small\.py was changed since this run began"):
        prepare(pool, wanted(small, "a"))


def test_a_stop_ends_the_processes_at_once(pool: CasePool, small: LoadedRepro) -> None:
    stop, waiting = threading.Event(), small.file.with_name("waiting")

    def stop_once_it_waits() -> None:
        wait_for(waiting.exists)
        stop.set()

    thread = threading.Thread(target=stop_once_it_waits)
    thread.start()
    assert list(pool.prepare([wanted(small, "waits")], stop)) == []
    thread.join()
    assert not Path(f"/proc/{waiting.read_text()}").exists()
    assert leftovers(pool) == []


def test_a_process_ends_with_the_one_that_started_it(pool: CasePool, small: LoadedRepro) -> None:
    waiting = small.file.with_name("waiting")
    code = f"""
import os, threading
from pathlib import Path
from trtmatrix.prepare.case_pool import CasePool, Wanted
from trtmatrix.prepare.cases import CaseCache
from trtmatrix.suite.repro_files import read_repro
loaded = read_repro(Path({str(small.file)!r}))
case = next(case for case in loaded.repro.cases if case.id == "waits")
list(CasePool(Path({str(pool.cache)!r})).prepare([[Wanted(loaded=loaded, case=case)]], threading.Event()))
"""
    host = subprocess.Popen([sys.executable, "-c", code])
    try:
        wait_for(waiting.exists)
        os.kill(host.pid, signal.SIGKILL)
    finally:
        host.kill()
        host.wait()
    wait_for(lambda: not Path(f"/proc/{waiting.read_text()}").exists())


def wait_for(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)
