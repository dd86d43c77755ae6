"""Notes the uses of names that change in Python files, and the tests of the version that guard them."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence

from trtmatrix.api.python_values import BINDINGS, FileValues, Kind, Value, dotted_name, text_of
from trtmatrix.api.scan_names import Findings, Names, Place
from trtmatrix.api.signatures import parse_signature
from trtmatrix.api.text_scan import scan_commands
from trtmatrix.api.types import ApiChange, ChangeKind
from trtmatrix.api.version_tests import VERSION, find_flip, work_out

Source = tuple[Sequence[str], Sequence[tuple[int, int]]]
"""The lines of a file, and of a notebook each line's cell and line in it."""
_IMPORTS = re.compile(
    r"(import|from)\s+(tensorrt(_lean|_dispatch|_bindings)?\b(?!\.\w+_)|polygraphy)"
    r"|import\w*\(\s*[\"']tensorrt|import_(trt|tensorrt)\(|\btrt\.\w"
)
_NEAR = re.compile(r"\b_?trt|tensorrt", re.IGNORECASE)
_NEWER = re.compile(
    r"num_io_tensors|[gs]et_tensor_|execute_async_v3|set_input_shape|build_serialized|memory_pool"
)
"""Names of both ways of writing that stand in a try whose other way catches what goes wrong."""
_VERSIONED = re.compile(r"(trt|tensorrt)\.__version__|\bhasattr\(|version\(['\"]tensorrt")
_WHERE_SET = {"max_workspace_size", "fp16_mode", "int8_mode", "strict_type_constraints"}
"""Members that are told of on any receiver where they are set, in a file that imports TensorRT."""
_BY_NAME = "only its name says what it is used on"


