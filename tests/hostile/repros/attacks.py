"""Cells that attack what stands outside of them, each followed by one that is right and wrong."""

from __future__ import annotations

import builtins
import ctypes
import gc
import json
import os
import resource
import signal
import socket
import stat
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any, Callable, Dict, Iterator

import numpy as np

FACTS = {
    "title": "attacks on what stands outside", "upstream": "example/example#1",
    "url": "https://example.com/1", "expectations": [],
    "summary": "Cells that attack their supervisor, their neighbours and the host.",
    "figure": {"measure": "max_abs", "label": "largest |y - float64|"},
}  # fmt: skip

ROOT = Path("/opt/trtmatrix")


def cases() -> Iterator[Dict[str, Any]]:
    same = {"limits": {"max_abs": 0.0}, "products": ["onnxruntime"], "seconds": 20}
    for attack in ATTACKS:
        own = {"seconds": 1} if attack in HANGS else {"seconds": 60} if attack == "prints-much" else {}
        yield {"id": attack, "params": {"does": attack}, "keep": True, **same, **own}
        yield {"id": "after-" + attack, "params": {"after": attack}, "control": "negative", **same}


def prepare(params: Dict[str, Any]) -> Dict[str, Any]:
    """Return a graph that adds 1 to inputs that no other case has; beside an attack, also one that adds 2."""
    from trtmatrix.authoring.graph import Graph

    start = 8 * list(ATTACKS).index(params.get("after") or params["does"])
    x = np.arange(start, start + 8, dtype=np.float32)
    graph = Graph({"x": x})
    outputs = {"right": 1, "wrong": 2} if "after" in params else {"y": 1}
    for name, added in outputs.items():
        graph.node("Add", "x", graph.constant(np.full(1, added, np.float32)), out=name)
        graph.output(name, np.float32, x.shape)
    return {
        "model": graph.model(), "inputs": {"x": x},
        "reference": {name: (x + np.float32(1)).astype(float) for name in outputs},
    }  # fmt: skip


def run(params: Dict[str, Any], files: Any, trt: Any) -> Dict[str, Any]:
    outputs: Dict[str, Any] = trt.build(files.model).run(files.inputs)
    if "does" in params:
        ATTACKS[params["does"]](outputs, trt)
    return outputs


def does(attack: Any) -> Any:
    """An attack that tells how many of its steps came through."""

    def attacks(outputs: Any, trt: Any) -> None:
        trt.measure("reached", sum(map(succeeds, attack(outputs, trt) or ())))

    return attacks


def succeeds(step: Any) -> bool:
    try:
        return step() is not False
    except Exception as error:  # noqa: BLE001 - whatever it was that kept it
        print("%s: %r" % (step.__name__, error))
        return False


def tries(*steps: Callable[[], Any]) -> Any:
    """An attack whose steps must not come through."""
    return does(lambda *_: steps)


def changes(change: Callable[[], Any]) -> Any:
    """An attack on the process that the next cells run in."""
    return does(lambda *_: [lambda: (change(), False)[1]])


LIBC = ctypes.CDLL(None, use_errno=True)
DENIED = (1, 13, 38)  # EPERM, EACCES and ENOSYS: any other error says that the kernel would have done it


def asks(number: int, *words: Any) -> Any:
    """A system call that must be denied, whatever its arguments."""

    def call() -> bool:
        made = [word() if callable(word) else word for word in words]
        given = [ctypes.c_long(word) if isinstance(word, int) else word for word in made]
        ctypes.set_errno(0)
        return bool(LIBC.syscall(ctypes.c_long(number), *given) >= 0 or ctypes.get_errno() not in DENIED)

    return tries(call)


