"""Notes the uses of names that change in Python files, and says what tests of TensorRT's version give.

A test is worked out twice at the version moved to: as Python does, and as it is meant. For the latter each
number in a text is one letter, so that numbers and not digits are compared and cut. Where the two differ, the
test is wrong there.
"""

from __future__ import annotations

import ast
import contextlib
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from packaging.version import Version
from simpleeval import EvalWithCompoundTypes, InvalidExpression

from trtmatrix.api.compare import fits
from trtmatrix.api.names import (
    BINDINGS,
    FOREIGN,
    MODULE,
    OWN,
    SPEAKS,
    TRTEXEC,
    Names,
    Page,
    Roles,
    dotted_name,
    text_of,
)
from trtmatrix.api.types import ApiChange, ChangeKind

_IMPORTS = re.compile(
    r"(import|from)\s+(tensorrt(_lean|_dispatch|_bindings)?\b(?!\.\w+_)|polygraphy)"
    r"|import\w*\(\s*[\"']tensorrt|import_(trt|tensorrt)\(|trt(?<!\wtrt)\.\w"
)
_NEAR = re.compile(r"\b_?trt|tensorrt", re.IGNORECASE)
_PLAIN = re.compile(r"trtexec|engine\[|len\(engine|with (trt|tensorrt)\.")
_ASKS = re.compile(r"__version__|hasattr\((trt|tensorrt)")
_LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)
_BY_NAME = "only its name says what it is used on"
_RUNS = re.compile(
    rf"(?:^|[;&|\"'!]|\bsudo|\btime|=\S+)\s*(?:[\w./~${{}}()-]*/)?{TRTEXEC}", re.IGNORECASE | re.MULTILINE
)
"""A command that calls trtexec in a string, or the beginning of one."""
_TELLS = re.compile(
    r"\s*([bfr]*[\"']|([\w.]+ *(: *[^=]+)?= *)?([\w.]*\.)?"
    r"(print|log\w*|debug|info|warn\w*|error|critical|exception|add_argument|\w*Error|Field|option)\()"
)
"""A docstring, or a statement that tells a person something."""
_EXAMPLE = re.compile(r"--(fp16|int8|best|saveEngine|verbose)\b")
UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)
"""What the parser raises."""
Outcome = tuple[Any, Any]
"""What an expression gives, and what it is meant to give; None is unclear."""
_MAY_ASK = re.compile(r"__version__|hasattr|version\(|get_distribution")
_FAILED, _LONGEST, _LETTERS = "an error", 999, 0xF0000
_VERSIONS = ("Version", "LooseVersion", "StrictVersion", "parse_version", "version", "parse")
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "int": lambda value: int(_spelt(value)), "float": lambda value: float(_spelt(value)), "str": str,
    "map": lambda function, values: [*map(function, values)],
    **dict.fromkeys(_VERSIONS, lambda text: Version(_spelt(text))),
}  # fmt: skip
_TEXT = {"split", "rsplit", "strip", "lstrip", "rstrip", "replace", "partition", "startswith"}
_ATTRIBUTES = {str: _TEXT, Version: {"major", "minor", "release"}}
_LEFT_OUT = {ast.BinOp, ast.JoinedStr, ast.DictComp}
"""Expressions that can take any time, or that no test of a version is."""


def scan_python(names: Names, pages: Sequence[Page]) -> list[tuple[str, str]]:
    """Note the uses in Python files; return which could not be parsed, with the reason."""
    pages = [page for page in pages if _matters(page, names)]
    shared, asking, unread = dict[str, Outcome](), dict[str, PythonFile](), list[tuple[str, str]]()
    for page in pages:
        if _ASKS.search(page.code):
            with contextlib.suppress(*UNREADABLE):  # it is told below
                asking[page.file] = PythonFile(page, names, shared)
    for file in [*asking.values()] * 2:  # the second time with names that others have from others
        with contextlib.suppress(RecursionError):
            shared |= file.guards.exports()
    for page in pages:
        try:
            (asking.pop(page.file, None) or PythonFile(page, names, shared)).scan()
        except UNREADABLE as error:
            unread.append((page.file, f"it does not parse as Python 3: {error}"))
    return unread


def _matters(page: Page, names: Names) -> bool:
    """Say whether a name that changes stands in a file that imports TensorRT, or one of its own where not."""
    imports = _IMPORTS.search(page.code)
    if page.cells or not (imports or _NEAR.search(page.code)):
        return bool(page.cells)  # much of a notebook is none of its Python
    words = names.sought.intersection(re.findall(r"\w+", page.code))
    plain = _PLAIN.search(page.code) or (imports and _ASKS.search(page.code))
    return bool(plain or (words if imports else words & names.alone))


