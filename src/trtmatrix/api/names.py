"""What the scan looks for by name, and what the names and expressions of a Python file hold of TensorRT.

A role is a text: ``tensorrt`` is the module, ``ICudaEngine`` an object, ``ICudaEngine()`` its class or what
gives one when called, OWN and FOREIGN what is not TensorRT's, and an empty one what is not known. ``engine``,
``self.engine`` and ``x.engine`` are one name, with the role of any assignment in the file; where that tells
nothing, the name itself may.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from trtmatrix.api.types import ApiChange, ApiUse, ChangeKind, Kept, MemberKind, Surface

MODULE, OWN, FOREIGN = "tensorrt", "own", "foreign"
"""The bindings; what the scanned code defines; what other libraries and Python have."""
TRTEXEC = r"(?:trtexec(?:\.exe)?|\$[({]?(?:\w*TRT_?EXEC\w*)[)}]?)[\"']?(?=[\s,]|$)"
SPEAKS = "an option in a file that speaks of trtexec"
BINDINGS = re.compile(r"tensorrt(_lean|_dispatch)?(_bindings)?(\.tensorrt)?\s*([<>=!~].*)?$")
_PLAIN = re.compile(r"dict|str|int|float|bool|range|open|bytes|len|set|list|tuple|(pathlib\.)?Path|onnx\.\w+")


class Names:
    """What happens to each name in a move, the worst of each; ``hints``: what is kept in scan.yaml."""

    def __init__(
        self, before: Surface, after: Surface, changes: Sequence[ApiChange],
        behaviours: Sequence[Kept], hints: Mapping[str, Any],
    ) -> None:  # fmt: skip
        self.surface, self.target, self.after, self.hints = before, after, after.version, hints
        self.changes = dict[str, ApiChange]()
        for change in sorted(changes, key=lambda change: [*ChangeKind].index(change.kind)):
            if change.kind is not ChangeKind.ADDED:
                self.changes.setdefault(change.name, change)
        self.behaves = {name: each for each in behaviours for name in each.names}
        self.owners = defaultdict[str, list[str]](list)  # the classes of each member that changes
        for owner, _, attribute in (name.rpartition(".") for name in self.changes if " " not in name):
            self.owners[attribute] += [owner] * bool(owner)
        self.sought = {*self.owners, *(name.rpartition(".")[2] for name in self.behaves)}
        self.words = self.sought.union(*(known.members for known in before.classes.values()))
        self.alone = {word for word in self.sought if self.is_own(word) or word[0].isupper()}
        self.roles = re.compile("|".join(f"(?P<{role}>{form})" for role, form in hints["roles"].items()))

    def is_own(self, attribute: str) -> bool:
        """Whether TensorRT alone has a member of that name."""
        return "_" in attribute.strip("_") and attribute not in self.hints["common"] and attribute[:2] != "__"

    def changes_of(self, dotted: str) -> list[ApiChange]:
        """Return what happens to ``"volume"`` or, through the bases, to ``"Builder.build_engine"``."""
        owner, _, attribute = dotted.rpartition(".")
        for base, members in (self.surface.members_of(owner) or {owner: {}}).items():
            whole = f"{base}.{attribute}" if owner else dotted
            found = [each[whole] for each in (self.changes, self.behaves) if whole in each]
            if found or attribute in members:  # the nearest that has it decides
                gone = self.changes.get(base)
                if not found and gone and gone.kind is ChangeKind.REMOVED and attribute[0] != "_":
                    return [replace(gone, name=whole, note=f"{base} is gone")]
                return found
        return []

    @cached_property
    def cpp(self) -> dict[str, ApiChange]:
        """What happens to names of C++, in small letters without underscores: ``setmaxworkspacesize``."""
        known = dict[str, ApiChange]()
        for dotted, change in self.changes.items():
            owner, _, name = dotted.rpartition(".")
            alone = self.is_own(name) or name in self.hints["cpp_too"] or not owner
            starts = ("", "set", "get") if name[0].islower() else ("k",) if owner else ("", "i", "create")
            if alone and change.kind is not ChangeKind.CHANGED and " " not in dotted:
                told = replace(change, note=f"{dotted} in Python")
                for start in starts:
                    known.setdefault(f"{start}{name}".replace("_", "").lower(), told)
        if bindings := known.get("numbindings"):  # it went with these, and has no name in Python
            known["destroy"] = replace(bindings, replacement="delete", note="")
        return known


@dataclass(frozen=True, kw_only=True)
class Page:
    """A file that is scanned; of a notebook the Python in it. ``found`` takes the uses of all files."""

    file: str
    code: str
    lines: Sequence[str]
    cells: Sequence[tuple[int, int]] = ()  # of a notebook, each line's cell and line in it
    found: list[ApiUse] = field(default_factory=list)

    def note(self, line: int, change: ApiChange, why: str = "") -> None:
        """Note a use; ``why`` says why it is only possible (empty: it is sure)."""
        cell, inner = self.cells[line - 1] if self.cells else (0, line)
        self.found.append(ApiUse(
            file=self.file, line=inner, cell=cell, text=self.lines[line - 1].strip()[:200], change=change,
            why=why,
        ))  # fmt: skip

    def note_options(self, line: int, text: str, names: Names, why: str) -> None:
        """Note trtexec's options in a text that begins in a line."""
        for option in re.finditer(r"(?<![\w=-])--\w+", text):
            if change := names.changes.get(f"trtexec {option[0]}"):
                self.note(line + text.count("\n", 0, option.start()), change, why)


