"""Command lines that Python code puts together and runs."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from trtmatrix.core.codescan.reader import Reader
from trtmatrix.core.codescan.shell import Word, note_commands, note_flags, read_shell
from trtmatrix.core.codescan.values import Const, Foreign, OwnClass, OwnFunction, TrtCallable, Value, items_of, texts

_RUNNERS = {"subprocess", "os", "asyncio", "pexpect", "shlex", "sh", "plumbum", "invoke", "fabric", "pty", "popen2"}
_SPEAKERS = {
    "print", "log", "debug", "info", "warning", "warn", "error", "critical", "exception", "echo", "write", "format",
    "help", "add_argument", "secho", "fail", "skip", "join", "exit", "append", "startswith", "endswith", "replace",
}  # fmt: skip


class CommandReader(Reader):
    """Notes trtexec's options in lists and texts that are run."""

    def command_list(self, node: ast.List | ast.Set | ast.Tuple, value: Value) -> Value:
        """Note a list that begins with trtexec, as one that is possibly run; return it."""
        first = node.elts[0] if node.elts else None
        if isinstance(first, ast.Constant) and isinstance(first.value, str) and _is_trtexec(first.value):
            self._note_words(value, "a command line; where it is run was not seen")
        return value

    def run_command(
        self, function: Value, args: Sequence[Value], keywords: dict[str, Value], node: ast.Call
    ) -> None:
        """Note what a call runs: surely by subprocess and the like, possibly by something unknown."""
        names = [thing.name for thing in function if isinstance(thing, Foreign)]
        runs = any(name.split(".")[0] in _RUNNERS for name in names)
        known = any(isinstance(thing, OwnFunction | OwnClass | TrtCallable) for thing in function)
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        spoken = called in _SPEAKERS or any(name.split(".")[0] in ("builtins", "logging") for name in names)
        if not runs and (known or spoken):
            return
        why = "" if runs else "a command line; where it is run was not seen"
        for value in [*args, *(keywords[name] for name in ("args", "cmd", "command") if name in keywords)]:
            if _names_trtexec(value):
                self._note_words(value, why)

    def _note_words(self, value: Value, why: str) -> None:
        """Note the options in a list's words, or in a text read as shell."""
        listed = items_of(value)
        words = [thing for thing in listed if isinstance(thing, Const) and isinstance(thing.value, str)]
        if any(_is_trtexec(str(word.value)) for word in words):
            for word in words:
                self._note_word(word, why)
        for text in texts(value):
            if "trtexec" in str(text.value) and " " in str(text.value):
                self._note_text(text, why)

    def _note_word(self, word: Const, why: str) -> None:
        path, line = word.where
        file = self.program.files.get(path)
        if file is not None:
            place = self.place_of_line(line, file=file)
            note_flags([Word(str(word.value), line)], lambda _: place, self.names, self.program.findings, self._why_of(why))

    def _note_text(self, text: Const, why: str) -> None:
        path, line = text.where
        file = self.program.files.get(path)
        if file is None or (why and not _begins_with_trtexec(str(text.value))):
            return
        found = read_shell(str(text.value))
        listed = [(word, self._line_of(word.text, line, file.lines)) for command in found for word in command]
        lines = {id(word): at for word, at in listed}
        note_commands(
            found, lambda word: self.place_of_line(lines[id(word)], file=file), self.names, self.program.findings,
            self._why_of(why),
        )  # fmt: skip

    def _line_of(self, flag: str, start: int, lines: list[str]) -> int:
        """Return the line within a literal of several lines that a flag stands on."""
        name = flag.partition("=")[0]
        for line in range(start, min(start + 40, len(lines) + 1)):
            if name and name in lines[line - 1]:
                return line
        return start

    def _why_of(self, why: str) -> str:
        return f"guarded by {self.guards[-1]}" if self.guards else why


def _is_trtexec(word: str) -> bool:
    return word.strip().rpartition("/")[2] in ("trtexec", "trtexec.exe")


def _begins_with_trtexec(text: str) -> bool:
    first = text.split(maxsplit=1)[0] if text.split() else ""
    return _is_trtexec(first)


def _names_trtexec(value: Value) -> bool:
    return any("trtexec" in str(text.value) for text in texts(value))