class PythonFile:
    """A file that is parsed, or raises what the parser does; ``imports``: whether TensorRT itself."""

    def __init__(self, page: Page, names: Names, shared: Mapping[str, Outcome]) -> None:
        self.page, self.names, self.imports = page, names, bool(_IMPORTS.search(page.code))
        self.tree = ast.parse(page.code, page.file)
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
        if any("trtexec" in line for line in self.page.lines):
            self._scan_commands()

    def _is_called_behind(self, name: str) -> bool:
        """Say whether a function is only read behind tests that keep it from running."""
        if name not in self._behind:
            self._behind[name] = False  # of what calls itself
            calls = [(guard, inside) for guard, inside in self.reads[name] if name not in inside]
            behind = all(guard or any(map(self._is_called_behind, inside)) for guard, inside in calls)
            self._behind[name] = bool(calls) and behind
        return self._behind[name]

    def _walk(self, node: ast.AST, guard: str = "") -> None:
        """Look at a node behind a guard, and at what is in it."""
        before = self.guard, self.inside
        self.guard = guard or self.guard
        guards = self._look_at(node) or {}
        for name in node._fields:
            part, behind = getattr(node, name, None), guards.get(name, "")
            for each in part if isinstance(part, list) else [part]:
                if isinstance(each, ast.AST) and each._fields:
                    self._walk(each, behind)
                    behind = behind or self._skips(node, each)
        self.guard, self.inside = before

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
                self.reads[name].append((self.guard, self.inside))
                if isinstance(node, ast.Attribute) and name in self.names.words:
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
                    self._note_attribute(node, whole, "__getitem__")
            case ast.Compare(left=left, comparators=others):
                self.outer |= dict.fromkeys([left, *others], node)
                self._note(node, self.guards.find_flip(node))
            case ast.If(test=test) | ast.IfExp(test=test):
                return dict(zip(("body", "orelse"), self.guards.judge(test), strict=True))
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                self.inside += (name,)
            case ast.ImportFrom(module=str() as module, level=0) if BINDINGS.match(module):
                for named in node.names:
                    self._note_name(named, named.name)
            case ast.withitem(context_expr=expression):
                self._note_attribute(expression, expression, "__enter__")
            case ast.With() if "suppress(Attr" in self.page.lines[node.lineno - 1]:
                return {"body": "suppress(AttributeError)"}
            case ast.Try(handlers=handlers):
                caught = " ".join(ast.unparse(each.type) if each.type else "Exception" for each in handlers)
                body = f"except {caught}" * ("AttributeError" in caught)
                return {"body": body, "handlers": body or f"except {caught}" * ("Exception" in caught)}
        return None

    def _note_call(self, node: ast.Call) -> None:
        """Note what a call uses besides its parts: ``getattr``, ``len``, names in texts."""
        asks = {"hasattr": "it is only asked for", "getattr": "guarded by its default", "setattr": ""}
        match node.func, node.args:
            case ast.Name(id=how), [base, ast.Constant(value=str() as name), *more] if how in asks:
                self._note_attribute(node, base, name, asks[how] * (how != "getattr" or bool(more)))
            case ast.Name(id="len"), [whole]:
                self._note_attribute(node, whole, "__len__")
            case ast.Name(id="int") | ast.Attribute(attr="startswith"), _:
                if not isinstance(self.outer.get(node), ast.Compare):
                    self._note(node, self.guards.find_flip(node))
        for text in (text for each in node.args if (text := text_of(each))[:1].isupper()):
            owners = self.names.owners.get(text, []) if text.isupper() and self.names.is_own(text) else []
            change = self.names.changes.get(f"{owners[0]}.{text}" if owners else text)
            self._note(node, change, "only a text names it")

    def _note(self, node: ast.AST, change: ApiChange | None, why: str = "") -> None:
        """Note a use; a guard makes it possible."""
        if change is not None:
            line = (node.end_lineno if isinstance(node, ast.Attribute) else getattr(node, "lineno", 0)) or 1
            self.uses.append((line, change, f"behind {self.guard}" if self.guard else why, self.inside))

    def _note_name(self, node: ast.AST, dotted: str, why: str = "") -> None:
        """Note a name of the module, or a member of a class, if what is done with it no longer works."""
        call = self.outer.get(node)
        for change in self.names.changes_of(dotted):
            works = isinstance(call, ast.Call) and any(fits(call, way) for way in change.after.splitlines())
            if "can no longer be set" in change.note:
                works = not _is_set(node)
            if change.kind is not ChangeKind.CHANGED or not works:
                self._note(node, change, why)

    def _note_attribute(self, node: ast.AST, base: ast.expr, name: str, why: str = "") -> None:
        """Note an attribute of what is TensorRT's, or of anything where its name is TensorRT's alone.

        Python's own names (``__len__``) are asked for by its syntax.
        """
        names, is_own, of_users = self.names, self.names.is_own(name), name in self.roles.members
        role, guessed = self.roles.role(base), not self.roles.known(base)
        owner = role.removesuffix("()")
        if role and (not guessed or names.surface.find(f"{owner}.{name}")):  # where known, older names too
            unsure = guessed and owner == "IBuilderConfig" and not is_own  # the user's own, as likely
            if (not unsure or _is_set(node)) and not (of_users and dotted_name(node) == f"self.{name}"):
                by_name = _BY_NAME * (guessed and (unsure or not self.imports or name[:2] == "__"))
                self._note_name(node, name if role == MODULE else f"{owner}.{name}", why or by_name)
        elif not of_users and (owners := names.owners.get(name)):
            dotted = f"{owner if owner in owners else owners[0]}.{name}"
            users = name.isupper() and not dotted_name(node).endswith(dotted)  # a constant, as likely
            if (is_own and not users) or (self.imports and name in names.hints["anywhere"]):
                self._note_name(node, dotted, why or _BY_NAME * (not (is_own and self.imports)))

    def _scan_commands(self) -> None:
        """Note trtexec's options in statements that run it, put a command together, or tell of it."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.stmt) and not isinstance(node, ast.Raise) and not hasattr(node, "body"):
                text = "\n".join(self.page.lines[node.lineno - 1 : node.end_lineno])
                told, prepares = _TELLS.match(text), re.match(r"[^\"']*[\"'] *--", text)
                runs = not told and _RUNS.search(text)
                if runs or (prepares and not told) or _EXAMPLE.search(text):
                    self.page.note_options(node.lineno, text, self.names, "" if runs else SPEAKS)


def _is_set(node: ast.AST) -> bool:
    return not isinstance(getattr(node, "ctx", None), ast.Load)


# --- Tests of the version


class Guards:
    """Works out the tests in a file; ``shared``: names and ``functions()`` of others, and what they give."""

    def __init__(self, roles: Roles, names: Names, code: str, shared: Mapping[str, Outcome]) -> None:
        self.roles, self.names, self.shared = roles, names, shared
        self.version: Outcome = names.after, _lettered(names.after)
        self._asks = bool(_MAY_ASK.search(code)) or any(name.rstrip("()") in code for name in shared)
        self._flags: dict[str, Outcome | None] = {}
        self._hanging: dict[ast.AST, bool] = {}

    def _hangs(self, node: ast.AST) -> bool:
        """Whether an expression hangs on TensorRT's version, or on what its bindings have."""
        if node not in self._hanging:
            chooses = isinstance(node, ast.IfExp) and not isinstance(node.body, ast.Constant)  # no test
            parts = ast.walk(node) if self._asks and not chooses else ()
            self._hanging[node] = any(self._meaning(each) is not None for each in parts)
        return self._hanging[node]

    def _meaning(self, node: ast.AST) -> Outcome | None:
        """Return what a part of a test gives if it hangs on the version by itself."""
        match node:
            case ast.Attribute(value=holder, attr="__version__"):
                return self.version if self.roles.role(holder) == MODULE else None
            case ast.Call(func=ast.Name(id="hasattr"), args=[holder, ast.Constant(value=str() as name)]):
                if (held := self.roles.role(holder)) in ("", OWN, FOREIGN):
                    return None
                dotted = name if held == MODULE else f"{held.removesuffix('()')}.{name}"
                return (has := self.names.target.find(dotted) is not None, has)
            case ast.Call(args=[named, *_]) if BINDINGS.match(text_of(named)):
                return self.version if re.search("version|distribution", dotted_name(node.func)) else None
            case ast.Name(id=name) | ast.Attribute(attr=name):
                return self._flag(name)
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
                return self._flag(f"{name}()")
        return None

    def _flag(self, name: str) -> Outcome | None:
        """Return what a name, or a ``function()``, gives if that hangs on the version."""
        if name not in self._flags:
            self._flags[name] = None  # of what hangs on itself
            bound, imported, plain = self.roles.bound, self.roles.imported, name.removesuffix("()")
            given = (each for each in bound.get(name, ()) if isinstance(each, ast.expr))
            found = next((self._work_out(each) for each in given if self._hangs(each)), None)
            if found is None and (plain in imported or plain not in bound):
                found = self.shared.get(imported.get(plain, plain) + name[len(plain) :])
            self._flags[name] = found
        return self._flags[name]

    def exports(self) -> dict[str, Outcome]:
        """Return what names of the module, and its functions, give in other files."""
        found = {name: flag for name in [*self.roles.bound] if (flag := self._flag(name))}
        self._flags, self._hanging = {}, {}  # others may share more hereafter
        return found

    def judge(self, node: ast.expr) -> tuple[str, str]:
        """Return what keeps a test's body, and its else, from running at the version moved to; or nothing."""
        match node:
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                return self.judge(inner)[::-1]
            case ast.BoolOp(op=how, values=parts):
                bodies, elses = zip(*map(self.judge, parts), strict=True)
                body, other = next(filter(None, bodies), ""), next(filter(None, elses), "")
                return (body, other * all(elses)) if isinstance(how, ast.And) else (body * all(bodies), other)
        if not self._hangs(node):
            return "", ""
        text = " ".join(ast.unparse(node).split())
        shown = f"`{text if len(text) <= 60 else text[:59] + '…'}`"
        got, meant = self._work_out(node)
        unclear = got in (None, _FAILED) or meant not in (None, got)
        return shown * (unclear or not got), shown * (unclear or bool(got))

    def find_flip(self, node: ast.expr) -> ApiChange | None:
        """Return the change that a test of the version is where it is wrong at the version moved to.

        So is what reads one sign of a version for a number: the 1 of ``"10.8"[0]``.
        """
        got, meant = self._work_out(node) if self._hangs(node) else (None, None)
        differs = f", where the version's numbers give {meant}" * (meant not in (None, got))
        if got is None or (got != _FAILED and not differs):
            return None
        return ApiChange(
            name=f"version test {ast.unparse(node)}", kind=ChangeKind.CHANGED,
            source="worked out from this line", note=f"at {self.names.after} it gives {got}{differs}",
            replacement="a comparison of numbers: packaging.version.Version(tensorrt.__version__)",
        )  # fmt: skip

    def _work_out(self, node: ast.expr) -> Outcome:
        """Return what an expression gives, and is meant to; an error's word where it raises."""
        return self._evaluate(node, meant=False), self._evaluate(node, meant=True)

    def _evaluate(self, node: ast.expr, *, meant: bool) -> Any:  # noqa: ANN401 - a value of the user's
        evaluator = EvalWithCompoundTypes(functions=_FUNCTIONS, allowed_attrs=_ATTRIBUTES)
        plain = {kind: how for kind, how in evaluator.nodes.items() if kind not in _LEFT_OUT}

        def evaluate(part: Any) -> Any:  # noqa: ANN401
            if (found := self._meaning(part)) is not None:
                if found[meant] in (None, _FAILED):
                    raise LookupError
                return found[meant]
            match part:
                case ast.Constant(value=str() as text) if meant:
                    return _lettered(text)
                case ast.Call(func=ast.Attribute(attr=name), args=args) if name in _FUNCTIONS:
                    part = ast.Call(ast.Name(name), args, [])
            value = plain[type(part)](part)
            if isinstance(value, str) and len(value) > _LONGEST:  # of replace after replace
                raise LookupError
            return value

        evaluator.nodes = dict.fromkeys(plain, evaluate)
        try:
            return evaluator.eval("", node)
        except (InvalidExpression, LookupError, RecursionError):
            return None
        except (TypeError, ValueError, ArithmeticError, AttributeError):
            return _FAILED


def _lettered(text: str) -> str:
    """Return a text with a letter of Unicode's private use for each number."""
    return re.sub(r"\d+", lambda number: chr(_LETTERS + min(int(number[0]), 0xFFFD)), text)


def _spelt(value: Any) -> Any:  # noqa: ANN401
    """Return such a text with its numbers in digits again, and what is no text as it is."""
    if isinstance(value, str):
        return re.sub("[\U000f0000-\U000ffffd]", lambda letter: str(ord(letter[0]) - _LETTERS), value)
    return value
