"""Notes the uses of names that change in Python files."""

from __future__ import annotations

import ast
import contextlib
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence

from trtmatrix.api.compare import fits
from trtmatrix.api.guards import Guards, Outcome
from trtmatrix.api.names import Names, Page, dotted_name
from trtmatrix.api.roles import BINDINGS, FOREIGN, MODULE, OWN, Roles, text_of
from trtmatrix.api.text_scan import scan_commands
from trtmatrix.api.types import ApiChange, ChangeKind

_IMPORTS = re.compile(
    r"(import|from)\s+(tensorrt(_lean|_dispatch|_bindings)?\b(?!\.\w+_)|polygraphy)"
    r"|import\w*\(\s*[\"']tensorrt|import_(trt|tensorrt)\(|trt(?<!\wtrt)\.\w"
)
_NEAR = re.compile(r"\b_?trt|tensorrt", re.IGNORECASE)
_ASKS = re.compile(r"__version__|hasattr\((trt|tensorrt)")
_NEWER = re.compile(
    r"num_io_tensors|[gs]et_tensor_|execute_async_v3|set_input_shape|build_serialized|memory_pool"
)
"""Names of the new way of writing: of two ways in a try, either one catches what goes wrong in the other."""
_LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)
_BY_NAME = "only its name says what it is used on"
UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)
"""What the parser raises."""


def scan_python(names: Names, pages: Sequence[Page]) -> list[tuple[str, str]]:
    """Note the uses in Python files; return which could not be parsed, with the reason."""
    pages = [page for page in pages if _matters(page, names)]
    shared, asking, unread = dict[str, Outcome](), dict[str, PythonFile](), list[tuple[str, str]]()
    for page in pages:
        if _ASKS.search(page.code):
            with contextlib.suppress(*UNREADABLE):  # it is told below
                asking[page.file] = PythonFile(page, names, shared)
    for file in [*asking.values()] * 2:  # the second time with names that others have from others
        shared |= file.guards.exports()
    for page in pages:
        try:
            (asking.pop(page.file, None) or PythonFile(page, names, shared)).scan()
        except UNREADABLE as error:
            unread.append((page.file, reason(error)))
    return unread


def _matters(page: Page, names: Names) -> bool:
    """Say whether a name that changes stands in a file that imports TensorRT, or is used as one where not."""
    imports = bool(_IMPORTS.search(page.code))
    if not imports and not _NEAR.search(page.code):
        return False
    plain = ("trtexec", "engine[", "len(engine", *("__version__", "with trt.", "with tensorrt.") * imports)
    words = names.sought & {*re.findall(r"\w+", page.code)}
    if any(word in page.code for word in plain) or (imports and words & names.alone):
        return True
    used = re.findall(rf"(\w*)[)\]]*[.\"']({'|'.join(words)})\b", page.code) if words else []
    return any(imports or name in names.alone or names.find_role(holder) for holder, name in used)


def reason(error: BaseException) -> str:
    """Say in one line why a file could not be read."""
    line = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
    what = getattr(error, "msg", str(error)) or "its expressions are nested too deeply"
    return f"it does not parse as Python 3{line}: {what}"


