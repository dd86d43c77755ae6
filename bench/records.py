"""Makes stored records like real ones, as many as wanted: the published ones with other cells and numbers."""

from __future__ import annotations

import argparse
import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from functools import cache
from pathlib import Path
from typing import Any

from trtmatrix.common.text import to_json
from trtmatrix.judge.record import BUILT, RAN, write_number
from trtmatrix.plan.context import ProjectOptions, open_context
from trtmatrix.plan.order import cell_digests
from trtmatrix.suite.cells import Cell, Selection, expand
from trtmatrix.suite.digest import digest_own_code
from trtmatrix.suite.model import Cause, Gpu, Product

ROOT = Path(__file__).resolve().parent.parent
SEED = 20250102
COUNT = 100_000
RUNS = 7
"""Runs of a cell, the last of which lies in the local part."""

GPUS = tuple(
    Gpu(slug=name.lower().replace(" ", "-"), name=name, compute=compute, variant=f"{memory} GiB")
    for name, compute, memory in (
        ("NVIDIA A10", "8.6", 23), ("NVIDIA A100", "8.0", 80), ("NVIDIA GeForce RTX 3090", "8.6", 24),
        ("NVIDIA H200", "9.0", 140), ("NVIDIA L4", "8.9", 22), ("Tesla T4", "7.5", 15),
    )
)  # fmt: skip
DRIVERS = ("535.183.01", "550.127.08", "580.159.04")
"""A driver for each part of the runs: older records are not comparable with newer ones."""

KINDS = {"as measured": 78, "three engines": 6, "wrong": 5, "NaN": 3, "failed": 8}
"""What becomes of a published record, with its share in percent."""

FAILURES = (
    Cause.BUILD_FAILED, Cause.CRASHED, Cause.TIME_OUT, Cause.OUT_OF_GPU_MEMORY, Cause.PROBE_FAILED,
)  # fmt: skip
VARIANTS = 4
"""Sets of numbers of each published record and kind."""

