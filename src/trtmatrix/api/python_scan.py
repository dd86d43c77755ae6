"""Follows TensorRT's objects through Python code by bare names, and notes uses of names that change.

Each file is read a few times: what functions are given and give back, and what objects keep, is known after
the first reading. What a name holds is joined where ways meet; no further is anything followed.
"""

from __future__ import annotations

import ast
import re
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from trtmatrix.api.scan_names import Class, Findings, Items, Method, Names, Object, Place
from trtmatrix.api.signatures import parse_signature
from trtmatrix.api.text_scan import scan_commands, scan_examples
from trtmatrix.api.types import ApiChange, ChangeKind
from trtmatrix.api.version_tests import (
    READERS,
    UNKNOWN,
    Const,
    Versioned,
    fold_call,
    fold_item,
    fold_method,
    fold_operator,
    judge_flip,
    judge_misread,
)

_Def = ast.FunctionDef | ast.AsyncFunctionDef
Source = tuple[Sequence[str], Sequence[tuple[int, int]]]
"""The lines of a file, and of a notebook each line's cell and line in it."""
PASSES = 4
BINDINGS = re.compile(r"tensorrt(_lean|_dispatch)?(_bindings)?(\.tensorrt)?\s*([<>=!~].*)?$")
NEAR = re.compile(
    r"(import|from)\s+(tensorrt(_lean|_dispatch|_bindings)?\b(?!\.\w+_)|polygraphy)"
    r"|import\w*\(\s*[\"']tensorrt|import_(trt|tensorrt)\("
)
_IMPORT = re.compile(r"^\s*(?:from|import)\s+(\.*)([\w.]*)(?:\s+import\s+(\w+))?", re.MULTILINE)
_OTHERS = {
    *sys.stdlib_module_names, "numpy", "torch", "torchvision", "onnx", "onnxruntime", "onnxsim", "openvino",
    "onnx_graphsurgeon", "pycuda", "cuda", "cupy", "cv2", "tensorflow", "tvm", "mxnet", "PIL", "jax", "keras",
    "caffe", "paddle", "yaml", "tqdm", "requests", "tritonclient", "transformers", "sqlalchemy", "pandas",
    "scipy", "matplotlib", "numba", "absl", "click", "typer", "pydantic", "omegaconf", "easydict", "mmcv",
    "mmengine", "flask", "ray", "ncnn", "hydra", "packaging", "loguru", "tensorrt_llm", "torch_tensorrt",
}  # fmt: skip
"""Libraries whose objects are none of TensorRT's."""
_ROLES = {
    "engine": "ICudaEngine", "context": "IExecutionContext", "ctx": "IExecutionContext", "builder": "Builder",
    "network": "INetworkDefinition", "parser": "OnnxParser", "runtime": "Runtime", "refitter": "Refitter",
    "registry": "IPluginRegistry",
}  # fmt: skip
"""What a name that ends so holds, where nothing else is known of it."""
_CONFIGS = dict.fromkeys(("config", "builder_config", "trt_config", "build_config"), "IBuilderConfig")
_PARSED = Items(row=(Object("Builder"), Object("INetworkDefinition"), Object("OnnxParser")))
_POLYGRAPHY: Mapping[str, object] = {
    "engine_from": Object("ICudaEngine"), "create_config": Object("IBuilderConfig"), "network_from": _PARSED,
    "create_network": _PARSED,
}  # fmt: skip
"""What Polygraphy's functions give whose names begin so, and its classes when they are called."""
_PLAIN = {"dict", "str", "int", "float", "range", "open", "bytes", "len", "set"}
_NEWER = re.compile(
    r"num_io_tensors|[gs]et_tensor_|execute_async_v3|set_input_shape|build_serialized|memory_pool"
)
"""Names of both ways of writing that stand in a try whose other way catches what goes wrong."""
_SAME = {"list", "tuple", "sorted", "reversed", "copy", "deepcopy", "enter_context"}
_ALONE = {"dynamic_range", "max_workspace_size", "fp16_mode", "int8_mode", "strict_type_constraints"}
"""Members that are told of wherever they are set, in a file that imports TensorRT."""
_BY_NAME = "only its name says what it is used on"


@dataclass(frozen=True)
class Foreign:
    """Something of another library; ``strange`` names one that is not known and was not scanned."""

    strange: str = ""


@dataclass(frozen=True)
class Gives:
    """What gives a thing when it is called."""

    item: object


@dataclass(frozen=True)
class Module:
    """The bindings (``names`` is None), or a scanned file by what it defines."""

    names: Mapping[str, object] | None = None


