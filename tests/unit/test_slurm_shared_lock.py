"""One decides at a time, across threads and processes; who lives is known by locks that end with them."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from slurmtries import no_room

from trtmatrix.core.errors import MachineryError
from trtmatrix.effects import shared_check, shared_lock
from trtmatrix.effects.shared_check import Mount, mount_of
from trtmatrix.effects.shared_clients import Client, living_clients
from trtmatrix.effects.shared_folder import SharedFolder

OTHER = """
import sys, time
from pathlib import Path
from trtmatrix.effects.shared_clients import Client
from trtmatrix.effects.shared_folder import SharedFolder
folder = SharedFolder(Path(sys.argv[1]))
with Client(folder) as client:
    with folder.lock():
        client.follow(["k1", "k2"])
        print(client.id, flush=True)
        time.sleep(float(sys.argv[2]))
    sys.stdin.read()
"""


@contextmanager
def other_client(root: Path, seconds: float = 0.0) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start a client in another process, which holds the lock for some seconds; its id once it has it."""
    command = [sys.executable, "-c", OTHER, str(root), str(seconds)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def test_another_process_waits_and_is_told_who_has_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_lock, "PATIENCE_SECONDS", 0.1)
    told: list[str] = []
    with other_client(tmp_path, 1.0) as (process, _):
        began = time.monotonic()
        with SharedFolder(tmp_path, told.append).lock():
            assert time.monotonic() - began > 0.5
        assert f"process {process.pid}" in told[0]


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    with other_client(tmp_path, 60.0) as (process, _):
        process.send_signal(signal.SIGKILL)
        with SharedFolder(tmp_path).lock():
            pass


def test_threads_take_turns_whichever_object_they_use(tmp_path: Path) -> None:
    inside: list[int] = []
    most: list[int] = []

    def work() -> None:
        folder = SharedFolder(tmp_path)
        for _ in range(5):
            with folder.lock():
                inside.append(1)
                most.append(len(inside))
                time.sleep(0.001)
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(most) == 1
    assert len(most) == 20


def test_a_thread_that_has_the_lock_does_not_wait_for_itself(tmp_path: Path) -> None:
    folder = SharedFolder(tmp_path)
    with folder.lock(), pytest.raises(RuntimeError, match="this very thread"), folder.lock():
        pass
    with folder.lock():
        pass


def test_an_error_inside_frees_the_lock(tmp_path: Path) -> None:
    folder = SharedFolder(tmp_path)
    with pytest.raises(ValueError, match="x"), folder.lock():
        raise ValueError("x")
    with other_client(tmp_path) as (_, name):
        assert name


def test_a_file_system_without_locks_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr("fcntl.lockf", none)
    with (
        pytest.raises(MachineryError, match=r"No locks available.*another one"),
        SharedFolder(tmp_path).lock(),
    ):
        pass


def test_an_interruption_just_as_the_lock_is_had_does_not_keep_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, real = SharedFolder(tmp_path), shared_lock.try_lock

    def interrupted(descriptor: int, path: Path) -> bool:
        real(descriptor, path)
        raise KeyboardInterrupt

    monkeypatch.setattr(shared_lock, "try_lock", interrupted)
    with pytest.raises(KeyboardInterrupt), folder.lock():
        pass
    monkeypatch.undo()
    code = f"import fcntl; fcntl.lockf(open({str(tmp_path / 'lock')!r}, 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_on_a_full_disk_the_lock_is_had_all_the_same(tmp_path: Path) -> None:
    with no_room(), SharedFolder(tmp_path).lock():
        pass
    with other_client(tmp_path) as (_, name):
        assert name


# Clients.


def test_clients_know_of_each_other_and_of_what_they_follow(tmp_path: Path) -> None:
    with other_client(tmp_path) as (process, name), Client(SharedFolder(tmp_path)) as client:
        client.follow(["k2", "k3"])
        assert living_clients(tmp_path).keys() == {client.id, name}
        assert client.followed_by_others() == {"k1", "k2"}
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert client.followed_by_others() == set()
        assert living_clients(tmp_path).keys() == {client.id}
        assert [path.name for path in (tmp_path / "clients").iterdir()] == [client.id]


