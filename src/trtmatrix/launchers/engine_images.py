"""Images that a run needs and that are not here: pulled, or built by the project's own script; each once."""

from __future__ import annotations

import os
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import docker

from trtmatrix.common.commands import run_to_end
from trtmatrix.common.errors import MachineryError
from trtmatrix.common.offline import need_network
from trtmatrix.launchers.image_use import NoUse, check_pin, id_of
from trtmatrix.launchers.pulling import Puller, PullNote
from trtmatrix.suite.image_names import OWN, HeldImage, find_image, is_own
from trtmatrix.suite.matrix import ImageOrigin
from trtmatrix.suite.plan import Launch


class Images:
    """Makes the images of launches be here. Launches that want the same one wait for one pull or build."""

    def __init__(
        self, *, pull_note: PullNote, note: Callable[[str], None], builder: Sequence[str] = (),
        uses: NoUse | None = None, platform: str = "", command: str = "docker",
    ) -> None:  # fmt: skip
        """Keep whom to tell; ``builder``: the command that, given a version, builds its image.

        ``uses``: who drops images after their last cell; ``platform``: which is pulled,
        ``linux/amd64``; ``command``: what pulls by hand, ``docker`` or ``podman``.
        """
        self.note, self.builder, self.uses = note, tuple(builder), uses or NoUse()
        self.puller = Puller(pull_note=pull_note, note=note, platform=platform, command=command)
        self._turn = threading.Lock()
        self._turns: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def make_ready(self, launch: Launch, client: docker.DockerClient) -> str:
        """Return the ID of a launch's image, pulled or built now where the plan says so and it is not here.

        Raises :class:`MachineryError` where it cannot be had, and what the engine raises otherwise.
        """
        origin = launch.version.origin
        if not isinstance(origin, ImageOrigin):
            raise MachineryError(f"{launch.version.name} is no container's version")
        with self._turn_of(origin):
            held = self.uses.hold(origin, client)
            if held is None and origin.is_file:
                return self._load(origin, client)
            if held is None and launch.pull:
                return self._pull(origin, client)
            if held is None and launch.build:
                self._build(origin, launch.version.name, client)
            return held or id_of(origin.reference, client)

    def _turn_of(self, origin: ImageOrigin) -> threading.Lock:
        with self._turn:
            return self._turns[origin.image]

    def _load(self, origin: ImageOrigin, client: docker.DockerClient) -> str:
        """Load a file of the user's; an engine that gives it an ID of its own is believed."""
        self.note(f"loading {origin.image}")
        with Path(origin.image).open("rb") as stream:
            loaded = client.images.load(stream)
        return self.uses.hold(origin, client) or str(loaded[0].id)

    def _pull(self, origin: ImageOrigin, client: docker.DockerClient) -> str:
        """Pull an image, by its digest where it is locked: what comes must be what the lock has."""
        if is_own(origin.image):
            raise MachineryError(
                f"{origin.image} is not here, and no registry has it: {OWN}… is made here\n"
                "  make it on this host (docker/README.md), or give an image of a registry another name"
            )
        need_network(origin.reference)

        def pull() -> int:
            return self.puller.pull(origin.reference, client)

        image_id = self.uses.pull(origin, client, pull)
        check_pin(origin, image_id)
        return image_id

    def _build(self, origin: ImageOrigin, version: str, client: docker.DockerClient) -> None:
        """Build an image by the project's script; where it fails, tell what it said."""
        image = origin.image
        need_network(f"building {image}")
        self._have_base(origin, client)
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

    def _have_base(self, origin: ImageOrigin, client: docker.DockerClient) -> None:
        """Pull the base of a build, so that it is known to be pulled by us; the script makes our own ones."""
        if origin.build is None or is_own(origin.build.base):
            return
        base = self.uses.base_of(origin.build.base)
        with self._turn_of(base):
            if self.uses.hold(base, client) is None:
                self._pull(base, client)


def run_builder(command: Sequence[str]) -> tuple[int, str]:
    """Run a build to its end; returns its exit code and all that it said.

    It has a session of its own, so that all that it started ends with this process, however that ends its
    main thread: an interrupted run waits for no build.
    """
    environment = {key: value for key, value in os.environ.items() if key != "TRTMATRIX_EXIT_CODE_FILE"}
    return run_to_end([sys.executable, *command], environment)


def builder_command(script: Path | None, matrix: Path) -> tuple[str, ...]:
    """Return the words that, followed by a version, build its image; none without a script."""
    return () if script is None else (str(script), f"--matrix={matrix}")


def pull_by_name(name: str) -> HeldImage:
    """Pull an image, showing the progress, and return it; :class:`MachineryError` where that fails."""
    from trtmatrix.common.progress import open_progress
    from trtmatrix.launchers.engine import find_engine, open_client
    from trtmatrix.launchers.engine_errors import ENGINE_ERRORS

    need_network(name)
    progress = open_progress()
    try:
        Puller(pull_note=progress.pull, note=progress.note).pull(name, open_client(120))
    except ENGINE_ERRORS as error:
        raise MachineryError(f"{name} cannot be had: {str(error)[:200]}") from error
    finally:
        progress.close()
    held = find_image(find_engine(gpu_here=False).images, name)
    if held is None:
        raise MachineryError(f"{name} was pulled and cannot be found")
    return held
