"""Notes the uses of names that change in Python files."""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Mapping, Sequence

from trtmatrix.api.compare import parse_signature
from trtmatrix.api.guards import Guards
from trtmatrix.api.names import Names, Page, dotted_name
from trtmatrix.api.text_scan import scan_commands
from trtmatrix.api.types import ApiChange, ChangeKind
from trtmatrix.api.values import BINDINGS, Value, Values, text_of

_IMPORTS = re.compile(
    r"(import|from)\s+(tensorrt(_lean|_dispatch|_bindings)?\b(?!\.\w+_)|polygraphy)"
    r"|import\w*\(\s*[\"']tensorrt|import_(trt|tensorrt)\(|\btrt\.\w"
)
_NEAR = re.compile(r"\b_?trt|tensorrt", re.IGNORECASE)
_BY_NAME = "only its name says what it is used on"
UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)
"""What the parser raises."""


def scan_python(names: Names, pages: Sequence[Page]) -> list[tuple[str, str]]:
    """Note the uses in Python files; return which could not be parsed, with the reason."""
    pages = [page for page in pages if _matters(page, names)]
    shared, unread = dict[str, ast.expr](), list[tuple[str, str]]()
    asking = [page for page in pages if re.search(r"__version__|hasattr\((trt|tensorrt)", page.code)]
    for page in asking * 2:  # the second time with names that others have from others
        with contextlib.suppress(*UNREADABLE):  # it is told below
            shared |= PythonFile(page, names, shared).guards.exports()
    for page in pages:
        try:
            PythonFile(page, names, shared).scan()
        except UNREADABLE as error:
            unread.append((page.file, reason(error)))
    return unread


def _matters(page: Page, names: Names) -> bool:
    """Say whether a name that changes stands in a file that imports TensorRT, or a long one where not."""
    imports = _IMPORTS.search(page.code)
    if not imports and not _NEAR.search(page.code):
        return False
    words = set(re.findall(r"\w+|(?<=engine)\[", page.code)) & {*names.words, "trtexec"}
    return any(imports or "_" in word.strip("_") or word == "trtexec" for word in words)


def reason(error: BaseException) -> str:
    """Say in one line why a file could not be read."""
    if isinstance(error, SyntaxError):
        return f"it does not parse as Python 3, line {error.lineno}: {error.msg}"
    return f"it does not parse as Python 3: {error or 'its expressions are nested too deeply'}"


class PythonFile:
    """A file that is parsed; ``imports``: whether it imports TensorRT, or only speaks of it."""

    def __init__(self, page: Page, names: Names, shared: Mapping[str, ast.expr]) -> None:
        """Parse a file and gather what its names hold; raises what the parser raises."""
        self.page, self.names, self.imports = page, names, bool(_IMPORTS.search(page.code))
        self.values = Values(ast.parse(page.code), names)
        self.guards = Guards(self.values, names, page.lines, shared)

    def scan(self) -> None:
        """Note the uses."""
        for node in self.values.nodes:
            self._look_at(node)
        if "trtexec" in self.page.code:
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
                    self._note_object(node, base, "__getitem__")
            case ast.Compare():
                self._note(node, self.guards.find_flip(node))
            case ast.Call():
                self._note_call(node)

    def _note_call(self, node: ast.Call) -> None:
        """Note what a call uses besides its parts: ``getattr``, ``len``, names in texts."""
        name, texts = dotted_name(node.func).rpartition(".")[2], [text_of(each) for each in node.args]
        first = self.values.value(node.args[0]) if node.args else None
        if name in ("getattr", "setattr", "hasattr") and texts[1:] and texts[1]:
            why = "guarded by getattr's default" if name == "getattr" and texts[2:] else ""
            self._note_attribute(node, first, texts[1], "it is only asked for" if name == "hasattr" else why)
        elif name == "len":
            self._note_object(node, first, "__len__")
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

    def _note_name(self, node: ast.AST, dotted: str, why: str = "") -> None:
        """Note a name of the module, or a member of a class, if what is done with it no longer works."""
        for change in self.names.changes_of(dotted):
            if change.kind is not ChangeKind.CHANGED or self._meets(change, node):
                self._note(node, change, why * (change.kind is not ChangeKind.BEHAVIOUR))

    def _note_object(self, node: ast.AST, base: Value | None, name: str) -> None:
        """Note what Python calls on an object of TensorRT's: its length, an item, ``with``."""
        if base and base.kind == "object":
            self._note_name(node, f"{base.name}.{name}", _BY_NAME * (base.guessed and not self.imports))

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
                self._note_name(node, f"{base.name}.{name}", why or by_name)
        elif base and not base.guessed:
            self._note_name(node, f"{base.name}.{name}", why)  # an older name
        elif not of_users and (owners := names.owners.get(name)):
            dotted = f"{base.name if base and base.name in owners else owners[0]}.{name}"
            if name.isupper() and not dotted_name(node).endswith(dotted):
                return  # a constant of the user's, as likely
            if is_own:
                why = why or "the file does not import TensorRT itself" * (not self.imports)
                self._note_name(node, dotted, why)
            elif self.imports and name in names.hints["anywhere"]:
                self._note_name(node, dotted, why or _BY_NAME)

    def _meets(self, change: ApiChange, node: ast.AST) -> bool:
        """Say whether a use meets a change: it sets what is read-only now, or calls what no longer fits."""
        call = self.values.parents.get(node)
        if "can no longer be set" in change.note:
            return _is_set(node)
        if not isinstance(call, ast.Call) or call.func is not node:
            return True
        return not any(_fits(call, signature) for signature in change.after.splitlines())


def _is_set(node: ast.AST) -> bool:
    return not isinstance(getattr(node, "ctx", None), ast.Load)


def _fits(call: ast.Call, signature: str) -> bool:
    """Say whether a call surely fits a signature by number and names of arguments."""
    parameters = parse_signature(signature)
    rest = {each.name: each.optional for each in parameters[len(call.args) :]}
    given = {each.arg for each in call.keywords}
    lacking = [name for name, optional in rest.items() if not optional and name not in given]
    starred = any(isinstance(each, ast.Starred) for each in call.args)
    return not lacking and not starred and len(call.args) <= len(parameters) and given <= {*rest}
