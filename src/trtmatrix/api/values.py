"""What the expressions of a Python file hold of TensorRT, told by bare names and without running anything.

``engine``, ``self.engine`` and ``x.engine`` are one name: it holds what any assignment in the file gives it,
and a function gives what any of its returns does. Where that tells nothing, the name itself may.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from typing import Literal, NamedTuple

from trtmatrix.api.names import Names, dotted_name
from trtmatrix.api.types import MemberKind

BINDINGS = re.compile(r"tensorrt(_lean|_dispatch)?(_bindings)?(\.tensorrt)?\s*([<>=!~].*)?$")
_PLAIN = re.compile(r"dict|str|int|float|bool|range|open|bytes|len|set|list|tuple|(pathlib\.)?Path|onnx\.\w+")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Value(NamedTuple):
    """What an expression holds: of the bindings, the scanned code (own), or another library (foreign).

    ``name``: the class, of a method the one it gives; ``guessed``: only the expression's own name says so.
    """

    kind: Literal["module", "class", "object", "method", "own", "foreign"]
    name: str = ""
    guessed: bool = False

    @property
    def is_known(self) -> bool:
        """Whether it is TensorRT's."""
        return self.kind not in ("own", "foreign")


MODULE, OWN, FOREIGN = Value("module"), Value("own"), Value("foreign")


