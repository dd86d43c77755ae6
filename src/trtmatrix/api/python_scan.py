"""Notes the uses of names that change in Python files."""

from __future__ import annotations

import ast
import contextlib
import re
import warnings
from collections.abc import Mapping, Sequence

from trtmatrix.api.guards import Guards
from trtmatrix.api.names import Names, Page, dotted_name
from trtmatrix.api.signatures import parse_signature
from trtmatrix.api.text_scan import scan_commands
from trtmatrix.api.types import ApiChange, ChangeKind
from trtmatrix.api.values import BINDINGS, Value, Values, text_of

_IMPORTS = re.compile(
    r"(import|from)\s+(tensorrt(_lean|_dispatch|_bindings)?\b(?!\.\w+_)|polygraphy)"
    r"|import\w*\(\s*[\"']tensorrt|import_(trt|tensorrt)\(|\btrt\.\w"
)
_NEAR = re.compile(r"\b_?trt|tensorrt", re.IGNORECASE)
_TESTS = {"__version__", "hasattr", "version", "get_distribution"}
_BY_NAME = "only its name says what it is used on"
UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)
"""What the parser raises."""


class PythonFile:
    """A file that is scanned; ``imports``: whether it imports TensorRT, or only speaks of it."""

    values: Values
    guards: Guards

    def __init__(self, page: Page, names: Names) -> None:
        """Take a file's lines; ``matters``: whether any name that changes stands in it."""
        self.page, self.names, self.is_parsed = page, names, False
        self.imports = bool(_IMPORTS.search(page.code))
        is_near = self.imports or _NEAR.search(page.code)
        self.words = set(re.findall(r"\w+|(?<=engine)\[", page.code)) if is_near else set[str]()
        wanted = names.words if self.imports else names.long_words
        self.matters = not wanted.isdisjoint(self.words) or "trtexec" in self.words

    def parse(self, shared: Mapping[str, ast.expr]) -> Guards:
        """Parse the file once and gather what its names hold; raises what the parser raises."""
        if not self.is_parsed:
            self.values = Values(parse(self.page.code), self.names)
            self.is_parsed = True
        self.guards = Guards(self.values, self.names, self.page.lines, shared)
        return self.guards

    def scan(self) -> None:
        """Note the uses."""
        for node in self.values.nodes:
            self._look_at(node)
        if "trtexec" in self.words:
            scan_commands(self.values.nodes, self.page, self.names)

    def _look_at(self, node: ast.AST) -> None:
        """Note what a node itself uses."""
        words, value = self.names.words, self.values.value
        match node:
            case ast.ImportFrom(module=str() as module, level=0) if BINDINGS.match(module):
                for named in node.names:
                    self._note_name(named, named.name)
            case ast.withitem(context_expr=expression):
                self._note_object(expression, value(expression), "__enter__")
            case ast.Name(id=name, ctx=ast.Load()) if name in words and value(node) == Value("class", name):
                self._note_name(node, name)
            case ast.Attribute(value=holder, attr=name) if name in words:
                self._note_attribute(node, value(holder), name)
            case ast.Subscript(value=whole, slice=index):
                base, text = value(whole), text_of(index)
                if base and base.kind == "class" and text:
                    self._note_attribute(node, base, text)
                elif text or re.search(r"name$|(^|\.)binding$", dotted_name(index)):
                    by_name = base is not None and base.guessed and not self.imports
                    self._note_object(node, base, "__getitem__", _BY_NAME * by_name)
            case ast.Compare():
                self._note(node, self.guards.find_flip(node))
            case ast.Call():
                self._note_call(node)

    def _note_call(self, node: ast.Call) -> None:
        """Note what a call uses besides its parts: ``getattr``, ``len``, names in texts."""
        name, texts = dotted_name(node.func).rpartition(".")[2], [text_of(each) for each in node.args]
        first = self.values.value(node.args[0]) if node.args else None
        if name in ("getattr", "setattr", "hasattr") and texts[1:] and texts[1]:
            default = "guarded by getattr's default" * (name == "getattr" and len(texts) > 2)
            self._note_attribute(
                node, first, texts[1], "it is only asked for" if name == "hasattr" else default
            )
        elif name == "len":
            self._note_object(node, first, "__len__", _BY_NAME * bool(first and first.guessed))
        elif name in ("int", "startswith") and not isinstance(self.values.parents[node], ast.Compare):
            self._note(node, self.guards.find_flip(node))
        for text in texts:
            owners = self.names.owners.get(text, []) if text.isupper() and self.names.is_own(text) else []
            change = self.names.changes.get(f"{owners[0]}.{text}" if owners else text)
            self._note(node, change if text[:1].isupper() else None, "only a text names it")

    def _note(self, node: ast.AST, change: ApiChange | None, why: str = "") -> None:
        """Note a use; a guard makes it possible."""
        if change is not None:
            guard = self.guards.guard_of(node)
            line = (node.end_lineno if isinstance(node, ast.Attribute) else getattr(node, "lineno", 0)) or 1
            self.page.note(line, change, f"behind {guard}" if guard else why)

    def _note_name(self, node: ast.AST, name: str) -> None:
        """Note a name of the module itself."""
        self._note(node, self.names.change_of(name))
        self._note(node, self.names.behaviours.get(name))

    def _note_object(self, node: ast.AST, base: Value | None, name: str, why: str = "") -> None:
        """Note what Python calls on an object of TensorRT's: its length, an item, ``with``."""
        if base and base.kind == "object":
            self._note_member(node, f"{base.name}.{name}", why)

    def _note_member(self, node: ast.AST, dotted: str, why: str = "") -> None:
        """Note a member of a class, where what is done with it no longer works."""
        owner, _, name = dotted.rpartition(".")
        change, outer = self.names.change_of(dotted), self.values.parents.get(node)
        call = outer if isinstance(outer, ast.Call) and outer.func is node else None
        if change is not None and (change.kind is not ChangeKind.CHANGED or _meets(change, node, call)):
            self._note(node, change, why)
        for base in self.names.line_of(owner):
            self._note(node, self.names.behaviours.get(f"{base}.{name}"))

    def _note_attribute(self, node: ast.AST, base: Value | None, name: str, why: str = "") -> None:
        """Note an attribute of what is TensorRT's, or of anything where its name is TensorRT's alone."""
        names, is_own, of_users = self.names, self.names.is_own(name), name in self.values.members
        if base and base.kind == "module":
            self._note_name(node, name)
        elif base and base.kind in ("class", "object") and names.surface.find(f"{base.name}.{name}"):
            of_self = of_users and dotted_name(node) == f"self.{name}"
            if of_self or (base.kind == "class" and base.name in names.changes):
                return  # a member of the user's; or the class was told of itself
            unsure = base.guessed and base.name == "IBuilderConfig" and not is_own
            if not unsure or _is_set(node):  # a configuration of the user's is as likely
                by_name = _BY_NAME * (unsure or (base.guessed and not self.imports))
                self._note_member(node, f"{base.name}.{name}", why or by_name)
        elif base and not base.guessed:
            self._note_member(node, f"{base.name}.{name}", why)  # an older name
        elif not of_users and (owners := names.owners.get(name)):
            dotted = f"{base.name if base and base.name in owners else owners[0]}.{name}"
            if name.isupper() and not dotted_name(node).endswith(dotted):
                return  # a constant of the user's, as likely
            if is_own:
                why = why or "the file does not import TensorRT itself" * (not self.imports)
                self._note_member(node, dotted, why)
            elif self.imports and name in names.hints["anywhere"]:
                self._note_member(node, dotted, why or _BY_NAME)