class PythonFile:
    """A file that is parsed, or raises what the parser does; ``imports``: whether TensorRT itself."""

    def __init__(self, page: Page, names: Names, shared: Mapping[str, Outcome]) -> None:
        self.page, self.names, self.imports = page, names, bool(_IMPORTS.search(page.code))
        self.tree = ast.parse(page.code)
        self.roles = Roles(self.tree, names)
        self.guards = Guards(self.roles, names, page.code, shared)
        self.guard = ""  # what keeps the place that is looked at from running at the version moved to
        self.inside: tuple[str, ...] = ()  # the functions and classes around it
        self.outer: dict[ast.AST, ast.AST] = {}  # what calls or compares an expression
        self.reads = defaultdict[str, list[tuple[str, tuple[str, ...]]]](list)  # guard and inside of each
        self.uses: list[tuple[int, ApiChange, str, tuple[str, ...]]] = []
        self._behind: dict[str, bool] = {}

    def scan(self) -> None:
        """Note the uses."""
        self._walk(self.tree)
        for line, change, why, inside in self.uses:
            behind = any(map(self._is_called_behind, inside))
            self.page.note(line, change, why or "behind a test before each of its calls" * behind)
        if "trtexec" in self.page.code:
            scan_commands(ast.walk(self.tree), self.page, self.names)

    def _is_called_behind(self, name: str) -> bool:
        """Say whether a function is only read behind tests that keep it from running."""
        if name not in self._behind:
            self._behind[name] = False  # of what calls itself
            calls = [(guard, inside) for guard, inside in self.reads[name] if name not in inside]
            behind = all(guard or any(map(self._is_called_behind, inside)) for guard, inside in calls)
            self._behind[name] = bool(calls) and behind
        return self._behind[name]

    # ---- where the scan stands ----

    def _walk(self, node: ast.AST, guard: str = "") -> None:
        """Look at a node behind a guard, and at what is in it."""
        before = self.guard, self.inside, self.roles.self_role
        self.guard = guard or self.guard
        guards = self._look_at(node) or {}
        for name in node._fields:
            part, behind = getattr(node, name, None), guards.get(name, "")
            if isinstance(part, list):
                for each in part:
                    if isinstance(each, ast.AST):
                        self._walk(each, behind)
                        behind = behind or self._skips(node, each)
            elif isinstance(part, ast.AST) and part._fields:
                self._walk(part, behind)
        self.guard, self.inside, self.roles.self_role = before

    def _skips(self, outer: ast.AST, node: ast.AST) -> str:
        """Return the test in a node that keeps what comes after it from running, or nothing."""
        match node:
            case ast.expr() if isinstance(outer, ast.BoolOp):
                return self.guards.judge(node)[isinstance(outer.op, ast.Or)]
            case ast.Assert(test=test):
                return self.guards.judge(test)[0]
            case ast.If(test=test, body=[*_, last]) if isinstance(last, _LEAVES):
                body, other = self.guards.judge(test)
                return other * (not (body and isinstance(last, ast.Raise)))
        return ""

    def _look_at(self, node: ast.AST) -> dict[str, str] | None:
        """Note what a node itself uses; return what guards its fields."""
        match node:
            case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name):
                if f"{name}()" in self.roles.shared:
                    self.reads[name].append((self.guard, self.inside))
                if name in self.names.words and isinstance(node, ast.Attribute):
                    self._note_attribute(node, node.value, name)
                elif name in self.names.words and self.roles.held(name) == f"{name}()":
                    self._note_name(node, name)
            case ast.Call():
                self.outer[node.func] = node
                self._note_call(node)
            case ast.Subscript(value=whole, slice=index):
                text = text_of(index)
                if text and self.roles.role(whole).endswith("()"):
                    self._note_attribute(node, whole, text)
                elif text or re.search(r"name$|(^|\.)binding$", dotted_name(index)):
                    self._note_object(node, whole, "__getitem__")
            case ast.Compare(left=left, comparators=others):
                self.outer |= dict.fromkeys([left, *others], node)
                self._note(node, self.guards.find_flip(node))
            case ast.If(test=test) | ast.IfExp(test=test):
                return dict(zip(("body", "orelse"), self.guards.judge(test), strict=True))
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                self.inside += (name,)
                if isinstance(node, ast.ClassDef):
                    self.roles.self_role = self.roles.held(name).removesuffix("()")
            case ast.ImportFrom(module=str() as module, level=0) if BINDINGS.match(module):
                for named in node.names:
                    self._note_name(named, named.name)
            case ast.withitem(context_expr=expression):
                self._note_object(expression, expression, "__enter__")
            case ast.With() if "suppress(Attr" in self.page.lines[node.lineno - 1]:
                return {"body": "suppress(AttributeError)"}
            case ast.Try(handlers=handlers):
                newer = _NEWER.search("\n".join(self.page.lines[node.lineno - 1 : node.end_lineno]))
                caught = "".join(ast.unparse(each.type) for each in handlers if each.type)
                if handlers and (newer or "AttributeError" in caught):
                    return dict.fromkeys(("body", "handlers"), "except AttributeError")
        return None

    # ---- what is noted ----

    def _note_call(self, node: ast.Call) -> None:
        """Note what a call uses besides its parts: ``getattr``, ``len``, names in texts."""
        name, texts = dotted_name(node.func).rpartition(".")[2], [text_of(each) for each in node.args]
        if name in ("getattr", "setattr", "hasattr") and texts[1:] and texts[1]:
            asks = {
                "hasattr": "it is only asked for",
                "getattr": "guarded by getattr's default" * len(texts[2:]),
            }
            self._note_attribute(node, node.args[0], texts[1], asks.get(name, ""))
        elif name == "len" and node.args:
            self._note_object(node, node.args[0], "__len__")
        elif name in ("int", "startswith") and not isinstance(self.outer.get(node), ast.Compare):
            self._note(node, self.guards.find_flip(node))
        for text in texts:
            owners = self.names.owners.get(text, []) if text.isupper() and self.names.is_own(text) else []
            change = self.names.changes.get(f"{owners[0]}.{text}" if owners else text)
            self._note(node, change if text[:1].isupper() else None, "only a text names it")

    def _note(self, node: ast.AST, change: ApiChange | None, why: str = "") -> None:
        """Note a use; a guard makes it possible."""
        if change is not None:
            line = (node.end_lineno if isinstance(node, ast.Attribute) else getattr(node, "lineno", 0)) or 1
            self.uses.append((line, change, f"behind {self.guard}" if self.guard else why, self.inside))

    def _note_name(self, node: ast.AST, dotted: str, why: str = "") -> None:
        """Note a name of the module, or a member of a class, if what is done with it no longer works."""
        for change in self.names.changes_of(dotted):
            if change.kind is not ChangeKind.CHANGED or self._meets(change, node):
                self._note(node, change, why * (change.kind is not ChangeKind.BEHAVIOUR))

    def _note_object(self, node: ast.AST, base: ast.expr, name: str) -> None:
        """Note what Python calls on an object of TensorRT's: its length, an item, ``with``."""
        if (role := self.roles.role(base)) not in ("", MODULE, OWN, FOREIGN) and not role.endswith("()"):
            self._note_name(node, f"{role}.{name}", _BY_NAME * (not self.roles.known(base)))

    def _note_attribute(self, node: ast.AST, base: ast.expr, name: str, why: str = "") -> None:
        """Note an attribute of what is TensorRT's, or of anything where its name is TensorRT's alone."""
        names, is_own, of_users = self.names, self.names.is_own(name), name in self.roles.members
        role, guessed = self.roles.role(base), not self.roles.known(base)
        owner = role.removesuffix("()")
        if role == MODULE:
            self._note_name(node, name)
        elif role and names.surface.find(f"{owner}.{name}"):
            if of_users and dotted_name(node) == f"self.{name}":
                return
            unsure = guessed and owner == "IBuilderConfig" and not is_own  # the user's own, as likely
            if not unsure or _is_set(node):
                by_name = _BY_NAME * (unsure or (guessed and not self.imports))
                self._note_name(node, f"{owner}.{name}", why or by_name)
        elif role and not guessed:
            self._note_name(node, f"{owner}.{name}", why)  # an older name
        elif not of_users and (owners := names.owners.get(name)):
            dotted = f"{owner if owner in owners else owners[0]}.{name}"
            users = name.isupper() and not dotted_name(node).endswith(dotted)  # a constant, as likely
            if is_own and not users:
                why = why or "the file does not import TensorRT itself" * (not self.imports)
                self._note_name(node, dotted, why)
            elif self.imports and name in names.hints["anywhere"]:
                self._note_name(node, dotted, why or _BY_NAME)

    def _meets(self, change: ApiChange, node: ast.AST) -> bool:
        """Say whether a use meets a change: it sets what is read-only now, or calls what no longer fits."""
        call = self.outer.get(node)
        if "can no longer be set" in change.note:
            return _is_set(node)
        return not isinstance(call, ast.Call) or not any(
            fits(call, each) for each in change.after.splitlines()
        )


def _is_set(node: ast.AST) -> bool:
    return not isinstance(getattr(node, "ctx", None), ast.Load)
