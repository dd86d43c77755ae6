"""Attributes: what they give, and which uses of changing names they are."""

from __future__ import annotations

import ast
import re
import sys
from abc import abstractmethod
from dataclasses import dataclass, field

from trtmatrix.core.api import ApiChange, ChangeKind
from trtmatrix.core.codescan.fold import fold_attribute, hangs_on_version
from trtmatrix.core.codescan.reader import Reader, path_of
from trtmatrix.core.codescan.values import (
    NOTHING,
    Const,
    Foreign,
    Many,
    Module,
    OwnClass,
    OwnFunction,
    OwnModule,
    OwnObject,
    Partial,
    Row,
    Super,
    Tainted,
    Thing,
    TrtCallable,
    TrtClass,
    TrtObject,
    Value,
    join,
    of,
)

_COMMON = {
    "max_batch_size", "batch_size", "batch_scale", "get_batch", "get_batch_size", "set_input", "set_shape",
    "get_output", "get_input", "input_type", "output_type", "num_inputs", "num_outputs", "set_output_type",
    "max_workspace_size", "create_plugin", "get_output_shape", "get_scale", "reduce_axes", "set_flag",
    "get_all_plugin", "device_type", "device_memory_size", "with_values", "dynamic_range", "kernel_size",
    "hidden_size", "max_seq_length", "data_length", "is_network_input", "is_network_output",
}  # fmt: skip
"""Attributes that other libraries' objects are likely to have too: a receiver's name must speak as well."""
_OWN_OF_PYTHON = frozenset(sys.stdlib_module_names) | {"property", "key"}
"""Things of these roots have no attribute of TensorRT's."""
_WORDS_OF_CLASSES = {"ctx": "context", "cfg": "config", "net": "network"}


@dataclass
class _Uses:
    changes: list[ApiChange] = field(default_factory=list)
    others: set[str] = field(default_factory=set)
    derived: str = ""

    def add(self, changes: list[ApiChange]) -> None:
        self.changes += [change for change in changes if change not in self.changes]


