"""How fast packs are written and checked, and in how much memory: ``nox -s bench -- pack --size 10GB``.

Random bytes stand for the layers; the disk's own speed is that of a synced copy of the same bytes in the same
round. With ``--engine`` they also go through the container engine: ``docker save`` and ``load`` against what
the pack's own code makes of them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from trtmatrix.cli.parser import read_size
from trtmatrix.images.pack_format import PackedImage, PackManifest, PartWriter, open_target, write_lists
from trtmatrix.images.unpacker import BLOCK, check_pack

ROUNDS = 3
FACTOR, MEMORY = 2.0, 200 << 20
"""The goals: times the disk's own seconds, and bytes of memory."""

IMAGE = "trtmatrix/bench-pack:latest"


@dataclass(frozen=True, kw_only=True)
class Speed:
    """Seconds of one round, and the most memory that a step took, in bytes."""

    size: int
    copy: float
    write: float
    read: float
    check: float
    memory: int

    @property
    def good(self) -> bool:
        """Whether the goals are met."""
        return max(self.write / self.copy, self.check / self.read) <= FACTOR and self.memory <= MEMORY

    def told(self) -> str:
        """Return the figures as a line."""
        rate = self.size / 1e6
        return (
            f"write {rate / self.write:.0f} MB/s, {self.write / self.copy:.2f} times a synced copy; "
            f"check {rate / self.check:.0f} MB/s, {self.check / self.read:.2f} times reading; "
            f"{self.memory / 1e6:.0f} MB of memory"
        )


def measure(folder: Path, size: int, rounds: int = ROUNDS) -> Iterator[Speed]:
    """Measure in a folder that has room for three times the size; yields rounds until one meets the goals.

    What else runs on a machine only ever slows a round down.
    """
    source = folder / "source"
    write_random(source, size)
    for _ in range(rounds):
        copy = _timed(lambda: _copy(source, folder / "copy"))
        (folder / "copy").unlink()
        write, first = _in_child("write", str(source), str(folder / "pack"))
        _forget(folder / "pack")
        read = _timed(lambda: _read(folder / "pack"))
        _forget(folder / "pack")
        check, second = _in_child("check", str(folder / "pack"))
        shutil.rmtree(folder / "pack")
        speed = Speed(size=size, copy=copy, write=write, read=read, check=check, memory=max(first, second))
        yield speed
        if speed.good:
            break
    source.unlink()


def write_random(file: Path, size: int) -> None:
    """Write bytes that nothing compresses."""
    block = os.urandom(BLOCK)
    with file.open("wb") as out:
        for number in range(0, size, BLOCK):
            out.write((number.to_bytes(8, "big") + block)[: min(BLOCK, size - number)])
        out.flush()
        os.fsync(out.fileno())


def _copy(source: Path, target: Path) -> None:
    subprocess.run(["/bin/cp", str(source), str(target)], check=True)
    with target.open("rb") as stream:
        os.fsync(stream.fileno())


def _read(folder: Path) -> None:
    subprocess.run(["/bin/cat", *map(str, folder.iterdir())], check=True, stdout=subprocess.DEVNULL)


def _forget(folder: Path) -> None:
    """Let the system forget what it holds of a pack in memory: it is the disk that is to be read."""
    for file in folder.iterdir() if folder.is_dir() else ():
        with file.open("rb") as stream:
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _timed(step: Callable[[], object]) -> float:
    started = time.monotonic()
    step()
    return time.monotonic() - started


