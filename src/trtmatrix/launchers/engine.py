"""What container engine is here: asked over its socket, without Docker's SDK where that is plain HTTP."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import socket
from collections.abc import Iterable, Iterator
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trtmatrix.common.offline import trouble_of
from trtmatrix.launchers.lock import MACHINES
from trtmatrix.suite.image_names import ENGINE, short_name
from trtmatrix.suite.plan import Engine, GpuAccess

if TYPE_CHECKING:
    import docker

DRIVER_FOLDER = "/usr/local/nvidia"
CDI_KIND = "nvidia.com/gpu"
CDI_FOLDERS = ("/etc/cdi", "/var/run/cdi")
DOCKER, PODMAN = "Docker", "Podman"
PODMAN_CDI = (5, 4)
PODMAN_LIMITS = {"nofile": 1 << 16, "nproc": 1 << 15}
"""Open files and processes of a user: more than cells need, and no more than the caller's own limits."""

DOCKER_SOCKET = "/var/run/docker.sock"
PODMAN_SOCKET = "/run/podman/podman.sock"
"""Where ``podman system service`` serves Docker's API for root; a user's is in the user's own folder.

Source: https://docs.podman.io/en/latest/markdown/podman-system-service.1.html.
"""
CONTAINERD, CONTAINERD_SETTINGS = Path("/var/lib/containerd"), Path("/etc/containerd/config.toml")
"""Its folder, where its settings name no other (https://github.com/containerd/containerd/blob/main/docs/ops.md)."""
INSTALL = "install and start Docker: https://docs.docker.com/engine/install/"
ACCESS, DRIVER = "TRTMATRIX_GPU_ACCESS", "TRTMATRIX_DRIVER_FOLDER"
"""How containers are given a GPU and where the driver's libraries are, in place of what is found here."""
SECONDS, LISTS = 20, 3
API = "Api-Version"
"""The header in which an engine says the highest version of Docker's API that it speaks, in every answer."""


def find_address() -> str:
    """Return the engine's address: DOCKER_HOST, else Docker's socket, else Podman's where that is there.

    The user's own Podman comes before root's, as in ``podman`` itself. Where one of both is meant
    (:data:`ENGINE`) the other's sockets are not looked at.
    """
    if named := os.environ.get("DOCKER_HOST"):
        return named
    own = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    podman = (f"{own}/podman/podman.sock", PODMAN_SOCKET)
    sockets = {"docker": (DOCKER_SOCKET,), "podman": podman}.get(_wanted(), (DOCKER_SOCKET, *podman))
    return "unix://" + next((path for path in sockets if os.path.exists(path)), sockets[0])  # noqa: PTH110


def _wanted() -> str:
    return os.environ.get(ENGINE, "")


def open_client(timeout: int) -> docker.DockerClient:
    """Connect to the engine at :func:`find_address`: the one way to do so; ``timeout`` is in seconds.

    TLS and what else Docker's environment says of the address is obeyed. What Docker's SDK raises where no
    engine answers is passed on.
    """
    import docker

    address = find_address()
    environment = {**os.environ, "DOCKER_HOST": address}
    client: docker.DockerClient = docker.from_env(
        version=_api_version(address), timeout=timeout, environment=environment
    )
    return client


def _api_version(address: str) -> str | None:
    """Return the version of the API that an engine speaks; None where Docker's SDK must find that out.

    It asks for ``/version``, which takes Podman half a second each time; a ping takes a millisecond.
    """
    if not address.startswith("unix:///"):
        return None
    connection = _Connection(address.removeprefix("unix://"))
    try:
        connection.request("GET", "/_ping")
        return connection.getresponse().headers.get("Api-Version")
    except (OSError, HTTPException):
        return None
    finally:
        connection.close()


