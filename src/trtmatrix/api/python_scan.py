"""Notes the uses of names that change in Python files, and the tests of the version that guard them."""

from __future__ import annotations

import ast
import re
import warnings
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from trtmatrix.api.python_values import BINDINGS, FileValues, Kind, Value, dotted_name, text_of
from trtmatrix.api.scan_names import Names, Page
from trtmatrix.api.signatures import parse_signature
from trtmatrix.api.text_scan import scan_commands
from trtmatrix.api.types import ApiChange, ChangeKind
from trtmatrix.api.version_tests import VERSION, find_flip, work_out

_IMPORTS = re.compile(
    r"(import|from)\s+(tensorrt(_lean|_dispatch|_bindings)?\b(?!\.\w+_)|polygraphy)"
    r"|import\w*\(\s*[\"']tensorrt|import_(trt|tensorrt)\(|\btrt\.\w"
)
_NEAR = re.compile(r"\b_?trt|tensorrt", re.IGNORECASE)
_NEWER = re.compile(
    r"num_io_tensors|[gs]et_tensor_|execute_async_v3|set_input_shape|build_serialized|memory_pool"
)
"""Names of both ways of writing that stand in a try whose other way catches what goes wrong."""
_TESTS = {"__version__", "hasattr", "version", "get_distribution"}
_BY_NAME = "only its name says what it is used on"