class Values:
    """The nodes of one file, each with its parent, and what its expressions hold."""

    def __init__(self, tree: ast.Module, names: Names) -> None:
        """Gather what is assigned."""
        self.names, self.surface = names, names.surface
        self.nodes: list[ast.AST] = [tree]
        self.parents: dict[ast.AST, ast.AST] = {}
        self.bound = defaultdict[str, list[ast.expr | Value | None]](list)
        """What is given to each name, and by each ``function()``."""
        self.reads = defaultdict[str, list[ast.AST]](list)
        """Where each name is read."""
        self.imported: dict[str, str] = {}
        """What names from other modules are called there."""
        self.members: set[str] = set()
        """Attributes that classes of the file give their own objects."""
        self._held: dict[str, Value | None] = {}
        for node in self.nodes:
            inside = [each for each in ast.iter_child_nodes(node) if each._fields]
            self.parents.update(dict.fromkeys(inside, node))
            self.nodes += inside
        for node in self.nodes:
            self._gather(node)

    # ---- what is given to names ----

    def _gather(self, node: ast.AST) -> None:
        """Note what a node gives to which names, or that it reads one."""
        match node:
            case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name, ctx=ast.Load()):
                self.reads[name].append(node)
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._bind(target, value)
            case ast.AnnAssign(target=target, annotation=annotation, value=value):
                self._bind(target, value)
                self._bind(target, self._annotated(annotation))
            case (
                ast.NamedExpr(target=target, value=value)
                | ast.withitem(optional_vars=ast.expr() as target, context_expr=value)
            ):
                self._bind(target, value)
            case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value):
                self._bind(target, _item(value, 0))
            case ast.arg(arg=name, annotation=annotation):
                self.bound[name].append(self._annotated(annotation))
            case ast.Return(value=ast.expr() as value):
                function = next((each for each in self.around(node) if isinstance(each, _FUNCTIONS)), None)
                if function is not None:
                    self.bound[f"{function.name}()"].append(value)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                self.bound[f"{name}()"].append(self._annotated(node.returns))
                self.bound[name].append(OWN)
            case ast.ClassDef(name=name, bases=bases, body=body):
                self.bound[name] += [OWN, *bases]
                self.members |= {each.name for each in body if isinstance(each, ast.FunctionDef)}
            case ast.Import(names=aliases):
                for each in aliases:
                    name = (each.asname or each.name).partition(".")[0]
                    self.bound[name].append(MODULE if BINDINGS.match(each.name) else self._library(each.name))
            case ast.ImportFrom(names=aliases):
                for each in aliases:
                    self._import(node, each)

    def _bind(self, target: ast.expr, value: ast.expr | Value | None) -> None:
        """Note what is given to the names in a target."""
        match target:
            case ast.Tuple(elts=parts) | ast.List(elts=parts) if isinstance(value, ast.expr):
                given = value.elts if isinstance(value, ast.Tuple) else []
                for place, part in enumerate(parts):
                    self._bind(part, given[place] if len(given) == len(parts) else _item(value, place))
            case ast.Name(id=name) | ast.Attribute(attr=name):
                self.bound[name].append(value)
                if dotted_name(target) == f"self.{name}":
                    self.members.add(name)

    def _import(self, node: ast.ImportFrom, each: ast.alias) -> None:
        """Note what a name that is imported from a module holds."""
        module, local = node.module or "", each.asname or each.name
        self.imported[local] = each.name
        if BINDINGS.match(module) and not node.level:
            whole = [*self.surface.classes, *self.surface.names] if local == "*" else []
            for name in whole or [each.name]:
                self.bound[name if whole else local].append(self._named(name))
        elif module.startswith("polygraphy.backend.trt"):
            snake = re.sub(r"(?<!^)(?=[A-Z])", "_", each.name).lower()
            hints = self.names.hints["polygraphy"].items()
            self.bound[local] += [Value("method", given) for start, given in hints if snake.startswith(start)]
        else:
            self.bound[local].append(None if node.level else self._library(module))

    def _library(self, dotted: str) -> Value | None:
        """Return what another module is; None where it may be a part of the scanned code."""
        root = dotted.partition(".")[0]
        return FOREIGN if root in sys.stdlib_module_names or root in self.names.hints["others"] else None

    def _annotated(self, node: ast.expr | None) -> Value | None:
        """Return what an annotation says a value is."""
        text = ast.unparse(node).strip("'\"") if node else ""
        if re.search(r"\b(trt|tensorrt)\b|^I[A-Z]\w+$", text):
            return self._type(text)
        return FOREIGN if _PLAIN.fullmatch(text) else None

    def _type(self, text: str) -> Value | None:
        found = {word for word in re.findall(r"\w+", text) if word in self.surface.classes}
        return Value("object", found.pop()) if len(found) == 1 else None

    def around(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield what a node stands in, from the inside."""
        while (node := self.parents.get(node)) is not None:  # type: ignore[assignment]
            yield node

    # ---- what expressions hold ----

    def value(self, node: ast.expr) -> Value | None:
        """Return what an expression holds, maybe by its name alone; None where that is not known."""
        if (found := self._value(node)) is None:
            name = dotted_name(node).rpartition(".")[2].rstrip("s" * isinstance(node, ast.Subscript))
            role = self.names.roles.fullmatch(name.lower().strip("_0123456789"))
            found = Value("object", role.lastgroup or "", guessed=True) if role else None
        return found

    def _value(self, node: ast.expr) -> Value | None:
        """Return what an expression holds by what is given to its names."""
        match node:
            case ast.Constant(value=value):
                return None if value is None else FOREIGN
            case ast.Name(id="self"):
                outer = (self.held(each.name) for each in self.around(node) if isinstance(each, ast.ClassDef))
                own = next(outer, None)
                return Value("object", own.name) if own and own.kind == "class" else OWN
            case ast.Name(id=name):
                return self.held(name)
            case ast.Attribute(value=holder, attr=name):
                return self._attribute(self.value(holder), name)
            case ast.Subscript(value=whole, slice=index):
                base = self.value(whole)
                if base is None or base.kind == "own" or (base.guessed and isinstance(whole, ast.Call)):
                    return None
                if base.kind == "class":
                    return self._attribute(base, text_of(index))
                items = {"INetworkDefinition": Value("object", "ILayer"), "ICudaEngine": FOREIGN}
                return items.get(base.name) if base.kind == "object" else base
            case ast.Call():
                return self._call(node)
            case ast.IfExp(body=inner) | ast.BoolOp(values=[*_, inner]) | ast.Await(value=inner):
                return self.value(inner)
        return None

    def held(self, name: str) -> Value | None:
        """Return what a name holds, or what ``function()`` gives: what is TensorRT's before all else."""
        if name not in self._held:
            self._held[name] = None  # of what hangs on itself
            given = self.bound.get(name, ())
            values = [self.value(each) if isinstance(each, ast.expr) else each for each in given]
            sure = [each for each in values if each and not each.guessed]
            self._held[name] = min(sure, key=lambda each: not each.is_known, default=None)
        return self._held[name] or (MODULE if name in ("trt", "tensorrt") else None)

    def _call(self, node: ast.Call) -> Value | None:
        """Return what a call gives."""
        name = dotted_name(node.func).rpartition(".")[2]
        asked = text_of(node.args[0]) if node.args and "import" in name else ""
        if BINDINGS.match(asked) or re.search(r"import_(trt|tensorrt)$", name):
            return MODULE
        callee = self.value(node.func)
        if callee is None and isinstance(node.func, ast.Name) and _PLAIN.fullmatch(name):
            return FOREIGN
        if callee is None or callee.kind == "own":
            return self.held(f"{name}()") or callee
        if callee.kind in ("class", "method"):
            return Value("object", callee.name) if callee.name else None
        called_twice = isinstance(node.func, ast.Call)  # Polygraphy's loaders stand for what they give
        return callee if callee.kind != "object" or called_twice else None

    def _attribute(self, base: Value | None, name: str) -> Value | None:
        """Return what an attribute of something holds."""
        if base and base.kind == "module":
            return base if name == "tensorrt" else self._named(name)
        if base and base.kind in ("class", "object") and (found := self._named(f"{base.name}.{name}")):
            return found
        if base and base.kind in ("method", "foreign"):
            return base if base.kind == "foreign" else None
        return self.held(name)

    def _named(self, dotted: str) -> Value | None:
        """Return what ``"BuilderFlag"``, ``"Builder.build_engine"`` or ``"ICudaEngine.num_layers"`` holds."""
        if (member := self.surface.find(dotted)) is None:
            return None
        owner, returns = dotted.rpartition(".")[0], member.returns
        if member.kind is MemberKind.CLASS:
            return Value("class", returns)
        if member.kind is MemberKind.VALUE:
            return Value("object", owner if owner in self.surface.classes else returns)
        given = self._type(returns or " ".join(text.rpartition("->")[2] for text in member.signatures))
        return given if member.kind is MemberKind.PROPERTY else Value("method", given.name if given else "")


def text_of(node: ast.AST) -> str:
    """Return what a literal text says, or nothing."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _item(whole: ast.expr, place: int) -> ast.expr:
    return ast.Subscript(whole, ast.Constant(place), ast.Load())
