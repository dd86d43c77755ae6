"""Cases prepared in processes of their own: real ones, over small repros that the tests write."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from trtmatrix.common.errors import MachineryError, UsageError
from trtmatrix.prepare.case_pool import CasePool, Wanted
from trtmatrix.prepare.cases import CaseCache
from trtmatrix.suite.repro_files import LoadedRepro, read_repro
from trtprobe.files import CaseFiles

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
    for name in ("a", "b", "c", "raises", "is-killed", "waits"):
        yield {"id": name, "params": {"name": name}}


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
    x = np.arange(8, dtype=np.float32)
    graph = Graph()
    graph.input("x", np.float32, x.shape)
    graph.node("Identity", "x", out="y")
    graph.output("y", np.float32, x.shape)
    seen = np.array([os.getpid(), int(os.environ["OPENBLAS_NUM_THREADS"])])
    made = {"model": graph.model(), "inputs": {"x": x}, "reference": {"y": x.astype(float)}}
    return {**made, "extra": {"seen": seen}}


def run(params, files, trt):
    return trt.build(files.model).run(files.inputs)
'''


@pytest.fixture
def loaded(tmp_path: Path) -> LoadedRepro:
    (tmp_path / "small.py").write_text(REPRO)
    return read_repro(tmp_path / "small.py")


def wanted(loaded: LoadedRepro, *names: str) -> list[Wanted]:
    by_id = {case.id: case for case in loaded.repro.cases}
    return [Wanted(loaded=loaded, case=by_id[name]) for name in names]


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


def test_cases_are_prepared_elsewhere_with_one_thread_each(pool: CasePool, loaded: LoadedRepro) -> None:
    together, apart = wanted(loaded, "a", "b"), wanted(loaded, "c")
    assert sorted(prepare(pool, together, apart)) == ["a", "b", "c"]
    (first, threads), (second, _) = (seen(pool, item) for item in together)
    assert first == second, "what shares work goes to one process"
    assert first != os.getpid()
    assert threads == 1
    assert leftovers(pool) == []
    assert not Path(f"/proc/{first}").exists()
    folder = CaseCache(pool.cache).folder(loaded, apart[0].case)
    np.testing.assert_array_equal(CaseFiles(folder).inputs["x"], np.arange(8, dtype=np.float32))
    assert folder.stat().st_mode & 0o777 == 0o755


def test_a_prepare_that_raises_is_told_with_its_traceback(pool: CasePool, loaded: LoadedRepro) -> None:
    with pytest.raises(UsageError, match="the case raises failed: ZeroDivisionError") as caught:
        prepare(pool, wanted(loaded, "raises", "a"))
    assert "python -m trtmatrix prepare small/raises --traceback" in str(caught.value)
    assert 'raise ZeroDivisionError("as asked")' in "".join(traceback.format_exception(caught.value))
    assert leftovers(pool) == []


def test_a_process_that_is_killed_is_the_machinery_s_trouble(pool: CasePool, loaded: LoadedRepro) -> None:
    with pytest.raises(MachineryError, match="was killed: perhaps for lack of memory"):
        prepare(pool, wanted(loaded, "is-killed"))
    assert leftovers(pool) == []


def test_a_repro_that_was_changed_meanwhile_is_told(pool: CasePool, loaded: LoadedRepro) -> None:
    loaded.file.write_text(REPRO.replace("np.arange(8", "np.arange(9"))
    with pytest.raises(UsageError, match=r"small\.py was changed since this run began"):
        prepare(pool, wanted(loaded, "a"))


def test_a_stop_ends_the_processes_at_once(pool: CasePool, loaded: LoadedRepro) -> None:
    stop, waiting = threading.Event(), loaded.file.with_name("waiting")

    def stop_once_it_waits() -> None:
        wait_for(waiting.exists)
        stop.set()

    thread = threading.Thread(target=stop_once_it_waits)
    thread.start()
    assert list(pool.prepare([wanted(loaded, "waits")], stop)) == []
    thread.join()
    assert not Path(f"/proc/{waiting.read_text()}").exists()
    assert leftovers(pool) == []


def test_a_process_ends_with_the_one_that_started_it(pool: CasePool, loaded: LoadedRepro) -> None:
    waiting = loaded.file.with_name("waiting")
    code = f"""
import os, threading
from pathlib import Path
from trtmatrix.prepare.case_pool import CasePool, Wanted
from trtmatrix.prepare.cases import CaseCache
from trtmatrix.suite.repro_files import read_repro
loaded = read_repro(Path({str(loaded.file)!r}))
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