START = datetime(2025, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
PLACE = re.compile(r'"@(\w+)@"')


@dataclass(frozen=True, kw_only=True)
class Made:
    """What was made: files (some are copies of the same run in both parts) and their bytes."""

    files: int
    bytes: int


def make_records(folder: Path, count: int = COUNT, seed: int = SEED) -> Made:
    """Fill an empty results folder with ``count`` files of records; the same seed makes the same bytes.

    The cells are those of matrix.yaml and repros over six GPUs, as many as give each some runs.
    """
    maker = Maker(seed=seed)
    files = size = 0
    folders: set[Path] = set()
    for path, content in maker.files(count):
        file = folder / path
        if file.parent not in folders:
            file.parent.mkdir(parents=True, exist_ok=True)
            folders.add(file.parent)
        file.write_bytes(content)
        files, size = files + 1, size + len(content)
    return Made(files=files, bytes=size)


@dataclass(kw_only=True)
class Maker:
    """Makes records of cells from the published records of the same case, or of others where it has none."""

    seed: int
    _texts: dict[tuple[int, str, int], list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Read the project: its cells, its published records."""
        self.random = random.Random(self.seed)  # noqa: S311 - a benchmark
        options = ProjectOptions(
            matrix=ROOT / "matrix.yaml", repros=ROOT / "repros", results=ROOT / "results"
        )
        self.context = open_context(options)
        self.probe = digest_own_code().probe
        paths = sorted((ROOT / "results").glob("nvidia-*/*/*/*/*.json"))
        self.published = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
        self.by_case: dict[tuple[str, str], list[int]] = {}
        for number, data in enumerate(self.published):
            self.by_case.setdefault((data["cell"]["repro"], data["cell"]["case"]), []).append(number)

    def files(self, count: int) -> Iterator[tuple[str, bytes]]:
        """Yield paths inside the results folder with their content."""
        every = expand(self.context.matrix, self.context.plain_repros, GPUS, Selection())
        cells = self.random.sample(every, min(len(every), -(-count // RUNS)))
        left = count
        for wave in range(-(-count // len(cells))):
            for cell in cells:
                run, content = self.record(cell, wave)
                place = f"{cell.gpu.slug}/{cell.version.name}/{cell.repro.id}/{cell.case.id}/{run}.json"
                local = wave >= RUNS - 1
                both = local and self.random.random() < 0.1
                for path in ([place] if both else []) + [f"local/{place}" if local else place]:
                    if not left:
                        return
                    left -= 1
                    yield path, content

    def record(self, cell: Cell, wave: int) -> tuple[str, bytes]:
        """Return a run's id and its record as text."""
        draw = self.random
        number = draw.choice(self.by_case.get((cell.repro.id, cell.case.id)) or range(len(self.published)))
        kind = draw.choices(list(KINDS), list(KINDS.values()))[0]
        parts = self._parts(number, kind, draw.randrange(VARIANTS))
        values = self._values(cell, wave)
        if cell.version.product is Product.TENSORRT_RTX:
            values["ended"] = BUILT
        whole = "".join(json.dumps(values[p]) if i % 2 else p for i, p in enumerate(parts))
        return values["run"], whole.encode("utf-8", "backslashreplace")

    def _parts(self, number: int, kind: str, variant: int) -> list[str]:
        """Return a text of which every second part is the name of a value."""
        key = (number, kind, variant)
        if key not in self._texts:
            data = _with_places(_changed(self.published[number], kind, self.random))
            self._texts[key] = PLACE.split(to_json(data))
        return self._texts[key]

    def _values(self, cell: Cell, wave: int) -> dict[str, Any]:
        """Return what a record says of its cell and of the time it was made; the last runs are current."""
        started = START + timedelta(days=30 * wave, seconds=self.random.randrange(10**6))
        age = max(0, RUNS - 1 - wave) // 3
        driver = DRIVERS[-1 - min(age, len(DRIVERS) - 1)]
        on_trt = cell.version.product is Product.TENSORRT
        current = cell_digests(cell, self.context.repros[cell.repro.id])
        image = f"sha256:{hash_of(cell.version.name)}"
        digests = {**current, "probe": self.probe, "image": image, "runtime": cell.version.runtime}
        old = {"repro": hash_of(f"{cell.repro.id} {age}"), "probe": hash_of(f"probe {age}")} if age else {}
        gpu = {
            "clocks": {"memory_mhz": 3201, "power_limit_w": 700.0, "sm_mhz": 1980}, "driver": driver,
            "compute": cell.gpu.compute, "name": cell.gpu.name, "variant": cell.gpu.variant,
            "uuid_sha256": hash_of(cell.gpu.slug),
        }  # fmt: skip
        return {
            "cell": vars(cell.id), "digests": {**digests, **old},
            "driver": driver, "gpu": gpu if on_trt else {},
            "library": cell.version.library.value, "product": cell.version.product.value, "ended": RAN,
            "run": f"{started:%Y%m%dt%H%M%S}-{self.random.getrandbits(32):08x}",
            "started": f"{started:%Y-%m-%dT%H:%M:%S}.{self.random.randrange(1000):03}Z",
        }  # fmt: skip


@cache
def hash_of(text: str) -> str:
    """Return what looks like a digest, the same for the same text."""
    return f"{random.Random(text).getrandbits(256):064x}"  # noqa: S311


def _with_places(data: Mapping[str, Any]) -> dict[str, Any]:
    """Name the parts of a record that each one of its kind has otherwise."""
    named = {name: f"@{name}@" for name in ("cell", "digests", "gpu", "product", "run", "started")}
    named |= {"ended": "@ended@"} if data["ended"] == RAN else {}
    return {**data, **named, "observed": {**data["observed"], "library": "@library@", "driver": "@driver@"}}


def _changed(data: Mapping[str, Any], kind: str, draw: random.Random) -> dict[str, Any]:
    """Return a record's data with somewhat other numbers, or as one that came out otherwise."""
    if kind == "failed" or data["ended"] != RAN:
        cause = draw.choice(FAILURES)
        nothing: dict[str, Any] = {"measurements": {"outputs": {}, "scalars": {}}, "ended": cause.value}
        kept = {name: value for name, value in data.items() if name not in {"builds", "kept", "processes"}}
        return {**kept, **nothing, "detail": data["detail"] or f"{cause.value}: {data['log'][-300:]}"}
    factor = 100.0 if kind == "wrong" else 1.0
    given = data.get("builds") or [{"measurements": data["measurements"], "engine": data["engine"]}]
    given = list(given) * 3 if kind == "three engines" and len(given) == 1 else given
    builds = [{**b, "measurements": _measurements(b["measurements"], factor, draw)} for b in given]
    if kind == "NaN":
        for values in builds[0]["measurements"]["outputs"].values():
            values.update(nan=7, nan_unexpected=7, rel_l2="NaN", sum_abs="NaN", max_abs="Infinity")
    several = {"builds": builds} if len(builds) > 1 else {}
    return {**data, "measurements": builds[0]["measurements"], **several}


def _measurements(data: Mapping[str, Any], factor: float, draw: random.Random) -> dict[str, Any]:
    """Return measurements times a factor, give or take a tenth."""

    def near(values: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: write_number(value * factor * draw.uniform(0.9, 1.1)) if isinstance(value, float) else value
            for name, value in values.items()
        }

    return {
        **data, "outputs": {name: near(values) for name, values in data["outputs"].items()},
        "scalars": near(data["scalars"]),
    }  # fmt: skip


def main(argv: Sequence[str] | None = None) -> None:
    """Make records and say how many."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="a new results folder")
    parser.add_argument("--count", type=int, default=COUNT)
    args = parser.parse_args(argv)
    made = make_records(args.folder, args.count)
    print(f"{args.folder}: {made.files} records, {made.bytes} bytes, {made.bytes / made.files:.0f} each")


if __name__ == "__main__":
    main()
