"""Runs the suite: one start of the probe a version, over many processes; doubtful cases again, alone."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from trtmatrix.common.border import ARRAY, opened, read_array, read_json, remove_tree
from trtmatrix.common.errors import MachineryError, ending
from trtmatrix.common.paths import make_job_folder
from trtmatrix.common.text import one_line
from trtmatrix.judge.judge import wrong_library
from trtmatrix.launchers.launcher import Ready
from trtmatrix.operators.cases import Case, Suite, read_arrays
from trtmatrix.operators.verdicts import judge, row_of
from trtmatrix.records.operators import BAD, OperatorRecord, Row, Verdict
from trtmatrix.run.execute import count_workers
from trtmatrix.run.tasks import Run, finish, utc_now
from trtmatrix.run.worker import Intake, Stopped
from trtmatrix.suite.model import CPU, Gpu, Product
from trtmatrix.suite.plan import Launch, Plan
from trtprobe.files import write_json
from trtprobe.operators import WARM_SECONDS, count_processes

SILENT_SECONDS = 60.0
"""A probe is ended that answers nothing for so much longer than a process may take for its first task."""
STARTS = 3
"""How often the probe is started for what is left, where it ends before."""
TURNS, SHARING = 5, 8
"""Cases that run at once on a GPU, by turns and by MPS: more make each slower (docs/operators.md, "Time")."""
OUTPUT = 1 << 28
"""Bytes of outputs between two records."""
DOUBTFUL = BAD | {Verdict.AT_RUN_TIME, Verdict.NOTHING}
"""Believed only of a process that has run nothing else before."""
ORDER: Mapping[Verdict | None, int] = {Verdict.HUNG: 0, Verdict.CRASHED: 2}
"""Of cases that need a fresh process: what takes longest comes first, what ends it for others last."""
STEPS = "operator cases"


def run_launches(
    run: Run, plan: Plan, suite: Suite, cases: Sequence[Case], workers: int, mps: bool, seconds: float,
    stored: Sequence[OperatorRecord], begun: Sequence[OperatorRecord], keep: Callable[[OperatorRecord], None],
) -> None:  # fmt: skip
    """Run the cases on each launch and ``keep`` each record, also what there is of one that is interrupted.

    Launches on the GPU go side by side, one a board of their model; those on the CPU one after another. What
    cannot be run is noted. ``workers``: cases that run at once on each; 0 for as many as there is room for.
    ``mps``: let them share a GPU where they can. ``seconds``: what a case may take. ``stored``: records, of
    any version: what one of the same product calls bad gets a fresh process at once. ``begun``: records in
    which cases are missing, which are gone on with.
    """
    launches, slots = plan.here, dict[str, queue.Queue[Gpu]]()
    for board in (*plan.boards, CPU):
        slots.setdefault(board.slug, queue.Queue()).put(board)
    at_once = max(1, min(len(plan.boards), sum(launch.gpu.present for launch in launches)))
    if run.images is not None:
        run.images.expect(launches)

    def work(launch: Launch) -> None:
        if run.stop.is_set():
            return
        slot = slots[launch.gpu.slug if launch.gpu.present else CPU.slug]
        board = slot.get()
        mine = launch.on(board) if launch.gpu.present else launch
        most = count_workers(mine.gpu, at_once)
        turns = workers or (min(TURNS, most) if mine.gpu.present else most)
        # The daemon ends with an engine's container; as a child of ours it might be left behind.
        shares = mps and mine.gpu.present and mine.image and run.images
        try:
            with ZipFile(suite.file) as archive:
                session = _Session(
                    run=run, ready=run.launcher_of(mine).make_ready(mine), suite=suite, seconds=seconds,
                    workers=turns, sharing=(workers or min(SHARING, most)) if shares else 0,
                    processes=count_processes(workers or most), archive=archive,
                    bad=find_bad(stored, mine.version.product, suite),
                )  # fmt: skip
                if (record := session.run_all(cases, begun)).rows and session.builders:
                    keep(record)
        except MachineryError as error:
            run.progress.note(f"{launch.version.name}: {error}")
            run.leave_out(launch, str(error).partition("\n")[0])
        finally:
            slot.put(board)
            if run.images is not None:
                run.images.ended(launch)

    with ending(run.hurry) as interrupted, ThreadPoolExecutor(len(plan.boards) + 1) as threads:
        try:
            finish([threads.submit(work, launch) for launch in launches])
        except BaseException as error:
            run.stop.set()
            if isinstance(error, KeyboardInterrupt):
                interrupted()
            raise


def find_bad(records: Sequence[OperatorRecord], product: Product, suite: Suite) -> dict[str, Verdict]:
    """Return the cases that a record of the product calls bad, with the word of one that does."""
    mine = (record for record in records if record.product is product and record.suite == suite.digest)
    return {name: row.verdict for record in mine for name, row in record.rows.items() if row.verdict in BAD}


@dataclass(kw_only=True, eq=False)
class _Session:
    """One launch's tasks: handed to the probe, and judged as they come back.

    ``waiting``: by index a case and, where it is confirmed alone in a fresh process, the doubtful verdict
    that it had. ``bad``: cases that get such a process at once, with what they may come to. ``unsent``:
    those that the probe does not have yet. ``builders``: seconds of each first Builder, by start and
    process. ``wrong``: the library, where it is another than is pinned. ``sharing``: how many cases run
    at once where processes share the GPU by MPS; 0: that is not tried; ``processes``: how many there are
    then, with those that warm up. ``at_once``: how many ran, ``mps``: whether they shared it, ``turns``:
    why not.
    """

    run: Run
    ready: Ready
    suite: Suite
    archive: ZipFile
    bad: Mapping[str, Verdict]
    workers: int
    sharing: int
    processes: int
    seconds: float
    at_once: int = 0
    mps: bool = False
    turns: str = ""
    waiting: dict[int, tuple[Case, Verdict | None]] = field(default_factory=dict)
    unsent: list[int] = field(default_factory=list)
    rows: dict[str, Row] = field(default_factory=dict)
    builders: dict[tuple[int, int], float] = field(default_factory=dict)
    observed: dict[str, Any] = field(default_factory=dict)
    starts: int = 0
    batches: int = 0
    tasks: int = 0
    answered: float = 0.0
    case_seconds: float = 0.0
    trouble: str = ""
    wrong: str = ""

    def run_all(self, cases: Sequence[Case], begun: Sequence[OperatorRecord]) -> OperatorRecord:
        """Run all cases; what cannot be had of the probe in some starts has no result.

        Single nodes come first, since most of what crashes has several: where a process dies, the one that
        takes its place confirms a wrong result before it serves others, so that is wanted by then. Of an
        interrupted run only what had ended comes back; a record of one of the same is gone on with.
        :class:`MachineryError` of another library than is pinned.
        """
        started, began, progress = utc_now(), time.monotonic(), self.run.progress
        earlier = next((it for it in begun if it.what_ran == self._record({}).what_ran), None)
        known = earlier.rows if earlier else {}
        self.rows |= {name: row for name, row in known.items() if row.verdict is not Verdict.NOTHING}
        cases = [case for case in cases if case.name not in self.rows]
        shared = f", or {self.sharing} that share the GPU by MPS" if self.sharing else ""
        note = f"{self.ready.launch.version.name}: {len(cases):,} cases in {self.workers} processes{shared}"
        progress.note(note + (f"; {len(self.rows):,} are known" if self.rows else ""))
        for case in sorted(cases, key=lambda case: not case.operator):
            self._add(case)
        with suppress(Stopped):
            while self.waiting and not self.wrong and self.starts < STARTS:
                self._start()
        if self.wrong:
            raise MachineryError(f"{self.wrong}: nothing is recorded")
        for index, (case, _) in [*self.waiting.items()] if not self.run.stop.is_set() else []:
            self._keep(index, row_of(case, Verdict.NOTHING, self.trouble))
        builders, at_once = sum(self.builders.values()), self.at_once or self.workers
        processes = self.processes if self.mps else count_processes(at_once)
        seconds = {
            "wall": time.monotonic() - began, "builders": builders, "cases": self.case_seconds,
            "bound": max(self.case_seconds / at_once, (builders + self.case_seconds) / processes),
        }  # fmt: skip
        was = earlier.facts["seconds"] if earlier else {}
        return self._record({
            "started": started.strftime("%Y-%m-%dT%H:%M:%SZ"), "observed": self.observed,
            "workers": self.at_once, "mps": self.mps, "processes": len(self.builders), "starts": self.starts,
            "seconds": {name: round(value + float(was.get(name, 0)), 2) for name, value in seconds.items()},
        })  # fmt: skip

    def _record(self, facts: Mapping[str, Any]) -> OperatorRecord:
        """Return what has ended, with what ran and further facts."""
        launch, gpu = self.ready.launch, self.ready.launch.gpu
        board = {
            "name": gpu.name, "compute": gpu.compute, "variant": gpu.variant, "driver": gpu.driver,
            "uuid_sha256": gpu.uuid_hash,
        }  # fmt: skip
        return OperatorRecord(
            version=launch.version.name, product=launch.version.product,
            gpu=gpu.slug if gpu.present else CPU.slug, onnx=self.suite.onnx, suite=self.suite.digest,
            rows=self.rows,
            facts={"gpu": board if gpu.present else {}, "digests": dict(self.ready.digests), **facts},
        )  # fmt: skip

    def _add(self, case: Case, first: Verdict | None = None) -> None:
        self.waiting[self.tasks] = case, first
        self.unsent.append(self.tasks)
        self.tasks += 1
        self.run.progress.more(STEPS, 1)

    def _start(self) -> None:
        """Start the probe over all tasks that wait, and take what it answers until it ends.

        :class:`MachineryError` where it has answered nothing: it would not the next time.
        """
        run, launch = self.run, self.ready.launch
        self.starts, self.batches, self.unsent = self.starts + 1, 0, [*self.waiting]
        folder = make_job_folder(run.cache, f"{run.id}-{launch.version.name}-operators-{self.starts}")
        try:
            write_json(folder / "job" / "job.json", {
                "product": launch.version.product.value, "output_bytes": OUTPUT,
                "operators": {
                    "suite": self.suite.file.name, "workers": self.workers, "sharing": self.sharing,
                    "processes": self.processes,
                },
            })  # fmt: skip
            self._send(folder)
            self.answered = time.monotonic()
            with closing(Intake(folder, OUTPUT)) as intake:
                ended = run.launcher_of(launch).run(self.ready, folder, lambda: self._poll(folder, intake))
            memory = "; the kernel ended it for memory" if ended.out_of_memory else ""
            last = one_line(" ".join(ended.log.splitlines()[-3:]))
            self.trouble = f"the probe ended with code {ended.code}{memory}: {last}"
        except MachineryError as error:  # what has been answered is no less true
            self.trouble = str(error)
        finally:
            remove_tree(folder)
        if self.waiting and not self.builders:
            raise MachineryError(self.trouble)

    def _send(self, folder: Path) -> None:
        """Hand out what is new; alone a case has twice as long."""
        tasks = []
        for index in self.unsent:
            case, first = self.waiting[index]
            bad = first or self.bad.get(case.name)
            tasks.append({
                "index": index, "model": case.model, "inputs": case.inputs, "outputs": list(case.outputs),
                "profile": case.profile, "alone": bad is not None, "order": ORDER.get(bad, 1),
                "seconds": self.seconds * (2 if bad else 1),
            })  # fmt: skip
        if tasks:
            write_json(folder / "job" / f"{self.batches}.cell.json", {"tasks": tasks})
            self.batches, self.unsent = self.batches + 1, []

    def _poll(self, folder: Path, intake: Intake) -> None:
        """Take what has come, judge it, hand out again what is doubtful; say so once nothing more comes."""
        intake.take()
        if self.run.stop.is_set():
            raise Stopped
        for file in (folder / "out").glob("*.record.json"):
            index = int(file.name.partition(".")[0])
            if index in self.waiting:
                self.answered = time.monotonic()
                self._take(index, file)
        self._send(folder)
        if self.wrong:
            raise MachineryError(self.wrong)
        silent = WARM_SECONDS + 2 * self.seconds + SILENT_SECONDS
        if not self.waiting:
            (folder / "job" / "end").touch()
        elif time.monotonic() - self.answered > silent:
            raise MachineryError(f"no case has ended for {silent:g} s")

    def _take(self, index: int, file: Path) -> None:
        """Judge a case by what the probe left; a doubtful one is to be confirmed."""
        (case, first), place = self.waiting[index], file.with_name(str(index))
        done, outputs = dict[str, Any](), {}
        try:
            done = read_json(file)
            for number, name in enumerate(case.outputs):
                if (place / f"{number}.npy").exists():
                    with opened(place / f"{number}.npy", ARRAY) as (stream, size):
                        outputs[name] = read_array(stream, size)
            row = judge(case, read_arrays(self.archive, case.outputs), done, outputs)
            self._note_mps(done)
        except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
            row = row_of(case, Verdict.NOTHING, f"what it left cannot be used: {error!r}")
        file.unlink()
        remove_tree(place)
        self.case_seconds += row.seconds
        if isinstance(process := done.get("process"), int):
            builder = done.get("builder_seconds")
            self.builders[self.starts, process] = float(builder) if isinstance(builder, (int, float)) else 0.0
        if isinstance(seen := done.get("observed"), dict) and not self.observed:
            self.observed = {key: value for key, value in seen.items() if value is not None}
            self.wrong = wrong_library(str(self.observed.get("library")), self.ready.launch.version) or ""
        # A process that was alone has had too little time where others kept the GPU busy.
        slow = row.verdict is Verdict.HUNG and case.name not in self.bad
        alone = done.get("before") == 0 and not slow
        if row.verdict in DOUBTFUL and not first and not alone:
            del self.waiting[index]
            self._add(case, row.verdict)
            self.run.progress.step(STEPS, f"{row.line}, to be confirmed")
        else:
            self._keep(index, row)

    def _note_mps(self, done: Mapping[str, Any]) -> None:
        """Note how many processes run, and why they take turns on the GPU where they were to share it."""
        self.at_once, self.mps = int(done["workers"]), done["mps"] is True
        if (turns := one_line(str(done["without_mps"]))) not in {"", self.turns}:
            self.turns = turns
            name = self.ready.launch.version.name
            self.run.progress.note(f"{name}: {self.at_once} processes take turns on the GPU: {turns}")

    def _keep(self, index: int, row: Row) -> None:
        """Keep a case's result; that of a fresh process stands, and one that came out otherwise is flaky."""
        _, first = self.waiting.pop(index)
        slow = first is Verdict.HUNG and row.seconds > self.seconds / 2
        same = slow or first is row.verdict or Verdict.NOTHING in {first, row.verdict}
        self.rows[row.name] = replace(row, before=None if same else first)
        self.run.progress.step(STEPS, row.line)
