"""The inside of a worker: one process that keeps the product open and runs the cells it is given.

What a cell leaves changed in the process is seen by comparing, as far as that is cheap; then it serves no
other. What libraries do on first use (files, threads and memory of a driver) is not held against a cell.
"""

from __future__ import annotations

import faulthandler
import gc
import locale
import os
import random
import resource
import signal
import sys
import sysconfig
import time
import warnings
from pathlib import Path
from types import MappingProxyType
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple

import numpy as np

from trtprobe import ends
from trtprobe.backends import open_backend
from trtprobe.backends.base import Backend
from trtprobe.cell import TROUBLE, run_cell
from trtprobe.channel import Channel, Write, identity, npy
from trtprobe.files import to_json
from trtprobe.processes import flush, has_children

WATCHED = (
    "builtins", "ctypes", "gc", "io", "json", "math", "os", "posix", "random", "shutil", "signal", "socket",
    "struct", "subprocess", "threading", "time", "numpy", "numpy.linalg", "numpy.random", "numpy.lib",
    "numpy.fft", "tensorrt", "tensorrt_rtx_bindings", "onnxruntime", "json.decoder", "json.encoder",
)  # fmt: skip
"""Modules whose names must stay bound to what they were, with all of this package."""

OWNERS = ("tensorrt", "tensorrt_rtx_bindings", "onnxruntime", "json.decoder", "json.encoder")
"""Modules whose classes are watched too, as are this package's."""

