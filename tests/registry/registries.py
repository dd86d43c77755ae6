"""Registries on loopback and images to put into them, made by hand: no engine is needed."""

import contextlib
import gzip
import hashlib
import io
import json
import subprocess
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests
from bench.registry import Serving, serve

from trtmatrix.images.registry import ATTESTATION

OCI, DOCKER = "application/vnd.oci.image", "application/vnd.docker"
TYPES = {
    True: (f"{OCI}.manifest.v1+json", f"{OCI}.config.v1+json", f"{OCI}.layer.v1.tar+gzip"),
    False: (
        f"{DOCKER}.distribution.manifest.v2+json", f"{DOCKER}.container.image.v1+json",
        f"{DOCKER}.image.rootfs.diff.tar.gzip",
    ),
}  # fmt: skip
INDEX_TYPES = {True: f"{OCI}.index.v1+json", False: f"{DOCKER}.distribution.manifest.list.v2+json"}
NGC_VARIABLES = {
    "CUDA_DRIVER_VERSION": "560.35.05", "CUDA_VERSION": "12.6.3.004", "PATH": "/usr/bin:/bin",
    "TRT_VERSION": "10.7.0.23+cuda12.6",
}  # fmt: skip
USER, PASSWORD = "somebody", "open sesame"


@contextlib.contextmanager
def serve_registry(
    folder: Path,
    *,
    port: int = 0,
    tls: tuple[Path, Path] | None = None,
    auth: Mapping[str, Any] | None = None,
) -> Iterator[Serving]:
    """Serve a registry that keeps images in ``folder/storage``.

    ``tls``: its certificate and key; ``auth``: docker-registry's own setting, see :func:`basic_auth`.
    Images are pushed before, to one without either over the same folder.
    """
    http = {"tls": {"certificate": str(tls[0]), "key": str(tls[1])}} if tls else None
    settings = {"auth": dict(auth)} if auth else None
    with serve(folder, folder / "storage", port=port, http=http, settings=settings) as serving:
        yield serving


@dataclass(frozen=True, kw_only=True)
class Image:
    """An image to be pushed: files by path, one layer for each mapping, and what it says of itself."""

    platform: str = "linux/amd64"
    layers: Sequence[Mapping[str, bytes]] = ({"etc/what": b"synthetic\n"},)
    environment: Mapping[str, str] = field(default_factory=lambda: NGC_VARIABLES)


@dataclass(frozen=True, kw_only=True)
class Pushed:
    """What is in the registry now: what a tag points at, and of each image by platform its digests."""

    digest: str
    manifests: Mapping[str, str]
    image_ids: Mapping[str, str]
    layers: Mapping[str, tuple[tuple[str, int], ...]]


def push_image(host: str, repository: str, tag: str, *images: Image, oci: bool = True) -> Pushed:
    pushed = [_push_one(host, repository, image, oci=oci) for image in images]
    if len(pushed) == 1:
        manifest, kind = pushed[0][0], TYPES[oci][0]
    else:
        said, _ = _push_one(host, repository, Image(platform="unknown/unknown"), oci=oci)
        built = {"annotations": {ATTESTATION: "attestation-manifest"}}
        entries = [
            {**_described(manifest, TYPES[oci][0]), "platform": _platform(image.platform), **more}
            for image, manifest, more in [
                *((image, one, {}) for image, (one, _) in zip(images, pushed, strict=True)),
                (Image(platform="unknown/unknown"), said, built),
            ]
        ]
        kind = INDEX_TYPES[oci]
        manifest = _json({"schemaVersion": 2, "mediaType": kind, "manifests": entries})
    parts = [one for _, one in pushed]
    return Pushed(
        digest=put_manifest(host, repository, tag, manifest, kind),
        manifests={name: digest for one in parts for name, digest in one.manifests.items()},
        image_ids={name: digest for one in parts for name, digest in one.image_ids.items()},
        layers={name: layers for one in parts for name, layers in one.layers.items()},
    )


def _push_one(host: str, repository: str, image: Image, *, oci: bool) -> tuple[bytes, Pushed]:
    """Push an image's pieces and its manifest by digest; returns the manifest, too."""
    plain = [_tar(files) for files in image.layers]
    packed = [gzip.compress(layer, mtime=0) for layer in plain]
    manifest_type, config_type, layer_type = TYPES[oci]
    config = _json({
        **_platform(image.platform),
        "config": {"Env": [f"{k}={v}" for k, v in image.environment.items()]},
        "rootfs": {"type": "layers", "diff_ids": [_digest(layer) for layer in plain]},
    })  # fmt: skip
    for blob in (*packed, config):
        put_blob(host, repository, blob)
    manifest = _json({
        "schemaVersion": 2, "mediaType": manifest_type, "config": _described(config, config_type),
        "layers": [_described(layer, layer_type) for layer in packed],
    })  # fmt: skip
    digest = put_manifest(host, repository, _digest(manifest), manifest, manifest_type)
    layers = tuple((_digest(layer), len(layer)) for layer in packed)
    named = {image.platform: digest}
    return manifest, Pushed(
        digest=digest, manifests=named, image_ids={image.platform: _digest(config)},
        layers={image.platform: layers},
    )  # fmt: skip


def _platform(name: str) -> dict[str, str]:
    return dict(zip(("os", "architecture", "variant"), name.split("/"), strict=False))


def put_blob(host: str, repository: str, blob: bytes) -> str:
    digest = _digest(blob)
    started = requests.post(f"http://{host}/v2/{repository}/blobs/uploads/", timeout=20)
    started.raise_for_status()
    target = started.headers["Location"]
    joint = "&" if "?" in target else "?"
    requests.put(f"{target}{joint}digest={digest}", data=blob, timeout=60).raise_for_status()
    return digest


def put_manifest(host: str, repository: str, name: str, manifest: bytes, kind: str) -> str:
    url = f"http://{host}/v2/{repository}/manifests/{name}"
    done = requests.put(url, data=manifest, headers={"Content-Type": kind}, timeout=20)
    assert done.ok, done.text
    return _digest(manifest)


def blob_file(storage: Path, digest: str) -> Path:
    """Return where a registry keeps the bytes of a digest, to damage or take them away."""
    plain = digest.partition(":")[2]
    return storage / "docker/registry/v2/blobs/sha256" / plain[:2] / plain / "data"


def make_certificate(folder: Path, *names: str) -> tuple[Path, Path]:
    """Make a certificate for hosts that is its own authority; returns it and its key."""
    folder.mkdir(parents=True, exist_ok=True)
    certificate, key = folder / "own.crt", folder / "own.key"
    subjects = ",".join(f"{'IP' if name[0].isdigit() else 'DNS'}:{name}" for name in names)
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-subj", f"/CN={names[0]}", "-addext", f"subjectAltName={subjects}"]
    command += ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key


def basic_auth(file: Path) -> dict[str, Any]:
    """Write who may use a registry, and return docker-registry's setting for that."""
    command = ["htpasswd", "-Bbn", "-C", "4", USER, PASSWORD]
    file.write_bytes(subprocess.run(command, check=True, capture_output=True).stdout)
    return {"htpasswd": {"realm": "a registry", "path": str(file)}}


def _tar(files: Mapping[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def _described(blob: bytes, kind: str) -> dict[str, Any]:
    return {"mediaType": kind, "digest": _digest(blob), "size": len(blob)}


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _digest(blob: bytes) -> str:
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"