def scan_python(names: Names, pages: Sequence[Page]) -> list[tuple[str, str]]:
    """Note the uses in Python files; return which could not be parsed, with the reason."""
    files = [file for page in pages if (file := PythonFile(page, names)).matters]
    unread: list[tuple[str, str]] = []
    wanted, shared = _TESTS, dict[str, ast.expr]()
    for _ in range(2):  # names that hang on the version, and those of other files that hang on them
        for file in files:
            if not wanted.isdisjoint(file.words):
                with contextlib.suppress(*UNREADABLE):  # it is told below
                    shared |= file.parse(shared).exports()
        wanted = {name.removesuffix("()") for name in shared}
    while files:  # a tree is large: one at a time
        file = files.pop()
        try:
            file.parse(shared)
            file.scan()
        except UNREADABLE as error:
            unread.append((file.page.file, reason(error)))
    return unread


def parse(text: str) -> ast.Module:
    """Parse Python code without its warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the user's escapes in texts: not our concern
        return ast.parse(text)


def reason(error: BaseException) -> str:
    """Say in one line why a file could not be read."""
    if isinstance(error, SyntaxError):
        return f"it does not parse as Python 3, line {error.lineno}: {error.msg}"
    why = str(error) if isinstance(error, ValueError) else "its expressions are nested too deeply"
    return f"it does not parse as Python 3: {why}"


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
