"""The inside of a worker: one process that keeps the product open and runs the cells it is given.

What a cell leaves changed in the process is seen by comparing, as far as that is cheap; then it serves no
other. What libraries do by themselves on first use (files, threads and memory of a driver) is not held
against a cell.
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
from types import FunctionType, MappingProxyType, ModuleType
from typing import IO, Any, Callable, Dict, Iterator, List, Mapping, Tuple

import numpy as np

from trtprobe import ends
from trtprobe.backends import Opened
from trtprobe.cell import TROUBLE, run_cell
from trtprobe.channel import NUMBERS, Channel, identity, npy
from trtprobe.files import to_json
from trtprobe.processes import flush, has_children

WATCHED = (
    "builtins", "ctypes", "gc", "io", "json", "math", "os", "posix", "random", "shutil", "signal", "socket",
    "struct", "subprocess", "tempfile", "threading", "time", "numpy", "numpy.linalg", "numpy.random",
    "numpy.lib", "numpy.fft", "tensorrt", "tensorrt_rtx_bindings", "onnxruntime", "json.decoder",
    "json.encoder", "numpy.core._methods", "numpy.core.fromnumeric", "numpy.core.numeric",
    "numpy._core._methods", "numpy._core.fromnumeric", "numpy._core.numeric",
)  # fmt: skip
"""Modules whose names must stay bound to what they were, with all of this package."""

OWNERS = ("tensorrt", "tensorrt_rtx_bindings", "onnxruntime", "json.decoder", "json.encoder")
"""Modules whose classes are watched too, as are this package's."""

INSIDE = ("__func__", "fget", "__wrapped__", "_implementation")
"""Where a method, a property, functools' and NumPy's wrappers have a function inside."""

REBOUND = {"tempfile": ("_name_sequence", "tempdir")}
"""Names that a module binds anew by itself."""

STREAMS = ("stdin", "stdout", "stderr", "excepthook", "displayhook")
TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
LEAK_BYTES = 2 << 30
FILES = 64
"""So many more open files than at the start are a leak."""


def _handlers() -> Dict[int, Any]:
    return {int(number): signal.getsignal(number) for number in signal.valid_signals()}


def _limits() -> Dict[str, Tuple[int, int]]:
    names = [name for name in dir(resource) if name.startswith("RLIMIT_")]
    return {name: resource.getrlimit(getattr(resource, name)) for name in names}


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
    "signal handlers": _handlers,
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
    "limits": _limits,
    "processors it may use": lambda: os.sched_getaffinity(0),
    "priority": lambda: os.getpriority(os.PRIO_PROCESS, 0),
    "rounding of floats": _arithmetic,
    "threads": lambda: sorted(sys._current_frames()),  # noqa: SLF001 - documented
}
"""The process's state by piece, as it is read."""


class Traces:
    """A process as it was before its first cell."""

    def __init__(self) -> None:
        self._state = {name: read() for name, read in STATE.items()}
        self._names = list(_namespaces())
        self._bodies = [
            ("%s.%s" % (owner, name), function, function.__code__)
            for owner, _, was in self._names if owner.startswith(("trtprobe", "numpy"))
            for name, thing in was.items() for function in _functions_of(thing)
        ]  # fmt: skip
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

    def _rebound(self) -> Iterator[Tuple[str, str]]:
        """Yield the watched names that are bound to something else, or not at all."""
        missing = object()
        for owner, space, was in self._names:
            now = space.get
            for name, value in was.items():
                if now(name, missing) is not value:
                    yield owner, name
            if isinstance(space, MappingProxyType) and len(space) != len(was):
                yield owner, ", ".join(sorted(set(space) - set(was)))
        for name, function, body in self._bodies:
            if function.__code__ is not body:
                yield name, "the body"

    def _foreign(self) -> List[str]:
        """Return the packages that were imported since, but for Python's own and parts of known ones."""
        fresh = set(sys.modules) - self._modules
        self._modules |= fresh
        names = sorted(set(map(_package, fresh)) - self._tops)
        return [name for name in names if not _is_pythons_own(sys.modules.get(name))]


def _namespaces() -> Iterator[Tuple[str, Any, Dict[str, Any]]]:
    """Yield the watched namespaces, of modules and of their own classes, each with what it holds now.

    Classes are watched of this package and of the product: what they do is what is measured.
    """
    ours = [name for name in sys.modules if _package(name) == "trtprobe"]
    classes: Dict[type, None] = {}
    for name in [*WATCHED, *ours]:
        space = vars(sys.modules[name]) if name in sys.modules else {}
        steady = {word: thing for word, thing in space.items() if word not in REBOUND.get(name, ())}
        yield name, space, steady
        if name in ours or name in OWNERS:
            own = [thing for thing in steady.values() if isinstance(thing, type)]
            bases = [base for thing in own for base in thing.__mro__]
            classes.update((base, None) for base in bases if _package(base.__module__) == _package(name))
    for kind in classes:
        yield "%s.%s" % (kind.__module__, kind.__qualname__), vars(kind), dict(vars(kind))


def _package(module: str) -> str:
    return str(module).split(".", maxsplit=1)[0]


def _functions_of(thing: Any) -> Iterator[FunctionType]:
    """Yield the Python functions behind a name: itself, what it wraps, what a property calls."""
    for part in (thing, *(getattr(thing, name, None) for name in INSIDE)):
        if isinstance(part, FunctionType):
            yield part