def find_engine(*, gpu_here: bool, offline: bool = False) -> Engine:
    """Ask the engine that is here (:func:`find_address`). None is no error: it is said why.

    ``offline``: one that is reached over a network is not asked.
    """
    address = find_address()
    if address.startswith(("/", ".", "~")):
        reason = f"DOCKER_HOST is {address}, a path: an engine's address begins with its scheme"
        return Engine(
            available=False, reason=reason, remedy=f"export DOCKER_HOST=unix://{address}, or unset it"
        )
    if offline and (trouble := trouble_of(address)):
        return Engine(
            available=False, reason=trouble, remedy="unset DOCKER_HOST, or name a socket of this host"
        )
    try:
        on_disk = address.startswith("unix:///")
        info, images = _ask(address.removeprefix("unix://")) if on_disk else _ask_by_sdk()
    except (OSError, HTTPException, ValueError, EngineError) as error:
        reason, remedy = _explain(error, address)
        return Engine(available=False, reason=reason, remedy=remedy)
    name, asked = PODMAN if _is_podman(info) else DOCKER, _wanted()
    if asked in {"docker", "podman"} and asked != name.lower():
        reason = f"{asked} was asked for, and what answers at {address} is {name}"
        return Engine(available=False, reason=reason, remedy="unset DOCKER_HOST, or leave --engine out")
    try:
        access, folder = _settings(_gpu_access(info))
    except EngineError as error:
        return Engine(
            available=False, reason=str(error), remedy="correct it, or unset it: nothing is guessed"
        )
    return Engine(
        available=True, name=name,
        version=str(info.get("ServerVersion", "?")), images=dict(_references(images)),
        ids=frozenset(str(image["Id"]) for image in images), sizes=_sizes(images),
        snapshots=_has_snapshots(info), platform=_platform(info),
        memory=int(info.get("MemTotal") or 0), insecure=tuple(_insecure(info)),
        gpu_access=access if gpu_here else None,
        rootless=_is_rootless(info), unlimited=tuple(_unlimited(info)), ulimits=_ulimits(info),
        root=_root(info),
        driver_folder=folder,
        api=str(info.get(API, "")), proxied=_is_proxied(info),
    )  # fmt: skip


class EngineError(Exception):
    """The engine answers with an error."""


Answers = tuple[dict[str, Any], list[dict[str, Any]]]
"""What ``/info`` and ``/images/json`` say. Source: https://docs.docker.com/reference/api/engine/."""


class _Connection(HTTPConnection):
    """HTTP over a socket of this host."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=SECONDS)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _ask(path: str) -> Answers:
    """Ask an engine by its socket; a path without a version means the engine's own latest one."""
    connection = _Connection(path)
    try:
        return _get(connection, "/info"), _list_images(connection)
    finally:
        connection.close()


def _list_images(connection: HTTPConnection) -> Any:  # noqa: ANN401 - what the engine answers
    """List the images; Podman fails as a whole where one goes meanwhile, and is asked again."""
    for _ in range(LISTS - 1):
        try:
            return _get(connection, "/images/json")
        except EngineError as error:
            if "image not known" not in str(error):
                raise
    return _get(connection, "/images/json")


def _get(connection: HTTPConnection, path: str) -> Any:  # noqa: ANN401 - what the engine answers
    connection.request("GET", path)
    response = connection.getresponse()
    text = response.read().decode("utf-8", "replace")
    if response.status != 200:
        raise EngineError(f"{response.status} {response.reason}: {text}")
    found = json.loads(text)
    if isinstance(found, dict):
        found[API] = response.getheader(API, "")
    return found


def _ask_by_sdk() -> Answers:
    """Ask an engine that is reached by TLS, SSH or TCP: Docker's SDK knows how."""
    import docker.errors
    import requests.exceptions

    try:
        client = open_client(SECONDS)
        return {**client.info(), API: client.version().get("ApiVersion", "")}, client.api.images()
    except (docker.errors.DockerException, requests.exceptions.RequestException) as error:
        raise EngineError(str(error)) from error


