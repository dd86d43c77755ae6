"""What the expressions of a Python file hold of TensorRT, told by bare names and without running anything.

``engine``, ``self.engine`` and ``x.engine`` are one name: it holds what any assignment in the file gives it,
and a function gives what any of its returns does. Where that tells nothing, the name itself may.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import Enum

from trtmatrix.api.scan_names import Names
from trtmatrix.api.types import MemberKind

BINDINGS = re.compile(r"tensorrt(_lean|_dispatch)?(_bindings)?(\.tensorrt)?\s*([<>=!~].*)?$")
_PLAIN = {"dict", "str", "int", "float", "range", "open", "bytes", "len", "set", "list", "tuple"}
_SAME = {"list", "tuple", "sorted", "reversed", "copy", "deepcopy", "enter_context"}


class Kind(Enum):
    """What an expression holds."""

    MODULE = "the bindings"
    CLASS = "a class of the bindings, or an enum"
    OBJECT = "an object of a class of the bindings"
    METHOD = "a function or method of the bindings"
    OWN = "an object or a class of the scanned code"
    FOREIGN = "something of another library, or a plain value"


@dataclass(frozen=True)
class Value:
    """What an expression holds; ``name``: the class, the method, or a library that was not scanned.

    ``guessed``: only the expression's own name says so.
    """

    kind: Kind
    name: str = ""
    guessed: bool = False

    @property
    def is_known(self) -> bool:
        """Whether it is TensorRT's."""
        return self.kind not in (Kind.OWN, Kind.FOREIGN)


MODULE, OWN, FOREIGN = Value(Kind.MODULE), Value(Kind.OWN), Value(Kind.FOREIGN)