class PythonFile:
    """A file that is scanned; ``imports``: whether it imports TensorRT, or only speaks of it."""

    def __init__(self, page: Page, names: Names) -> None:
        """Take a file's lines; ``matters``: whether any name that changes stands in it."""
        self.page, self.names = page, names
        text = page.code
        self.imports = bool(_IMPORTS.search(text))
        is_near = self.imports or bool(_NEAR.search(text))
        self.words = set(re.findall(r"\w+|(?<=engine)\[", text)) if is_near else set()
        wanted = names.words if self.imports else names.long_words
        self.matters = not wanted.isdisjoint(self.words) or "trtexec" in self.words
        self.uses = defaultdict[str, list[ast.AST]](list)
        """Where each name is read."""
        self.guards: dict[ast.AST, str] = {}
        self.versioned: set[ast.AST] = set()
        """Expressions that hang on TensorRT's version or on what its bindings have."""
        self.flags: dict[str, ast.expr] = {}
        """What names and calls (``function()``) stand for that hang on it; ``exports``: for other files."""
        self.exports: dict[str, ast.expr] = {}
        self.shared: Mapping[str, ast.expr] = {}

    def parse(self, parts: Collection[str]) -> None:
        """Parse the file once and gather what its names hold; raises what the parser raises."""
        if self.uses:
            return
        self.values = FileValues(parse(self.page.code), self.names, parts)
        for node in self.values.nodes:
            if isinstance(node, ast.Name | ast.Attribute) and not _is_set(node):
                self.uses[node.id if isinstance(node, ast.Name) else node.attr].append(node)
        asked = [*self.uses["hasattr"], *self.uses["version"], *self.uses["get_distribution"]]
        asked = [self.values.parents[each] for each in asked]
        self.spread(each for each in [*asked, *self.uses["__version__"]] if self.look(each) is not None)

    def take(self, shared: Mapping[str, ast.expr]) -> None:
        """Take over what names of other files stand for that hang on the version."""
        self.shared = shared
        calls = {f"{local}()": f"{name}()" for local, name in self.values.imported.items()}
        for local, name in {**self.values.imported, **calls}.items():
            if name in shared:
                self.flag(local, shared[name])
        attributes = (each for name in shared for each in self.uses[name.removesuffix("()")])
        self.spread(each for each in attributes if isinstance(each, ast.Attribute))

    def flag(self, name: str, value: ast.expr) -> None:
        """Note that a name stands for what hangs on the version, and so does all that uses it."""
        if name not in self.flags:
            self.flags[name] = value
            self.spread(self.uses[name.removesuffix("()")])

    def spread(self, nodes: Iterable[ast.AST]) -> None:
        """Note what hangs on the version as these nodes do: what they are parts of, and names given that."""
        for part in nodes:
            node, outer = part, self.values.parents[part]
            while isinstance(outer, ast.expr | ast.comprehension | ast.keyword):
                self.versioned.add(node)
                if isinstance(outer, ast.IfExp) and outer.test is node and not _is_literal(outer):
                    break  # what is taken in each case tells nothing of the version
                node, outer = outer, self.values.parents[outer]
            self.versioned.add(node)
            for name, value in self.given(node, outer):
                if name[-1:] == ")" or not self.values.function_of(outer):
                    self.exports.setdefault(name, value)
                self.flag(name, value)

    def given(self, node: ast.AST, outer: ast.AST) -> Iterator[tuple[str, ast.expr]]:
        """Yield which names a statement gives what hangs on a part of it, and what that is."""
        match outer:
            case ast.Assign(targets=[ast.Tuple(elts=parts)], value=value):
                for index, part in enumerate(parts):
                    item = ast.Subscript(value, ast.Constant(index), ast.Load())
                    yield dotted_name(part).rpartition(".")[2], item
            case (
                ast.Assign(value=value, targets=[target])
                | ast.AnnAssign(value=ast.expr() as value, target=target)
            ):
                yield dotted_name(target).rpartition(".")[2], value
            case ast.Return(value=ast.expr() as value) if function := self.values.function_of(outer):
                yield f"{function.name}()", value
            case ast.If(test=test, body=body) if node is test:  # what is set there hangs on it, either way
                for each in body:
                    if isinstance(each, ast.Assign) and isinstance(each.value, ast.Constant):
                        yield dotted_name(each.targets[0]), ast.Call(ast.Name("decided_by"), [test], [])

    def scan(self) -> None:
        """Note the uses."""
        for node in self.values.nodes:
            self.look_at(node)
        if "trtexec" in self.words:
            scan_commands(self.values.nodes, self.page, self.names)

    def look_at(self, node: ast.AST) -> None:
        """Note what a node itself uses."""
        words = self.names.attributes
        match node:
            case ast.ImportFrom(module=str() as module, level=0) if BINDINGS.match(module):
                for named in node.names:
                    self.note_name(named, named.name)
            case ast.withitem(context_expr=expression):
                held = self.values.value(expression)
                if held and held.kind is Kind.OBJECT:
                    self.note_member(expression, f"{held.name}.__enter__", "")
            case ast.Name(id=name, ctx=ast.Load()) if name in words:
                if self.values.value(node) == Value(Kind.CLASS, name):
                    self.note_name(node, name)
            case ast.Attribute(value=holder, attr=name) if name in words:
                self.note_attribute(node, self.values.value(holder), name)
            case ast.Subscript(value=whole, slice=index):
                self.note_item(node, self.values.value(whole), index)
            case ast.Compare():
                self.note_flip(node)
            case ast.Call():
                self.note_call(node)

    # ---- guards ----

    def guard_of(self, node: ast.AST) -> str:
        """Return what keeps a node from running at the version moved to, or nothing."""
        if node not in self.guards:
            self.guards[node] = ""  # of what hangs on itself
            outer = self.values.parents.get(node)
            self.guards[node] = "" if outer is None else self.find_guard(node, outer) or self.guard_of(outer)
        return self.guards[node]

    def find_guard(self, node: ast.AST, outer: ast.AST) -> str:
        """Return what guards a node in what it stands in."""
        match outer:
            case ast.If(test=test, body=body) if node is not test:
                if guard := self.judge(test)[node not in body]:
                    return guard
            case ast.IfExp(test=test, body=body) if node is not test:
                return self.judge(test)[node is not body]
            case ast.BoolOp(op=how, values=values):
                earlier = values[: values.index(node)]  # type: ignore[arg-type]
                return next(filter(None, (self.judge(each)[isinstance(how, ast.Or)] for each in earlier)), "")
            case ast.Try(body=body, handlers=handlers):
                newer = _NEWER.search("\n".join(self.page.lines[outer.lineno - 1 : outer.end_lineno]))
                named = [
                    each for each in handlers if each.type and "AttributeError" in ast.unparse(each.type)
                ]
                if (node in body and (named or (newer and handlers))) or node in (
                    handlers if newer else named
                ):
                    return "except AttributeError"
            case ast.With() if "suppress(Attr" in self.page.lines[outer.lineno - 1]:
                return "suppress(AttributeError)"
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                calls = [each for each in self.uses[name] if outer not in self.values.around(each)]
                if calls and all(map(self.guard_of, calls)):
                    return "a test before each of its calls"
        return self.find_leave(node, outer) if isinstance(node, ast.stmt) else ""

    def find_leave(self, node: ast.stmt, outer: ast.AST) -> str:
        """Return the test before a statement, in its block, that leaves it at the version moved to."""
        blocks = [getattr(outer, name, []) for name in ("body", "orelse", "finalbody")]
        block = next((each for each in blocks if isinstance(each, list) and node in each), [node])
        for each in block[: block.index(node)]:
            if isinstance(each, ast.Assert) and (fails := self.judge(each.test)[0]):
                return fails
            if isinstance(each, ast.If) and (_leaves(each.body) or _leaves(each.orelse)):
                skips_body, skips_else = self.judge(each.test)
                left = _leaves(each.body) and not (skips_body and isinstance(each.body[-1], ast.Raise))
                if (left and skips_else) or (_leaves(each.orelse) and skips_body):
                    return skips_body or skips_else
        return ""

    def judge(self, node: ast.expr) -> tuple[str, str]:
        """Return what keeps a test's body, and its else, from running at the version moved to; or nothing."""
        match node:
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                return self.judge(inner)[::-1]
            case ast.BoolOp(op=how, values=parts):
                bodies, elses = zip(*map(self.judge, parts), strict=True)
                body, other = next(filter(None, bodies), ""), next(filter(None, elses), "")
                return (body, other * all(elses)) if isinstance(how, ast.And) else (body * all(bodies), other)
        if node not in self.versioned:
            return "", ""
        text = " ".join(ast.unparse(node).split())
        shown = f"`{text if len(text) <= 60 else text[:59] + '…'}`"
        got, meant = work_out(node, self.names.after, self.look)
        if got is None or not self.names.after or meant not in (None, got):
            return shown, shown
        return ("", shown) if got else (shown, "")

    def look(self, node: ast.AST) -> ast.expr | None:
        """Return what a name, an attribute or a call in a test of the version stands for."""
        match node:
            case ast.Attribute(value=holder, attr="__version__"):
                held = self.values.value(holder)
                return VERSION if held and held.kind is Kind.MODULE else None
            case ast.Call(func=ast.Name(id="hasattr"), args=[holder, ast.Constant(value=str() as name)]):
                return self.has(holder, name)
            case ast.Call() if _asks_for_version(node):
                return VERSION
            case ast.Name(id=name) if name in self.flags or name in self.values.bound:
                return self.flags.get(name)
            case ast.Name(id=name) | ast.Attribute(attr=name):
                return self.flags.get(name) or self.shared.get(name)
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
                return self.flags.get(f"{name}()") or self.shared.get(f"{name}()")
        return None

    def has(self, holder: ast.expr, name: str) -> ast.Constant | None:
        """Return what ``hasattr`` says at the version moved to, as a literal; None where it is not known."""
        base = self.values.value(holder)
        if base and base.is_known:
            return ast.Constant(self.names.at_target(f"{base.name}.{name}".strip(".")))
        gone = [self.names.change_of(f"{owner}.{name}") for owner in self.names.owners.get(name, ())]
        if any(each.endswith(f".{name}") for each in self.names.added) or not gone:
            return ast.Constant(value=True) if name in self.names.members else None
        return ast.Constant(value=not any(each and each.kind is ChangeKind.REMOVED for each in gone))

    # ---- notes ----

    def note(self, node: ast.AST, change: ApiChange | None, why: str = "") -> None:
        """Note a use; a guard makes it possible."""
        if change is not None:
            guard = self.guard_of(node)
            line = (node.end_lineno if isinstance(node, ast.Attribute) else getattr(node, "lineno", 0)) or 1
            self.page.note(line, change, f"behind {guard}" if guard else why)

    def note_flip(self, node: ast.expr) -> None:
        """Note a test that the version moved to turns round."""
        if self.names.after and node in self.versioned:
            self.note(node, find_flip(node, self.names.surface.version, self.names.after, self.look))

    def note_name(self, node: ast.AST, name: str) -> None:
        """Note a name of the module itself."""
        self.note(node, self.names.change_of(name))
        self.note(node, self.names.behaviours.get(name))

    def note_member(self, node: ast.AST, dotted: str, why: str) -> None:
        """Note a member of a class, where what is done with it no longer works."""
        owner, _, name = dotted.rpartition(".")
        change = self.names.change_of(dotted)
        outer = self.values.parents.get(node)
        call = outer if isinstance(outer, ast.Call) and outer.func is node else None
        if change is not None and (change.kind is not ChangeKind.CHANGED or _meets(change, node, call)):
            self.note(node, change, why)
        for base in self.names.line_of(owner):
            self.note(node, self.names.behaviours.get(f"{base}.{name}"))

    def note_attribute(self, node: ast.AST, base: Value | None, name: str, why: str = "") -> None:
        """Note an attribute of what is TensorRT's, or of anything where its name is TensorRT's alone."""
        if base and base.kind is Kind.MODULE:
            self.note_name(node, name)
        elif (
            base and base.kind in (Kind.CLASS, Kind.OBJECT) and self.names.surface.find(f"{base.name}.{name}")
        ):
            self._note_known(node, base, name, why)
        elif base is None or base.guessed or (base.kind is Kind.FOREIGN and base.name):
            foreign = f"it comes from {base.name}, not scanned" if base and not base.guessed else ""
            self._note_unknown(node, name, base.name if base and base.guessed else "", why or foreign)
        elif base.is_known:
            self.note_member(node, f"{base.name}.{name}", why)  # an older name

    def _note_known(self, node: ast.AST, base: Value, name: str, why: str) -> None:
        of_self = dotted_name(node) == f"self.{name}" and name in self.values.members
        if of_self or (base.kind is Kind.CLASS and base.name in self.names.changes):
            return  # a member of the user's; or the class was told of itself
        unsure = base.name == "IBuilderConfig" and not self.names.is_own(name)
        if base.guessed and unsure and not _is_set(node):
            return  # a configuration of the user's, as likely
        by_name = _BY_NAME * (base.guessed and (not self.imports or unsure))
        self.note_member(node, f"{base.name}.{name}", why or by_name)

    def _note_unknown(self, node: ast.AST, name: str, role: str, why: str) -> None:
        owners = self.names.owners.get(name, [])
        if not owners or name in self.values.members:
            return
        dotted = f"{role if role in owners else owners[0]}.{name}"
        if name.isupper() and not dotted_name(node).endswith(dotted):
            return  # a constant of the user's, as likely
        set_on = name in self.names.hints["where_set"] and _is_set(node)
        if self.names.is_own(name):
            self.note_member(
                node, dotted, why or "the file does not import TensorRT itself" * (not self.imports)
            )
        elif self.imports and (name == "dynamic_range" or set_on):
            self.note_member(node, dotted, why or _BY_NAME)

    def note_item(self, node: ast.Subscript, base: Value | None, index: ast.expr) -> None:
        """Note an engine's item by a tensor's name, and an enum's by its own."""
        if base and base.kind is Kind.CLASS and text_of(index):
            self.note_attribute(node, base, text_of(index))
        by_name = text_of(index) or re.search(r"name$|(^|\.)binding$", dotted_name(index))
        if base and base.kind is Kind.OBJECT and by_name:
            why = _BY_NAME * (base.guessed and not self.imports)
            self.note_member(node, f"{base.name}.__getitem__", why)

    def note_call(self, node: ast.Call) -> None:
        """Note what a call uses besides its parts: ``getattr``, ``len``, names in texts."""
        name = dotted_name(node.func).rpartition(".")[2]
        texts = [text_of(each) for each in node.args]
        if name in ("getattr", "setattr", "hasattr") and texts[1:] and texts[1]:
            default = "guarded by getattr's default" * (name == "getattr" and len(texts) > 2)
            why = "it is only asked for" if name == "hasattr" else default
            self.note_attribute(node, self.values.value(node.args[0]), texts[1], why)
        elif name == "len" and texts:
            held = self.values.value(node.args[0])
            if held and held.kind is Kind.OBJECT:
                self.note_member(node, f"{held.name}.__len__", _BY_NAME * held.guessed)
        elif name in ("int", "startswith") and not isinstance(self.values.parents[node], ast.Compare):
            self.note_flip(node)
        for text in texts:
            owners = self.names.owners.get(text, []) if text.isupper() and self.names.is_own(text) else []
            change = self.names.changes.get(f"{owners[0]}.{text}" if owners else text)
            self.note(node, change if text[:1].isupper() else None, "only a text names it")


