"""Makes launches ready in the background, in the order in which they will be needed, while others run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

from trtmatrix.common.errors import MachineryError
from trtmatrix.launchers.launcher import Launcher, Ready, WrongVersion
from trtmatrix.suite.matrix import ImageOrigin
from trtmatrix.suite.plan import Launch

INSTALLATIONS = 2
"""Environments that are made side by side."""

Tell = Callable[[Launch, Ready | BaseException], None]
"""Told of each launch that is ready, or of why it cannot be."""


class Readying:
    """Threads that an interrupted run leaves behind: what a pull waits for cannot be called off.

    The engine ends a pull when this process has ended.
    """

    def __init__(self, launcher_of: Callable[[Launch], Launcher], tell: Tell, stop: threading.Event) -> None:
        """Keep who makes ready, and who is told."""
        self._launcher_of, self._tell, self._stop = launcher_of, tell, stop
        self._lock = threading.Lock()
        self._had: dict[str, MachineryError | None] = {}

    def start(self, launches: Sequence[Launch], is_here: Callable[[Launch], bool]) -> None:
        """Begin: what is here at once, pulls and builds one after another, installations a few at a time."""
        here = [launch for launch in launches if is_here(launch)]
        pulls = [launch for launch in launches if launch.pull and launch not in here]
        builds = [launch for launch in launches if launch.build and launch not in here]
        others = [launch for launch in launches if launch not in [*here, *pulls, *builds]]
        for queue, threads in ((here, 1), (pulls, 1), (builds, 1), (others, INSTALLATIONS)):
            for _ in range(min(threads, len(queue))):
                threading.Thread(target=self._work, args=(queue,), daemon=True).start()

    def _work(self, queue: list[Launch]) -> None:
        while not self._stop.is_set():
            with self._lock:
                if not queue:
                    return
                launch = queue.pop(0)
            try:
                self._tell_of(launch)
            except BaseException as error:  # noqa: BLE001 - handed to the threads that wait
                self._tell(launch, RuntimeError(f"{launch.version.name}: {error!r}"))

    def _tell_of(self, launch: Launch) -> None:
        try:
            ready = self._make(launch)
        except BaseException as error:  # noqa: BLE001 - handed to the threads that wait
            self._tell(launch, error)
        else:
            self._tell(launch, ready)

    def _make(self, launch: Launch) -> Ready:
        """Make a launch ready; an image that several launches want is had once, and fails once."""
        origin, launcher = launch.version.origin, self._launcher_of(launch)
        if not launch.lacks_image or not isinstance(origin, ImageOrigin):
            return launcher.make_ready(launch)
        if origin.image not in self._had:
            try:
                ready = launcher.make_ready(launch)
            except WrongVersion:  # of this version: another may be pinned for what is in it
                self._had[origin.image] = None
                raise
            except MachineryError as error:
                self._had[origin.image] = error
                raise
            self._had[origin.image] = None
            return ready
        if (failed := self._had[origin.image]) is not None:
            raise failed
        return replace(launcher.make_ready(replace(launch, pull=False, build=False)), launch=launch)
