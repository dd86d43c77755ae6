"""25 million elements: how long measuring takes and what memory it needs, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.probe.jobs import PROBE

ELEMENTS = 25_000_000
BYTES, SECONDS = 200_000_000, (1.0, 2.0)

MEASURE = """
import json, sys, time, tracemalloc
from pathlib import Path
import numpy as np
from trtprobe.measure import measure_with_signatures
folder, names = Path(sys.argv[1]), sys.argv[2:]
y, r, *defects = (np.load(folder / (name + ".npy"), mmap_mode="r") for name in ("y", "r", *names))
named, times = dict(zip(names, defects)), []
for _ in range(3):
    started = time.process_time()
    measured, signatures = measure_with_signatures(y, r, named)
    times.append(time.process_time() - started)
tracemalloc.start()  # which counts what NumPy allocates, and nothing that is mapped
measure_with_signatures(y, r, named)
print(json.dumps([min(times), tracemalloc.get_traced_memory()[1], measured["count"], len(signatures)]))
"""


@pytest.fixture(scope="module")
def arrays(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write an output, its reference in float64 and three defects."""
    folder = tmp_path_factory.mktemp("large")
    noise = np.random.default_rng(0).standard_normal(1 << 16).astype(np.float32)
    r = np.resize(noise, (5, ELEMENTS // 5))
    np.save(folder / "r.npy", r.astype(np.float64))
    np.save(folder / "y.npy", r * np.float32(1.001))
    for number in range(3):
        np.save(folder / f"d{number}.npy", np.roll(r, number))
    return folder


@pytest.mark.parametrize("defects", [[], ["d0", "d1", "d2"]])
def test_measuring_is_quick_and_small(arrays: Path, defects: list[str]) -> None:
    command = [sys.executable, "-c", MEASURE, str(arrays), *defects]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env={"PYTHONPATH": str(PROBE.parent)}
    )
    seconds, beyond, count, signatures = json.loads(done.stdout)
    print(f"{len(defects)} defects: {seconds:.2f} s, {beyond / 1e6:.1f} MB beyond the mapped inputs")
    assert (count, signatures) == (ELEMENTS, len(defects))
    assert beyond < BYTES
    assert seconds < SECONDS[bool(defects)]