def scan_python(names: Names, pages: Sequence[Page]) -> list[tuple[str, str]]:
    """Note the uses in Python files; return which could not be parsed, with the reason."""
    files = [file for page in pages if (file := PythonFile(page, names)).matters]
    parts = {part for page in pages for part in re.split(r"[/.]", page.file)}
    for file in files:
        parts.update(re.findall(r"^\s*(class \w+)", file.page.code, re.MULTILINE))
    unread: dict[str, str] = {}

    def attempt(file: PythonFile, shared: Mapping[str, ast.expr], *, scan: bool = False) -> None:
        try:
            file.parse(parts)
            file.take(shared)
            if scan:
                file.scan()
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            unread[file.page.file] = reason(error)

    wanted, shared = _TESTS, dict[str, ast.expr]()
    for _ in range(2):  # what tests the version, and what takes that over from there
        for file in files:
            if not wanted.isdisjoint(file.words):
                attempt(file, shared)
        shared = {name: value for file in files for name, value in file.exports.items()}
        wanted = {name.removesuffix("()") for name in shared}
    while files:  # a tree is large: one at a time, where no other file hangs on it
        attempt(files.pop(), shared, scan=True)
    return list(unread.items())


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


def _asks_for_version(node: ast.Call) -> bool:
    """Say whether it asks the package's metadata: ``version("tensorrt")``."""
    named = dotted_name(node.func).rpartition(".")[2] in ("version", "get_version", "get_distribution")
    return named and bool(node.args) and bool(BINDINGS.match(text_of(node.args[0])))


def _is_literal(node: ast.IfExp) -> bool:
    return isinstance(node.body, ast.Constant) and isinstance(node.orelse, ast.Constant)


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


def _leaves(body: Sequence[ast.stmt]) -> bool:
    return bool(body) and isinstance(body[-1], ast.Return | ast.Raise | ast.Continue | ast.Break)