class AttributeReader(Reader):
    """Reads attributes of anything."""

    def attribute_of(
        self, base: Value, name: str, node: ast.expr, *, call: ast.Call | None = None, store: bool = False,
        why: str = "",
    ) -> Value:  # fmt: skip
        """Return an attribute of a value, noting its use; ``store``: it is assigned to."""
        uses = _Uses()
        found = [self._of_thing(thing, name, uses, store) for thing in sorted(base, key=repr)]
        if uses.changes:
            if uses.others and not why:
                why = f"it may also be of {', '.join(sorted(uses.others))}"
            elif uses.derived and not why:
                why = f"it is an {uses.derived} only where the layer is of that class"
            self.note(node, uses.changes, call=call, why=why)
        if not base or (len(base) > 1 and not any(self._may_have(thing, name) for thing in base)):
            self._note_unknown(name, node, mistaken=bool(base))
        known = self._by_path(node, name, base)
        return known if known is not None else join(*found)

    def _by_path(self, node: ast.expr, name: str, base: Value) -> Value | None:
        """Return what was stored under this very text, where what it is stored in cannot be told."""
        if any(not isinstance(thing, Foreign | Const) for thing in base):
            return None
        path = path_of(node) if isinstance(node, ast.Attribute) and node.attr == name else ""
        if not path:
            return None
        if path in self.scope.flow:
            return self.scope.flow[path]
        scope = self.scope.parent
        while scope is not None:
            if path in scope.names:
                return scope.names[path]
            scope = scope.parent
        return None

    def _of_thing(self, thing: Thing, name: str, uses: _Uses, store: bool) -> Value:
        match thing:
            case Module():
                return self._of_module(name, uses)
            case TrtClass() | TrtObject():
                return self._of_tensorrt(thing, name, uses, store)
            case OwnModule():
                return self.of_own_module(thing.path, name)
            case OwnClass() | OwnObject() | Super():
                return self._of_own(thing, name, uses, store)
            case Many():
                return join(*(value for key, value in thing.fields if key == name))
            case Foreign():
                root = thing.name.partition(".")[0]
                if root not in _OWN_OF_PYTHON and root != "literal":
                    uses.others.add(root)
                return of(Foreign(f"{thing.name}.{name}" if thing.name.count(".") < 3 else thing.name))
            case Const() | Tainted():
                if hangs_on_version(of(thing)):
                    return fold_attribute(of(thing), name)
                return of(Foreign("literal"))
            case Partial():
                return join(*(value for key, value in thing.keywords if key == name))
            case OwnFunction() | TrtCallable() | Row():
                return NOTHING

    def _of_module(self, name: str, uses: _Uses) -> Value:
        if name in ("tensorrt", "tensorrt_bindings"):
            return of(Module())
        if name == "__version__":
            return of(Const(self.names.after, versioned=True) if self.names.after else Tainted())
        uses.add(self.names.changes(name))
        return self.names.value_of_name(name)

    def _of_tensorrt(self, thing: TrtClass | TrtObject, name: str, uses: _Uses, store: bool) -> Value:
        changes = self.names.changes(f"{thing.name}.{name}")
        uses.add(changes if store else [change for change in changes if not hinders_storing_only(change)])
        if not changes and self.names.at_target(f"{thing.name}.{name}"):
            uses.others.add(thing.name)
        given = self.names.value_of(thing.name, name, of_class=isinstance(thing, TrtClass))
        if given or changes or isinstance(thing, TrtClass):
            return given
        for derived in self.names.derived(thing.name):  # the bindings hand out the base, code knows more
            changes = self.names.changes(f"{derived}.{name}")
            if changes and self.names.knows(f"{derived}.{name}"):
                uses.add(changes)
                uses.derived = derived
            given = given or self.names.value_of(derived, name)
        return given

    def of_own_module(self, path: str, name: str) -> Value:
        """Return a name of a scanned file or folder: its own, else a file in the folder."""
        file = self.program.files.get(path)
        if file is not None and name in file.scope.names:
            return file.scope.names[name]
        folder = path.removesuffix("/__init__.py") if path.endswith("/__init__.py") else path
        if not path.endswith(".py") or path.endswith("/__init__.py"):
            for inner in (f"{folder}/{name}.py", f"{folder}/{name}/__init__.py"):
                if inner in self.program.files:
                    return of(OwnModule(inner))
            if f"{folder}/{name}" in self.program.paths.folders:
                return of(OwnModule(f"{folder}/{name}"))
        return NOTHING

    def _of_own(self, thing: OwnClass | OwnObject | Super, name: str, uses: _Uses, store: bool) -> Value:
        program = self.program
        line = program.line_of(thing.key)
        if isinstance(thing, Super):
            line = line[1:]
        found = [
            program.classes[key].attributes[name] for key in line if name in program.classes[key].attributes
        ]
        if not found or store:
            for base in program.trt_bases(thing.key):
                uses.add(self.names.changes(f"{base}.{name}"))
                found.append(self.names.value_of(base, name, of_class=isinstance(thing, OwnClass)))
        if not isinstance(thing, Super):
            found.append(
                join(
                    *(
                        program.classes[key].attributes.get(name, NOTHING)
                        for key in program.derived(thing.key)
                    )
                )
            )
        if program.defines(thing.key, name) or (not any(found) and not uses.changes):
            uses.others.add(program.classes[thing.key].name)
        own = join(*(found[:1] if isinstance(thing, Super) else [*found[:1], *found[-1:]]))
        return join(*(self._bound(each, thing) for each in own)) if own else NOTHING

    def _bound(self, value: Thing, thing: OwnClass | OwnObject | Super) -> Value:
        """Bind a function to the object that it is an attribute of; a property gives what it returns."""
        if not isinstance(value, OwnFunction):
            return of(value)
        info = self.program.functions.get(value.key)
        if info is None or not info.owner or info.static:
            return of(value)
        if info.is_property and not isinstance(thing, OwnClass):
            info.calls.add(self.guards[-1] if self.guards else "")
            return join(
                info.gives,
                self.annotated(info.node.returns) if isinstance(info.node, ast.FunctionDef) else NOTHING,
            )
        return of(OwnFunction(value.key, bound=info.of_class or not isinstance(thing, OwnClass)))

    @abstractmethod
    def annotated(self, node: ast.expr | None) -> Value:
        """Return what an annotation says a value is."""

    # What cannot be decided

    def _is_removed(self, dotted: str) -> bool:
        return any(change.kind is ChangeKind.REMOVED for change in self.names.changes(dotted))

    def _may_have(self, thing: Thing, name: str) -> bool:
        """Say whether a thing may have an attribute; an own class that knows nothing of it has not.

        Then the value was mistaken for another on the way, through a helper for anything.
        """
        if isinstance(thing, OwnObject):
            return self.program.defines(thing.key, name) or bool(self.program.trt_bases(thing.key))
        if isinstance(thing, Foreign):
            return thing.name.partition(".")[0] not in _OWN_OF_PYTHON
        return not isinstance(thing, OwnFunction | Row)

    def _note_unknown(self, name: str, node: ast.expr, *, mistaken: bool = False) -> None:
        """Note a use on something unknown, where the name speaks for TensorRT and the file is about it.

        ``mistaken``: something is known of it that cannot be so; then the receiver's name must speak too.
        """
        owners = self.names.owners.get(name, [])
        if not owners or not self.file.about_tensorrt or not isinstance(node, ast.Attribute):
            return
        receiver = _words(ast.unparse(node.value)[-60:])
        removed = [owner for owner in owners if self._is_removed(f"{owner}.{name}")]
        hinted = [owner for owner in owners if _words_of_class(owner) & receiver]
        if not removed:  # what is merely to go soon must look like it twice
            owners, hinted = hinted, hinted if is_telling(name) else []
        else:
            owners = removed
        spoken = is_telling(name) and not self.program.defined_near(name, self.file)
        if not hinted and (mistaken or not removed or not spoken):
            return
        owner = ([each for each in hinted if each in owners] or hinted or owners)[0]
        what = ast.unparse(node.value)
        what = what if len(what) <= 40 else f"…{what[-37:]}"
        self.note(
            node, [change for change in self.names.changes(f"{owner}.{name}") if not _is_slight(change)],
            why=f"what {what} is cannot be told from the scanned files",
        )  # fmt: skip


def _is_slight(change: ApiChange) -> bool:
    """Say whether a change is too slight to be told of something that is perhaps not TensorRT's."""
    return change.kind is ChangeKind.BEHAVIOUR or hinders_storing_only(change)


def hinders_storing_only(change: ApiChange) -> bool:
    """Say whether a property merely became read-only: reading it goes on."""
    return change.kind is ChangeKind.CHANGED and change.after == f"{change.before}, read only"


def is_telling(name: str) -> bool:
    """Say whether an attribute's name alone speaks for TensorRT."""
    return "_" in name.strip("_") and len(name) >= 10 and name not in _COMMON


def _words(text: str) -> set[str]:
    """Return the words of a dotted name: ``self.trtEngine_2`` has ``engine`` in it."""
    found = {word.lower().rstrip("s0123456789") for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", text)}
    return {_WORDS_OF_CLASSES.get(word, word) for word in found}


def _words_of_class(name: str) -> set[str]:
    """Return the telling words of a class's name: ``ICudaEngine`` is an engine."""
    words = re.findall(r"[A-Z][a-z0-9]+", name)
    return {word.lower() for word in words} - {"cuda", "execution", "definition", "int8", "optimization"}
