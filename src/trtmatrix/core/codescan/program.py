"""All scanned Python files as one program: its functions, classes and names, and what flows between them."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field

from trtmatrix.core.codescan.findings import Findings
from trtmatrix.core.codescan.imports import Paths
from trtmatrix.core.codescan.names import Names
from trtmatrix.core.codescan.values import (
    NOTHING,
    Foreign,
    OwnClass,
    OwnFunction,
    TrtClass,
    Value,
    join,
)

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclass(eq=False)
class Scope:
    """The names of a module or function: ``flow`` as they stand now, ``names`` all they ever were.

    ``flow`` is empty between passes; functions inside look at ``names``, as they may run at any time.
    """

    file: SourceFile
    parent: Scope | None = None
    names: dict[str, Value] = field(default_factory=dict)
    flow: dict[str, Value] = field(default_factory=dict)
    local: frozenset[str] = frozenset()
    shared: frozenset[str] = frozenset()
    """Names that ``global`` or ``nonlocal`` hand to the module or to a function around."""
    function: str = ""
    owner: str = ""
    """The class whose body this is, or whose method."""


@dataclass(eq=False)
class SourceFile:
    """A file that was parsed. ``path`` is that of the scan, ``lines`` are its lines as they stand."""

    path: str
    tree: ast.Module
    lines: list[str]
    cells: list[tuple[int, int]] = field(default_factory=list)
    """Of a notebook: for each line the cell and the line in it."""
    about_tensorrt: bool = False
    """It imports TensorRT, or a scanned file that does, or is imported by one."""
    unbound: bool = False
    """It uses a name ``trt`` that it binds nowhere."""
    neighbours: set[str] = field(default_factory=set)
    """The scanned files that it imports, or that import it."""

    scope: Scope = field(init=False)

    def __post_init__(self) -> None:
        """Make the module's scope."""
        self.scope = Scope(self)


@dataclass(eq=False)
class FunctionInfo:
    """A function as it was defined: its node, the scope around it, its class, what its decorators make of it."""

    node: Function
    around: Scope
    owner: str
    scope: Scope
    static: bool = False
    of_class: bool = False
    is_property: bool = False
    is_context: bool = False
    params: dict[str, Value] = field(default_factory=dict)
    gives: Value = NOTHING
    yields: Value = NOTHING
    guards: tuple[str, ...] = ()
    calls: set[str] = field(default_factory=set)
    """The guards of the calls seen in this pass; ``""`` for one without."""
    known_calls: set[str] = field(default_factory=set)
    """Those of the pass before, which was whole."""


@dataclass(eq=False)
class ClassInfo:
    """A class of the scanned files: its bases as values, and its attributes, those of its objects too."""

    name: str
    bases: list[Value]
    attributes: dict[str, Value] = field(default_factory=dict)
    fields: list[str] = field(default_factory=list)
    """Annotated names in order, which a dataclass's constructor takes."""
    is_record: bool = False


class Program:
    """What is known so far; it only grows from pass to pass, until a pass adds nothing."""

    def __init__(self, files: dict[str, SourceFile], names: Names, findings: Findings) -> None:
        """Start knowing nothing."""
        self.files, self.names, self.findings = files, names, findings
        self.paths = Paths(files)
        self.functions: dict[str, FunctionInfo] = {}
        self.classes: dict[str, ClassInfo] = {}
        self.grew = False
        self._lines: dict[str, list[str]] = {}
        self._derived: dict[str, list[str]] = {}

    def start_pass(self) -> None:
        """Begin to read all files once more."""
        self.grew = False
        self.findings.clear()
        self._lines, self._derived = {}, {}
        for key in self.classes:
            for base in self.line_of(key)[1:]:
                self._derived.setdefault(base, []).append(key)
        for info in self.functions.values():
            info.known_calls, info.calls = info.calls, set()

    def is_settled(self) -> bool:
        """Say whether a pass that ended added nothing to what was known."""
        return not self.grew and all(info.calls == info.known_calls for info in self.functions.values())

    def grow(self, table: dict[str, Value], name: str, value: Value) -> None:
        """Add a value to a table; note whether it was news."""
        before = table.get(name, NOTHING)
        after = join(before, value)
        if after != before or name not in table:
            table[name] = after
            self.grew = self.grew or after != before

    def line_of(self, key: str) -> list[str]:
        """Return the keys of an own class and of its own bases, the nearest first."""
        known = self._lines.get(key)
        if known is not None:
            return known
        line, waiting = [], [key]
        while waiting:
            current = waiting.pop(0)
            if current in line or current not in self.classes:
                continue
            line.append(current)
            for base in self.classes[current].bases:
                waiting += sorted(thing.key for thing in base if isinstance(thing, OwnClass))
        if line:
            self._lines[key] = line
        return line

    def trt_bases(self, key: str) -> list[str]:
        """Return the classes of the bindings that an own class derives from."""
        bases = (thing for each in self.line_of(key) for base in self.classes[each].bases for thing in base)
        return sorted({thing.name for thing in bases if isinstance(thing, TrtClass)})

    def has_foreign_base(self, key: str) -> bool:
        """Say whether an own class derives from one of another library, or from something unknown."""
        bases = [base for each in self.line_of(key) for base in self.classes[each].bases]
        return any(not base or any(isinstance(thing, Foreign) for thing in base) for base in bases)

    def derived(self, key: str) -> Sequence[str]:
        """Return the own classes that derive from an own class, as known when this pass began."""
        return self._derived.get(key, ())

    def attribute(self, key: str, name: str) -> Value:
        """Return an attribute of an own class or its objects: its own, else what a derived class stores."""
        for each in self.line_of(key):
            if name in self.classes[each].attributes:
                own = self.classes[each].attributes[name]
                return own if own else self._of_derived(key, name)
        return self._of_derived(key, name)

    def _of_derived(self, key: str, name: str) -> Value:
        return join(*(self.classes[each].attributes.get(name, NOTHING) for each in self.derived(key)))

    def defines(self, key: str, name: str) -> bool:
        """Say whether an own class or one of its own bases has an attribute of that name."""
        return any(name in self.classes[each].attributes for each in self.line_of(key))

    def defined_near(self, name: str, file: SourceFile) -> bool:
        """Say whether a class of this file, or of one beside it in the imports, has an attribute of that name."""
        near = {file.path, *file.neighbours}
        return any(name in info.attributes and key.partition(":")[0] in near for key, info in self.classes.items())

    def guards_of(self, key: str) -> tuple[str, ...]:
        """Return what stands guard over a whole function: where it is defined, or all calls that were seen."""
        info = self.functions[key]
        if info.guards:
            return info.guards
        if info.known_calls and "" not in info.known_calls:
            return (sorted(info.known_calls)[0],)
        return ()

    def method(self, key: str, name: str) -> OwnFunction | None:
        """Return an own class's method of that name."""
        found = [thing for thing in self.attribute(key, name) if isinstance(thing, OwnFunction)]
        return min(found, key=lambda thing: thing.key, default=None)

