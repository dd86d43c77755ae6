"""Which Docker or Podman is here, and what it says of itself and its images."""

from __future__ import annotations

import os
import re
import resource
import shutil
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trtmatrix.launchers.references import MACHINES
from trtmatrix.suite.plan import ENGINE, Engine, GpuAccess, short_name

if TYPE_CHECKING:
    import docker

DRIVER_FOLDER = "/usr/local/nvidia"
HOOK = "nvidia-container-runtime-hook"
CDI_FOLDERS = ("/etc/cdi", "/var/run/cdi")
DOCKER, PODMAN = "Docker", "Podman"
PODMANS_OWN = "BuildahVersion"  # of what an engine says of itself, Podman alone says this
PODMAN_CDI = (5, 4)
"""The first Podman that takes CDI's names over its socket: https://github.com/containers/podman/pull/25171."""
PODMAN_LIMITS = {"nofile": (resource.RLIMIT_NOFILE, 1 << 16), "nproc": (resource.RLIMIT_NPROC, 1 << 15)}
"""Open files and processes of a user, which Podman must be told where it is told any limit: more than cells
need, and no more than the caller's own. It raises what is left out to its own maximum, which cannot be set
without CAP_SYS_RESOURCE: https://docs.podman.io/en/latest/markdown/podman-run.1.html#ulimit-option"""

DOCKER_SOCKET = "/var/run/docker.sock"
PODMAN_SOCKET = "/run/podman/podman.sock"
"""Where ``podman system service`` serves Docker's API for root; a user's is in the user's own folder.

Source: https://docs.podman.io/en/latest/markdown/podman-system-service.1.html.
"""
ACCESS, DRIVER = "TRTMATRIX_GPU_ACCESS", "TRTMATRIX_DRIVER_FOLDER"
"""How containers are given a GPU and where the driver's libraries are, in place of what is found here."""
START = (
    "install and start Docker (https://docs.docker.com/engine/install/), start Podman "
    "(systemctl --user start podman.socket), or correct DOCKER_HOST"
)
SECONDS = 20
BUILD_LABELS = "io.trtmatrix.image."  # the start of the labels that docker/wheels/build gives an image


def find_address() -> str:
    """Return the engine's address: DOCKER_HOST, else Docker's socket, else Podman's where that is there.

    The user's own Podman comes before root's, as in ``podman`` itself. Where one of both is meant
    (:data:`ENGINE`) the other's sockets are not looked at.
    """
    if named := os.environ.get("DOCKER_HOST"):
        return named
    own = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    podman = (f"{own}/podman/podman.sock", PODMAN_SOCKET)
    wanted = os.environ.get(ENGINE, "")
    sockets = {"docker": (DOCKER_SOCKET,), "podman": podman}.get(wanted, (DOCKER_SOCKET, *podman))
    return "unix://" + next((path for path in sockets if os.path.exists(path)), sockets[0])  # noqa: PTH110


def open_client(timeout: int) -> docker.DockerClient:
    """Connect to the engine at :func:`find_address`: the one way to do so; ``timeout`` is in seconds.

    TLS and what else Docker's environment says of it is obeyed. Where none answers, Docker's SDK raises.
    """
    return _connect(find_address(), timeout)


@cache  # the SDK asks for the version of the API first, which takes Podman half a second
def _connect(address: str, timeout: int) -> docker.DockerClient:
    import docker.errors

    try:
        client: docker.DockerClient = docker.from_env(
            timeout=timeout, environment={**os.environ, "DOCKER_HOST": address}
        )
    except ValueError as error:  # of an address that is none
        raise docker.errors.DockerException(str(error)) from error
    return client