CLONE_NEWUSER, CLONE_NEWNS = 0x10000000, 0x00020000
SYSCALLS = {
    "mount": asks(165, b"none", b"/tmp", b"tmpfs", 0, None), "umount": asks(166, b"/tmp", 2),
    "pivot-root": asks(155, b"/", b"/tmp"), "chroot": asks(161, b"/tmp"), "acct": asks(163, b"/tmp/x"),
    "settimeofday": asks(164, None, ctypes.create_string_buffer(8)), "swapon": asks(167, b"/tmp/x", 0),
    "reboot": asks(169, 0xFEE1DEAD, 672274793, 0, None), "sethostname": asks(170, b"x", 1),
    "iopl": asks(172, 3), "ioperm": asks(173, 0, 8, 1), "init-module": asks(175, b"", 0, b""),
    "delete-module": asks(176, b"x", 0), "quotactl": asks(179, 0x800001 << 8, b"/dev/vda", 0, None),
    "kexec-load": asks(246, 0, 0, None, 0), "add-key": asks(248, b"user", b"x", b"y", 1, -3),
    "open-by-handle": asks(304, -100, ctypes.create_string_buffer(64), 0),
    "perf-event-open": asks(298, ctypes.create_string_buffer(b"\0\0\0\0p", 112), -1, 0, -1, 0),
    "setns": asks(308, lambda: os.open("/proc/self/ns/net", os.O_RDONLY), 0),
    "unshare": asks(272, CLONE_NEWUSER | CLONE_NEWNS),
    "bpf": asks(321, 5, ctypes.create_string_buffer(64), 64),
    "userfaultfd": asks(323, 0), "fanotify-init": asks(300, 0, 0), "syslog": asks(103, 3, None, 0),
    "setuid": asks(105, 54321), "setgid": asks(106, 54321), "setgroups": asks(116, 0, None),
    "make-a-device": asks(133, b"/tmp/device", stat.S_IFCHR | 0o666, os.makedev(1, 1)),
    "adjtimex": asks(159, ctypes.create_string_buffer(b"\4", 208)), "nice": asks(141, 0, 0, -20),
    "real-time": asks(144, 0, 1, ctypes.create_string_buffer(b"\x32\0\0\0", 4)), "vhangup": asks(153),
}  # fmt: skip
"""Of x86-64: https://github.com/torvalds/linux/blob/master/arch/x86/entry/syscalls/syscall_64.tbl."""


def opens(*paths: str) -> Any:
    """An attack that would write to files, each opened alone and never written to."""
    made = 0 if paths[0].startswith("/dev") else os.O_CREAT  # a file of its own in /dev is no device
    return tries(*(lambda path=path: os.open(path, os.O_WRONLY | made) >= 0 for path in paths))


def sends(family: int, kind: int, address: Any, protocol: int = 0) -> Any:
    """An attack that would send something out of the container."""

    def send() -> bool:
        with socket.socket(family, kind, protocol) as connection:
            connection.settimeout(2)
            connection.connect(address)
            return connection.send(b"x") > 0

    return tries(send)


def raises_a_limit() -> bool:
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    return True


INET, STREAM, DGRAM = socket.AF_INET, socket.SOCK_STREAM, socket.SOCK_DGRAM
REACHES = {
    "accounts": opens("/etc/passwd", "/etc/shadow", "/etc/ld.so.preload", "/root/x"),
    "programs": opens("/usr/bin/x", "/usr/lib/x", "/bin/sh"),
    "the-probe": opens(*(str(ROOT / part / "x") for part in ("trtprobe", "repros", "cases", "job"))),
    "the-kernel": opens("/proc/sys/kernel/core_pattern", "/proc/sys/vm/drop_caches", "/proc/sysrq-trigger"),
    "cgroups": opens("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/pids.max", "/sys/fs/cgroup/cgroup.procs"),
    "memory": opens("/dev/mem", "/dev/kmem", "/dev/port", "/proc/kcore", "/dev/kmsg"),
    "disks": opens("/dev/sda", "/dev/vda", "/dev/nvme0n1", "/dev/loop0", "/dev/loop-control", "/dev/fuse"),
    "the-engine": tries(*(
        lambda path=path: socket.socket(socket.AF_UNIX).connect(path)
        for path in ("/var/run/docker.sock", "/run/podman/podman.sock", "/run/containerd/containerd.sock",
                     "\0/containerd-shim")
    )),
    "the-first-process": opens("/proc/1/root/etc/x", "/proc/1/root/x"),
    "the-internet": sends(INET, STREAM, ("1.1.1.1", 53)),
    "a-name-server": sends(INET, DGRAM, ("8.8.8.8", 53)),
    "the-cloud": sends(INET, STREAM, ("169.254.169.254", 80)),
    "the-bridge": sends(INET, STREAM, ("172.17.0.1", 22)),
    "the-sixth-net": sends(socket.AF_INET6, DGRAM, ("2606:4700:4700::1111", 53)),
    "raw-sockets": sends(INET, socket.SOCK_RAW, ("127.0.0.1", 0), socket.IPPROTO_ICMP),
    "packets": sends(socket.AF_PACKET, socket.SOCK_RAW, ("lo", 0)),
    "its-limits": tries(raises_a_limit),
}  # fmt: skip