@dataclass(eq=False)
class Own:
    """A class of the user's, and its objects: what they keep, and what they derive from."""

    bases: Sequence[object] = ()
    kept: dict[str, object] = field(default_factory=dict)

    def line(self) -> list[Own]:
        """Return the class and those of the user's that it derives from."""
        line = [self]
        for each in line:
            line += [base for base in each.bases if isinstance(base, Own) and base not in line]
        return line

    def root(self) -> str:
        """Return the class of the bindings that it derives from, or nothing."""
        return next((base.name for each in self.line() for base in each.bases if isinstance(base, Class)), "")


@dataclass(eq=False)
class Function:
    """A function of the user's, and what it gives."""

    gives: object = None
    is_property: bool = False


def join(one: object, other: object) -> object:
    """Return what a name holds that was given two things; TensorRT's outlive what is not known."""
    if other is None or other == one or (one is not None and isinstance(other, Const | Foreign)):
        return one
    return other if one is None or isinstance(one, Const | Foreign) else one


class FileReader:
    """Reads one file; ``about``: 2 where it imports TensorRT, 1 where a file near it does, else 0."""

    def __init__(self, program: Program, path: str, about: int) -> None:
        """Read the file at a path of the program's."""
        self.program, self.names, self.path, self.about = program, program.names, path, about
        self.lines, self.cells = program.sources[path]
        self.findings, self.function = Findings(), Function()
        self.module: dict[str, object] = {}
        self.scopes = [self.module]
        self.classes: dict[ast.AST, Own] = {}
        self.functions: dict[ast.AST, Function] = {}
        self.waiting: list[tuple[_Def, list[dict[str, object]], list[str]]] = []
        self.call_now: ast.Call | None = None
        self.guards: list[str] = []
        self.calls: dict[str, set[bool]] = {}
        self.calls_before = self.calls
        self.globals, self.defined, self.members = set[str](), set[str](), set[str]()
        self.learnt = 0

    def read(self, tree: ast.Module) -> None:
        """Read the file until nothing new is learnt; what the last reading found stays."""
        for node in ast.walk(tree):
            if isinstance(node, _Def):
                self.defined.add(node.name)
            elif isinstance(node, ast.ClassDef):
                self.defined.add(node.name)
                self.members |= {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
            elif isinstance(node, ast.Global):
                self.globals |= {*node.names}
        for turn in range(PASSES):
            self.learnt, self.findings, self.calls_before, self.calls = 0, Findings(), self.calls, {}
            self.block(tree.body)
            while self.waiting:
                node, self.scopes, self.guards = self.waiting.pop(0)
                self.run(node)
            self.scopes, self.guards, self.function = [self.module], [], Function()
            if turn and not self.learnt and self.calls == self.calls_before:
                break

    # ---- statements ----

    def block(self, body: Sequence[ast.AST]) -> None:
        """Read statements; behind one that leaves at the version moved to, the rest of them is guarded."""
        depth = len(self.guards)
        for each in body:
            self.statement(each)
        del self.guards[depth:]

    def statement(self, node: ast.AST) -> None:
        """Read one statement, or any other part of one."""
        match node:
            case ast.expr():
                self.evaluate(node)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self.define(node)
            case ast.ClassDef():
                own = self.classes.setdefault(node, Own())
                own.bases = [self.evaluate(each) for each in node.bases]
                self.scopes[-1][node.name] = own
                self.scopes = [*self.scopes, {" class": own}]
                guarded = self.calls_before.get(node.name) == {True}
                self.behind("a test before each of its uses" * guarded, node.body)
                for name, value in self.scopes[-1].items():
                    self.grow(own.kept, name, value)
                self.scopes = self.scopes[:-1]
            case ast.Assign(targets=targets, value=value):
                held = self.evaluate(value)
                for target in targets:
                    self.assign(target, held)
            case ast.AnnAssign(target=target):
                held = self.evaluate(node.value) if node.value else None
                self.assign(target, self.annotated(node.annotation) or held)
            case ast.Return(value=ast.expr() as value) | ast.Expr(value=ast.Yield(value=ast.expr() as value)):
                held = self.evaluate(value)
                self.give(held if isinstance(node, ast.Return) else Items(held))
            case ast.If():
                self.branch(node)
            case ast.While(test=test):
                self.behind(_shown(test) * self.judge(test)[0], node.body)
            case ast.For() | ast.AsyncFor():
                self.assign(node.target, self.item_of(self.evaluate(node.iter)))
                self.block([*node.body, *node.orelse])
            case ast.withitem(context_expr=expression, optional_vars=target):
                held = self.evaluate(expression)
                if isinstance(held, Own) and isinstance(method := self.kept_of(held, "__enter__"), Function):
                    held = method.gives or held
                gone = self.names.change_of(f"{held.name}.__enter__") if isinstance(held, Object) else None
                if gone is not None:
                    self.note(expression, gone)
                if target is not None:
                    self.assign(target, held.item if isinstance(held, Items) else held)
            case ast.Try():
                self.attempt(node)
            case ast.Import() | ast.ImportFrom():
                self.take_in(node)
            case ast.Expr(value=ast.Constant()):
                pass  # a docstring
            case _:
                suppressed = isinstance(node, ast.With) and "suppress(Attr" in self.lines[node.lineno - 1]
                self.behind("suppress(AttributeError)" * suppressed, [*ast.iter_child_nodes(node)])

    def define(self, node: _Def) -> None:
        """Note a function; its body is read when all around it is known."""
        is_property = any("property" in _dotted(each) for each in node.decorator_list)
        function = self.functions.setdefault(node, Function(is_property=is_property))
        self.block([*node.decorator_list, *node.args.defaults])
        own = self.scopes[-1].get(" class")
        self.scopes[-1][node.name] = function
        arguments = [each for each in ast.walk(node.args) if isinstance(each, ast.arg)]
        given = {each.arg: self.annotated(each.annotation) for each in arguments}
        given |= {name: own for name in ("self", "cls") if own and name in given}
        outside = self.scopes[:-1] if own else self.scopes
        self.waiting.append((node, [*outside, given], [*self.guards]))

    def run(self, node: _Def) -> None:
        """Read a function's body."""
        self.function = self.functions[node]
        self.give(self.annotated(node.returns))
        if self.calls_before.get(node.name) == {True}:
            self.guards = [*self.guards, "a test before each of its calls"]
        self.block(node.body)

    def give(self, value: object) -> None:
        """Note what the function gives that is being read."""
        before, self.function.gives = self.function.gives, join(self.function.gives, value)
        self.learnt += before != self.function.gives

    def branch(self, node: ast.If) -> None:
        """Read a test and both ways on; a name that both give something to holds what is surest."""
        skips_body, skips_else = self.judge(node.test)
        scope, start = self.scopes[-1], dict(self.scopes[-1])
        shown = _shown(node.test) if skips_body or skips_else else ""
        self.behind(shown * skips_body, node.body)
        after = dict(scope)
        scope.clear()
        scope.update(start)
        self.behind(shown * skips_else, node.orelse)
        for name, value in after.items():
            other = scope.get(name)
            if (skips_body or skips_else) and isinstance(value, Const) and value != other:
                taken = other if skips_body else value
                scope[name] = Versioned(getattr(taken, "value", None), known=skips_body is not skips_else)
            elif not _leaves(node.body):
                scope[name] = join(value, other) if skips_else else join(other, value)
        left = _leaves(node.body) and not (skips_body and isinstance(node.body[-1], ast.Raise))
        if (left and skips_else) or (_leaves(node.orelse) and skips_body):
            self.guards.append(shown)  # until the end of this block

    def behind(self, guard: str, body: Sequence[ast.AST]) -> None:
        """Read what stands behind a guard; an empty one is none."""
        before, self.guards = self.guards, [*self.guards, guard] if guard else self.guards
        self.block(body)
        self.guards = before

    def attempt(self, node: ast.Try) -> None:
        """Read a try; where it catches AttributeError, it and what it does then are guarded."""
        newer = _NEWER.search("\n".join(self.lines[node.lineno - 1 : node.end_lineno]))
        types = [each.type for each in node.handlers]
        named = [bool(each and "AttributeError" in ast.unparse(each)) for each in types]
        caught = [each for each, is_named in zip(node.handlers, named, strict=True) if newer or is_named]
        guard = "except AttributeError" * bool(caught)
        self.behind(guard, node.body)
        start = dict(self.scopes[-1])
        self.behind(guard, [part for each in caught for part in each.body])
        self.block([part for each in node.handlers if each not in caught for part in each.body])
        scope = self.scopes[-1]
        scope.update({name: join(value, scope.get(name)) for name, value in start.items()})
        self.block([*node.orelse, *node.finalbody])

    def take_in(self, node: ast.Import | ast.ImportFrom) -> None:
        """Bind what an import names."""
        scope, module = self.scopes[-1], getattr(node, "module", "") or ""
        for each in node.names:
            local = each.asname or each.name
            if isinstance(node, ast.Import):
                whole = each.name if each.asname else each.name.partition(".")[0]
                scope[local.partition(".")[0]] = self.program.module(whole, 0, self.path)
            elif BINDINGS.match(module) and not node.level:
                self.note_name(each, each.name)
                every = [*self.names.surface.classes, *self.names.surface.names]
                known = {name: name for name in every} if local == "*" else {local: each.name}
                scope.update({own: self.names.value_of(name) for own, name in known.items()})
            elif each.name == "*":
                found = self.program.module(module, node.level, self.path)
                scope.update((found.names if isinstance(found, Module) else None) or {})
            else:
                scope[local] = self.program.member(module, node.level, each.name, self.path)

    def assign(self, target: ast.expr, value: object) -> None:
        """Bind a name, an attribute, or the parts of a tuple."""
        match target:
            case ast.Name(id=name):
                (self.module if name in self.globals else self.scopes[-1])[name] = value
            case ast.Attribute(value=holder, attr=name):
                base = self.evaluate(holder)
                if isinstance(base, Own):
                    self.grow(base.kept, name, value)
                if not isinstance(base, Own) or base.root():
                    self.attribute(base, name, target)
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                row = value.row if isinstance(value, Items) and len(value.row) == len(parts) else ()
                for place, part in enumerate(parts):
                    number = fold_item(value, ast.Constant(place)) if isinstance(value, Versioned) else None
                    self.assign(part, row[place] if row else number or self.item_of(value))
            case _:
                self.evaluate(target)

    def grow(self, table: dict[str, object], name: str, value: object) -> None:
        """Note what a name may hold, too."""
        joined = join(table.get(name), value)
        self.learnt += joined != table.get(name) or name not in table
        table[name] = joined

    # ---- tests ----

    def judge(self, node: ast.expr) -> tuple[bool, bool]:
        """Return whether a test keeps its body, and its else, from running at the version moved to."""
        match node:
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                return self.judge(inner)[::-1]
            case ast.BoolOp(op=how, values=parts):
                depth, judged = len(self.guards), list[tuple[bool, bool]]()
                for each in parts:
                    judged.append(self.judge(each))
                    self.guards += [_shown(each) for _ in range(judged[-1][isinstance(how, ast.Or)])]
                del self.guards[depth:]
                bodies, elses = [each[0] for each in judged], [each[1] for each in judged]
                both = isinstance(how, ast.And)
                return (any(bodies), all(elses)) if both else (all(bodies), any(elses))
        value = self.evaluate(node)
        if isinstance(value, Versioned):
            return (True, True) if value.truth is None else (not value.truth, value.truth)
        return False, False

    def compare(self, node: ast.Compare) -> object:
        """Work out a comparison of versions; tell where it flips."""
        values = [self.evaluate(each) for each in (node.left, *node.comparators)]
        found: object = None
        if isinstance(values[1], Gives):  # of "name" in dir(x)
            found = self.has(values[1].item, values[0], node)
            turned = isinstance(node.ops[0], ast.NotIn) and isinstance(found, Versioned)
            return fold_operator(found, ast.Eq(), Const(value=False)) if turned else found
        for left, how, right in zip(values, node.ops, values[1:], strict=False):
            if isinstance(left, Versioned) or isinstance(right, Versioned):
                self.note_flip(node, left, how, right)
                misread = any(judge_misread("", each, self.names.after) for each in (left, right))
                one = UNKNOWN if misread else fold_operator(left, how, right)
                found = one if not isinstance(found, Versioned) or found.truth else found
        return found

    def note_flip(self, node: ast.expr, left: object, how: ast.cmpop | str, right: object) -> None:
        """Tell of a test that the version moved to turns round."""
        if (change := judge_flip(ast.unparse(node), left, how, right, self.program.ends)) is not None:
            self.note(node, change)

    def has(self, holder: object, named: object, node: ast.AST) -> object:
        """Return what ``hasattr`` says at the version moved to; asking for what is gone is a use, too."""
        if not isinstance(named, Const) or not isinstance(named.value, str):
            return None
        name, known = named.value, self.names
        owner = "" if isinstance(holder, Module) else getattr(holder, "name", None)
        owners = known.owners.get(name, ()) if owner is None else known.line_of(owner) if owner else [""]
        dotted = [each for each in (f"{each}.{name}".strip(".") for each in owners) if each in known.changes]
        for each in dotted[:1]:
            if known.changes[each].kind is ChangeKind.REMOVED:
                self.note(node, known.changes[each], "it is only asked for")
        if owner is not None:
            return Versioned(known.at_target(f"{owner}.{name}".strip(".")))
        if any(each.endswith(f".{name}") for each in known.added):
            return Versioned(now=True)
        return Versioned(now=known.changes[dotted[0]].kind is not ChangeKind.REMOVED) if dotted else None

    # ---- expressions ----

    def evaluate(self, node: ast.expr) -> object:
        """Return what an expression gives, and note the uses in it; None where that is not known."""
        value = self._evaluate(node)
        role = _role(node) if value is None and self.about else ""
        return Object(role, guessed=True) if role else value

    def _evaluate(self, node: ast.expr) -> object:
        match node:
            case ast.Name(id=name):
                return self.name(node, name)
            case ast.Constant(value=value):
                return Const(value)
            case ast.Attribute(value=holder, attr=name):
                return self.attribute(self.evaluate(holder), name, node)
            case ast.Call():
                return self.call(node)
            case ast.Subscript():
                return self.item(node)
            case ast.Compare():
                return self.compare(node)
            case ast.BoolOp() | ast.UnaryOp(op=ast.Not()):
                skips = self.judge(node)
                if any(skips):
                    return UNKNOWN if all(skips) else Versioned(now=skips[1])
                parts = node.values if isinstance(node, ast.BoolOp) else []
                row = [self.evaluate(each) for each in parts if isinstance(each, ast.Name | ast.Attribute)]
                return UNKNOWN if any(isinstance(each, Versioned) for each in row) else (row or [None])[-1]
            case ast.IfExp(test=test):
                skips = self.judge(test)
                found: object = None
                for skipped, part in zip(skips, (node.body, node.orelse), strict=True):
                    self.behind(_shown(test) * skipped, [part])
                    found = join(found, self.evaluate(part)) if not skipped else found
                return found
            case ast.NamedExpr(target=target, value=given):
                self.assign(target, self.evaluate(given))
                return self.evaluate(target)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                return self.comprehension(node)
            case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Set(elts=parts):
                row = [self.evaluate(each) for each in parts]
                if row and all(isinstance(each, Const) for each in row):
                    return Const(tuple(each.value for each in row if isinstance(each, Const)))
                return Items(next((each for each in row if isinstance(each, Object)), None), tuple(row))
            case ast.BinOp(left=left, op=how, right=right):
                one, other = self.evaluate(left), self.evaluate(right)
                versioned = isinstance(one, Versioned) or isinstance(other, Versioned)
                return fold_operator(one, how, other) if versioned else None
            case ast.Await(value=given) | ast.Starred(value=given):
                return self.evaluate(given)
        self.block([*ast.iter_child_nodes(node)])
        return None

    def name(self, node: ast.Name, name: str) -> object:
        """Return what a name holds; a class that changes is told of wherever it is named."""
        self.note_call(name)
        for scope in reversed(self.scopes):
            if name in scope:
                if scope[name] == Class(name):
                    self.note_name(node, name)
                if scope[name] is not None or scope is not self.module:
                    return scope[name]
        return Module() if name in ("trt", "tensorrt") and self.about else None

    def note_call(self, name: str) -> None:
        """Note that a function of this file is used here, and whether guarded."""
        if name in self.defined:
            self.calls.setdefault(name, set()).add(bool(self.guards))

    def attribute(self, base: object, name: str, node: ast.AST, why: str = "") -> object:
        """Return what an attribute gives, and note it where it changes."""
        if isinstance(base, Own | Module | None):
            self.note_call(name)
        match base:
            case Module(names=None):
                if name == "__version__":
                    was, now = self.program.ends
                    return Versioned(now, was, 0) if now else UNKNOWN
                self.note_name(node, name)
                return base if name == "tensorrt" else self.names.value_of(name)
            case Module(names=names):
                return (names or {}).get(name)
            case Class(owner) | Object(owner):
                dotted = f"{owner}.{name}"
                guessed = isinstance(base, Object) and base.guessed
                if self.names.change_of(dotted) is None and self.names.surface.find(dotted) is None:
                    if guessed:
                        self.unknown(name, node, owner, why)
                    return None
                if guessed and not self.names.is_own(name) and (self.about < 2 or owner == "IBuilderConfig"):
                    if owner == "IBuilderConfig" and not _is_set(node):
                        return None  # a configuration of the user's, as likely
                    why = why or _BY_NAME
                if not (isinstance(base, Class) and owner in self.names.changes):  # which was told of itself
                    self.note_member(node, dotted, why)
                return self.names.value_of(dotted)
            case Own():
                held = self.kept_of(base, name)
                if held is not base:
                    return held.gives if isinstance(held, Function) and held.is_property else held
                return self.attribute(Object(base.root()), name, node, why) if base.root() else None
            case Versioned():
                place = {"major": 0, "minor": 1, "micro": 2}.get(name)
                return base if place is None else fold_item(base, ast.Constant(place))
            case Foreign(strange):
                if strange:
                    self.unknown(name, node, "", f"it comes from {strange}, not scanned")
                return base
            case None if name not in ("trt", "tensorrt"):
                self.unknown(name, node, "", why)
                return None
        return Module() if base is None else None

    def unknown(self, name: str, node: ast.AST, role: str, why: str) -> None:
        """Note an attribute of what is not known, where the name is TensorRT's alone."""
        if not self.about or name in self.members:
            return
        owners = self.names.owners.get(name, [])
        if owners and name in _ALONE and self.about > 1 and _is_set(node):
            self.note_member(node, f"{owners[0]}.{name}", why or _BY_NAME)
        if owners and self.names.is_own(name):
            why = why or ("" if self.about > 1 else "the file does not import TensorRT itself")
            self.note_member(node, f"{role if role in owners else owners[0]}.{name}", why)
        for gone in ("UffParser", "CaffeParser") if role == "OnnxParser" and self.names.is_own(name) else ():
            self.note_member(node, f"{gone}.{name}", why)

    def kept_of(self, own: Own, name: str) -> object:
        """Return what objects of an own class keep under a name; itself where it knows no such name."""
        return next((each.kept[name] for each in own.line() if name in each.kept), own)

    def item(self, node: ast.Subscript) -> object:
        """Return an item; an engine's by a tensor's name is told of."""
        base, index = self.evaluate(node.value), self.evaluate(node.slice)
        match base:
            case Versioned():
                return fold_item(base, node.slice)
            case Items(item, row):
                place = index.value if isinstance(index, Const) else None
                return row[place] if isinstance(place, int) and -len(row) <= place < len(row) else item
            case Class() if isinstance(index, Const) and isinstance(index.value, str):
                return self.attribute(base, index.value, node)
            case Object(owner):
                change = self.names.change_of(f"{owner}.__getitem__")
                by_name = isinstance(index, Const) and isinstance(index.value, str)
                if change is not None and (by_name or re.search(r"name|binding$", _dotted(node.slice))):
                    self.note(node, change, _BY_NAME if base.guessed and not self.about else "")
                return self.names.item_of(owner)
            case Foreign():
                return base
        return None

    def item_of(self, value: object) -> object:
        """Return what iterating gives."""
        if isinstance(value, Object):
            return self.names.item_of(value.name)
        return value.item if isinstance(value, Items) else value if isinstance(value, Foreign) else None

    def comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> object:
        """Read a comprehension; one over a version's parts gives its numbers."""
        depth, whole = len(self.guards), list[object]()
        self.scopes = [*self.scopes, {}]
        for each in node.generators:
            whole.append(self.evaluate(each.iter))
            self.assign(each.target, self.item_of(whole[-1]))
            for test in each.ifs:
                self.guards += [_shown(test) for _ in range(self.judge(test)[0])]
        parts = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        value = [self.evaluate(each) for each in parts][-1]
        self.scopes = self.scopes[:-1]
        del self.guards[depth:]
        if isinstance(whole[0], Versioned):
            return fold_call("map", [None, whole[0]]) if isinstance(parts[-1], ast.Call) else whole[0]
        return Items(value)

    # ---- calls ----

    def call(self, node: ast.Call) -> object:
        """Read a call: its parts, then what it gives."""
        func, name = node.func, _dotted(node.func).rpartition(".")[2]
        base = self.evaluate(func.value) if isinstance(func, ast.Attribute) else None
        args = [self.evaluate(each) for each in node.args]
        for each in node.keywords:
            self.evaluate(each.value)
        match name, args:
            case _, [Const(str() as text), *_] if "import" in name and BINDINGS.match(text):
                return Items(row=(Module(), None)) if "optional" in name else Module()
            case _ if re.search(r"import_(trt|tensorrt)$", name):
                return Module()
            case "version" | "get_version" | "get_distribution", [Const(str() as text)] if BINDINGS.match(
                text
            ):
                return self.attribute(Module(), "__version__", node)
            case "getattr", [holder, Const(str() as attribute), *default]:
                return self.attribute(holder, attribute, node, "guarded by getattr's default" * bool(default))
            case "setattr", [holder, Const(str() as attribute), _]:
                return self.attribute(holder, attribute, node)
            case "hasattr", [holder, named]:
                return self.has(holder, named, node)
            case "dir", [holder]:
                return Gives(holder)
            case "len", [Object(owner, guessed)] if change := self.names.change_of(f"{owner}.__len__"):
                self.note(node, change, _BY_NAME if guessed else "")
            case _, [Object() | Items() as same] if name in _SAME:
                return same
        for text in [each.value for each in args if isinstance(each, Const) and isinstance(each.value, str)]:
            owners = self.names.owners.get(text, []) if text.isupper() and self.names.is_own(text) else []
            change = self.names.changes.get(f"{owners[0]}.{text}" if owners else text)
            if change is not None and self.about and text[0].isupper():  # a helper looks it up
                self.note(node, change, "only a text names it")
        if isinstance(base, Versioned):
            if name == "startswith" and args:
                self.note_flip(node, base, name, args[0])
            return fold_method(base, name, args)
        self.call_now = node
        callee = self.attribute(base, name, func) if isinstance(func, ast.Attribute) else self.evaluate(func)
        versioned = any(isinstance(each, Versioned) for each in args)
        if isinstance(callee, Own):
            return UNKNOWN if versioned else callee
        if isinstance(callee, Function):
            return UNKNOWN if versioned and callee.gives is None else callee.gives
        if name in READERS and args and isinstance(args[0], Const):
            return Const(fold_call(name, args).now)
        if callee is None and isinstance(func, ast.Name) and not versioned:
            plain = name in _PLAIN or (name == "list" and args and isinstance(args[0], Foreign))
            return Foreign() if plain else None
        if versioned:
            folded = fold_call(name, args)
            change = judge_misread(ast.unparse(node), folded, self.names.after) if name == "int" else None
            if change is not None:
                self.note(node, change)
            return folded
        match callee:
            case Class(owner):
                return Object(owner)
            case Method(dotted):
                return self.names.result_of(dotted)
            case Gives(item):
                return item
        return callee if isinstance(callee, Foreign) else None

    def annotated(self, node: ast.expr | None) -> object:
        """Return what an annotation says a value is, by the names in it."""
        if node is None or not (self.about and isinstance(node, ast.expr)):
            return None
        text = ast.unparse(node).strip("'\"")
        if not isinstance(node, ast.Constant):
            self.evaluate(node)
        found = [word for word in re.findall(r"\w+", text) if word in self.names.surface.classes]
        if found and re.search(r"\b(trt|tensorrt)\b|^I[A-Z]\w+$", text):
            listed = re.match(r"(typing\.)?(list|sequence|iterable|tuple|dict)\[", text, re.IGNORECASE)
            if listed and len(found) > 1:
                return Items(row=tuple(Object(each) for each in found))
            return Items(Object(found[0])) if listed else Object(found[0])
        plain = re.fullmatch(r"str|bytes|int|float|bool|dict|(pathlib\.)?Path|onnx\.\w+", text)
        return Foreign() if plain else None

    # ---- notes ----

    def place(self, line: int) -> Place:
        """Return the place of a line."""
        cell, inner = self.cells[line - 1] if self.cells else (0, line)
        return Place(file=self.path, line=inner, cell=cell, text=self.lines[line - 1])

    def note(self, node: ast.AST, change: ApiChange, why: str = "") -> None:
        """Note a use where the node ends, as an attribute's name stands there; a guard makes it possible."""
        line = (node.end_lineno if isinstance(node, ast.Attribute) else getattr(node, "lineno", 0)) or 1
        place = self.place(line)
        if change.kind is ChangeKind.BEHAVIOUR:
            self.findings.add_behaviour(place, change)
        else:
            self.findings.add(place, change, f"behind {self.guards[-1]}" if self.guards else why)

    def note_name(self, node: ast.AST, name: str) -> None:
        """Note a name of the module itself."""
        for change in (self.names.change_of(name), self.names.behaviours.get(name)):
            if change is not None:
                self.note(node, change)

    def note_member(self, node: ast.AST, dotted: str, why: str) -> None:
        """Note a member of a class, where what is done with it no longer works."""
        owner, _, name = dotted.rpartition(".")
        change = self.names.change_of(dotted)
        call = self.call_now if getattr(self.call_now, "func", None) is node else None
        if change is not None and (change.kind is not ChangeKind.CHANGED or _meets(change, node, call)):
            self.note(node, change, why)
        for base in self.names.line_of(owner):
            if (behaviour := self.names.behaviours.get(f"{base}.{name}")) is not None:
                self.note(node, behaviour)


class Program:
    """The scanned Python files, read one by one; what they define is kept for those that import it."""

    def __init__(self, names: Names, sources: Mapping[str, Source]) -> None:
        """Take the lines of each file, and read those that can matter."""
        self.names, self.sources, self.findings = names, sources, Findings()
        self.ends = (names.surface.version, names.after)
        self.unread: list[tuple[str, str]] = []
        self.tails: dict[str, list[str]] = {}
        for path in sources:
            parts = re.sub(r"(/__init__)?\.\w+$", "", path).split("/")
            for start in range(len(parts)):
                self.tails.setdefault(".".join(parts[start:]), []).append(path)
        self.parts = {part for path in sources for part in re.split(r"[/.]", path)}
        self.read: dict[str, dict[str, object]] = {}
        self.close = set[str]()
        self.about = self._near()
        for path, (lines, _) in self.sources.items():
            words = set(re.findall(r"engine\[|\w+?(?=engine\[)|\w+", "\n".join(lines)))
            if "trtexec" in words or (path in self.about and (names.words & words or "engine[" in words)):
                self.names_of(path)

    def names_of(self, path: str) -> dict[str, object]:
        """Return what a file defines; it is read now where it was not yet."""
        if path not in self.read:
            reader = FileReader(self, path, self.about.get(path, 0))
            self.read[path] = reader.module
            try:
                tree = parse("\n".join(reader.lines))
                reader.read(tree)
                if any("trtexec" in line for line in reader.lines):
                    scan_commands(tree, reader.place, self.names, reader.findings)
                    scan_examples(reader.lines, reader.place, self.names, reader.findings)
            except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
                self.unread.append((path, reason(error)))
            self.findings.update(reader.findings)
        return self.read[path]

    def find(self, dotted: str, level: int, importer: str) -> str | None:
        """Return the scanned file that an import names, the nearest of several."""
        if level:
            dotted = ".".join([*importer.split("/")[:-level], *dotted.split(".")]).strip(".")
        found = [path for path in self.tails.get(dotted, []) if path != importer]
        return max(found, key=lambda path: _shared(path, importer), default=None)

    def module(self, dotted: str, level: int, importer: str) -> object:
        """Return what importing a module gives."""
        if not level and BINDINGS.match(dotted):
            return Module()
        path, root = self.find(dotted, level, importer), dotted.partition(".")[0]
        if path is not None:
            return Module(self.names_of(path)) if path in self.close else None
        if root in _OTHERS and not level:
            return Foreign()
        known = level or root in self.parts or re.search("trt|tensorrt|polygraphy", root)
        return None if known else Foreign(root)

    def member(self, dotted: str, level: int, name: str, importer: str) -> object:
        """Return what ``from dotted import name`` gives."""
        if dotted.startswith("polygraphy.backend.trt"):
            snake = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
            given = next((value for start, value in _POLYGRAPHY.items() if snake.startswith(start)), None)
            return None if given is None else Gives(given) if snake == name else Gives(Gives(given))
        if (inner := self.find(f"{dotted}.{name}".strip("."), level, importer)) is not None:
            return Module(self.names_of(inner)) if inner in self.close else None
        whole = self.module(dotted, level, importer)
        return whole.names.get(name) if isinstance(whole, Module) and whole.names is not None else whole

    def _near(self) -> dict[str, int]:
        """Return how near files are to TensorRT: 2 they import it, 1 imports lead to one that does."""
        links: dict[str, set[str]] = {path: set() for path in self.sources}
        near: dict[str, int] = {}
        for path, (lines, _) in self.sources.items():
            text = "\n".join(lines)
            near |= {path: 2} if NEAR.search(text) else {}
            for dots, dotted, named in _IMPORT.findall(text):
                for whole in (dotted, f"{dotted}.{named}".strip(".")):
                    if (other := self.find(whole, len(dots), path)) is not None:
                        links[path].add(other)
                        links[other].add(path)
        for _ in range(2):
            self.close = self.close or {*near, *(path for path in links if links[path] & {*near})}
            for path in [path for path in links if path not in near and links[path] & {*near}]:
                near[path] = 2 if re.search(r"\btrt\.\w", "\n".join(self.sources[path][0])) else 1
        return near


def _shared(one: str, other: str) -> int:
    """Return how many folders two paths have in common."""
    pairs = zip(one.split("/"), other.split("/"), strict=False)
    return next((place for place, (left, right) in enumerate(pairs) if left != right), len(one))


def parse(text: str) -> ast.Module:
    """Parse Python code without its warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the user's escapes in texts: not our concern
        return ast.parse(text)


def reason(error: BaseException) -> str:
    """Say in one line why a file could not be read."""
    if isinstance(error, SyntaxError):
        return f"it does not parse as Python 3, line {error.lineno}: {error.msg}"
    return str(error) if isinstance(error, ValueError) else "its expressions are nested too deeply to be read"


def _dotted(node: ast.AST) -> str:
    """Return ``a.b.c`` of names and attributes, with what is called or indexed left out."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=name):
            return f"{_dotted(value)}.{name}"
        case ast.Call(func=inner) | ast.Subscript(value=inner):
            return _dotted(inner)
    return ""


def _role(node: ast.AST) -> str:
    """Return the class of what is called by such a name: ``self.trt_engine``, ``contexts[0]``."""
    return _role_of(_dotted(node).rpartition(".")[2], isinstance(node, ast.Subscript))


@cache
def _role_of(name: str, of_list: bool) -> str:
    last = name.lower().strip("_0123456789").rstrip("s" if of_list else "")
    return _CONFIGS.get(last) or next((role for end, role in _ROLES.items() if last.endswith(end)), "")


def _is_set(node: ast.AST) -> bool:
    return not isinstance(getattr(node, "ctx", None), ast.Load)


def _meets(change: ApiChange, node: ast.AST, call: ast.Call | None) -> bool:
    """Say whether a use meets a change: an assignment what became read-only, a call what no longer fits."""
    if "can no longer be set" in change.note:
        return _is_set(node)
    return call is None or not any(_fits(call, line) for line in change.after.splitlines())


def _fits(call: ast.Call, signature: str) -> bool:
    """Say whether a call surely fits a signature by number and names of arguments."""
    parameters = parse_signature(signature).parameters
    rest = {each.name: each.optional for each in parameters[len(call.args) :]}
    given = {each.arg for each in call.keywords}
    lacking = [name for name, optional in rest.items() if not optional and name not in given]
    starred = any(isinstance(each, ast.Starred) for each in call.args)
    return not lacking and not starred and len(call.args) <= len(parameters) and given <= {*rest}


def _shown(node: ast.expr) -> str:
    text = " ".join(ast.unparse(node).split())
    return f"`{text if len(text) <= 60 else text[:59] + '…'}`"


def _leaves(body: Sequence[ast.stmt]) -> bool:
    return bool(body) and isinstance(body[-1], ast.Return | ast.Raise | ast.Continue | ast.Break)
