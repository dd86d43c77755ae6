"""What the expressions of a Python file hold of TensorRT, told by bare names and without running anything.

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
from collections.abc import Iterable

from trtmatrix.api.names import Names, dotted_name
from trtmatrix.api.types import MemberKind

MODULE, OWN, FOREIGN = "tensorrt", "own", "foreign"
"""The bindings; what the scanned code defines; what other libraries and Python have."""
BINDINGS = re.compile(r"tensorrt(_lean|_dispatch)?(_bindings)?(\.tensorrt)?\s*([<>=!~].*)?$")
_PLAIN = re.compile(r"dict|str|int|float|bool|range|open|bytes|len|set|list|tuple|(pathlib\.)?Path|onnx\.\w+")


class Roles:
    """What each name of a file is given, and what its expressions hold by that."""

    def __init__(self, tree: ast.Module, names: Names) -> None:
        self.names, self.surface, self.self_role = names, names.surface, OWN
        self.bound = defaultdict[str, list[ast.expr | str]](list)  # to each name, and by each ``function()``
        self.imported: dict[str, str] = {}  # what names from other modules are called there
        self.shared: set[str] = set()  # names of the module itself; its functions and classes as ``name()``
        self.members: set[str] = set()  # methods of the file's classes
        self._held: dict[str, str] = {}
        self._gather(tree.body, "", None)

    # ---- what is given to names ----

    def _gather(self, statements: Iterable[ast.AST], function: str, test: ast.expr | None) -> None:
        """Note what statements give to names; ``test``: of the ``if`` that they stand in."""
        for node in statements:
            inner = function
            match node:
                case ast.Assign(targets=targets, value=value):
                    if test and isinstance(value, ast.Constant) and isinstance(value.value, int):
                        value = ast.IfExp(test, value, value)  # what it is given hangs on the test
                    for target in targets:
                        self._bind(target, value, function)
                case ast.AnnAssign(target=target, annotation=annotation, value=value):
                    self._bind(target, value or "", function)
                    self._bind(target, self._annotated(annotation), function)
                case ast.With(items=items) | ast.AsyncWith(items=items):
                    for item in items:
                        self._bind(item.optional_vars, item.context_expr, function)
                case ast.For(target=target, iter=value):
                    self._bind(target, _item(value, 0), function)
                case ast.Return(value=ast.expr() as value):
                    self.bound[f"{function}()"].append(value)
                case ast.FunctionDef(name=inner) | ast.AsyncFunctionDef(name=inner):
                    self.shared.add(f"{inner}()")
                    self.bound[f"{inner}()"].append(self._annotated(node.returns))
                    self.bound[inner].append(OWN)
                    for given in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
                        self.bound[given.arg].append(self._annotated(given.annotation))
                case ast.ClassDef(name=name, bases=bases, body=body):
                    self.shared.add(f"{name}()")
                    self.bound[name] += [OWN, *bases]
                    self.members |= {each.name for each in body if isinstance(each, ast.FunctionDef)}
                case ast.Import(names=aliases):
                    for each in aliases:
                        name = each.asname or each.name.partition(".")[0]
                        self.bound[name].append(self._library(each.name))
                case ast.ImportFrom(names=aliases, module=module, level=level):
                    for each in aliases:
                        self.imported[each.asname or each.name] = each.name
                        held = "" if level else self._imported(module or "", each.name)
                        self.bound[each.asname or each.name].append(held)
            asked = node.test if isinstance(node, ast.If) else None
            for part in ("body", "orelse", "finalbody", "handlers", "cases"):
                self._gather(getattr(node, part, ()), inner, asked)

    def _bind(self, target: ast.expr | None, value: ast.expr | str, function: str) -> None:
        """Note what is given to the names in a target."""
        match target:
            case ast.Tuple(elts=parts) | ast.List(elts=parts) if isinstance(value, ast.expr):
                given = value.elts if isinstance(value, ast.Tuple) else []
                for place, part in enumerate(parts):
                    each = given[place] if len(given) == len(parts) else _item(value, place)
                    self._bind(part, each, function)
            case ast.Name(id=name) | ast.Attribute(attr=name):
                self.bound[name].append(value)
                self.shared |= set() if function else {name}

    def _imported(self, module: str, name: str) -> str:
        """Return what a name from a module holds."""
        if BINDINGS.match(module):
            return self._named(name)
        if module.startswith("polygraphy.backend.trt"):
            snake = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
            hints = self.names.hints["polygraphy"].items()
            return next((f"{given}()" for start, given in hints if snake.startswith(start)), "")
        return self._library(module)

    def _library(self, dotted: str) -> str:
        """Return what another module is; nothing where it may be a part of the scanned code."""
        root = dotted.partition(".")[0]
        known = root in sys.stdlib_module_names or root in self.names.hints["others"]
        return MODULE if BINDINGS.match(dotted) else FOREIGN * known

    def _annotated(self, node: ast.expr | None) -> str:
        """Return what an annotation says a value is."""
        text = ast.unparse(node).strip("'\"") if node else ""
        if re.search(r"\b(trt|tensorrt)\b|^I[A-Z]\w+$", text):
            return self._type(text)
        return FOREIGN if _PLAIN.fullmatch(text) else ""

    def _type(self, text: str) -> str:
        found = {word for word in re.findall(r"\w+", text) if word in self.surface.classes}
        return found.pop() if len(found) == 1 else ""

    # ---- what expressions hold ----

    def role(self, node: ast.expr) -> str:
        """Return what an expression holds, maybe by its name alone."""
        name = dotted_name(node).rpartition(".")[2].rstrip("s" * isinstance(node, ast.Subscript))
        return self.known(node) or self.names.find_role(name)

    def known(self, node: ast.expr) -> str:
        """Return what an expression holds by what is given to its names."""
        match node:
            case ast.Constant(value=value):
                return FOREIGN * (value is not None)
            case ast.Dict() | ast.DictComp():
                return OWN
            case ast.Name(id=name):
                return self.self_role if name == "self" else self.held(name)
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


def text_of(node: ast.AST) -> str:
    """Return what a literal text says, or nothing."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _item(whole: ast.expr, place: int) -> ast.expr:
    return ast.Subscript(whole, ast.Constant(place), ast.Load())
