"""The tasks that one launch has left: first every cell, then alone those whose verdict is doubted."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence

from trtmatrix.run.task import Task


class TaskQueue:
    """Hands out tasks that can be run now, and takes back how they ended. For many threads.

    ``can_run``: whether a task's case is prepared. ``confirm``: makes new tasks of those in doubt, once no
    other is left. ``closed``: whether nothing will be added.
    """

    def __init__(
        self, tasks: Iterable[Task] = (), *, can_run: Callable[[Task], bool] = lambda _: True,
        confirm: Callable[[Sequence[tuple[Task, int]]], list[Task]] = lambda _: [], closed: bool = True,
    ) -> None:  # fmt: skip
        """Begin with these tasks."""
        self._waiting, self._can_run, self._confirm, self._closed = list(tasks), can_run, confirm, closed
        self._running: list[Task] = []
        self._doubted: list[tuple[Task, int]] = []
        self._changed = threading.Condition()

    @property
    def is_done(self) -> bool:
        """Whether nothing waits, nothing runs that might be doubted, and nothing will come."""
        with self._changed:
            return self._closed and not (self._waiting or self._running or self._doubted)

    @property
    def has_some(self) -> bool:
        """Whether a task can be run now."""
        with self._changed:
            return bool(self._doubted and not self._waiting) or any(map(self._can_run, self._waiting))

    def take(self, most: int | None = None) -> list[Task]:
        """Return the tasks that can be run now; those in doubt come after all others."""
        with self._changed:
            if self._doubted and not self._waiting and not self._running:
                self._waiting, self._doubted = self._confirm(self._doubted), []
            taken = [task for task in self._waiting if self._can_run(task)][:most]
            self._waiting = _without(self._waiting, taken)
            self._running += taken
            return taken

    def ended(self, task: Task, engines: int = 0) -> None:
        """Take back a task; ``engines``: how many must be built alone before its verdict is believed."""
        with self._changed:
            self._running.remove(task)
            if engines:
                self._doubted.append((task, engines))

    def give_back(self, tasks: Sequence[Task]) -> None:
        """Take back tasks that were not run: they come first."""
        with self._changed:
            self._running = _without(self._running, tasks)
            self._waiting = [*tasks, *self._waiting]

    def drop(self) -> list[Task]:
        """Return all that is left, running or waiting, and hand out nothing of it any more."""
        with self._changed:
            left = [*self._running, *self._waiting]
            self._waiting, self._running, self._doubted = [], [], []
            return left

    def add(self, task: Task) -> None:
        """Take one more task."""
        with self._changed:
            self._waiting.append(task)
            self._changed.notify_all()

    def close(self) -> None:
        """Forget what waits; nothing will be added."""
        with self._changed:
            self._closed, self._waiting = True, []
            self._changed.notify_all()

    def wait(self) -> bool:
        """Wait until there is a task; False where none will come."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            return bool(self._waiting)


def _without(tasks: Sequence[Task], others: Iterable[Task]) -> list[Task]:
    gone = set(others)
    return [task for task in tasks if task not in gone]