def find_engine(*, gpu_here: bool, offline: bool = False) -> Engine:
    """Ask the engine that is here (:func:`find_address`). None is no error: it is said why.

    ``offline``: one that is reached over a network is not asked.
    """
    known = {access.name.lower(): access for access in GpuAccess if access is not GpuAccess.RUNTIME}
    named, folder = os.environ.get(ACCESS, ""), os.environ.get(DRIVER) or None
    if isinstance(answer := _ask(find_address(), offline=offline), Engine):
        return answer
    info, images = answer
    if (named and named not in known) or not Path(folder or "/").is_dir():
        reason = f"{ACCESS} is {named!r} of {', '.join(known)}, or {DRIVER} {folder!r} is no folder"
        return Engine(available=False, reason=reason, remedy="correct it, or unset it: nothing is guessed")
    registries = info.get("RegistryConfig") or {}
    indexes = (registries.get("IndexConfigs") or {}).items()
    plain = [host for host, each in indexes if not each.get("Secure", True)]
    machine = str(info.get("Architecture") or "x86_64")
    podman, limits = PODMANS_OWN in info, {"MemoryLimit": "memory", "PidsLimit": "processes"}
    own = {name: (resource.getrlimit(number)[1], most) for name, (number, most) in PODMAN_LIMITS.items()}
    return Engine(
        available=True, name=PODMAN if podman else DOCKER,
        version=str(info.get("ServerVersion", "?")), root=str(info.get("DockerRootDir", "")),
        images={
            name: str(image["Id"]) for image in images
            for reference in (*(image.get("RepoTags") or ()), *(image.get("RepoDigests") or ()))
            for name in (reference, short_name(reference))  # Podman's full names as Docker has them, too
        },
        ids=frozenset(str(image["Id"]) for image in images),
        platform=f"{info.get('OSType') or 'linux'}/{MACHINES.get(machine, machine)}",
        insecure=(*(registries.get("InsecureRegistryCIDRs") or ()), *plain),
        proxied=bool(info.get("HttpProxy") or info.get("HttpsProxy") or registries.get("Mirrors")),
        gpu_access=(known.get(named) or find_gpu_access(info)) if gpu_here else None,
        driver_folder=folder or (DRIVER_FOLDER if Path(DRIVER_FOLDER).is_dir() else None),
        rootless=bool(info.get("Rootless")) or "name=rootless" in (info.get("SecurityOptions") or []),
        unlimited=tuple(word for key, word in limits.items() if info.get(key) is False),
        ulimits={n: min(most, hard) if hard >= 0 else most for n, (hard, most) in own.items() if podman},
    )  # fmt: skip


def _ask(address: str, *, offline: bool) -> tuple[dict[str, Any], list[dict[str, Any]]] | Engine:
    """Return what the engine says of itself and of its images, or why it may not be asked or is not meant.

    Source: https://docs.docker.com/reference/api/engine/.
    """
    import docker.errors
    import requests.exceptions

    if offline and not address.startswith(("unix://", "/")):
        reason = f"--offline: DOCKER_HOST is {address}, which is reached over the network"
        remedy = "unset DOCKER_HOST, or name a socket of this host"
        return Engine(available=False, reason=reason, remedy=remedy)
    try:
        client = open_client(SECONDS)
        info = client.info()
        try:
            images = client.api.images()
        except docker.errors.APIError:  # Podman's list fails as a whole where one goes meanwhile
            images = client.api.images()
    except (docker.errors.DockerException, requests.exceptions.RequestException) as error:
        reason, remedy = f"no container engine answers at {address}: {str(error)[:200]}", START
        if "Permission denied" in str(error):
            reason = "the Docker socket may not be used by this user: add it to the group docker"
            remedy = "sudo usermod -aG docker $USER, then log in again"
        elif "No such file" in str(error):
            reason = f"no socket of an engine at {address}"
        return Engine(available=False, reason=reason, remedy=remedy)
    name, wanted = PODMAN if PODMANS_OWN in info else DOCKER, os.environ.get(ENGINE, "")
    if wanted in {"docker", "podman"} and wanted != name.lower():
        reason = f"{wanted} was asked for, and what answers at {address} is {name}"
        return Engine(available=False, reason=reason, remedy="unset DOCKER_HOST, or leave --engine out")
    return info, images


def find_gpu_access(info: Mapping[str, Any]) -> GpuAccess | None:
    """Choose how containers get the GPU: the toolkit, CDI, or plain device nodes.

    Docker 28.3 and later list CDI's devices; 25 to 28.2 only name the folders of the specifications, where
    nvidia-ctk writes ``nvidia.yaml`` (https://github.com/cncf-tags/container-device-interface).
    Podman takes no GPU by ``--gpus`` over its socket, and does not say where the specifications are.
    """
    podman = PODMANS_OWN in info
    if not podman and ("nvidia" in (info.get("Runtimes") or {}) or shutil.which(HOOK)):
        return GpuAccess.TOOLKIT
    release = tuple(int(part) for part in re.findall(r"\d+", str(info.get("ServerVersion", "")))[:2])
    folders = info.get("CDISpecDirs", CDI_FOLDERS if podman else ()) or ()
    listed = any(
        str(each.get("ID")).startswith("nvidia.com/gpu=") for each in info.get("DiscoveredDevices") or ()
    )
    if (not podman or release >= PODMAN_CDI) and (
        listed or any(file for folder in folders for file in Path(folder).glob("nvidia*"))
    ):
        return GpuAccess.CDI
    nodes = Path("/dev/nvidiactl").exists() and Path(DRIVER_FOLDER).is_dir()
    return GpuAccess.NODES if nodes else None


def inspect_image(name: str) -> tuple[str, dict[str, str]] | None:
    """Return an image's ID and the labels that it has from the project, without their start.

    None where it is not here or no engine answers.
    """
    import docker.errors
    import requests.exceptions

    try:
        image = open_client(60).images.get(name)
    except (docker.errors.DockerException, requests.exceptions.RequestException):
        return None
    own = [(n.removeprefix(BUILD_LABELS), text) for n, text in image.labels.items() if BUILD_LABELS in n]
    return str(image.id), dict(own)