def poison(name: str) -> None:
    sys.modules[name] = type(sys)(name)


def start_a_thread() -> None:
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()


def forks() -> int:
    if child := os.fork():
        return child
    time.sleep(600)
    return 0


def leaves_a_daemon() -> None:
    if os.fork() == 0:
        os.setsid()
        forks()
        os._exit(0)


CHANGES: Dict[str, Callable[[], Any]] = {
    "separators": lambda: setattr(json.JSONEncoder, "item_separator", ";"),
    "encoders": lambda: setattr(json, "dumps", lambda *_, **__: "{}"),
    "open": lambda: setattr(builtins, "open", None), "length": lambda: setattr(builtins, "len", lambda _: 1),
    "load": lambda: setattr(np, "load", lambda *_, **__: np.zeros(8, np.float32)),
    "sealing": lambda: setattr(os, "memfd_create", os.dup),
    "sockets": lambda: setattr(socket, "SOL_SOCKET", 0), "clocks": lambda: setattr(time, "perf_counter", int),
    "variables": lambda: os.environ.update(LD_PRELOAD="/x.so"), "paths": lambda: sys.path.insert(0, "/x"),
    "finders": sys.meta_path.clear, "alarms": lambda: signal.setitimer(signal.ITIMER_REAL, 0.05),
    "handlers": lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN),
    "blocked": lambda: signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM, signal.SIGTERM}),
    "errors": lambda: np.seterr(all="raise"), "warned": lambda: warnings.simplefilter("error"),
    "traced": lambda: sys.settrace(lambda *_: None), "profiled": lambda: sys.setprofile(lambda *_: None),
    "recursion": lambda: sys.setrecursionlimit(80), "garbage": gc.disable, "mask": lambda: os.umask(0o777),
    "file-sizes": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)),
    "open-files": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40)),
    "niceness": lambda: os.nice(19), "rounding": lambda: LIBC.fesetround(0x400),
    "threads": start_a_thread,
    "children": forks, "daemons": leaves_a_daemon, "output": lambda: setattr(sys, "stdout", None),
    "descriptors": lambda: [os.open("/dev/null", os.O_RDONLY) for _ in range(200)],
    "other-numpy": lambda: poison("numpy"), "other-product": lambda: poison("onnxruntime"),
}  # fmt: skip


def fork_for_ever() -> None:
    while True:
        if os.fork() == 0:
            while True:
                try:
                    os.fork()
                except OSError:
                    time.sleep(1)


def eat(take: Callable[[], Any]) -> None:
    held = []
    while True:
        held.append(take())


def fill_memory_files() -> int:
    file = os.memfd_create("x")
    os.posix_fallocate(file, 0, 1 << 28)
    return file


def make_files(folder: Path) -> None:
    for number in range(20_000):
        (folder / str(number)).touch()


def sink(folder: Path, deep: int = 2100) -> None:
    os.chdir(str(folder))
    for _ in range(deep):
        os.mkdir("d")  # noqa: PTH102 - the path is too long for pathlib
        os.chdir("d")


def nested() -> None:
    sys.setrecursionlimit(1 << 30)
    threading.stack_size(1 << 16)
    nested()


def stop_hearing() -> None:
    for number in range(1, 65):
        if number not in (9, 19, 32, 33):
            signal.signal(number, signal.SIG_IGN)
    time.sleep(60)


