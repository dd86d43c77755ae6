"""Who runs what: boards of one model share a queue of launches, and so do the lanes on the CPU."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from trtmatrix.launchers.launcher import Ready
from trtmatrix.plan.order import Seconds, equal_boards, split_launch
from trtmatrix.suite.gpus import Gpu
from trtmatrix.suite.plan import Launch

CPU_LANES = 2
"""Launches that run side by side on the CPU: building and measuring are mostly single-threaded."""

CPU_CELLS = 20
"""As many cells of one launch at least are worth a process of their own beside another."""


@dataclass(kw_only=True)
class Lane:
    """The launches of one model of GPU, or of the CPU, in order; one worker for each of ``boards``.

    ``expected``: launches that are not ready yet; ``split``: one of so many cells for each board may be run
    on several, none where it is 0.
    """

    boards: tuple[Gpu, ...]
    expected: list[Launch]
    split: int
    ready: list[Ready] = field(default_factory=list)
    busy: int = 0


class Lanes:
    """Gives each worker what it runs next. For many threads."""

    def __init__(
        self, launches: Sequence[Launch], boards: Iterable[Gpu], seconds: Seconds, *, split_cpu: bool = False
    ) -> None:
        """Sort the launches into lanes; their order stays. ``split_cpu``: one may be run in parts there."""
        self.seconds = seconds
        self._changed = threading.Condition()
        self._stopped = False
        self._error: BaseException | None = None
        on_cpu = [launch for launch in launches if not launch.gpu.present]
        self.lanes = _gpu_lanes([launch for launch in launches if launch.gpu.present], tuple(boards))
        if on_cpu:
            lanes = CPU_LANES if split_cpu else min(CPU_LANES, len(on_cpu))
            split = CPU_CELLS if split_cpu else 0
            self.lanes.append(Lane(boards=(on_cpu[0].gpu,) * lanes, expected=on_cpu, split=split))
        self._place = {id(launch): number for number, launch in enumerate(launches)}
        self._lane = {id(launch): lane for lane in self.lanes for launch in lane.expected}

    def put(self, launch: Launch, ready: Ready | None) -> None:
        """Say that a launch of the lanes is ready, or that it never will be (None)."""
        with self._changed:
            lane = self._lane[id(launch)]
            lane.expected = [other for other in lane.expected if other is not launch]
            if ready is not None:
                lane.ready.append(ready)
                lane.ready.sort(key=lambda item: self._place[id(item.launch)])
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        """Have every worker raise what nobody expected."""
        with self._changed:
            self._error = error
            self._changed.notify_all()

    def stop(self) -> None:
        """Give out nothing any more."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def work(self, lane: Lane, board: Gpu, run: Callable[[Ready], None]) -> None:
        """Run one launch after another on a board, until its lane has no more."""
        while (ready := self._take(lane)) is not None:
            try:
                run(replace(ready, launch=ready.launch.on(board)) if board.present else ready)
            finally:
                with self._changed:
                    lane.busy -= 1

    def _take(self, lane: Lane) -> Ready | None:
        """Return the next launch of a lane once one is ready; None where none will be."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or lane.ready or not lane.expected)
            if self._error is not None:
                raise self._error
            if self._stopped or not lane.ready:
                return None
            ready = lane.ready.pop(0)
            free = len(lane.boards) - lane.busy
            parts = min(free - len(lane.ready), len(ready.launch.cells) // lane.split) if lane.split else 1
            if parts > 1 and not (lane.expected and not ready.launch.gpu.present):
                ready = self._split(lane, ready, parts)
            lane.busy += 1
            return ready

    @property
    def _ended(self) -> bool:
        return self._stopped or self._error is not None

    def _split(self, lane: Lane, ready: Ready, parts: int) -> Ready:
        """Return the first part of a launch; the others are the next in its lane."""
        first, *others = split_launch(ready.launch, parts, self.seconds)
        for other in others:
            self._place[id(other)] = -1
        lane.ready[:0] = [replace(ready, launch=other) for other in others]
        self._changed.notify_all()
        return replace(ready, launch=first)


def _gpu_lanes(launches: Sequence[Launch], boards: tuple[Gpu, ...]) -> list[Lane]:
    slugs = dict.fromkeys(launch.gpu.slug for launch in launches)
    groups = [[launch for launch in launches if launch.gpu.slug == slug] for slug in slugs]
    return [Lane(boards=equal_boards(group[0].gpu, boards), expected=group, split=1) for group in groups]
