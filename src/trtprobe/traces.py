"""What a cell left changed in its process: seen by comparing, put back where that is safe.

Only what is cheap to see is looked at. What libraries do by themselves on first use (files, threads and
memory of a driver) is not held against a cell.
"""

from __future__ import annotations

import gc
import locale
import os
import random
import resource
import signal
import sys
import sysconfig
import warnings
from operator import attrgetter
from pathlib import Path
from types import FunctionType, MappingProxyType, ModuleType
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Tuple

import numpy as np

from trtprobe.processes import has_children

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

WRAPPERS = ("_lru_cache_wrapper", "_ArrayFunctionDispatcher")
"""Types of what is called and has a Python function inside: functools' and NumPy's."""

BODY = attrgetter("__code__")

REBOUND = {"tempfile": ("_name_sequence", "tempdir")}
"""Names that a module binds anew by itself."""

STREAMS = ("stdin", "stdout", "stderr", "excepthook", "displayhook")
TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
LEAK_BYTES = 2 << 30
FILES = 64
"""So many more open files than at the start are a leak."""


class Kept(NamedTuple):
    """A piece of the process's state: how it is read, and how it is put back where that is safe."""

    name: str
    read: Callable[[], Any]
    restore: Callable[[Any], object] = lambda _: None


def _restore_environment(was: Dict[str, str]) -> None:
    for name in set(os.environ) - set(was):
        del os.environ[name]
    os.environ.update(was)


def _handlers() -> Dict[int, Any]:
    return {int(number): signal.getsignal(number) for number in signal.valid_signals()}


def _restore_handlers(was: Dict[int, Any]) -> None:
    for number, handler in was.items():
        if handler is not None and signal.getsignal(number) != handler:
            signal.signal(number, handler)


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


KEPT = (
    Kept("environment variables", lambda: dict(os.environ), _restore_environment),
    Kept("signal handlers", _handlers, _restore_handlers),
    Kept("blocked signals", lambda: signal.pthread_sigmask(signal.SIG_BLOCK, ()),
         lambda was: signal.pthread_sigmask(signal.SIG_SETMASK, was)),
    Kept("timers", lambda: [signal.getitimer(timer)[0] for timer in TIMERS],
         lambda _: [signal.setitimer(timer, 0) for timer in TIMERS]),
    Kept("NumPy's error state", np.geterr, lambda was: np.seterr(**was)),
    Kept("filters of warnings", lambda: (list(warnings.filters), warnings.showwarning)),
    Kept("sys.path", lambda: list(sys.path), lambda was: sys.path.__setitem__(slice(None), was)),
    Kept("import hooks", lambda: (list(sys.meta_path), list(sys.path_hooks))),
    Kept("sys." + ", sys.".join(STREAMS), lambda: [getattr(sys, name) for name in STREAMS],
         lambda was: vars(sys).update(zip(STREAMS, was))),
    Kept("trace or profile function", lambda: (sys.gettrace(), sys.getprofile())),
    Kept("recursion limit", sys.getrecursionlimit, sys.setrecursionlimit),
    Kept("garbage collection", lambda: (gc.isenabled(), gc.get_threshold())),
    Kept("locale", lambda: locale.setlocale(locale.LC_ALL)),
    Kept("umask", _umask, os.umask),
    Kept("limits", _limits),
    Kept("processors it may use", lambda: os.sched_getaffinity(0)),
    Kept("priority", lambda: os.getpriority(os.PRIO_PROCESS, 0)),
    Kept("rounding of floats", _arithmetic),
    Kept("threads", lambda: sorted(sys._current_frames())),  # noqa: SLF001 - documented
)  # fmt: skip


class Traces:
    """A process as it was before its first cell."""

    def __init__(self) -> None:
        self._state = [(kept, kept.read()) for kept in KEPT]
        self._names = list(_namespaces())
        self._functions = {
            function: "%s.%s" % (owner, name)
            for owner, _, was in self._names if owner.startswith(("trtprobe", "numpy"))
            for name, thing in was.items() for function in _functions_of(thing)
        }  # fmt: skip
        self._bodies = list(map(BODY, self._functions))
        self._modules, self._tops = set(sys.modules), {name.split(".")[0] for name in sys.modules}
        self._randoms = random.getstate(), np.random.get_state()
        self._memory, self._files = anonymous_memory(), _open_files()

    def find(self) -> List[str]:
        """Say what is not as it was, and put back what can be put back.

        The generators of random numbers are put back silently: a cell may use them.
        """
        found = []
        for kept, was in self._state:
            if kept.read() != was:
                found.append(kept.name)
                kept.restore(was)
        found += ["%s.%s" % found for found in self._rebound()]
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
        for name, body, was_body in zip(self._functions.values(), map(BODY, self._functions), self._bodies):
            if body is not was_body:
                yield name, "the body"

    def _foreign(self) -> List[str]:
        """Return the packages that were imported since, but for Python's own and parts of known ones."""
        fresh = set(sys.modules) - self._modules
        self._modules |= fresh
        names = sorted({name.split(".")[0] for name in fresh} - self._tops)
        return [name for name in names if not _is_pythons_own(sys.modules.get(name))]


def _namespaces() -> Iterator[Tuple[str, Any, Dict[str, Any]]]:
    """Yield the watched namespaces, of modules and of their own classes, each with what it holds now.

    Classes are watched of this package and of the product: what they do is what is measured.
    """
    ours = [name for name in sys.modules if name.split(".")[0] == "trtprobe"]
    classes: Dict[type, None] = {}
    for name in [*WATCHED, *ours]:
        space = vars(sys.modules[name]) if name in sys.modules else {}
        steady = {word: thing for word, thing in space.items() if word not in REBOUND.get(name, ())}
        yield name, space, steady
        if name in ours or name in OWNERS:
            own = [thing for thing in steady.values() if isinstance(thing, type)]
            classes.update((base, None) for thing in own for base in thing.__mro__ if _is_of(name, base))
    for kind in classes:
        yield "%s.%s" % (kind.__module__, kind.__qualname__), vars(kind), dict(vars(kind))


def _functions_of(thing: Any) -> Iterator[FunctionType]:
    """Yield the Python functions behind a name: itself, what it wraps, a property's."""
    parts: List[Any] = [thing]
    if isinstance(thing, (staticmethod, classmethod)):
        parts = [thing.__func__]
    elif isinstance(thing, property):
        parts = [thing.fget, thing.fset]
    elif type(thing).__name__ in WRAPPERS:
        parts = [getattr(thing, name, None) for name in ("__wrapped__", "_implementation")]
    for part in parts:
        if isinstance(part, FunctionType):
            yield part
            yield from _functions_of(vars(part).get("__wrapped__"))


def _is_of(name: str, kind: type) -> bool:
    """Whether a class is of the same package as a module."""
    return str(kind.__module__).split(".")[0] == name.split(".", maxsplit=1)[0]


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