class Roles:
    """What each name of a file is given, and what its expressions hold by that."""

    def __init__(self, tree: ast.Module, names: Names) -> None:
        self.names, self.surface = names, names.surface
        self.bound = defaultdict[str, list[ast.expr | str]](list)  # to each name, and by each ``function()``
        self.imported: dict[str, str] = {}  # what names from other modules are called there
        self.members: set[str] = set()  # methods of the file's classes
        self._held: dict[str, str] = {}
        self._gather(tree, "")

    def _gather(self, node: ast.AST, function: str) -> None:
        """Note what a statement and those in it give to names; ``function``: that it stands in."""
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._bind(target, value)
            case ast.AnnAssign(target=target, annotation=annotation, value=given):
                self._bind(target, given or "")
                self._bind(target, self._annotated(annotation))
            case ast.withitem(context_expr=value, optional_vars=ast.expr() as target):
                self._bind(target, value)
            case ast.For(target=target, iter=value):
                self._bind(target, _item(value, 0))
            case ast.If(test=test, body=[ast.Assign(targets=[target], value=ast.Constant() as value), *_]):
                self._bind(target, ast.IfExp(test, value, ast.Name("")))  # else it is not known
            case ast.Return(value=ast.expr() as value):
                self.bound[f"{function}()"].append(value)
            case ast.arg(arg=name, annotation=annotation):
                self.bound[name].append(self._annotated(annotation))
            case ast.FunctionDef(name=function) | ast.AsyncFunctionDef(name=function):
                self.bound[f"{function}()"].append(self._annotated(node.returns))
            case ast.ClassDef(name=name, bases=bases, body=body):
                self.bound[name] += [OWN, *bases]
                self.members |= {each.name for each in body if isinstance(each, ast.FunctionDef)}
            case ast.Import(names=aliases):
                for each in aliases:
                    name = each.asname or each.name.partition(".")[0]
                    self.bound[name].append(self._imported(each.name))
            case ast.ImportFrom(names=aliases, module=module, level=level):
                for each in aliases:
                    self.imported[each.asname or each.name] = each.name
                    held = "" if level else self._imported(module or "", each.name)
                    self.bound[each.asname or each.name].append(held)
        for inner in ast.iter_child_nodes(node):
            if not isinstance(inner, ast.expr):
                self._gather(inner, function)

    def _bind(self, target: ast.expr, value: ast.expr | str) -> None:
        """Note what is given to the names in a target."""
        match target:
            case ast.Tuple(elts=parts) | ast.List(elts=parts) if isinstance(value, ast.expr):
                given = value.elts if isinstance(value, ast.Tuple) else []
                for place, part in enumerate(parts):
                    self._bind(part, given[place] if len(given) == len(parts) else _item(value, place))
            case ast.Name(id=name) | ast.Attribute(attr=name):
                self.bound[name].append(value)

    def _imported(self, module: str, name: str = "") -> str:
        """Return what a module, or a name from it, holds; nothing where it may be a part of the code."""
        if BINDINGS.match(module):
            return self._named(name) if name else MODULE
        if module.startswith("polygraphy.backend.trt"):
            hints, plain = self.names.hints["polygraphy"].items(), name.replace("_", "").lower()
            return next((f"{given}()" for start, given in hints if plain.startswith(start)), "")
        root = module.partition(".")[0]
        return FOREIGN * (root in sys.stdlib_module_names or root in self.names.hints["others"])

    def _annotated(self, node: ast.expr | None) -> str:
        """Return what an annotation says a value is."""
        text = ast.unparse(node).strip("'\"") if node else ""
        if re.search(r"\b(trt|tensorrt)\b|^I[A-Z]\w+$", text):
            return self._type(text)
        return FOREIGN if _PLAIN.fullmatch(text) else ""

    def _type(self, text: str) -> str:
        found = {word for word in re.findall(r"\w+", text) if word in self.surface.classes}
        return found.pop() if len(found) == 1 else ""

    def role(self, node: ast.expr) -> str:
        """Return what an expression holds, maybe by its name alone."""
        name = dotted_name(node).rpartition(".")[2].rstrip("s" * isinstance(node, ast.Subscript))
        said = self.names.roles.fullmatch(name.lower().strip("_0123456789"))  # of such as trt_engine2
        return self.known(node) or (said and said.lastgroup) or ""

    def known(self, node: ast.expr) -> str:
        """Return what an expression holds by what is given to its names."""
        match node:
            case ast.Constant(value=value):
                return FOREIGN * (value is not None)
            case ast.Dict() | ast.DictComp():
                return OWN
            case ast.Name(id=name):
                return OWN if name == "self" else self.held(name)
            case ast.Attribute(value=holder, attr=name):
                return self._attribute(self.role(holder), name)
            case ast.Subscript(value=whole, slice=index):
                base = self.known(whole) if isinstance(whole, ast.Call) else self.role(whole)
                if base.endswith("()"):
                    return self._attribute(base, text_of(index))
                items = {"INetworkDefinition": "ILayer", "ICudaEngine": FOREIGN}
                return base if base in (MODULE, FOREIGN) else items.get(base, "")
            case ast.Call():
                return self._call(node)
            case ast.IfExp(body=inner) | ast.BoolOp(values=[*_, inner]) | ast.Await(value=inner):
                return self.role(inner)
        return ""

    def held(self, name: str) -> str:
        """Return what a name holds, or what ``function()`` gives: what is TensorRT's before all else."""
        if name not in self._held:
            self._held[name] = ""  # of what hangs on itself
            roles = [each if isinstance(each, str) else self.known(each) for each in self.bound.get(name, ())]
            self._held[name] = min(filter(None, roles), key=(OWN, FOREIGN).__contains__, default="")
        return self._held[name] or MODULE * (name in ("trt", "tensorrt"))

    def _call(self, node: ast.Call) -> str:
        """Return what a call gives."""
        name = dotted_name(node.func).rpartition(".")[2]
        asked = text_of(node.args[0]) if node.args and "import" in name else ""
        if BINDINGS.match(asked) or re.search(r"import_(trt|tensorrt)$", name):
            return MODULE
        callee = self.role(node.func)
        if callee.endswith("()"):
            return callee[:-2]
        if callee in ("", OWN):
            plain = not callee and isinstance(node.func, ast.Name) and _PLAIN.fullmatch(name)
            return FOREIGN if plain else self.held(f"{name}()") or callee
        called_twice = isinstance(node.func, ast.Call)  # Polygraphy's loaders stand for what they give
        return callee if callee in (MODULE, FOREIGN) or called_twice else ""

    def _attribute(self, base: str, name: str) -> str:
        """Return what an attribute of something holds."""
        if base in (MODULE, FOREIGN):
            return base if base == FOREIGN or name == "tensorrt" else self._named(name)
        return self._named(f"{base.removesuffix('()')}.{name}") or self.held(name)

    def _named(self, dotted: str) -> str:
        """Return what ``"BuilderFlag"``, ``"Builder.build_engine"`` or ``"ICudaEngine.num_layers"`` holds."""
        if (member := self.surface.find(dotted)) is None:
            return ""
        owner, returns = dotted.rpartition(".")[0], member.returns
        match member.kind:
            case MemberKind.CLASS:
                return f"{returns}()"
            case MemberKind.VALUE:
                return owner if owner in self.surface.classes else returns
        given = self._type(returns or " ".join(text.rpartition("->")[2] for text in member.signatures))
        return given if member.kind is MemberKind.PROPERTY else f"{given}()"


def dotted_name(node: ast.AST) -> str:
    """Return ``a.b.c`` of names and attributes, with what is called or indexed left out."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=name):
            return f"{dotted_name(value)}.{name}"
        case ast.Call(func=inner) | ast.Subscript(value=inner):
            return dotted_name(inner)
    return ""


def text_of(node: ast.AST) -> str:
    """Return what a literal text says, or nothing."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _item(whole: ast.expr, place: int) -> ast.expr:
    return ast.Subscript(whole, ast.Constant(place), ast.Load())