def _in_child(*words: str) -> tuple[float, int]:
    """Run one step in a process of its own; returns its seconds and the most memory that it had."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.pack", *words], capture_output=True, text=True, check=False,
        cwd=Path(__file__).resolve().parents[1],
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(done.stderr)
    told = json.loads(done.stdout)
    return float(told["seconds"]), int(told["memory"])


def child(words: list[str]) -> None:
    """Write a pack of one stream, or check one, and print what that took."""
    if words[0] == "write":
        seconds = _timed(lambda: write_stream(_blocks(Path(words[1])), Path(words[2])))
    else:
        seconds = _timed(lambda: check_pack(Path(words[1])))
    # Of this program alone: ru_maxrss also counts what the process had before it became this program.
    (peak,) = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    memory = int(peak) << 10
    print(json.dumps({"seconds": seconds, "memory": memory}))


def write_stream(blocks: Iterator[bytes], folder: Path, images: tuple[PackedImage, ...] = ()) -> None:
    """Write a pack of one stream, in parts of 1 GiB."""
    with open_target(folder):
        with PartWriter(folder, "images", 1 << 30) as writer:
            for block in blocks:
                writer.write(block)
        manifest = PackManifest(
            pack="bench", made="", by="bench", commit="", changed=False, platform="linux/amd64", pythons=(),
            versions=(), parts=tuple(writer.parts), images=images,
        )  # fmt: skip
        write_lists(folder, manifest)


def _blocks(file: Path) -> Iterator[bytes]:
    with file.open("rb", buffering=0) as stream:
        while block := stream.read(BLOCK):
            yield block


def measure_engine(folder: Path, size: int) -> list[str]:
    """Compare ``docker save`` and ``load`` with the pack's own way through the engine; returns lines."""
    import docker.errors

    from trtmatrix.images.pack import save_stream
    from trtmatrix.images.unpacker import find_engine, load_images
    from trtmatrix.launchers.docker_engine import open_client

    client = open_client(timeout=600)
    write_random(folder / "layer", size)
    with tarfile.open(folder / "layer.tar", "w") as archive:
        archive.add(folder / "layer", "layer")
    (folder / "layer").unlink()
    subprocess.run(["/usr/bin/docker", "import", str(folder / "layer.tar"), IMAGE], check=True)
    (folder / "layer.tar").unlink()
    try:
        image = PackedImage(
            id=str(client.images.get(IMAGE).id), names=(IMAGE,), versions=("bench",), size=size
        )
        save = _timed(lambda: _shell(f"docker save {IMAGE} > {folder}/saved && sync {folder}/saved"))
        (folder / "saved").unlink()
        ours = _timed(lambda: write_stream(save_stream(client, (image,)), folder / "pack", (image,)))
        manifest, (engine, why) = check_pack(folder / "pack"), find_engine()
        if engine is None:
            raise RuntimeError(why)
        client.images.remove(IMAGE)
        load = _timed(lambda: _shell(f"cat {folder}/pack/images.* | docker load"))
        client.images.remove(IMAGE)
        again = _timed(lambda: load_images(engine, folder / "pack", manifest, [{}]))
    finally:
        with contextlib.suppress(docker.errors.ImageNotFound):
            client.images.remove(IMAGE)
    return [
        f"by the engine: pack {ours:.1f} s, docker save with sync {save:.1f} s: factor {ours / save:.2f}",
        f"by the engine: load {again:.1f} s, docker load {load:.1f} s: factor {again / load:.2f}",
    ]


def _shell(line: str) -> None:
    subprocess.run(["/bin/sh", "-c", line], check=True, stdout=subprocess.DEVNULL)


def main() -> int:
    """Measure, print, and return 0 where the goals are met."""
    if sys.argv[1:2] in (["write"], ["check"]):
        child(sys.argv[1:])
        return 0
    parser = argparse.ArgumentParser(prog="bench.pack", description=__doc__)
    parser.add_argument("--size", type=read_size, default=2 << 30, help="bytes of layers (2GB)")
    parser.add_argument("--in", dest="folder", type=Path, help="where to write (default: a temporary folder)")
    parser.add_argument("--engine", action="store_true", help="go through the container engine as well")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="trtmatrix-bench-", dir=args.folder) as name:
        if shutil.disk_usage(name).free < 4 * args.size:
            print(f"{name}: no room for four times {args.size:,} bytes: --size, --in", file=sys.stderr)
            return 1
        for speed in measure(Path(name), args.size):
            print(speed.told(), flush=True)
        for line in measure_engine(Path(name), args.size) if args.engine else ():
            print(line)
    return 0 if speed.good else 1


if __name__ == "__main__":
    sys.exit(main())
