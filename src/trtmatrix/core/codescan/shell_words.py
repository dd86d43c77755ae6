"""Cuts shell text into commands of words, with variables put in; every word keeps its line.

A shell's grammar is larger; this reads what decides which words a command gets: quotes, continued lines,
comments, here-documents, variables, arrays, command substitutions. Nothing is run.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_EXPANSION = re.compile(r"\$(?:\{[#!]?(\w+)(?:\[[^]]*\])?(?::?[-=+?]([^}]*))?[^}]*\}|(\w+|[@*#?]))")
_HEREDOC = re.compile(r"<<-?\s*(['\"]?)(\w+)\1")
_SHELLS = ("bash", "sh", "zsh", "dash")
DEEPEST = 5


@dataclass(frozen=True)
class Word:
    """A word of a command and the line it begins on; ``quoted``: it was written as one quoted text."""

    text: str
    line: int
    quoted: bool = False


Command = list[Word]


@dataclass
class ShellReader:
    """Reads a shell text; ``variables`` are known from before, and grow."""

    text: str
    line: int = 1
    variables: dict[str, list[Word]] = field(default_factory=dict)
    depth: int = 0
    place: int = 0
    commands: list[Command] = field(default_factory=list)
    heredocs: list[tuple[str, bool]] = field(default_factory=list)

    def read(self) -> list[Command]:
        """Return the commands in order."""
        command: Command = []
        while self.place < len(self.text):
            char = self.text[self.place]
            if char == "\n":
                self._end(command)
                command = []
                self._step()
                self._skip_heredocs()
            elif char in " \t\r" or self.text.startswith("\\\n", self.place) or self.text.startswith("\\\r\n", self.place):
                self._step(1 if char != "\\" else self.text.index("\n", self.place) - self.place + 1)
            elif char == "#":
                end = self.text.find("\n", self.place)
                self.place = len(self.text) if end < 0 else end
            elif self.text.startswith("<<", self.place) and not self.text.startswith("<<<", self.place):
                self._note_heredoc(command)
            elif char in ";&|()<>":
                self._operator(char, command)
                if char not in "<>":
                    command = []
            else:
                command += self._word(command)
        self._end(command)
        return self.commands

    def _step(self, count: int = 1) -> None:
        self.line += self.text.count("\n", self.place, self.place + count)
        self.place += count

    def _end(self, command: Command) -> None:
        if command:
            self.commands.append(command)

    def _operator(self, char: str, command: Command) -> None:
        self._step()
        if char in "<>":  # a file follows, or a descriptor: no argument
            while self.place < len(self.text) and self.text[self.place] in "<>&| \t":
                self._step()
            if self.place < len(self.text) and self.text[self.place] not in "\n;()#":
                self._word([Word("", self.line)])
        else:
            self._end(command)

    def _note_heredoc(self, command: Command) -> None:
        found = _HEREDOC.match(self.text, self.place)
        self._step(len(found[0]) if found else 2)
        if found:
            is_shell = bool(command) and command[0].text.rpartition("/")[2] in _SHELLS
            self.heredocs.append((found[2], is_shell))

    def _skip_heredocs(self) -> None:
        """Pass over the bodies of here-documents; one that a shell is given is read as shell."""
        for end, is_shell in self.heredocs:
            body_line, lines = self.line, []
            while self.place < len(self.text):
                stop = self.text.find("\n", self.place)
                stop = len(self.text) if stop < 0 else stop
                row = self.text[self.place : stop]
                self._step(stop - self.place + 1)
                if row.strip() == end:
                    break
                lines.append(row)
            if is_shell:
                self._inner("\n".join(lines), body_line)
        self.heredocs = []

    def _inner(self, text: str, line: int) -> None:
        """Read a text within the text, such as a command substitution."""
        if self.depth < DEEPEST:
            self.commands += ShellReader(text, line, self.variables, self.depth + 1).read()

    # Words

    def _word(self, command: Command) -> list[Word]:
        """Read one word; it may become several, or none where it is an assignment."""
        start, begin = self.line, self.place
        pieces: list[tuple[str, int]] = []
        quoted = self.text[self.place] in "'\""
        while self.place < len(self.text) and self.text[self.place] not in " \t\n;&|()<>":
            if self.text.startswith("=(", self.place) and _NAME.search(self.text[begin : self.place]):
                return self._array(self.text[begin : self.place])
            self._piece(pieces)
        text = "".join(piece for piece, _ in pieces)
        found = re.match(r"([A-Za-z_]\w*)(\+?)=", text)
        if found and not quoted and _may_assign(command):
            self._assign(found[1], bool(found[2]), _split(pieces, len(found[0])))
            return []
        whole = self.text[begin : self.place]
        if quoted and any(char.isspace() for char in text) and "[@]" not in whole:
            return [Word(text, start, quoted=True)]
        return _split(pieces, 0) or ([Word("", start)] if quoted else [])

    def _array(self, name: str) -> list[Word]:
        self._step(2)
        words: list[Word] = []
        while self.place < len(self.text) and self.text[self.place] != ")":
            if self.text[self.place].isspace() or self.text.startswith("\\\n", self.place):
                self._step()
            elif self.text[self.place] == "#":
                end = self.text.find("\n", self.place)
                self._step((len(self.text) if end < 0 else end) - self.place)
            elif self.text[self.place] in ";&|(<>":
                self._step()
            else:
                words += self._word([Word("", self.line)])
        self._step()
        self._assign(name.rstrip("+"), name.endswith("+"), words)
        return []

    def _assign(self, name: str, more: bool, words: list[Word]) -> None:
        self.variables[name] = [*(self.variables.get(name, []) if more else []), *words]

    def _piece(self, pieces: list[tuple[str, int]]) -> None:
        """Read a quoted part, an expansion, an escape, or a character."""
        char = self.text[self.place]
        match char:
            case "'":
                end = self.text.find("'", self.place + 1)
                end = len(self.text) if end < 0 else end
                self._take(self.text[self.place + 1 : end], pieces)
                self._step(end + 1 - self.place)
            case '"':
                self._double(pieces)
            case "\\":
                if self.place + 1 < len(self.text) and self.text[self.place + 1] != "\n":
                    pieces.append((self.text[self.place + 1], self.line))
                self._step(2)
            case "$" | "`":
                self._expand(pieces)
            case _:
                pieces.append((char, self.line))
                self._step()

    def _double(self, pieces: list[tuple[str, int]]) -> None:
        self._step()
        while self.place < len(self.text) and self.text[self.place] != '"':
            char = self.text[self.place]
            if char in "$`":
                self._expand(pieces)
            elif char == "\\" and self.place + 1 < len(self.text):
                if self.text[self.place + 1] != "\n":
                    pieces.append((self.text[self.place + 1], self.line))
                self._step(2)
            else:
                pieces.append((char, self.line))
                self._step()
        self._step()

    def _take(self, text: str, pieces: list[tuple[str, int]]) -> None:
        line = self.line
        for char in text:
            pieces.append((char, line))
            line += char == "\n"

    def _expand(self, pieces: list[tuple[str, int]]) -> None:
        """Put a variable's words in, at their own lines; read a command substitution as commands."""
        opened = self._substituted()
        if opened:
            start, end, after = opened
            self._inner(self.text[start:end], self.line)
            self._step(after - self.place)
            pieces.append(("{}", self.line))
            return
        found = _EXPANSION.match(self.text, self.place)
        if not found:
            pieces.append((self.text[self.place], self.line))
            self._step()
            return
        known = self.variables.get(found[1] or found[3] or "")
        if known is None and found[2]:
            known = [Word(word, self.line) for word in found[2].split()]
        if known is None:
            pieces.append((found[0], self.line))
        else:
            for place, word in enumerate(known):
                pieces.append((" ", word.line) if place else ("", word.line))
                self._take_at(word, pieces)
        self._step(len(found[0]))

    def _take_at(self, word: Word, pieces: list[tuple[str, int]]) -> None:
        pieces += [(char, word.line) for char in word.text]

    def _substituted(self) -> tuple[int, int, int] | None:
        """Return start, end and what follows of ``$(…)`` or backticks here."""
        if self.text[self.place] == "`":
            end = self.text.find("`", self.place + 1)
            return (self.place + 1, end, end + 1) if end > 0 else None
        if not self.text.startswith("$(", self.place):
            return None
        depth, place = 0, self.place + 1
        while place < len(self.text):
            depth += (self.text[place] == "(") - (self.text[place] == ")")
            if not depth:
                return self.place + 2, place, place + 1
            place += 1
        return None


def _may_assign(command: Command) -> bool:
    """Say whether a word here can be an assignment: before the command, or after export and the like."""
    declaring = {"export", "local", "declare", "readonly", "typeset", "env"}
    return not command or command[0].text in declaring | {"then", "do", "else", "{", "!", "if", "while"}


def _split(pieces: list[tuple[str, int]], skip: int) -> list[Word]:
    """Split at blanks, after so many characters; every word has the line of its first character."""
    chars = [(char, line) for piece, line in pieces for char in piece][skip:]
    words: list[Word] = []
    open_word = False
    for char, line in chars:
        if char.isspace():
            open_word = False
        elif open_word:
            words[-1] = Word(words[-1].text + char, words[-1].line)
        else:
            words.append(Word(char, line))
            open_word = True
    return words
