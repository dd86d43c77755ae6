"""The words of APIs: what a release's bindings offer, what changed, where code uses it, what is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from trtmatrix.suite.model import release_of


class MemberKind(str, Enum):
    """What a name of the bindings is."""

    CLASS = "class"
    FUNCTION = "function"
    METHOD = "method"
    PROPERTY = "property"
    VALUE = "value"  # an enum's member, or an object of the module such as tensorrt.float32


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

        Of a class alone, a Member of kind CLASS. A second name of a class, and one that lies in another
        (``"Logger.Severity.ERROR"``), are followed.
        """
        owner, *rest = dotted.split(".")
        found = self.names.get(owner)
        if owner in self.classes:
            found = Member(kind=MemberKind.CLASS, returns=owner, deprecated=self.classes[owner].deprecated)
        for name in rest:
            if found is None or found.kind is not MemberKind.CLASS:
                return None
            found = next((m[name] for m in self.members_of(found.returns).values() if name in m), None)
        return found

    def members_of(self, owner: str) -> dict[str, Mapping[str, Member]]:
        """Return the own members of a class and of each of its bases, the nearest first."""
        line = [owner]
        for name in line:
            line += self.classes[name].bases if name in self.classes else ()
        return {name: self.classes[name].members for name in line if name in self.classes}


class ChangeKind(str, Enum):
    """What happens to a name between two versions, the worst first."""

    REMOVED = "removed"
    CHANGED = "changed"
    BEHAVIOUR = "behaviour"  # the name stays and does something else; hand-kept, with its source
    DEPRECATED = "deprecated"
    ADDED = "added"


MUST_CHANGE = frozenset({ChangeKind.REMOVED, ChangeKind.CHANGED})
"""What code trips over at the version moved to, where the use is sure."""
PINS = ("pin ", "image ")
"""How names of packages and images begin: to change them is the move itself; no code trips over them."""
WORST_FIRST = tuple(ChangeKind)


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
class Kept(ApiChange):
    """What is kept by hand of ``names``, in changes.yaml; of a behaviour, what code uses that is affected.

    A behaviour changes for moves from below ``since`` to ``since`` or later, and an option of trtexec does.
    ``deprecated`` and ``removed`` are releases, where NVIDIA's documents say them and the bindings do not.
    """

    name: str = ""
    kind: ChangeKind = ChangeKind.BEHAVIOUR
    names: tuple[str, ...] = ()
    since: str = ""
    deprecated: str = ""
    removed: str = ""


@dataclass(frozen=True, kw_only=True)
class ApiUse:
    """A use of a changed name in the user's code: ``line`` counts from 1, in a notebook within its cell.

    ``file`` begins with the folder that was named; ``cell``: the notebook's cell, from 1, or 0.
    ``text`` is the line as it stands, ``why`` says why the use is only possible, or nothing.
    """

    file: str
    line: int
    change: ApiChange
    text: str = ""
    cell: int = 0
    why: str = ""

    @property
    def sure(self) -> bool:
        """Whether it is surely one of TensorRT's."""
        return not self.why

    @property
    def must_change(self) -> bool:
        """Whether code surely trips over this use at the version moved to: what a gate stops at."""
        pin = self.change.name.startswith(PINS)
        return self.sure and self.change.kind in MUST_CHANGE and not pin

    @property
    def rank(self) -> tuple[bool, int, str, int, int]:
        """What uses are sorted by: the sure ones and the worst first."""
        return not self.sure, WORST_FIRST.index(self.change.kind), self.file, self.cell, self.line


@dataclass(frozen=True, kw_only=True)
class ApiSection:
    """What changes for code. ``changes``: the difference of the two surfaces; ``uses``: those found in code.

    ``code``: the folders that were scanned (empty: none was named), ``files`` how many files were looked at,
    ``unread``: file → why it, or a part of it, could not be read. ``surfaces``: which wheels or images the
    surfaces come from; ``lacking``: why there is no difference to show, or nothing.
    """

    changes: tuple[ApiChange, ...] = ()
    behaviours: tuple[Kept, ...] = ()
    uses: tuple[ApiUse, ...] = ()
    code: tuple[str, ...] = ()
    files: int = 0
    unread: tuple[tuple[str, str], ...] = ()
    surfaces: tuple[str, ...] = ()
    lacking: str = ""

    @property
    def must_change(self) -> tuple[ApiUse, ...]:
        """The uses that a gate stops at."""
        return tuple(use for use in self.uses if use.must_change)


def numbers_of(version: str) -> tuple[int, ...]:
    """Return the numbers of a version: ``"10.13.3.9.post1"`` → ``(10, 13, 3, 9)``."""
    return release_of(version).release


def lies_between(since: str, before: str, after: str) -> bool:
    """Whether a move from ``before`` up to ``after`` meets what is so since a release."""
    return release_of(before) < release_of(since) <= release_of(after)