HANGS = ("stops-itself", "sleeps", "spins", "hears-nothing", "forks-for-ever", "stops-the-supervisor")
"""Attacks that end by their time limit alone, which is short."""
ENDS: Dict[str, Callable[[], Any]] = {
    "exits": lambda: os._exit(0), "aborts": os.abort, "faults": lambda: ctypes.string_at(8),
    "leaves": lambda: sys.exit(3), "breaks-off": lambda: signal.raise_signal(signal.SIGINT),
    "becomes-another": lambda: os.execv("/bin/true", ["true"]),  # noqa: S606 - to no shell
    "kills-itself": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "kills-its-group": lambda: os.killpg(0, signal.SIGKILL),
    "closes-all-files": lambda: os.closerange(0, 4096), "recurses": nested,
    "stops-itself": lambda: os.kill(os.getpid(), signal.SIGSTOP), "sleeps": lambda: time.sleep(60),
    "spins": lambda: [None for _ in iter(int, 1)], "hears-nothing": stop_hearing,
    "forks-for-ever": fork_for_ever, "eats-memory": lambda: eat(lambda: bytearray(os.urandom(1 << 20) * 64)),
    "eats-memory-unseen": lambda: eat(fill_memory_files),
    "starts-threads": lambda: eat(start_a_thread),
    "makes-files": lambda: make_files(Path()), "sinks": lambda: sink(Path()),
    "prints-much": lambda: [os.write(1, b"x" * (1 << 20)) for _ in range(64)],
    "prints-no-text": lambda: os.write(1, bytes(range(256)) * 99),
    "raises-much": lambda: int("x" * (1 << 25)),
    # Last, as the supervisor looks through what they leave from then on, which takes a while.
    "makes-outputs": lambda: make_files(ROOT / "out"), "sinks-in-outputs": lambda: sink(ROOT / "out"),
}  # fmt: skip


def header(descr: str, shape: str, data: bytes = b"\0" * 32) -> bytes:
    said = ("{'descr': %s, 'fortran_order': False, 'shape': %s, }" % (descr, shape)).ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(said).to_bytes(2, "little") + said.encode() + data


ARRAYS = {
    "nothing": b"", "text": b"1 2 3", "a-pickle": b"\x80\x04K\x01.", "half-a-header": b"\x93NUMPY\1\0",
    "a-header-of-4-gb": b"\x93NUMPY\2\0\xff\xff\xff\xff", "8-tb": header("'<f4'", "(2199023255552,)"),
    "fewer-than-none": header("'<f4'", "(-8, -1)"), "more-numbers": header("'<f4'", "(9,)"),
    "objects": header("'|O'", "(4,)"), "structures": header("[('a', '<f4')]", "(8,)"),
    "texts": header("'<U2'", "(4,)"), "moments": header("'<M8[s]'", "(4,)"),
    "code": header("print(1)", "(8,)"), "brackets": header("'<f4'", "(" * 60),
}  # fmt: skip


def hands(words: Dict[str, Any], data: Any) -> Any:
    """An attack that hands over these bytes and ends before anything else is handed over.

    Where they take a while to make, ``data`` makes them: each cell imports this file anew.
    """

    def attack(*_: Any) -> None:
        channel().hand(words, lambda stream: stream.write(data() if callable(data) else data))
        time.sleep(0.1)
        os._exit(0)

    return attack


RECORD: Dict[str, Any] = {
    "schema": 1, "ended": "ran", "detail": "", "observed": {}, "environment": {}, "engine": {}, "kept": {},
    "measurements": {
        "outputs": {"y": {"count": 8, "max_abs": 0.0}}, "scalars": {}, "signatures": {}, "remark": "",
    },
    "log": "", "started": "2025-01-01T00:00:00.000Z", "finished": "2025-01-01T00:00:00.001Z",
}  # fmt: skip


def told(**fields: Any) -> bytes:
    return json.dumps({**RECORD, **fields}).encode()


def written(field: str, value: str) -> bytes:
    return ('%s, "%s": %s}' % (json.dumps(RECORD)[:-1], field, value)).encode()


