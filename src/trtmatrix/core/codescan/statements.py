"""Reads statements in the order in which they run; ways through the code are joined where they meet."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from trtmatrix.core.codescan.definitions import DefinitionReader
from trtmatrix.core.codescan.guards import judge_test
from trtmatrix.core.codescan.values import NOTHING, OwnClass, OwnObject, TrtClass, TrtObject, Value, join, of

_MISSING = {"AttributeError", "NotImplementedError"}
_NOT_THERE = {"ImportError", "ModuleNotFoundError", "AttributeError", "Exception", "BaseException"}


class StatementReader(DefinitionReader):
    """Reads statements."""

    def read_block(self, statements: Sequence[ast.stmt]) -> None:
        """Read statements; what guards the rest after an early return ends with them."""
        guards = len(self.guards)
        for statement in statements:
            self.read(statement)
        del self.guards[guards:]

    def read(self, node: ast.stmt) -> None:
        """Read one statement."""
        match node:
            case ast.Assign():
                value = self.evaluate(node.value)
                for target in node.targets:
                    self.assign(target, value)
            case ast.AnnAssign():
                self._annotated_assignment(node)
            case ast.AugAssign():
                self._augmented(node)
            case ast.Expr():
                self.evaluate(node.value)
            case ast.Return():
                self.note_return(self.evaluate(node.value))
                self.dead = True
            case ast.Raise():
                self.evaluate(node.exc)
                self.dead = True
            case ast.Break() | ast.Continue():
                self.dead = True
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() | ast.Import() | ast.ImportFrom():
                self.define(node)
            case _:
                self._compound(node)

    def _compound(self, node: ast.stmt) -> None:
        match node:
            case ast.If():
                self._if(node)
            case ast.While():
                self._while(node)
            case ast.For() | ast.AsyncFor():
                self._for(node)
            case ast.With() | ast.AsyncWith():
                self._with(node)
            case ast.Match():
                self._match(node)
            case ast.Assert():
                self.evaluate(node.test)
                self._narrow(node.test)
            case ast.Delete():
                for target in node.targets:
                    if not isinstance(target, ast.Name):
                        self.evaluate(target)
            case ast.Global() | ast.Nonlocal() | ast.Pass():
                pass
            case _:
                self._try(node)

    def _annotated_assignment(self, node: ast.AnnAssign) -> None:
        declared = self.annotated(node.annotation)
        value = self.evaluate(node.value) if node.value else NOTHING
        if isinstance(node.target, ast.Name) and self.scope.owner and not self.scope.function:
            info = self.program.classes[self.scope.owner]
            if node.target.id not in info.fields:
                info.fields.append(node.target.id)
        self.assign(node.target, join(declared, value) if declared else value)

    def _augmented(self, node: ast.AugAssign) -> None:
        value = self.evaluate(node.value)
        if isinstance(node.target, ast.Attribute):
            self.attribute_of(self.evaluate(node.target.value), node.target.attr, node.target, store=True)
        if value and isinstance(node.op, ast.Add):
            before = self.evaluate(node.target)
            self.assign(node.target, join(before, value))

    # Branches

    def _branches(self, ways: Sequence[tuple[str, Sequence[ast.stmt], ast.expr | None]]) -> list[bool]:
        """Read each way from the same start, join what comes out; return which ways end early."""
        start, ends, dead = dict(self.scope.flow), [], []
        for guard, statements, narrowed in ways:
            self.scope.flow, self.dead = dict(start), False
            if narrowed is not None:
                self._narrow(narrowed)
            with self.guarded(guard):
                self.read_block(statements)
            dead.append(self.dead)
            if not self.dead:
                ends.append(self.scope.flow)
        self.dead = all(dead)
        self.scope.flow = _joined(ends) if ends else start
        return dead

    def _if(self, node: ast.If) -> None:
        self.evaluate(node.test)
        test = judge_test(self, node.test)
        ways = [(test.over_body, node.body, node.test), (test.over_else, node.orelse, None)]
        body_ends, else_ends = self._branches(ways)
        rest = test.over_else if body_ends else test.over_body if else_ends else ""
        if rest and not (body_ends and else_ends):
            self.guards.append(rest)  # until the end of the block

    def _while(self, node: ast.While) -> None:
        self.evaluate(node.test)
        test = judge_test(self, node.test)
        self._loop([(test.over_body, node.body, None), ("", [], None)])
        self.dead = False
        self.read_block(node.orelse)

    def _for(self, node: ast.For | ast.AsyncFor) -> None:
        items = self.iterate(self.evaluate(node.iter), node.iter)
        self.assign(node.target, items)
        self._loop([("", node.body, None), ("", [], None)])
        self.dead = False
        self.read_block(node.orelse)

    def _loop(self, ways: Sequence[tuple[str, Sequence[ast.stmt], ast.expr | None]]) -> None:
        """Read a loop's body, and once more where it changed what it began with; in an outer loop only."""
        start = dict(self.scope.flow)
        self.loops += 1
        self._branches(ways)
        if self.loops == 1 and any(self.scope.flow.get(name) != value for name, value in start.items()):
            self._branches(ways)
        self.loops -= 1

    def _with(self, node: ast.With | ast.AsyncWith) -> None:
        guard = ""
        for item in node.items:
            value = self.entered(self.evaluate(item.context_expr), item.context_expr)
            if item.optional_vars is not None:
                self.assign(item.optional_vars, value)
            if "suppress(" in (text := ast.unparse(item.context_expr)) and "AttributeError" in text:
                guard = text
        with self.guarded(guard):
            self.read_block(node.body)
        self.dead = self.dead and not guard

    def _match(self, node: ast.Match) -> None:
        self.evaluate(node.subject)
        for case in node.cases:
            self.evaluate(case.guard)
        ways: list[tuple[str, Sequence[ast.stmt], ast.expr | None]] = [("", case.body, None) for case in node.cases]
        self._branches([*ways, ("", [], None)])

    def _try(self, node: ast.stmt) -> None:
        """Read a try; a handler of AttributeError stands guard over the body and over itself."""
        handlers = getattr(node, "handlers", [])
        caught = [name for handler in handlers for name in _caught(handler)]
        missing = next((name for name in caught if name in _MISSING), "")
        not_there = next((name for name in caught if name in _NOT_THERE), "")
        guard = f"try … except {missing}" if missing else ""
        start = dict(self.scope.flow)
        if not_there:
            self.import_guards.append(f"try … except {not_there}")
        with self.guarded(guard):
            self.read_block(getattr(node, "body", []))
        if not_there:
            self.import_guards.pop()
        body_dead, after = self.dead, self.scope.flow
        ends = [] if body_dead else [after]
        for handler in handlers:
            self.scope.flow, self.dead = _joined([start, after]), False
            self.evaluate(handler.type)
            if handler.name:
                self.bind(handler.name, NOTHING)
            with self.guarded(guard if missing in _caught(handler) else ""):
                self.read_block(handler.body)
            if not self.dead:
                ends.append(self.scope.flow)
        self.dead, self.scope.flow = not ends, _joined(ends) if ends else after
        self.read_block(getattr(node, "orelse", []))
        dead, self.dead = self.dead, False
        self.read_block(getattr(node, "finalbody", []))
        self.dead = self.dead or dead

    # What a test tells of a name

    def _narrow(self, test: ast.expr) -> None:
        """Take ``isinstance(x, C)`` for x being a C in what follows; ``x is not None`` says nothing new."""
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
            for each in test.values:
                self._narrow(each)
        if not isinstance(test, ast.Call) or getattr(test.func, "id", "") != "isinstance" or len(test.args) != 2:
            return
        target, wanted = test.args
        names = wanted.elts if isinstance(wanted, ast.Tuple) else [wanted]
        classes = join(*(self.evaluate(name) for name in names))
        found: list[Value] = [of(TrtObject(thing.name)) for thing in classes if isinstance(thing, TrtClass)]
        found += [of(OwnObject(thing.key)) for thing in classes if isinstance(thing, OwnClass)]
        narrowed = join(*found)
        if isinstance(target, ast.Name) and narrowed:
            self.scope.flow[target.id] = narrowed
        elif isinstance(target, ast.Attribute) and narrowed and not self.evaluate(target):
            self.bind_path(target, narrowed)


def _joined(ways: Sequence[dict[str, Value]]) -> dict[str, Value]:
    names = {name for way in ways for name in way}
    return {name: join(*(way.get(name, NOTHING) for way in ways)) for name in sorted(names)}


def _caught(handler: ast.ExceptHandler) -> list[str]:
    """Return the names of the exceptions that a handler catches; a bare one catches BaseException."""
    if handler.type is None:
        return ["BaseException"]
    listed = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return [each.attr if isinstance(each, ast.Attribute) else getattr(each, "id", "") for each in listed]
