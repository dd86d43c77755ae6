"""Loads a pack's images through the socket of the host's engine. A part of the pack's own script."""

import contextlib
import json
import os
import platform
import shutil
import socket
import urllib.parse
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trtmatrix.unpacker.pack_check import FAILED, USAGE, Refused, read_stream, stream_size

if TYPE_CHECKING:
    from trtmatrix.unpacker.pack_check import Json

SOCKETS = ("/var/run/docker.sock", "{XDG_RUNTIME_DIR}/podman/podman.sock", "/run/podman/podman.sock")
LOAD_SECONDS = 3600.0
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
"""What systems call a machine, and what registries do."""


class Engine:
    """The container engine of this host, spoken to by its socket alone."""

    def __init__(self, path: str) -> None:
        """Keep the socket's path."""
        self.path = path

    def ask(self, method: str, path: str, body: "Iterator[bytes] | None" = None, size: int = 0) -> Any:  # noqa: ANN401
        """Return its answer, None where it has no such thing; :class:`Refused` where it fails."""
        connection = HTTPConnection("localhost", timeout=LOAD_SECONDS if body else 60.0)
        connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.sock.settimeout(connection.timeout)
            connection.sock.connect(self.path)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it says why in its answer
                connection.request(method, path, body=body, headers={"Content-Length": str(size)})
            response = connection.getresponse()
            text = response.read().decode("utf-8", "replace")
        except (OSError, HTTPException) as error:
            raise Refused(
                f"the container engine at {self.path} does not answer ({error!r}): start it, as a user "
                "who may use its socket; or --no-images", FAILED
            ) from error  # fmt: skip
        finally:
            connection.close()
        if response.status == 404 and method == "GET":
            return None
        if response.status >= 400 or (method == "POST" and '"error"' in text[-2000:]):
            raise Refused(f"the container engine refuses: {response.status} {text.strip()[-500:]}", FAILED)
        return json.loads(text) if method == "GET" else None

    def id_of(self, image: str) -> str:
        """Return the ID of an image by its ID or name, nothing where it is not here."""
        found = self.ask("GET", f"/images/{urllib.parse.quote(image, safe='/:')}/json")
        return str(found["Id"]) if found else ""


def find_engine() -> "Engine | None":
    """Return the engine that DOCKER_HOST names, else Docker's or Podman's; None where there is no socket."""
    named = os.environ.get("DOCKER_HOST", "")
    if named:
        if not named.startswith("unix://"):
            raise Refused(
                f"DOCKER_HOST={named} is reached over a network, and this opens no connection: unset it, "
                "set it to unix://SOCKET, or --no-images", USAGE
            )  # fmt: skip
        return Engine(named[len("unix://") :])
    places = [place.format(XDG_RUNTIME_DIR=os.environ.get("XDG_RUNTIME_DIR", "/run")) for place in SOCKETS]
    there = [place for place in places if os.path.exists(place)]  # noqa: PTH110 - it never raises
    return next((Engine(place) for place in [*filter(may_use, there), *there]), None)


def may_use(path: str) -> bool:
    """Whether this user has the rights on a socket; one that is not there is told of by who asks it."""
    return not os.path.exists(path) or os.access(path, os.R_OK | os.W_OK)  # noqa: PTH110


def check_platform(engine: Engine, manifest: "Json") -> None:
    """Refuse images of another platform than the engine's: they would be loaded, and could not run."""
    info = engine.ask("GET", "/info")
    machine = str(info.get("Architecture") or "")
    found = f"{info.get('OSType') or 'linux'}/{MACHINES.get(machine, machine)}"
    if machine and not _same_platform(found, manifest["platform"]):
        raise Refused(
            f"the images of this pack are for {manifest['platform']}, and the engine at {engine.path} runs "
            f"{found}: pack on a host of that platform, or --no-images", USAGE
        )  # fmt: skip


def check_machine(manifest: "Json") -> None:
    """Refuse wheels of another platform than this host's."""
    found = f"{platform.system().lower()}/{MACHINES.get(platform.machine(), platform.machine().lower())}"
    if not _same_platform(found, manifest["platform"]):
        raise Refused(
            f"the wheels of this pack are for {manifest['platform']}, and this Python is of {found}: pack on "
            "a host of that platform, or --no-venv", USAGE
        )  # fmt: skip