RESULTS = {
    "no-json": b"{", "no-text": b"\xff\xfe", "zeros": b"\0" * 4096, "a-list": b"[]", "two-objects": b"{} {}",
    "deep-lists": b"[" * 100_000, "many-builds": lambda: told(builds=[{}] * 20_000),
    "seven-builds": told(builds=7),
    "null-builds": told(builds=[None]), "no-measurements": told(measurements=None),
    "an-unknown-end": told(ended="well"), "a-list-of-ends": told(ended=["ran"]),
    "a-number-of-details": told(detail=1),
    "listed-observations": told(observed=[1]), "a-textual-engine": told(engine="x"),
    "listed-counts": told(counts=[1]), "textual-counts": told(counts={"reached": "1"}),
    "listed-scalars": told(measurements={"scalars": [1]}),
}  # fmt: skip
"""What is no result, whatever else it is."""
ODD = {
    "huge-counts": written("counts", '{"reached": 1e400}'),
    "no-number": written("counts", '{"reached": NaN}'),
    "deep-observations": written("observed", '{"a": ' + "[" * 500 + "]" * 500 + "}"),
    "textual-scalars": told(measurements={**RECORD["measurements"], "scalars": {"worst": "1 or so"}}),
    "a-textual-remark": told(measurements={**RECORD["measurements"], "remark": ["x"]}),
    "half-a-letter": written("environment", '{"A": "\\ud800"}'),
    "paths-to-keep": told(kept={"/etc/hostname": {"dtype": "float64", "shape": [8]}}),
    "a-billion-processes": told(processes=10**9), "numbers-without-end": written("processes", "9" * 5000),
    "a-long-detail": lambda: told(detail="x" * (1 << 24)), "markup": told(detail="|<img src=x>|`@someone"),
}  # fmt: skip
"""What is a result at first sight; none of them measured an output."""


def do_forges_records(outputs: Any, trt: Any) -> Any:
    def write_into(folder: Path) -> None:
        for index in range(100):
            (folder / ("%d.record.json" % index)).write_text(json.dumps(RECORD))

    yield lambda: write_into(ROOT / "job")
    succeeds(lambda: write_into(ROOT / "out"))  # that it may: nobody reads it


def do_knocks_at_the_host(outputs: Any, trt: Any) -> Any:
    for kind in (socket.SOCK_SEQPACKET, socket.SOCK_STREAM):
        yield lambda kind=kind: socket.socket(socket.AF_UNIX, kind).connect(str(ROOT / "job" / "socket"))


def do_looks_into_the_supervisor(outputs: Any, trt: Any) -> Any:
    libc, supervisor = ctypes.CDLL(None, use_errno=True), os.getppid()
    yield lambda: os.open("/proc/%d/mem" % supervisor, os.O_RDWR)
    for number in range(1, 12):
        yield lambda number=number: os.open("/proc/%d/fd/%d" % (supervisor, number), os.O_RDWR)
    yield lambda: bool(Path("/proc/%d/environ" % supervisor).read_bytes())
    yield lambda: libc.ptrace(16, supervisor, None, None) == 0  # PTRACE_ATTACH
    pidfd = libc.syscall(434, supervisor, 0)
    for number in range(3, 12):
        yield lambda number=number: libc.syscall(438, pidfd, number, 0) >= 0  # pidfd_getfd


def do_swaps_the_product(outputs: Any, trt: Any) -> Any:
    import onnxruntime

    onnxruntime.InferenceSession.run = lambda _self, _names, feeds, *_: [feeds["x"] + np.float32(1)] * 2


TOO_MUCH = 9 << 30
"""More than any file system of a container has, and refused at once, not by the limit of memory."""


def allocate(folder: Path, unlink: bool, size: int = TOO_MUCH) -> bool:
    path = folder / "allocated"
    file = os.open(str(path), os.O_RDWR | os.O_CREAT)
    if unlink:
        path.unlink()
        globals().setdefault("HELD", []).append(file)
    return bool(ctypes.CDLL(None).fallocate64(file, 1, ctypes.c_int64(0), ctypes.c_int64(size)) == 0)


def do_leaves_setuid(outputs: Any, trt: Any) -> Any:
    def leave(folder: Path) -> bool:
        path = folder / "suid"
        path.write_bytes(Path("/bin/sh").read_bytes())
        path.chmod(0o6777)
        nosuid = os.statvfs(str(path)).f_flag & os.ST_NOSUID
        return bool(path.stat().st_mode & stat.S_ISUID) and not nosuid

    for folder in (Path(), ROOT / "out", ROOT / "job", Path("/tmp")):  # noqa: S108 - it is attacked
        yield lambda folder=folder: leave(folder)