def _is_pythons_own(module: Any) -> bool:
    file = getattr(module, "__file__", None)
    if not isinstance(module, ModuleType) or file is None:
        return isinstance(module, ModuleType) and not hasattr(module, "__path__")
    paths = sysconfig.get_paths()
    return file.startswith((paths["stdlib"], paths["platstdlib"])) and not any(
        part in {"site-packages", "dist-packages"} for part in Path(file).parts
    )


def anonymous_memory() -> int:
    """Return the bytes of memory that are this process's own, 0 where it cannot be told."""
    try:
        fields = Path("/proc/self/statm").read_text().split()
    except OSError:
        return 0
    return (int(fields[1]) - int(fields[2])) * resource.getpagesize()


def _open_files() -> int:
    try:
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - counted only
    except OSError:
        return 0


def serve(channel: Channel, product: str, warm: bool, alone: bool) -> int:
    """Warm up, then run each cell that is ordered; returns after the last one, or when nobody asks any more.

    ``alone``: there will be one cell, and the process is not looked at after it.
    """
    opened = Opened(product)
    if warm:
        try:
            opened.backend().warm_up()
        except Exception as error:  # a cell tells what fails
            print("not warmed up: %s" % error, flush=True)
    server = Server(channel, opened, alone)
    if not alone:
        gc.collect()
        gc.freeze()  # what is there now stays, and need not be looked through after each cell
    channel.send({"ready": True})
    received = channel.receive()
    while received is not None and received[1] is not None and server.serve_one(received[0], received[1]):
        received = channel.receive()
    return 0


class Sender:
    """Hands what comes of a cell to the supervisor, sealed."""

    def __init__(self, channel: Channel) -> None:
        self.channel, self.pid = channel, os.getpid()

    def tell(self, result: Dict[str, Any], *, final: bool = False) -> None:
        """Hand over a result, or what it is so far."""
        content = to_json(result).encode()
        self._send({"result": "final" if final else "so far"}, lambda stream: stream.write(content))

    def hand(self, number: int, outputs: Mapping[str, np.ndarray]) -> None:
        """Hand over the outputs of a build; ``TypeError`` where one holds no numbers and no truth values."""
        for name, array in outputs.items():
            if array.dtype.kind not in NUMBERS:
                raise TypeError("output %s has the dtype %s" % (name, array.dtype))
        for name, array in outputs.items():
            self._send({"build": number, "output": name}, npy(array))

    def _send(self, message: Dict[str, Any], write: Callable[[IO[bytes]], object]) -> None:
        if os.getpid() != self.pid:
            os._exit(0)  # the cell forked itself, and its copy must not answer too
        self.channel.hand(message, write)


class Server:
    """Runs cells, and judges after each whether the process may serve another."""

    def __init__(self, channel: Channel, opened: Opened, alone: bool) -> None:
        self.channel, self.opened, self.home, self.sender = channel, opened, Path.cwd(), Sender(channel)
        self.traces = None if alone else Traces()
        opened.on_open = self._look_again

    def _look_again(self) -> None:
        """Take the process as it is: opening the product changed it, not a cell."""
        if self.traces is not None:
            self.traces = Traces()

    def serve_one(self, order: Dict[str, Any], output: int) -> bool:
        """Run a cell that prints to ``output``; whether the process may serve another."""
        self.channel.send({"taken": True})
        outside = os.dup(1), os.dup(2)
        _print_to(output, output)
        os.close(output)
        done = self._run(order)
        if done["ended"]:  # what the process prints while it ends is still the cell's
            self.channel.send({"done": done})
            return False
        _print_to(*outside)
        for file in outside:
            os.close(file)
        os.chdir(self.home)
        return self.channel.send({"done": done})

    def _run(self, order: Dict[str, Any]) -> Dict[str, Any]:
        """Run a cell in its folder and hand over what comes of it; returns what is told of this process."""
        folder, started = Path(order["folder"]), time.perf_counter()
        os.chdir(str(folder))
        before = Path.cwd(), identity(1), identity(2)
        result = run_cell(order["spec"], self.sender, self.opened)
        seconds = time.perf_counter() - started
        ended = self._why_end(order, result, before)
        return {"seconds": seconds, "builder_seconds": self.opened.builder_seconds, "ended": ended}

    def _why_end(self, order: Dict[str, Any], result: Dict[str, Any], before: Any) -> str:
        """Say why this process can serve no other cell; nothing where it can."""
        if self.traces is None:
            return "it was for this cell alone"
        if result["ended"] not in ends.ENDED_WELL:
            return "the cell ended: %s" % result["ended"]
        if result.get(TROUBLE):
            return "the GPU's context reports an error"
        after = Path.cwd(), identity(1), identity(2)
        gc.collect()
        changed = self.traces.find()
        changed += ["the backend's " + name for name in self.opened.rebound()]
        changed += ["the working folder"] if after[0] != before[0] else []
        changed += ["where it prints"] if after[1:] != before[1:] else []
        changed += ["its connection"] if not self.channel.is_there() else []
        if changed:
            return "the cell changed or left: " + ", ".join(changed)
        return "the case is marked as dangerous" if order["dangerous"] else ""


def _print_to(out: int, err: int) -> None:
    """Let everything that this process prints from now on go to these files."""
    flush()
    os.dup2(out, 1)
    os.dup2(err, 2)
    faulthandler.enable(file=2)