STREAMS = ("stdin", "stdout", "stderr", "excepthook", "displayhook")
TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
LIMITS = [getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")]
LEAK_BYTES = 2 << 30
TORCH = "imported torch"
TORCH_LEAVES = ("environment variables", "filters of warnings")
"""What the import of torch, and its first use of a GPU, leave beside modules."""
FILES = 64  # so many more open files than at the start are a leak


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


_NUMBERS = (1.0, 2.0**-54 * 1.5, sys.float_info.min)


def _arithmetic() -> Tuple[float, ...]:
    """Return sums that tell the rounding mode, and a quotient that is zero where denormals are flushed."""
    one, little, tiny = _NUMBERS
    return one + little, one - little, -one - little, tiny / 2


STATE: Mapping[str, Callable[[], Any]] = {
    "environment variables": lambda: dict(os.environ),
    "signal handlers": lambda: [signal.getsignal(number) for number in sorted(signal.valid_signals())],
    "blocked signals": lambda: signal.pthread_sigmask(signal.SIG_BLOCK, ()),
    "timers": lambda: [signal.setitimer(timer, 0)[0] for timer in TIMERS],  # none ends what comes after it
    "NumPy's error state": np.geterr,
    "filters of warnings": lambda: (list(warnings.filters), warnings.showwarning),
    "sys.path": lambda: list(sys.path),
    "import hooks": lambda: (list(sys.meta_path), list(sys.path_hooks)),
    "sys." + ", sys.".join(STREAMS): lambda: [getattr(sys, name) for name in STREAMS],
    "trace or profile function": lambda: (sys.gettrace(), sys.getprofile()),
    "recursion limit": sys.getrecursionlimit,
    "garbage collection": lambda: (gc.isenabled(), gc.get_threshold()),
    "locale": lambda: locale.setlocale(locale.LC_ALL),
    "umask": _umask,
    "limits": lambda: [resource.getrlimit(limit) for limit in LIMITS],
    "processors it may use": lambda: os.sched_getaffinity(0),
    "priority": lambda: os.getpriority(os.PRIO_PROCESS, 0),
    "rounding of floats": _arithmetic,
    "threads": lambda: sorted(sys._current_frames()),  # noqa: SLF001 - documented
}
"""The process's state by piece, as it is read."""


class Traces:
    """A process as it was before its first cell, or when it had opened its product."""

    def __init__(self) -> None:
        self._state = {name: read() for name, read in STATE.items()}
        self._names = [(owner, space, dict(space)) for owner, space in _namespaces()]
        self._modules, self._tops = set(sys.modules), set(map(_package, sys.modules))
        self._randoms = random.getstate(), np.random.get_state()
        self._memory, self._files = anonymous_memory(), _open_files()

    def find(self) -> List[str]:
        """Say what is not as it was; the generators of random numbers are put back: a cell may use them."""
        found = [name for name, read in STATE.items() if read() != self._state[name]]
        found += ["%s.%s" % pair for pair in self._rebound()]
        found += ["imported " + name for name in self._foreign()]
        if has_children():
            found.append("child processes")
        grown = anonymous_memory() - self._memory
        if grown > LEAK_BYTES:
            found.append("%.1f GiB of memory" % (grown / (1 << 30)))
        if _open_files() - self._files > FILES:
            found.append("more than %d open files" % FILES)
        random.setstate(self._randoms[0])
        np.random.set_state(self._randoms[1])
        return found

    def put_back(self) -> None:
        """Put back what torch leaves but for torch itself, whose memory nobody is blamed for."""
        self._memory = anonymous_memory()
        os.environ.clear()
        os.environ.update(self._state[TORCH_LEAVES[0]])
        filters, warnings.showwarning = self._state[TORCH_LEAVES[1]]
        warnings.filters[:] = filters  # type: ignore[index] # a list

    def _rebound(self) -> Iterator[Tuple[str, str]]:
        """Yield the watched names that are bound to something else, or not at all; new ones of a class."""
        missing = object()
        for owner, space, was in self._names:
            changed = {name for name, value in was.items() if space.get(name, missing) is not value}
            changed |= set(space) - set(was) if isinstance(space, MappingProxyType) else set()
            yield from ((owner, name) for name in sorted(changed))

    def _foreign(self) -> List[str]:
        """Return the packages that were imported since, but for Python's own and parts of known ones."""
        fresh = set(sys.modules) - self._modules
        self._modules |= fresh
        names = sorted(set(map(_package, fresh)) - self._tops)
        return [name for name in names if not _is_pythons_own(sys.modules.get(name))]


def _namespaces() -> Iterator[Tuple[str, Mapping[str, Any]]]:
    """Yield the watched namespaces, of modules and of their own classes.

    Classes are watched of this package and of the product: what they do is what is measured.
    """
    ours = [name for name in sys.modules if _package(name) == "trtprobe"]
    classes: Dict[type, None] = {}
    for name in [*WATCHED, *ours]:
        space = vars(sys.modules[name]) if name in sys.modules else {}
        yield name, space
        if name in ours or name in OWNERS:
            bases = [base for thing in space.values() if isinstance(thing, type) for base in thing.__mro__]
            classes.update((base, None) for base in bases if _package(base.__module__) == _package(name))
    for kind in classes:
        yield "%s.%s" % (kind.__module__, kind.__qualname__), vars(kind)


def _package(module: str) -> str:
    return str(module).split(".", maxsplit=1)[0]


def _is_pythons_own(module: Any) -> bool:
    file = getattr(module, "__file__", None)
    if file is None:
        return module is not None and not hasattr(module, "__path__")
    paths, parts = sysconfig.get_paths(), Path(file).parts
    inside = file.startswith((paths["stdlib"], paths["platstdlib"]))
    return inside and not {"site-packages", "dist-packages"} & set(parts)


def anonymous_memory() -> int:
    """Return the bytes of memory that are this process's own."""
    fields = Path("/proc/self/statm").read_text().split()
    return (int(fields[1]) - int(fields[2])) * resource.getpagesize()


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - counted only


def serve(channel: Channel, product: str, warm: bool, alone: bool) -> int:
    """Warm up, then run each cell that is ordered; returns after the last one, or when nobody asks any more.

    ``alone``: there will be one cell, and the process is not looked at after it.
    """
    server = Server(channel, product)
    if warm:
        try:
            server.backend().warm_up()
        except Exception as error:  # a cell tells what fails
            print("not warmed up: %s" % error, flush=True)
    if not alone:
        server.traces = Traces()
        gc.collect()
        gc.freeze()  # what is there now stays, and need not be looked through after each cell
    channel.send({"ready": True})
    received = channel.receive()
    while received is not None and received[1] is not None and server.serve_one(received[0], received[1]):
        received = channel.receive()
    return 0


class Server:
    """Runs cells, hands what comes of them to the supervisor, sealed, and judges whether it may go on."""

    def __init__(self, channel: Channel, product: str) -> None:
        self.channel, self.product, self.home, self.pid = channel, product, Path.cwd(), os.getpid()
        self.opened: Optional[Backend] = None
        self.traces: Optional[Traces] = None
        self.only = ""  # the repro whose cells alone it may still serve, since one has imported torch

    def backend(self) -> Backend:
        """Return the product, opened on first use: that changes the process, and no cell did."""
        if self.opened is None:
            self.opened = open_backend(self.product)
            self.traces = Traces() if self.traces is not None else None
        return self.opened

    def tell(self, result: Dict[str, Any], *, final: bool = False) -> None:
        """Hand over a result, or what it is so far."""
        content = to_json(result).encode()
        self._send({"result": "final" if final else "so far"}, lambda stream: stream.write(content))

    def hand(self, number: int, outputs: Mapping[str, np.ndarray]) -> None:
        """Hand over the outputs of a build."""
        for name, array in outputs.items():
            self._send({"build": number, "output": name}, npy(array))

    def _send(self, message: Dict[str, Any], write: Write) -> None:
        if os.getpid() != self.pid:
            os._exit(0)  # the cell forked itself, and its copy must not answer too
        self.channel.hand(message, write)

    def serve_one(self, order: Dict[str, Any], output: int) -> bool:
        """Run a cell that prints to ``output``; whether the process may serve another."""
        self.channel.send({"taken": True})
        outside = os.dup(1), os.dup(2)
        _print_to(output, output)
        os.close(output)
        os.chdir(order["folder"])
        before, started = _place(), time.perf_counter()
        result = run_cell(order["spec"], self, self.backend)
        builder_seconds = None if self.opened is None else self.opened.builder_seconds
        seconds, ended = time.perf_counter() - started, self._why_end(order, result, before)
        done = {"seconds": seconds, "builder_seconds": builder_seconds, "ended": ended, "only": self.only}
        if not ended:  # what the process prints while it ends is still the cell's
            _print_to(*outside)
            for file in outside:
                os.close(file)
            os.chdir(str(self.home))
        return self.channel.send({"done": done}) and not ended

    def _why_end(self, order: Dict[str, Any], result: Dict[str, Any], before: Tuple[Any, ...]) -> str:
        """Say why this process can serve no other cell; nothing where it can."""
        if self.traces is None:
            return "it was for this cell alone"
        if result["ended"] not in ends.ENDED_WELL:
            return "the cell ended: %s" % result["ended"]
        if result.get(TROUBLE):
            return "the GPU's context reports an error"
        after = _place()
        gc.collect()
        changed = self.traces.find()
        if TORCH in changed and all(one.startswith("imported ") or one in TORCH_LEAVES for one in changed):
            self.traces.put_back()
            self.only, changed = order["spec"]["cell"].split("/")[0], []
        own = {} if self.opened is None else vars(self.opened)  # ``timing`` says so that it has spoilt it
        changed += ["the backend." + name for name in own if hasattr(type(self.opened), name)]
        changed += ["the working folder"] if after[0] != before[0] else []
        changed += ["where it prints"] if after[1:] != before[1:] else []
        changed += ["its connection"] if not self.channel.is_there() else []
        if changed:
            return "the cell changed or left: " + ", ".join(changed)
        return "the case is marked as dangerous" if order["dangerous"] else ""


def _place() -> Tuple[Any, ...]:
    """Return the working folder, which the cell may have removed, and where it prints."""
    return os.stat(".").st_ino, identity(1), identity(2)  # noqa: PTH116


def _print_to(out: int, err: int) -> None:
    """Let everything that this process prints from now on go to these files."""
    flush()
    os.dup2(out, 1)
    os.dup2(err, 2)
    faulthandler.enable(file=2)
