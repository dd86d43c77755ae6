"""The words of API surfaces as types: what a release's bindings offer, what changed, where code uses it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class MemberKind(str, Enum):
    """What a name of the bindings is."""

    CLASS = "class"
    FUNCTION = "function"
    METHOD = "method"
    PROPERTY = "property"
    VALUE = "value"
    """An enum's member, or an object of the module such as ``tensorrt.float32``."""


@dataclass(frozen=True, kw_only=True)
class Member:
    """A function, method, property or value, as the bindings' own docstrings tell it.

    ``signatures``: one an overload, without defaults' values where they are addresses. ``returns``: the
    class's bare name where it is one of the bindings' own (``"ICudaEngine"``), else the text or nothing.
    ``deprecated``: what the docstring says of that, or nothing. ``settable``: of a property.
    """

    kind: MemberKind
    signatures: tuple[str, ...] = ()
    returns: str = ""
    deprecated: str = ""
    settable: bool = False


@dataclass(frozen=True, kw_only=True)
class ApiClass:
    """A class with its own members; ``bases`` are bare names of the bindings' own classes."""

    bases: tuple[str, ...] = ()
    members: Mapping[str, Member] = field(default_factory=dict)
    deprecated: str = ""


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where a surface was read: a wheel's file name with its SHA-256, or an image's digest; when (a date)."""

    wheel: str = ""
    sha256: str = ""
    image: str = ""
    python: str = ""
    extracted: str = ""


@dataclass(frozen=True, kw_only=True)
class Surface:
    """The public surface of the bindings of one release (``version`` as ``__version__`` says it)."""

    version: str
    origin: Origin
    classes: Mapping[str, ApiClass]
    names: Mapping[str, Member]
    """Functions and values of the module itself."""

    def find(self, dotted: str) -> Member | None:
        """Return what ``"ICudaEngine.num_bindings"`` or ``"volume"`` names, through the bases; else None.

        Of a class alone, a Member of kind CLASS whose ``returns`` is the class's own name. A second name of a
        class, and one that lies in another (``"Logger.Severity.ERROR"``), are followed.
        """
        owner, _, rest = dotted.partition(".")
        found = self._top(owner)
        while rest and found is not None:
            name, _, rest = rest.partition(".")
            found = self._in_class(found.returns, name) if found.kind is MemberKind.CLASS else None
        return found

    def _top(self, name: str) -> Member | None:
        own = self.classes.get(name)
        if own is not None:
            return Member(kind=MemberKind.CLASS, deprecated=own.deprecated, returns=name)
        return self.names.get(name)

    def _in_class(self, owner: str, name: str) -> Member | None:
        waiting, seen = [owner], set()
        while waiting:
            current = waiting.pop(0)
            if current in seen or current not in self.classes:
                continue
            seen.add(current)
            if name in self.classes[current].members:
                return self.classes[current].members[name]
            waiting += self.classes[current].bases
        return None


class ChangeKind(str, Enum):
    """What happens to a name between two versions."""

    REMOVED = "removed"
    CHANGED = "changed"
    DEPRECATED = "deprecated"
    BEHAVIOUR = "behaviour"
    """The name stays and does something else; hand-kept, with its source."""
    ADDED = "added"


@dataclass(frozen=True, kw_only=True)
class ApiChange:
    """A change of one name. ``name``: ``"ICudaEngine.num_bindings"``, or ``"trtexec --explicitBatch"``.

    ``before`` and ``after`` are the signatures where they changed. ``replacement``: what to write instead
    (empty: not known). ``source`` and ``url``: where that is known from; for a plain difference of surfaces,
    the two wheels.
    """

    name: str
    kind: ChangeKind
    before: str = ""
    after: str = ""
    replacement: str = ""
    note: str = ""
    source: str = ""
    url: str = ""


@dataclass(frozen=True, kw_only=True)
class Behaviour:
    """A change that names cannot show; in effect for moves from below ``since`` to ``since`` or later.

    ``names``: what code uses that is affected (empty: everything); ``since`` is a release such as ``"10.0"``.
    """

    topic: str
    text: str
    since: str
    names: tuple[str, ...] = ()
    source: str = ""
    url: str = ""

    @property
    def when(self) -> str:
        """Say from when on it is so."""
        return f"since {self.since}" if self.since else "at every move"


class Certainty(str, Enum):
    """How sure it is that a use is one of TensorRT's."""

    SURE = "sure"
    POSSIBLE = "possible"


@dataclass(frozen=True, kw_only=True)
class ApiUse:
    """A use of a changed name in the user's code: ``line`` counts from 1, in a notebook within its cell.

    ``file`` is relative to the folder that was scanned; ``cell``: the notebook's cell, from 1, or 0.
    ``text`` is the line as it stands, ``why`` says why the use is only possible, or nothing.
    """

    file: str
    line: int
    change: ApiChange
    certainty: Certainty
    text: str = ""
    cell: int = 0
    why: str = ""
