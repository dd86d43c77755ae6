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
_OTHERS = {
    *sys.stdlib_module_names, "numpy", "torch", "torchvision", "onnx", "onnxruntime", "onnxsim", "openvino",
    "onnx_graphsurgeon", "pycuda", "cuda", "cupy", "cv2", "tensorflow", "tvm", "mxnet", "PIL", "jax", "keras",
    "caffe", "paddle", "yaml", "tqdm", "requests", "tritonclient", "transformers", "sqlalchemy", "pandas",
    "scipy", "matplotlib", "numba", "absl", "click", "typer", "pydantic", "omegaconf", "easydict", "mmcv",
    "mmengine", "flask", "ray", "ncnn", "hydra", "packaging", "loguru", "tensorrt_llm", "torch_tensorrt",
}  # fmt: skip
"""Libraries whose objects are none of TensorRT's."""
_PLAIN = {"dict", "str", "int", "float", "range", "open", "bytes", "len", "set", "list", "tuple"}
_SAME = {"list", "tuple", "sorted", "reversed", "copy", "deepcopy", "enter_context"}
_ROLES = {
    "engine": "ICudaEngine", "context": "IExecutionContext", "ctx": "IExecutionContext", "builder": "Builder",
    "network": "INetworkDefinition", "parser": "OnnxParser", "runtime": "Runtime", "refitter": "Refitter",
    "registry": "IPluginRegistry",
}  # fmt: skip
"""What a name that ends so holds, where nothing else is known of it."""
_CONFIGS = {"config", "builder_config", "trt_config", "build_config"}
_POLYGRAPHY = {"engine_from": "ICudaEngine", "create_config": "IBuilderConfig"}
"""What Polygraphy's functions give whose names begin so, and its loaders when they are called."""


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
    """Tells what the expressions of one file hold."""

    def __init__(self, tree: ast.Module, names: Names, parts: Collection[str], own: Collection[str]) -> None:
        """Gather what is assigned; ``parts``: words of the scanned files' paths; ``own``: classes in them."""
        self.names, self.parts, self.own = names, parts, own
        self.members: set[str] = set()
        """Attributes that classes of the file give their own objects."""
        self.bound = defaultdict[str, list[ast.expr | Value | None]](list)
        """What is given to each name, and by each ``function()``."""
        for node in ast.walk(tree):
            self._gather(node)

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
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                given = [each.value for each in ast.walk(node) if isinstance(each, ast.Return | ast.Yield)]
                self.bound[f"{name}()"] += [self._annotated(node.returns), *given]
                self.bound[name] += (
                    given if any("property" in dotted_name(each) for each in node.decorator_list) else [OWN]
                )
            case ast.ClassDef(name=name, bases=bases):
                self.members |= {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
                base = next((v.name for v in map(self.value, bases) if v and v.kind is Kind.CLASS), "")
                self.bound[name].append(Value(Kind.CLASS, base) if base else OWN)
            case ast.Import() | ast.ImportFrom():
                for name, held in self._imported(node):
                    self.bound[name].append(held)

    def _bind(self, target: ast.expr, value: ast.expr | Value | None) -> None:
        match target:
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                given = (
                    value.elts
                    if isinstance(value, ast.Tuple) and len(value.elts) == len(parts)
                    else [None] * len(parts)
                )
                for part, each in zip(parts, given, strict=True):
                    self._bind(part, each)
            case ast.Name(id=name) | ast.Attribute(attr=name):
                self.bound[name].append(value)
                if dotted_name(target) == f"self.{name}":
                    self.members.add(name)

    def _imported(self, node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, Value | None]]:
        """Yield the names that an import binds, with what they hold."""
        module = getattr(node, "module", "") or ""
        for each in node.names:
            local = (each.asname or each.name).partition(".")[0]
            if isinstance(node, ast.Import):
                yield local, self._library(each.name)
            elif BINDINGS.match(module) and not node.level:
                every = [*self.names.surface.classes, *self.names.surface.names]
                for name in every if local == "*" else [each.name]:
                    yield name if local == "*" else local, self.named(name)
            elif module.startswith("polygraphy.backend.trt"):
                snake = re.sub(r"(?<!^)(?=[A-Z])", "_", each.name).lower()
                given = next((value for start, value in _POLYGRAPHY.items() if snake.startswith(start)), "")
                yield local, Value(Kind.OBJECT, given) if given else None
            elif node.level or each.name in self.own:
                yield local, OWN if each.name in self.own else None
            else:
                yield local, self._library(module)

    def _library(self, dotted: str) -> Value | None:
        root = dotted.partition(".")[0]
        if BINDINGS.match(dotted) or root in _OTHERS:
            return MODULE if BINDINGS.match(dotted) else FOREIGN
        is_near = root in self.parts or re.search("trt|tensorrt|polygraphy", root)
        return None if is_near else Value(Kind.FOREIGN, root)

    def enter_class(self, node: ast.AST) -> None:
        """Let ``self`` be an object of the class that is looked into."""
        if isinstance(node, ast.ClassDef):
            held = self.held(node.name)
            self.bound["self"] = [Value(Kind.OBJECT, held.name) if held and held.kind is Kind.CLASS else OWN]

    def value(self, node: ast.expr) -> Value | None:
        """Return what an expression holds, maybe by its name alone; None where that is not known."""
        found = self._value(node)
        role = _role(dotted_name(node).rpartition(".")[2].rstrip("s" * isinstance(node, ast.Subscript)))
        return found or (Value(Kind.OBJECT, role, guessed=True) if role else None)

    def _value(self, node: ast.expr) -> Value | None:
        match node:
            case ast.Constant(value=value):
                return None if value is None else FOREIGN
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
        given = self.bound.get(name, [])
        if [each for each in given if isinstance(each, ast.expr)]:
            self.bound[name] = []  # of what hangs on itself
            values = [self.value(each) if isinstance(each, ast.expr) else each for each in given]
            found = _join([None if each and each.guessed else each for each in values])
            self.bound[name] = [found]
            return found
        return _join([each for each in given if not isinstance(each, ast.expr)])

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


def _role(name: str) -> str:
    """Return the class of what is called by such a name, such as ``trt_engine``."""
    last = name.lower().strip("_0123456789")
    if last in _CONFIGS:
        return "IBuilderConfig"
    return next((role for end, role in _ROLES.items() if last.endswith(end)), "")