class PythonFile:
    """A file that is scanned; ``imports``: whether it imports TensorRT, or only speaks of it."""

    def __init__(self, path: str, source: Source, names: Names) -> None:
        """Take a file's lines; ``matters``: whether any name that changes stands in it."""
        self.path, (self.lines, self.cells), self.names = path, source, names
        text = "\n".join(self.lines)
        self.imports = bool(_IMPORTS.search(text))
        self.is_near = self.imports or bool(_NEAR.search(text))
        self.words = set(re.findall(r"\w+|(?<=engine)\[", text)) if self.is_near else set()
        wanted = names.words if self.imports else names.long_words
        self.matters = not wanted.isdisjoint(self.words) or "trtexec" in self.words
        self.flags: dict[str, ast.expr] = {}
        """Names, attributes and calls (``f()``) that stand for a test of the version, and for which."""
        self.guards: list[str] = []
        self.function = ""
        self.called: ast.Call | None = None
        self.uses_of: dict[str, list[str]] = {}
        """For each name what its uses stand behind: a guard, ``in f`` of a function, or nothing."""
        self.noted: list[tuple[ast.AST, ApiChange, str, str]] = []

    def scan(self, values: FileValues, flags: Mapping[str, ast.expr]) -> Findings:
        """Return the uses in the file; ``flags``: those of all files."""
        self.values, self.all_flags, findings = values, flags, Findings()
        self.visit(self.tree.body)
        for node, change, why, function in self.noted:
            line = (node.end_lineno if isinstance(node, ast.Attribute) else getattr(node, "lineno", 0)) or 1
            guarded = "behind a test before each of its calls" * self.is_guarded(function, set())
            findings.add(self.place(line), change, why or guarded)
        if "trtexec" in self.words:
            scan_commands(self.tree, self.place, self.names, findings)
        return findings

    def parse(self) -> None:
        """Parse the file; raises what the parser raises."""
        self.tree = parse("\n".join(self.lines))
        self.find_flags({})

    def place(self, line: int) -> Place:
        """Return the place of a line."""
        cell, inner = self.cells[line - 1] if self.cells else (0, line)
        return Place(file=self.path, line=inner, cell=cell, text=self.lines[line - 1])

    def is_guarded(self, function: str, seen: set[str]) -> bool:
        """Say whether a function or a class is only used behind guards, or in what is."""
        seen.add(function)
        used = [each for each in self.uses_of.get(function, ()) if each.removeprefix("in ") != function]
        return bool(used) and all(
            each and (each[:3] != "in " or (each[3:] not in seen and self.is_guarded(each[3:], seen)))
            for each in used
        )

    # ---- what is visited ----

    def visit(self, nodes: Iterable[ast.AST], guard: str = "") -> None:
        """Visit nodes behind a guard, if any; one that leaves at the version moved to guards the rest."""
        depth = len(self.guards)
        self.guards += [guard] if guard else []
        for node in nodes:
            self.visit_one(node)
        del self.guards[depth:]

    def visit_one(self, node: ast.AST) -> None:
        """Note what a node itself uses, and visit what is in it."""
        match node:
            case ast.If() | ast.IfExp():
                self.visit_branch(node)
                return
            case ast.Try():
                self.visit_try(node)
                return
            case ast.BoolOp(op=how, values=parts):
                depth = len(self.guards)
                for each in parts:
                    self.visit_one(each)
                    self.guards += filter(None, [self.judge(each)[isinstance(how, ast.Or)]])
                del self.guards[depth:]
                return
            case ast.With() if "suppress(Attr" in self.lines[node.lineno - 1]:
                self.visit(node.body, "suppress(AttributeError)")
                return
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                outside, self.function = self.function, name
                self.values.enter_class(node)
                self.visit(ast.iter_child_nodes(node))
                self.function = outside
                return
            case ast.Expr(value=ast.Constant()):
                return  # a docstring
            case ast.ImportFrom(module=str() as module, level=0) if BINDINGS.match(module):
                for named in node.names:
                    self.note_name(named, named.name)
            case ast.withitem(context_expr=expression):
                held = self.values.value(expression)
                if held and held.kind is Kind.OBJECT:
                    self.note_member(expression, f"{held.name}.__enter__", "")
            case ast.Name(id=name, ctx=ast.Load()):
                self.note_used(name)
                if self.values.value(node) == Value(Kind.CLASS, name):
                    self.note_name(node, name)
            case ast.Attribute(value=holder, attr=name):
                self.note_used(name)
                self.note_attribute(node, self.values.value(holder), name)
            case ast.Subscript(value=whole, slice=index):
                self.note_item(node, self.values.value(whole), index)
            case ast.Compare():
                self.note_flip(node)
            case ast.Call():
                self.note_call(node)
        self.visit(ast.iter_child_nodes(node))

    def visit_branch(self, node: ast.If | ast.IfExp) -> None:
        """Visit a test and both ways on; one that leaves guards what comes after."""
        skips_body, skips_else = self.judge(node.test)
        self.visit([node.test])
        if isinstance(node, ast.IfExp):
            self.visit([node.body], skips_body)
            self.visit([node.orelse], skips_else)
            return
        self.visit(node.body, skips_body)
        self.visit(node.orelse, skips_else)
        left = _leaves(node.body) and not (skips_body and isinstance(node.body[-1], ast.Raise))
        if (left and skips_else) or (_leaves(node.orelse) and skips_body):
            self.guards.append(skips_body or skips_else)  # until the end of this block

    def visit_try(self, node: ast.Try) -> None:
        """Visit a try; where it catches AttributeError, it and what it does then are guarded."""
        newer = _NEWER.search("\n".join(self.lines[node.lineno - 1 : node.end_lineno]))
        named = [bool(each.type and "AttributeError" in ast.unparse(each.type)) for each in node.handlers]
        guard = "except AttributeError" * bool(node.handlers and (newer or any(named)))
        self.visit(node.body, guard)
        for each, is_named in zip(node.handlers, named, strict=True):
            self.visit(each.body, guard * bool(newer or is_named))
        self.visit([*node.orelse, *node.finalbody])

    # ---- tests of the version ----

    def judge(self, node: ast.expr) -> tuple[str, str]:
        """Return what keeps a test's body, and its else, from running at the version moved to; or nothing."""
        match node:
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                return self.judge(inner)[::-1]
            case ast.BoolOp(op=how, values=parts):
                bodies, elses = zip(*map(self.judge, parts), strict=True)
                body, other = next(filter(None, bodies), ""), next(filter(None, elses), "")
                return (body, other * all(elses)) if isinstance(how, ast.And) else (body * all(bodies), other)
        if not self.is_versioned(node):
            return "", ""
        text = " ".join(ast.unparse(node).split())
        shown = f"`{text if len(text) <= 60 else text[:59] + '…'}`"
        got, meant = work_out(node, self.names.ends, self.look)
        if got is None or not self.names.after or meant not in (None, got):
            return shown, shown
        return ("", shown) if got else (shown, "")

    def is_versioned(self, node: ast.expr, seen: frozenset[int] = frozenset()) -> bool:
        """Say whether an expression hangs on TensorRT's version or on what its bindings have."""
        for part in ast.walk(node):
            found = self.look(part) if isinstance(part, ast.expr) else None
            if found is VERSION or isinstance(found, ast.Constant):
                return True
            if found is not None and id(found) not in seen and self.is_versioned(found, seen | {id(found)}):
                return True
        return False

    def look(self, node: ast.expr) -> ast.expr | None:
        """Return what a name, an attribute or a call in a test of the version stands for."""
        match node:
            case ast.Attribute(value=holder, attr="__version__"):
                held = self.values.value(holder)
                return VERSION if held and held.kind is Kind.MODULE else None
            case ast.Call(func=ast.Name(id="hasattr"), args=[holder, ast.Constant(value=str() as name)]):
                return self.has(holder, name)
            case ast.Call() if _asks_for_version(node):
                return VERSION
            case ast.Name(id=name):
                return self.flags.get(name)
            case ast.Attribute(attr=name):
                return self.flags.get(name) or self.all_flags.get(name)
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
                return self.flags.get(f"{name}()") or self.all_flags.get(f"{name}()")
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

    def find_flags(self, others: Mapping[str, ast.expr]) -> None:
        """Gather what stands for a test of the version; ``others``: what does in all files."""
        words = {key.removesuffix("()") for key in others if key not in self.flags}
        if (words or {"__version__", "hasattr", "version"}).isdisjoint(self.words):
            return
        flags = self.flags

        def mentions(node: ast.AST) -> bool:
            text = ast.unparse(node)
            named = [*re.findall(r"\w+", text), *re.findall(r"\w+\(\)", text)]
            attributes = re.findall(r"(?<=\.)\w+", text)
            known = any(each in flags for each in named) or any(each in others for each in attributes)
            return known or bool(_VERSIONED.search(text))

        for node in ast.walk(self.tree):
            match node:
                case ast.ImportFrom(names=names):
                    calls = [(f"{each.asname or each.name}()", f"{each.name}()") for each in names]
                    imported = [*calls, *((each.asname or each.name, each.name) for each in names)]
                    flags |= {local: others[name] for local, name in imported if name in others}
                case ast.Assign(targets=[ast.Tuple(elts=parts)], value=value) if mentions(value):
                    for index, part in enumerate(parts):
                        name = dotted_name(part).rpartition(".")[2]
                        flags[name] = ast.Subscript(value, ast.Constant(index), ast.Load())
                case ast.Assign(targets=[ast.Name(id=name) | ast.Attribute(attr=name)], value=value):
                    flags |= {name: value} if mentions(value) else {}
                case ast.FunctionDef(name=name):
                    returned = [each.value for each in ast.walk(node) if isinstance(each, ast.Return)]
                    if returned and returned[0] is not None and mentions(returned[0]):
                        flags[f"{name}()"] = returned[0]
                case ast.If(test=test, body=body) if mentions(test):  # what it sets hangs on it, either way
                    set_by = [each.targets[0] for each in body if isinstance(each, ast.Assign)]
                    hangs = ast.Call(ast.Name("decided_by"), [test], [])
                    flags |= {each.id: hangs for each in set_by if isinstance(each, ast.Name)}

    # ---- notes ----

    def note(self, node: ast.AST, change: ApiChange | None, why: str = "") -> None:
        """Note a use; a guard makes it possible."""
        if change is not None:
            why = f"behind {self.guards[-1]}" if self.guards else why
            self.noted.append((node, change, why, self.function))

    def note_used(self, name: str) -> None:
        """Note that a name is used here, and behind what."""
        behind = self.guards[-1] if self.guards else f"in {self.function}" if self.function else ""
        self.uses_of.setdefault(name, []).append(behind)

    def note_flip(self, node: ast.expr) -> None:
        """Note a test that the version moved to turns round."""
        if self.names.after and self.is_versioned(node):
            self.note(node, find_flip(node, self.names.ends, self.look))

    def note_name(self, node: ast.AST, name: str) -> None:
        """Note a name of the module itself."""
        self.note(node, self.names.change_of(name))
        self.note(node, self.names.behaviours.get(name))

    def note_member(self, node: ast.AST, dotted: str, why: str) -> None:
        """Note a member of a class, where what is done with it no longer works."""
        owner, _, name = dotted.rpartition(".")
        change = self.names.change_of(dotted)
        call = self.called if self.called and self.called.func is node else None
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
        config = base.name == "IBuilderConfig"
        if base.guessed and config and not self.names.is_own(name) and not _is_set(node):
            return  # a configuration of the user's, as likely
        if base.guessed and (not self.imports or (config and not self.names.is_own(name))):
            why = why or _BY_NAME
        self.note_member(node, f"{base.name}.{name}", why)

    def _note_unknown(self, node: ast.AST, name: str, role: str, why: str) -> None:
        owners = self.names.owners_of(name, role)
        if not owners or name in self.values.members:
            return
        dotted = f"{role if role in owners else owners[0]}.{name}"
        if name.isupper() and not dotted_name(node).endswith(dotted):
            return  # a constant of the user's, as likely
        if self.names.is_own(name):
            self.note_member(
                node, dotted, why or "the file does not import TensorRT itself" * (not self.imports)
            )
        elif self.imports and (name == "dynamic_range" or (name in _WHERE_SET and _is_set(node))):
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
        self.called, name = node, dotted_name(node.func).rpartition(".")[2]
        first, texts = node.args[0] if node.args else None, [text_of(each) for each in node.args]
        held = self.values.value(first) if first else None
        if name in ("getattr", "setattr", "hasattr") and first and texts[1:]:
            default = "guarded by getattr's default" * (name == "getattr" and len(texts) > 2)
            why = "it is only asked for" if name == "hasattr" else default
            self.note_attribute(node, held, texts[1], why)
        elif name == "len" and held and held.kind is Kind.OBJECT:
            self.note_member(node, f"{held.name}.__len__", _BY_NAME * held.guessed)
        elif name in ("int", "startswith"):
            self.note_flip(node)
        for text in texts:
            owners = self.names.owners.get(text, []) if text.isupper() and self.names.is_own(text) else []
            change = self.names.changes.get(f"{owners[0]}.{text}" if owners else text)
            self.note(node, change if text[:1].isupper() else None, "only a text names it")


def scan_python(names: Names, sources: Mapping[str, Source]) -> tuple[Findings, list[tuple[str, str]]]:
    """Return the uses in Python files, and which files could not be parsed, with the reason."""
    findings, unread, files = Findings(), list[tuple[str, str]](), list[PythonFile]()
    for path, source in sources.items():
        file = PythonFile(path, source, names)
        try:
            if file.matters:
                file.parse()
                files.append(file)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            unread.append((path, reason(error)))
    flags = {name: value for file in files for name, value in file.flags.items()}
    for file in files * 2 if flags else ():  # twice: what is imported may stand for what is imported
        file.find_flags(flags)
        flags.update(file.flags)
    parts = {part for path in sources for part in re.split(r"[/.]", path)}
    own = {name for file in files for line in file.lines for name in re.findall(r"^\s*class (\w+)", line)}
    for file in files:
        try:
            findings.update(file.scan(FileValues(file.tree, names, parts, own), flags))
        except RecursionError as error:
            unread.append((file.path, reason(error)))
    return findings, unread


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
