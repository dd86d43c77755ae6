"""Images that a run needs and that are not here: pulled, or built by the project's own script; each once."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import docker
import docker.errors

from trtmatrix.core.config import ImageOrigin
from trtmatrix.core.errors import MachineryError
from trtmatrix.core.plan import Launch
from trtmatrix.effects.offline import need_network

PullNote = Callable[[str, str, int, int], None]
"""Told of each layer: image, layer, bytes so far, bytes in all (0 where not known)."""

PATIENCE_SECONDS = 5.0
"""How long a build may take to clean up when the run ends before it."""


class Images:
    """Makes the images of launches be here. Launches that want the same one wait for one pull or build."""

    def __init__(
        self, *, pull_note: PullNote, note: Callable[[str], None], builder: Sequence[str] = ()
    ) -> None:
        """Keep whom to tell; ``builder``: the command that, given a version, builds its image."""
        self.pull_note, self.note, self.builder = pull_note, note, tuple(builder)
        self._turn = threading.Lock()
        self._turns: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def make_ready(self, launch: Launch, client: docker.DockerClient) -> str:
        """Return the ID of a launch's image, pulled or built now where the plan says so and it is not here.

        Raises :class:`MachineryError` where it cannot be built, and what the engine raises otherwise.
        """
        origin = launch.version.origin
        if not isinstance(origin, ImageOrigin):
            raise MachineryError(f"{launch.version.name} is no container's version")
        with self._turn:
            turn = self._turns[origin.image]
        with turn:
            held = find_held(origin, client)
            if held is None and launch.build:
                self._build(origin.image, launch.version.name)
            elif held is None and launch.pull:
                self._pull(origin.reference, client)
            return held or str(client.images.get(origin.reference).id)

    def _pull(self, image: str, client: docker.DockerClient) -> None:
        """Pull an image, telling of each layer."""
        need_network(image)
        for event in client.api.pull(image, stream=True, decode=True):
            if "error" in event:
                raise docker.errors.APIError(str(event["error"]))
            progress = event.get("progressDetail") or {}
            layer = f"{event.get('id', '')} {event.get('status', '')}".strip()
            self.pull_note(image, layer, int(progress.get("current", 0)), int(progress.get("total", 0)))

    def _build(self, image: str, version: str) -> None:
        """Build an image by the project's script, which pulls the base; where it fails, tell what it said."""
        need_network(f"building {image}")
        self.note(f"building {image} (some minutes)")
        code, said = run_builder([*self.builder, version])
        if code:
            lines = said.strip().splitlines() or ["it said nothing"]
            own = [line for line in lines if line.startswith("docker/wheels/build: ")]
            reason = (own or lines)[-1].removeprefix("docker/wheels/build: ")
            tail = "\n".join(f"  {line}" for line in lines[-20:])
            raise MachineryError(
                f"{image} cannot be built: {reason}\n{tail}\n  try it by hand: nox -s image -- {version}"
            )
        self.note(f"{image} is built")


def find_held(origin: ImageOrigin, client: docker.DockerClient) -> str | None:
    """Return the ID under which the engine has an origin's image just now, or None."""
    names = origin.pin.ids if origin.pin is not None else (origin.mirror or origin.image, origin.image)
    for name in names:
        with contextlib.suppress(docker.errors.ImageNotFound):
            return str(client.images.get(name).id)
    return None


def run_builder(command: Sequence[str]) -> tuple[int, str]:
    """Run a build to its end; returns its exit code and all that it said.

    It has a session of its own, so that all that it started ends with this process, however that ends its
    main thread: an interrupted run waits for no build.
    """
    environment = {key: value for key, value in os.environ.items() if key != "TRTMATRIX_EXIT_CODE_FILE"}
    with tempfile.TemporaryFile() as said:
        child = subprocess.Popen(
            [sys.executable, *command], stdin=subprocess.DEVNULL, stdout=said, stderr=said,
            env=environment, start_new_session=True,
        )  # fmt: skip
        end = _Ending(child)
        atexit.register(end)
        try:
            code = child.wait()
        finally:
            atexit.unregister(end)
        said.seek(0)
        return code, said.read().decode("utf-8", "replace")


class _Ending:
    """Ends a build that is still running; its first signal lets it clean up."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        self.child = child

    def __call__(self) -> None:
        for number in (signal.SIGINT, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(self.child.pid, number)
                self.child.wait(timeout=PATIENCE_SECONDS)
                return


def builder_command(script: Path | None, matrix: Path) -> tuple[str, ...]:
    """Return the words that, followed by a version, build its image; none without a script."""
    return () if script is None else (str(script), f"--matrix={matrix}")