def test_looking_at_clients_does_not_end_ones_own_lock(tmp_path: Path) -> None:
    with Client(SharedFolder(tmp_path)) as client:
        client.follow(["k1"])
        living_clients(tmp_path)
        code = (
            "import sys; from pathlib import Path\n"
            "from trtmatrix.effects.shared_clients import living_clients\n"
            "print(sorted(living_clients(Path(sys.argv[1]))))"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == str([client.id])


def test_two_clients_of_one_process_are_two(tmp_path: Path) -> None:
    folder = SharedFolder(tmp_path)
    with Client(folder) as first, Client(folder) as second:
        first.follow(["k1", "k2"])
        first.leave(["k2"])
        assert second.followed_by_others() == {"k1"}
        assert first.followed_by_others() == set()
    assert living_clients(tmp_path) == {}


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO, errno.ETIMEDOUT])
def test_a_client_that_cannot_be_looked_at_just_now_is_not_taken_for_dead(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with other_client(tmp_path), Client(SharedFolder(tmp_path)) as client:
        open_with(monkeypatch, number)
        with pytest.raises(MachineryError, match=os.strerror(number)):
            client.followed_by_others()
        monkeypatch.undo()
        assert client.followed_by_others() == {"k1", "k2"}


@pytest.mark.parametrize("number", [errno.ENOENT, errno.ESTALE])
def test_a_client_that_has_just_gone_is_none(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with other_client(tmp_path), Client(SharedFolder(tmp_path)) as client:
        open_with(monkeypatch, number)
        assert client.followed_by_others() == set()


def open_with(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Let no file of a client be opened."""
    real = os.open

    def fail(path: Path, *words: Any, **more: Any) -> int:
        if path.parent.name == "clients":
            raise OSError(number, os.strerror(number))
        return real(path, *words, **more)

    monkeypatch.setattr("os.open", fail)


def test_a_client_that_finds_no_room_leaves_nothing(tmp_path: Path) -> None:
    client = Client(SharedFolder(tmp_path))
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names
    with no_room(), pytest.raises(MachineryError, match="File too large"), client:
        pass
    assert list((tmp_path / "clients").iterdir()) == []
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208 - names
    assert living_clients(tmp_path) == {}


def test_a_client_that_finds_no_room_later_says_so(tmp_path: Path) -> None:
    with (
        Client(SharedFolder(tmp_path)) as client,
        no_room(),
        pytest.raises(MachineryError, match="File too large"),
    ):
        client.follow(["k1"])
    assert list((tmp_path / "clients").iterdir()) == []


# What a folder lies on.

TABLE = r"""
22 1 0:20 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
31 22 0:40 / /scratch rw,relatime - nfs4 server:/x rw,vers=4.2,local_lock=none
32 22 0:41 / /scratch/my\040own rw - nfs server:/y rw,vers=3,nolock,local_lock=all
33 22 0:42 / /scratchy rw - lustre mds:/z rw,flock
"""


def test_what_a_folder_lies_on_is_the_innermost_mount(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(TABLE)

    def kind(folder: str) -> str:
        return mount_of(Path(folder), table).kind

    assert [kind(f) for f in ("/home", "/scratch", "/scratch/a", "/scratch/my own/b", "/scratchy/x")] == [
        "ext4", "nfs4", "nfs4", "nfs", "lustre",
    ]  # fmt: skip
    assert "nolock" in mount_of(Path("/scratch/my own"), table).options


def test_locks_that_other_hosts_do_not_see_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mount = Mount(point="/scratch", kind="nfs", options=frozenset({"rw", "nolock"}))
    monkeypatch.setattr(shared_check, "mount_of", lambda _: mount)
    with pytest.raises(MachineryError, match="/scratch is mounted with nolock"):
        SharedFolder(tmp_path).check()
    assert list(tmp_path.iterdir()) == []


def test_locks_that_keep_nobody_out_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fcntl.lockf", lambda *_: None)
    with pytest.raises(MachineryError, match="does not keep another process out"):
        SharedFolder(tmp_path).check()


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    SharedFolder(tmp_path).check()
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names
    for _ in range(3):
        SharedFolder(tmp_path).check()
        with Client(SharedFolder(tmp_path)):
            living_clients(tmp_path)
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208 - names