def _explain(error: Exception, address: str) -> tuple[str, str]:
    """Return why no engine answers, and what mends that."""
    text, named = str(error), os.environ.get("DOCKER_HOST")
    unset = f"DOCKER_HOST is {address}: name another address, or unset it"
    if "PermissionError" in text or "Permission denied" in text:
        reason = "the Docker socket may not be used by this user: add it to the group docker"
        return reason, "sudo usermod -aG docker $USER, then log in again"
    if "FileNotFoundError" in text or "No such file" in text:
        reason = "no Docker socket: install Docker and start it, or set DOCKER_HOST"
        if not named and _wanted() == "podman":
            return f"no socket of Podman at {address}", "systemctl --user start podman.socket"
        return (f"no socket at {address}", unset) if named else (reason, INSTALL)
    if "ConnectionRefused" in text or "Connection refused" in text:
        reason = "nothing answers at Docker's address: start dockerd, or set DOCKER_HOST"
        return reason, f"start the engine there; {unset}" if named else "sudo systemctl start docker"
    return f"Docker does not answer: {text[:200]}", unset if named else "docker info says more"


def _references(images: Iterable[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield every tag and digest of the local images with its ID; Podman's full names as Docker has them."""
    for image in images:
        for reference in [*(image.get("RepoTags") or []), *(image.get("RepoDigests") or [])]:
            yield reference, image["Id"]
            yield short_name(reference), image["Id"]


def _sizes(images: Iterable[dict[str, Any]]) -> dict[str, int]:
    """Return the bytes that each image takes on disk, by its ID."""
    return {str(image["Id"]): int(image.get("Size") or 0) for image in images}


def _has_snapshots(info: dict[str, Any]) -> bool:
    """Whether containerd keeps the images. Source: https://docs.docker.com/engine/storage/containerd/."""
    return any("io.containerd.snapshotter" in str(pair) for pair in info.get("DriverStatus") or ())


def _root(info: dict[str, Any], containerd: Path = CONTAINERD) -> str:
    """Return where the images are, or nothing where that is not known.

    containerd has a folder of its own; one that dockerd itself started has it below Docker's
    (https://github.com/moby/moby/tree/master/daemon/internal/libcontainerd/supervisor).
    """
    root = str(info.get("DockerRootDir", ""))
    if not _has_snapshots(info):
        return root
    own = Path(root, "containerd", "daemon")
    address = str((info.get("Containerd") or {}).get("Address", ""))
    if address.endswith("/docker/containerd/containerd.sock") or (not address and own.is_dir()):
        return str(own)
    return str(containerd) if containerd.is_dir() and not is_set_elsewhere() else ""


def is_set_elsewhere(settings: Path = CONTAINERD_SETTINGS) -> bool:
    """Whether containerd's settings name another folder than its default one, or cannot be read."""
    try:
        found = re.search(
            r"^\s*root\s*=\s*[\"']([^\"']*)", settings.read_text(encoding="utf-8"), re.MULTILINE
        )
    except FileNotFoundError:
        return False
    except (OSError, ValueError):
        return True
    return found is not None and found[1] != str(CONTAINERD)


def _platform(info: dict[str, Any]) -> str:
    """Return what an engine runs, as registries name it: ``linux/amd64``."""
    machine = str(info.get("Architecture") or "x86_64")
    return f"{info.get('OSType') or 'linux'}/{MACHINES.get(machine, machine)}"


def _is_proxied(info: dict[str, Any]) -> bool:
    """Whether an engine reaches registries by a proxy or a mirror of its own settings."""
    mirrors = (info.get("RegistryConfig") or {}).get("Mirrors")
    return bool(info.get("HttpProxy") or info.get("HttpsProxy") or mirrors)


def _insecure(info: dict[str, Any]) -> Iterator[str]:
    """Yield the registries, by host or network, that an engine speaks plain HTTP with."""
    registries = info.get("RegistryConfig") or {}
    yield from registries.get("InsecureRegistryCIDRs") or ()
    for name, entry in (registries.get("IndexConfigs") or {}).items():
        if not entry.get("Secure", True):
            yield name


def _is_podman(info: dict[str, Any]) -> bool:
    """Whether it is Podman that answers: Docker's description has no word on Buildah."""
    return "BuildahVersion" in info


def name_engine(info: dict[str, Any]) -> str:
    """Return what tells an engine from others: its ID; of Podman, whose ID does not last, its storage."""
    return str(info.get("DockerRootDir" if _is_podman(info) else "ID") or "")


def _is_rootless(info: dict[str, Any]) -> bool:
    return bool(info.get("Rootless")) or "name=rootless" in (info.get("SecurityOptions") or [])


def _unlimited(info: dict[str, Any]) -> Iterator[str]:
    """Yield what an engine says it cannot limit: one without root, where its user may not."""
    for key, words in (("MemoryLimit", "memory"), ("PidsLimit", "processes")):
        if info.get(key) is False:
            yield words


def _ulimits(info: dict[str, Any]) -> dict[str, int]:
    """Return the limits that Podman must be told where it is told any.

    It raises what is left out to its own maximum, which cannot be set where CAP_SYS_RESOURCE is missing,
    inside of a container say. https://docs.podman.io/en/latest/markdown/podman-run.1.html#ulimit-option
    """
    if not _is_podman(info):
        return {}
    here = {"nofile": resource.RLIMIT_NOFILE, "nproc": resource.RLIMIT_NPROC}
    hard = {name: resource.getrlimit(number)[1] for name, number in here.items()}
    return {name: most if hard[name] < 0 else min(most, hard[name]) for name, most in PODMAN_LIMITS.items()}


def _gpu_access(info: dict[str, Any]) -> GpuAccess | None:
    """Choose how containers get the GPU: the toolkit, CDI, or plain device nodes.

    Podman takes no GPU by ``--gpus`` over its socket, and CDI's names from 5.4 on
    (https://github.com/containers/podman/pull/25171); it does not say where the specifications are.
    """
    if _is_podman(info):
        speaks = _release(info) >= PODMAN_CDI
        if speaks and _has_cdi_gpus({"CDISpecDirs": CDI_FOLDERS, **info}):
            return GpuAccess.CDI
        return _nodes()
    if "nvidia" in (info.get("Runtimes") or {}) or shutil.which("nvidia-container-runtime-hook"):
        return GpuAccess.TOOLKIT
    if _has_cdi_gpus(info):
        return GpuAccess.CDI
    return _nodes()


def _settings(found: GpuAccess | None) -> tuple[GpuAccess | None, str | None]:
    """Return how containers get the GPU, and the driver's folder: as set, else as ``found`` here.

    :class:`EngineError` where a setting cannot be obeyed.
    """
    known = {access.name.lower(): access for access in GpuAccess if access is not GpuAccess.RUNTIME}
    named, folder = os.environ.get(ACCESS, ""), os.environ.get(DRIVER, "")
    if named and named not in known:
        raise EngineError(f"{ACCESS} is {named}: known are {', '.join(known)}")
    if folder and not (Path(folder).is_absolute() and Path(folder).is_dir()):
        raise EngineError(f"{DRIVER} is {folder}, which is no folder by an absolute path")
    own = DRIVER_FOLDER if Path(DRIVER_FOLDER).is_dir() else None
    return known[named] if named else found, folder or own


def _nodes() -> GpuAccess | None:
    nodes = Path("/dev/nvidiactl").exists() and Path(DRIVER_FOLDER).is_dir()
    return GpuAccess.NODES if nodes else None


def _release(info: dict[str, Any]) -> tuple[int, ...]:
    """Return the first two numbers of an engine's version."""
    return tuple(int(part) for part in re.findall(r"\d+", str(info.get("ServerVersion", "")))[:2])


def _has_cdi_gpus(info: dict[str, Any]) -> bool:
    """Whether the engine knows GPUs by CDI.

    Docker 28.3 and later list the devices; 25 to 28.2 only name the folders of the specifications,
    which are read here (https://github.com/cncf-tags/container-device-interface).
    """
    devices = [str(item.get("ID", "")) for item in info.get("DiscoveredDevices") or []]
    if any(device.startswith(f"{CDI_KIND}=") for device in devices):
        return True
    folders = [Path(folder) for folder in info.get("CDISpecDirs") or []]
    files = [file for folder in folders for pattern in ("*.json", "*.yaml") for file in folder.glob(pattern)]
    return any(_cdi_kind(file) == CDI_KIND for file in files)


def _cdi_kind(file: Path) -> str:
    """Return the kind of device that a CDI specification is about, or nothing."""
    import yaml

    try:
        found = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return ""
    return str(found.get("kind", "")) if isinstance(found, dict) else ""