class FileValues:
    """The nodes of one file, each with its parent, and what its expressions hold."""

    def __init__(self, tree: ast.Module, names: Names, parts: Collection[str]) -> None:
        """Gather what is assigned; ``parts``: words of the scanned files' paths, and classes in them."""
        self.names, self.parts = names, parts
        self.members: set[str] = set()
        """Attributes that classes of the file give their own objects."""
        self.bound = defaultdict[str, list[ast.expr | Value | None]](list)
        """What is given to each name, and by each ``function()``."""
        self._held: dict[str, Value | None] = {}
        self.imported: dict[str, str] = {}
        """What names from other modules are called there."""
        self.parents: dict[ast.AST, ast.AST] = {}
        self.nodes: list[ast.AST] = [tree]
        for node in self.nodes:
            for name in node._fields:
                inner = getattr(node, name, None)
                for each in inner if isinstance(inner, list) else (inner,):
                    if isinstance(each, ast.AST) and each._fields:
                        self.parents[each] = node
                        self.nodes.append(each)
        for node in self.nodes:
            self._gather(node)
        for node in self.nodes:
            if isinstance(node, ast.ClassDef):
                self.members |= {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
                base = next((v.name for v in map(self.value, node.bases) if v and v.kind is Kind.CLASS), "")
                self.bound[node.name].append(Value(Kind.CLASS, base) if base else OWN)
        self._held.clear()

    def _gather(self, node: ast.AST) -> None:
        """Note what a node assigns to which names."""
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._bind(target, value)
            case ast.AnnAssign(target=target, annotation=annotation, value=value):
                self._bind(target, self._annotated(annotation) or value)
            case (
                ast.NamedExpr(target=target, value=value)
                | ast.withitem(optional_vars=ast.expr() as target, context_expr=value)
            ):
                self._bind(target, value)
            case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value):
                self._bind(target, ast.Subscript(value, ast.Constant(0), ast.Load()))
            case ast.arg(arg=name, annotation=annotation):
                self.bound[name].append(self._annotated(annotation))
            case ast.Return(value=given) | ast.Yield(value=given):
                self._give(node, given)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                self.bound[f"{name}()"].append(self._annotated(node.returns))
                if not _is_property(node):
                    self.bound[name].append(OWN)
            case ast.Import() | ast.ImportFrom():
                for name, held in self._imports(node):
                    self.bound[name].append(held)

    def _give(self, node: ast.AST, given: ast.expr | None) -> None:
        """Note what the function around a node gives back."""
        if (outer := self.function_of(node)) is not None:
            self.bound[f"{outer.name}()"].append(given)
            if _is_property(outer):
                self.bound[outer.name].append(given)

    def function_of(self, node: ast.AST) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        """Return the function that a node stands in."""
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
        return next((outer for outer in self.around(node) if isinstance(outer, kinds)), None)

    def around(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield what a node stands in, from the inside."""
        while (node := self.parents.get(node)) is not None:  # type: ignore[assignment]
            yield node

    def _bind(self, target: ast.expr, value: ast.expr | Value | None) -> None:
        match target:
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                given = value.elts if isinstance(value, ast.Tuple) else []
                for part, each in zip(
                    parts, given if len(given) == len(parts) else [None] * len(parts), strict=True
                ):
                    self._bind(part, each)
            case ast.Name(id=name) | ast.Attribute(attr=name):
                self.bound[name].append(value)
                if dotted_name(target) == f"self.{name}":
                    self.members.add(name)

    def _imports(self, node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, Value | None]]:
        """Yield the names that an import binds, with what they hold."""
        module = getattr(node, "module", "") or ""
        for each in node.names:
            local = (each.asname or each.name).partition(".")[0]
            if isinstance(node, ast.Import):
                yield local, self._library(each.name)
                continue
            self.imported[local] = each.name
            if BINDINGS.match(module) and not node.level:
                every = [*self.names.surface.classes, *self.names.surface.names]
                for name in every if local == "*" else [each.name]:
                    yield name if local == "*" else local, self.named(name)
            elif module.startswith("polygraphy.backend.trt"):
                snake = re.sub(r"(?<!^)(?=[A-Z])", "_", each.name).lower()
                hints = self.names.hints["polygraphy"].items()
                given = next((value for start, value in hints if snake.startswith(start)), "")
                yield local, Value(Kind.OBJECT, given) if given else None
            elif node.level or f"class {each.name}" in self.parts:
                yield local, OWN if f"class {each.name}" in self.parts else None
            else:
                yield local, self._library(module)

    def _library(self, dotted: str) -> Value | None:
        root = dotted.partition(".")[0]
        if BINDINGS.match(dotted) or root in sys.stdlib_module_names or root in self.names.hints["others"]:
            return MODULE if BINDINGS.match(dotted) else FOREIGN
        is_near = root in self.parts or re.search("trt|tensorrt|polygraphy", root)
        return None if is_near else Value(Kind.FOREIGN, root)

    def value(self, node: ast.expr) -> Value | None:
        """Return what an expression holds, maybe by its name alone; None where that is not known."""
        found = self._value(node)
        if found is None:
            name = dotted_name(node).rpartition(".")[2].rstrip("s" * isinstance(node, ast.Subscript))
            role = self._role(name.lower().strip("_0123456789"))
            found = Value(Kind.OBJECT, role, guessed=True) if role else None
        return found

    def _role(self, name: str) -> str:
        """Return the class of what is called by such a name, such as ``trt_engine``."""
        whole: str = self.names.hints["whole_roles"].get(name, "")
        return whole or next((r for end, r in self.names.hints["roles"].items() if name.endswith(end)), "")

    def _value(self, node: ast.expr) -> Value | None:
        match node:
            case ast.Constant(value=value):
                return None if value is None else FOREIGN
            case ast.Name(id="self"):
                own = next((each for each in self.around(node) if isinstance(each, ast.ClassDef)), None)
                held = self.held(own.name) if own else None
                return Value(Kind.OBJECT, held.name) if held and held.kind is Kind.CLASS else OWN
            case ast.Name(id=name):
                return self.held(name) or (MODULE if name in ("trt", "tensorrt") else None)
            case ast.Attribute(value=holder, attr=name):
                return self.attribute(self.value(holder), name)
            case ast.Subscript(value=whole, slice=index):
                base = self.value(whole)
                if base is None or base.kind is not Kind.OBJECT:
                    return self.attribute(base, text_of(index)) if base and base.kind is Kind.CLASS else base
                items = {"INetworkDefinition": Value(Kind.OBJECT, "ILayer"), "ICudaEngine": FOREIGN}
                return items.get(base.name) or self.given(f"{base.name}.__getitem__")
            case ast.Call():
                return self._call(node)
            case ast.IfExp(body=one, orelse=other):
                return _join([self.value(one), self.value(other)])
            case ast.BoolOp(values=[*_, inner]) | ast.NamedExpr(value=inner) | ast.Await(value=inner):
                return self.value(inner)
        return None

    def held(self, name: str) -> Value | None:
        """Return what a name holds, or what ``function()`` gives."""
        if name not in self._held:
            self._held[name] = None  # of what hangs on itself
            given = self.bound.get(name, ())
            values = [self.value(each) if isinstance(each, ast.expr) else each for each in given]
            self._held[name] = _join([None if each and each.guessed else each for each in values])
        return self._held[name]

    def _call(self, node: ast.Call) -> Value | None:
        name, texts = dotted_name(node.func).rpartition(".")[2], [text_of(each) for each in node.args]
        first = self.value(node.args[0]) if node.args else None
        if re.search(r"import_(trt|tensorrt)$", name) or (
            "import" in name and BINDINGS.match("".join(texts[:1]))
        ):
            return MODULE
        if name == "getattr" and texts[1:]:
            return self.attribute(first, texts[1])
        if name in _SAME and first and first.is_known:
            return first
        callee = self.value(node.func)
        if callee is None and isinstance(node.func, ast.Name) and name in _PLAIN:
            return FOREIGN
        if callee is None or callee.kind is Kind.OWN:
            return self.held(f"{name}()") or callee
        if callee.kind is Kind.CLASS:
            return Value(Kind.OBJECT, callee.name)
        return self.given(callee.name) if callee.kind is Kind.METHOD else callee

    def attribute(self, base: Value | None, name: str) -> Value | None:
        """Return what an attribute of something holds."""
        if base and base.kind is Kind.MODULE:
            return base if name == "tensorrt" else self.named(name)
        if base and base.kind in (Kind.CLASS, Kind.OBJECT) and (found := self.named(f"{base.name}.{name}")):
            return found
        if base and base.kind in (Kind.METHOD, Kind.FOREIGN):
            return base if base.kind is Kind.FOREIGN else None
        return self.held(name) or (MODULE if name in ("trt", "tensorrt") else None)

    def _annotated(self, node: ast.expr | None) -> Value | None:
        """Return what an annotation says a value is."""
        text = ast.unparse(node).strip("'\"") if node else ""
        if re.search(r"\b(trt|tensorrt)\b|^I[A-Z]\w+$", text):
            return self._type(text)
        plain = re.fullmatch(r"str|bytes|int|float|bool|dict|(pathlib\.)?Path|onnx\.\w+", text)
        return FOREIGN if plain else None

    def named(self, dotted: str) -> Value | None:
        """Return what ``"BuilderFlag"``, ``"Builder.build_engine"`` or ``"ICudaEngine.num_layers"`` holds."""
        member, owner = self.names.surface.find(dotted), dotted.rpartition(".")[0]
        if member is None or member.kind is MemberKind.PROPERTY:
            return self.given(dotted)
        if member.kind is MemberKind.VALUE:
            return Value(Kind.OBJECT, owner if owner in self.names.surface.classes else member.returns)
        is_class = member.kind is MemberKind.CLASS
        return Value(Kind.CLASS, member.returns) if is_class else Value(Kind.METHOD, dotted)

    def given(self, dotted: str) -> Value | None:
        """Return what a function gives, or a property holds, by its docstring."""
        if (member := self.names.surface.find(dotted)) is None:
            return None
        return self._type(member.returns or " ".join(text.rpartition("->")[2] for text in member.signatures))

    def _type(self, text: str) -> Value | None:
        found = {word for word in re.findall(r"\w+", text) if word in self.names.surface.classes}
        return Value(Kind.OBJECT, found.pop()) if len(found) == 1 else None


def _is_property(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any("property" in dotted_name(each) for each in node.decorator_list)


def _join(values: list[Value | None]) -> Value | None:
    """Return what a name holds that is given several things: what is TensorRT's, the surest first."""
    found = sorted((each for each in values if each), key=lambda each: (not each.is_known, each.guessed))
    return found[0] if found else None


def text_of(node: ast.AST) -> str:
    """Return what a literal text says, or nothing."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


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