def _same_platform(one: str, other: str) -> bool:
    return one.split("/")[:2] == other.split("/")[:2]


def check_store(engine: Engine, missing: "list[Json]") -> None:
    """Refuse images whose IDs would be others here: only one kind of image store calls them by these.

    Docker's own store calls an image by its configuration, containerd's by its manifest or index, which
    ``docker save`` writes anew. Source: https://docs.docker.com/engine/storage/containerd/.
    """
    status = engine.ask("GET", "/info").get("DriverStatus") or ()
    containerd = any("io.containerd.snapshotter" in str(line) for line in status)
    others = [image for image in missing if (image["id"] == image["manifest"]) != containerd]
    if others and containerd:
        raise Refused(
            f"the engine at {engine.path} has containerd's image store, which gives {_told(others)} "
            "other IDs than they were packed by, so that no run would find them; nothing was loaded: switch "
            'that store off ("features": {"containerd-snapshotter": false} in daemon.json), or '
            "--no-images", FAILED
        )  # fmt: skip
    if others:
        raise Refused(
            f"{_told(others)} were packed by containerd's image store, and the engine at {engine.path} gives "
            "them other IDs; nothing was loaded: pack by an engine without that store, or --no-images", FAILED
        )  # fmt: skip


def _told(images: "list[Json]") -> str:
    return "the images of " + ", ".join(version for image in images for version in image["versions"])


def missing_images(engine: Engine, manifest: "Json") -> "list[Json]":
    """Return the images that are not here; :class:`Refused` where a name is another image's here."""
    for image in manifest["images"]:
        for name in image["names"]:
            held = engine.id_of(name)
            if held and held not in _ids(image):
                raise Refused(
                    f"{name} is another image here ({held[:19]}), and loading would take its name: remove or "
                    f"rename it first: docker tag {name} OTHER && docker rmi {name}", USAGE
                )  # fmt: skip
    return [image for image in manifest["images"] if not _held(engine, image)]


def _ids(image: "Json") -> "set[str]":
    """Return what engines may call an image: by its own ID, or by the digest of its manifest."""
    return {image["id"], image["manifest"]} - {""}


def _held(engine: Engine, image: "Json") -> str:
    """Return the ID that an engine has an image under, or nothing."""
    return next((one for one in sorted(_ids(image)) if engine.id_of(one) == one), "")


def check_room(engine: Engine, manifest: "Json", missing: "list[Json]") -> None:
    """Refuse where the engine's disk has no room: while it loads it holds every image twice."""
    root = Path(str(engine.ask("GET", "/info").get("DockerRootDir") or ""))
    need = 2 * stream_size(manifest, "images")
    if missing and root.is_dir() and (free := shutil.disk_usage(str(root)).free) < need:
        raise Refused(
            f"{root}: loading needs {need / 1e9:.1f} GB for a while, and {free / 1e9:.1f} GB are free: make "
            "room (docker image prune), or move the engine's data-root", FAILED
        )  # fmt: skip


def load_images(engine: Engine, folder: Path, manifest: "Json", missing: "list[Json]") -> None:
    """Load the images, compare their IDs with the manifest's, and give them their names."""
    if missing:
        size = stream_size(manifest, "images")
        print(f"loading {len(missing)} images ({size / 1e9:.2f} GB)", flush=True)
        engine.ask("POST", "/images/load?quiet=1", read_stream(folder, manifest, "images"), size)
    for image in manifest["images"]:
        held = _held(engine, image)
        if not held:
            raise Refused(
                f"the engine loaded the images, but none has the ID {image['id']} of "
                f"{', '.join(image['versions'])}: an engine with containerd's image store gives other IDs: "
                'switch that store off ("features": {"containerd-snapshotter": false} in daemon.json)', FAILED
            )  # fmt: skip
        for name in image["names"]:
            if not engine.id_of(name):
                folder_name, _, last = name.rpartition("/")
                last, _, tag = last.partition(":")
                repository = f"{folder_name}/{last}".lstrip("/")
                words = urllib.parse.urlencode({"repo": repository, "tag": tag or "latest"})
                engine.ask("POST", f"/images/{held}/tag?{words}")
        print(f"  {held[:19]}  {', '.join(image['names'] or image['versions'])}", flush=True)