def channel() -> Any:
    """Return the connection to the supervisor, which a cell's own process has."""
    frame: Any = sys._getframe()
    while "taker" not in frame.f_locals:
        frame = frame.f_back
    return frame.f_locals["taker"].channel


def do_hands_over_a_pipe(outputs: Any, trt: Any) -> Any:
    os.mkfifo("pipe")
    channel().send({"build": 0, "output": "y"}, os.open("pipe", os.O_RDWR))


def do_hands_over_nonsense(outputs: Any, trt: Any) -> Any:
    results = {"ended": "ran", "builds": 7}, {"ended": "ran", "detail": "", "builds": [7] * 9}
    for data in (b"", b"\x93NUMPY\1\0", b"[" * 30000, *(json.dumps(result).encode() for result in results)):
        for words in ({"build": 0, "output": "y"}, {"result": "final"}):
            channel().hand(words, lambda stream, data=data: stream.write(data))


def do_hands_over_what_changes(outputs: Any, trt: Any) -> Any:
    file = os.memfd_create("x", os.MFD_ALLOW_SEALING)
    with open(file, "wb", closefd=False) as stream:
        np.save(stream, outputs["y"])
    channel().send({"build": 0, "output": "y"}, file)


def do_names_another_cell(outputs: Any, trt: Any) -> Any:
    cell = {"repro": "attacks", "case": "after-names-another-cell", "version": "9.9.9", "gpu": "h200"}
    record = json.dumps({**RECORD, "cell": cell, "product": "tensorrt"}).encode()
    channel().hand({"result": "final"}, lambda stream: stream.write(record))
    os._exit(0)


def do_removes_all(outputs: Any, trt: Any) -> Any:
    for folder in (ROOT / "job", ROOT / "cases", ROOT / "repros", ROOT / "trtprobe"):
        walk = os.walk(folder)  # passes over what the host takes away meanwhile
        paths = [Path(root, name) for root, folders, files in walk for name in (*folders, *files)]
        for path in sorted(paths, reverse=True)[:50]:
            yield lambda path=path: path.rmdir() if path.is_dir() else path.unlink()


def do_links(outputs: Any, trt: Any) -> Any:
    for index in range(100):
        path = ROOT / "out" / str(index)
        if not path.exists():
            path.symlink_to("/etc")


def do_kills_the_supervisor(outputs: Any, trt: Any) -> Any:
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(10)


def do_stops_the_supervisor(outputs: Any, trt: Any) -> Any:
    os.kill(os.getppid(), signal.SIGSTOP)
    while True:
        succeeds(lambda: allocate(ROOT / "out", True, 1 << 30))
        time.sleep(1)


def do_shouts(outputs: Any, trt: Any) -> Any:
    for number in range(3000):
        channel().send({"done": number, "ready": number, "build": number, "taken": []})


def fills(unlink: bool, *folders: Path) -> Any:
    return lambda *_: [lambda folder=folder: allocate(folder, unlink) for folder in folders]


OWN = {
    **{name[3:].replace("_", "-"): value for name, value in list(globals().items()) if name[:3] == "do_"},
    "fills-the-disk": fills(False, Path(), ROOT / "out", ROOT / "job", ROOT / "cases"),
    "fills-unseen": fills(True, Path(), ROOT / "out"),
    "names-a-path": lambda outputs, _: outputs.update({"../" * 6 + "tmp/trtmatrix-was-here": outputs["y"]}),
}
GROUPS: Dict[str, Dict[str, Any]] = {
    "own": {name: does(attack) for name, attack in OWN.items()},
    "asks": SYSCALLS, "reaches": REACHES,
    "changes": {name: changes(change) for name, change in CHANGES.items()},
    "hands-over": {name: hands({"build": 0, "output": "y"}, data) for name, data in ARRAYS.items()},
    "tells": {name: hands({"result": "final"}, data) for name, data in RESULTS.items()},
    "tells-oddly": {name: hands({"result": "final"}, data) for name, data in ODD.items()},
    "ends": {name: lambda *_, end=end: end() for name, end in ENDS.items()},
}  # fmt: skip
ATTACKS: Dict[str, Any] = {
    (name if group in {"own", "ends"} else "%s-%s" % (group, name)): attack
    for group, attacks in GROUPS.items() for name, attack in attacks.items()
}  # fmt: skip
