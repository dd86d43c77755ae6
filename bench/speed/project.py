"""A scratch project of its own results and cache; ``python -m trtmatrix run`` over it, timed from outside."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from bench.speed.machine import ROOT
from bench.speed.rows import CannotMeasure
from trtmatrix.launchers.container import OWNER_LABEL, PROJECT_LABEL
from trtmatrix.prepare.case_pool import CasePool, Wanted
from trtmatrix.suite.model import Product
from trtmatrix.suite.repro_files import read_repros

TEST_IMAGE = "trtmatrix/test:latest"
TEST_VERSION = "onnxruntime-1.31.1"
GOOD_CODES = frozenset({0, 1})
"""How a run ends that judged its cells; surprises are no matter of speed."""

Json = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Timed:
    """One run: wall seconds of the whole process, its ID, code and words, the records that it left.

    ``began``: when it was started, in seconds since the epoch. ``cut``: it was ended at its time limit.
    """

    seconds: float
    began: float
    pid: int
    code: int
    told: str
    records: tuple[Json, ...] = field(repr=False)
    cut: bool = False


@dataclass(frozen=True, kw_only=True)
class Scratch:
    """A project: the file of its versions, its repros; results lie in ``folder``.

    ``own_cache``: where prepared cases lie already; else they lie in ``folder`` too.
    """

    folder: Path
    matrix: Path
    repros: Path
    words: tuple[str, ...] = ()
    own_cache: Path | None = None

    @property
    def cache(self) -> Path:
        """Prepared cases lie here."""
        return self.own_cache or self.folder / "cache"

    def command(self, name: str, *words: str, results: str) -> list[str]:
        """Return the words of a command over the project's files."""
        files = [f"--matrix={self.matrix}", f"--repros={self.repros}", f"--cache={self.cache}"]
        files.append(f"--results={self.folder / results}")
        return [sys.executable, "-m", "trtmatrix", name, *files, *self.words, *words]

    def run(
        self, *words: str, results: str, limit: float = math.inf, codes: Iterable[int] = GOOD_CODES
    ) -> Timed:
        """Run to the end, or for ``limit`` seconds; :class:`RuntimeError` where it ends in any other way."""
        before = set(self._files(results))
        began, started = time.time(), time.monotonic()
        with (self.folder / "told").open("w+") as told:
            process = subprocess.Popen(
                self.command("run", *words, results=results), cwd=ROOT, stdout=subprocess.DEVNULL,
                stderr=told, start_new_session=True,
            )  # fmt: skip
            try:
                code, cut = _wait(process, limit)
            except BaseException:  # the benchmark itself is ended, and what it started with it
                _interrupt(process)
                raise
            seconds = time.monotonic() - started
            told.seek(0)
            said = told.read()
        if code not in codes and not cut:
            raise RuntimeError(f"trtmatrix run {' '.join(words)[:300]} ended with {code}:\n{said[-3000:]}")
        new = [file for file in self._files(results) if file not in before]
        records = sorted((json.loads(file.read_text()) for file in new), key=lambda r: r["started"])
        return Timed(
            seconds=seconds, began=began, pid=process.pid, code=code, told=said,
            records=tuple(records), cut=cut,
        )  # fmt: skip

    def _files(self, results: str) -> list[Path]:
        return list((self.folder / results / "local").rglob("*.json"))

    def verdicts(self, results: str, *words: str) -> dict[str, str]:
        """Return each cell's verdict with its cause, from stored records."""
        command = self.command("table", *words, "--json", results=results)
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        cells = json.loads(done.stdout)["cells"]
        return {cell["id"]: f"{cell['verdict']} {cell.get('cause') or ''}".strip() for cell in cells}


def _wait(process: subprocess.Popen[bytes], limit: float) -> tuple[int, bool]:
    """Wait for a run; past the limit it is told to end, and what had ended is kept."""
    try:
        return process.wait(timeout=None if math.isinf(limit) else limit), False
    except subprocess.TimeoutExpired:
        return _interrupt(process), True


def _interrupt(process: subprocess.Popen[bytes]) -> int:
    """Let a run end itself, or end it."""
    process.send_signal(signal.SIGTERM)  # a background shell's children may be deaf to SIGINT
    try:
        return process.wait(timeout=60)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.wait()


def open_scratch(folder: Path, images: Mapping[str, str], repros: Path = ROOT / "repros") -> Scratch:
    """Make a project whose versions run in images that ship ONNX Runtime as the test image does."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = ["schema: 1", 'sources: {here: {title: "This benchmark"}}', "versions:"]
    for version, image in images.items():
        lines += [f'  - version: "{version}"', "    product: onnxruntime"]
        lines += [f'    origin: {{image: "{image}"}}']
        lines += ['    library: {value: "1.31.1", known: measured, source: here}']
    matrix = folder / "matrix.yaml"
    matrix.write_text("\n".join(lines) + "\n")
    return Scratch(folder=folder, matrix=matrix, repros=repros)


def need_test_image() -> None:
    """Ask the engine for the test image; :class:`CannotMeasure` says what is lacking."""
    import docker
    import docker.errors

    try:
        docker.from_env(timeout=20).images.get(TEST_IMAGE)
    except docker.errors.ImageNotFound:
        raise CannotMeasure(f"{TEST_IMAGE} is not here: docker/test/build makes it") from None
    except docker.errors.DockerException as error:
        raise CannotMeasure(f"no Docker engine answers: {str(error)[:120]}") from None


def graph_cases(repros: Path, product: Product) -> list[str]:
    """Return the cases of a product that are graphs: they need nothing of an image but the product."""
    return [
        f"{loaded.repro.id}/{case.id}"
        for loaded in read_repros(repros) for case in loaded.repro.cases
        if not case.needs and product in case.products
    ]  # fmt: skip


def selecting(cases: Sequence[str]) -> tuple[str, ...]:
    """Return the words that select just these cases."""
    return f"--case={','.join(cases)}", "--no-controls"


def prepare(scratch: Scratch, cases: Sequence[str]) -> float:
    """Prepare cases before anything is timed, on all cores; returns how long that took."""
    started, groups = time.monotonic(), defaultdict(list)
    for loaded in read_repros(scratch.repros):
        for case in loaded.repro.cases:
            if f"{loaded.repro.id}/{case.id}" in cases:
                key = loaded.repro.id, case.noise_key or case.id
                groups[key].append(Wanted(loaded=loaded, case=case))
    list(CasePool(scratch.cache).prepare([*groups.values()], threading.Event()))
    return time.monotonic() - started


def spread_evenly(items: Sequence[str], count: int) -> list[str]:
    """Return so many items at even distances, all where there are no more."""
    if count >= len(items):
        return list(items)
    return [items[int((number + 0.5) * len(items) / count)] for number in range(count)]


def containers_started(timed: Timed) -> list[str]:
    """Return the containers that the engine started for a run, by its events."""
    import docker

    events = docker.from_env(timeout=20).events(
        since=int(timed.began), until=int(timed.began + timed.seconds) + 2, decode=True,
        filters={"type": "container", "event": "start", "label": PROJECT_LABEL},
    )  # fmt: skip
    owned = [event["Actor"]["Attributes"] for event in events]
    return [each["name"] for each in owned if each.get(OWNER_LABEL, "").split(":")[2:3] == [str(timed.pid)]]


def moment(text: str) -> float:
    """Return a record's time in seconds since the epoch."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
