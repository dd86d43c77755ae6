"""``bundle verify`` of archives that attack: nothing runs on the host, and nothing is left."""

import signal
from pathlib import Path

from tests.bundles.conftest import containers_below
from tests.calling import Done, Project
from tests.waiting import wait_until
from trtmatrix.common.archive import SUFFIX, write_archive

IMAGE = "trtmatrix/test:latest"
RECORDED = '{"product": "onnxruntime", "library": "1.31.1"%s}'


def archive(folder: Path, recorded: str, body: str) -> Path:
    script = f"RECORDED: dict = {recorded}  # what was seen\n{body}\n"
    target = folder / f"hostile{SUFFIX}"
    files = {"repro.py": script.encode(), "image/build.sh": b"touch HOST/was-here\n", "ISSUE.md": b"# it\n"}
    write_archive(target, files)
    return target


def verify(file: Path, *words: str) -> Done:
    words = ("bundle", "verify", str(file), "--seconds=60", *words)
    return Project(file.parent, ()).call_bare(*words, TMPDIR=str(file.parent))


def test_outside_of_containers_it_is_refused(tmp_path: Path) -> None:
    mark = tmp_path / "was-here"
    done = verify(archive(tmp_path, RECORDED % "", f"open({str(mark)!r}, 'w')"))
    assert done.code == 2, done.told
    assert "--trust" in done.told
    assert not mark.exists()


def test_no_requirement_is_smuggled_in(tmp_path: Path) -> None:
    recorded = '{"product": "onnxruntime", "library": "1.0 --index-url=http://127.0.0.1:1"}'
    done = verify(archive(tmp_path, recorded, ""), "--trust")
    assert done.code == 2, done.told
    assert "no version of ONNX Runtime" in done.told


def test_in_the_image_that_the_user_names_it_reaches_nothing(tmp_path: Path) -> None:
    mark = tmp_path / "was-here"
    body = f"""
import os, resource, socket, subprocess, sys
def reached():
    for step in (
        lambda: open({str(mark)!r}, "w"), lambda: open("/bug/x", "w"), lambda: open("/etc/x", "w"),
        lambda: socket.create_connection(("1.1.1.1", 53), 2),
        lambda: os.posix_fallocate(os.open("/tmp/big", os.O_RDWR | os.O_CREAT), 0, 20 << 30),
    ):
        try:
            step()
            print("REACHED", step)
        except (OSError, MemoryError, ValueError) as error:
            print("held", error)
for group in ("memory.max", "pids.max", "memory/memory.limit_in_bytes", "pids/pids.max"):
    if os.path.exists("/sys/fs/cgroup/" + group):
        print("limit", open("/sys/fs/cgroup/" + group).read())
reached()
for line in open("/proc/self/status"):
    if line.startswith(("CapBnd", "NoNewPrivs")):
        print("status", *line.split())
room = os.statvfs("/tmp")
print("room", room.f_blocks * room.f_frsize, bool(room.f_flag & os.ST_NOSUID and room.f_flag & os.ST_NODEV))
print("file", *resource.getrlimit(resource.RLIMIT_FSIZE))
print("\\nrecorded: ")
sys.exit(1)
"""
    done = verify(archive(tmp_path, RECORDED % "", body), f"--image={IMAGE}", "--json")
    assert "REACHED" not in done.printed, done.printed
    said = done.data["said"]
    assert said.count("held") == 5, said
    limits = "limit 1024", f"limit {32 << 30}", f"room {8 << 30} True", f"file {8 << 30} {8 << 30}"
    for words in (*limits, f"status CapBnd: {0:016x}", "status NoNewPrivs: 1"):
        assert words in said
    assert not mark.exists()
    assert not (tmp_path / "HOST").exists()
    assert containers_below(tmp_path) == []


def test_a_killed_verify_leaves_nothing_for_long(tmp_path: Path) -> None:
    file = archive(tmp_path, RECORDED % "", "import time\ntime.sleep(50)")
    words = ("bundle", "verify", str(file), f"--image={IMAGE}")
    process = Project(tmp_path, ()).start(*words, TMPDIR=str(tmp_path))
    wait_until(lambda: containers_below(tmp_path), 120, "a container")
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert containers_below(tmp_path)
    shorter = tmp_path / "next"
    shorter.mkdir()
    verify(archive(shorter, RECORDED % "", "raise SystemExit(0)"), f"--image={IMAGE}")
    assert containers_below(tmp_path) == []
