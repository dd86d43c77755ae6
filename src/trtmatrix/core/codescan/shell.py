"""Finds trtexec's options, and pins of TensorRT's packages, in shell commands."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from trtmatrix.core.codescan.findings import Findings, Place
from trtmatrix.core.codescan.names import Names
from trtmatrix.core.codescan.pins import note_pins
from trtmatrix.core.codescan.shell_words import Command, ShellReader, Word

__all__ = ["Word", "note_commands", "note_flags", "read_shell", "scan_shell"]

_SAYING = {
    "echo", "printf", "grep", "egrep", "fgrep", "rg", "ls", "which", "type", "command", "whereis", "cat", "cp", "mv", "ln",
    "alias", "unalias", "test", "[", "[[", "find", "sed", "awk", "head", "tail", "rm", "chmod", "chown", "mkdir", "cd",
    "strip", "file", "stat", "pgrep", "pkill", "killall", "make", "cmake", "git", "logger", "install", "sha256sum", "export",
    "local", "declare", "readonly", "unset", "hash", "touch", "tar", "COPY", "for", "case", "function", "source", "man",
}  # fmt: skip
"""Commands that name trtexec without running it."""
_RUNNING = {
    "sudo", "time", "env", "exec", "nohup", "timeout", "nsys", "ncu", "nvprof", "docker", "podman", "nvidia-docker",
    "nerdctl", "kubectl", "srun", "mpirun", "mpiexec", "numactl", "taskset", "stdbuf", "nice", "ionice", "xargs", "ssh",
    "singularity", "apptainer", "docker-compose", "perf", "eval", "bash", "sh", "zsh", "gdb", "valgrind", "strace", "watch",
    "parallel", "chrt", "script", "catchsegv", "compute-sanitizer", "LD_PRELOAD",
}  # fmt: skip
_RESERVED = {"if", "then", "else", "elif", "do", "while", "until", "!", "{", "}", "time", "&&", "||"}
_WRAPPER = re.compile(
    r"^[ \t]*(?:function\s+)?([\w-]+)\s*(?:\(\))?\s*\{(?P<body>.*?)^[ \t]*\}|^[ \t]*([\w-]+)\(\)\s*\{(?P<line>[^\n]*)\}",
    re.MULTILINE | re.DOTALL,
)


def scan_shell(text: str, place: Callable[[int], Place], names: Names, findings: Findings) -> None:
    """Note every use in a shell text; ``place`` makes a place of a line."""
    commands = read_shell(text)
    note_commands(commands, lambda word: place(word.line), names, findings, "", wrappers_in(text))


def read_shell(text: str, line: int = 1, variables: dict[str, list[Word]] | None = None) -> list[Command]:
    """Return the commands of a shell text."""
    return ShellReader(text, line, {} if variables is None else variables).read()


def wrappers_in(text: str) -> frozenset[str]:
    """Return the names of shell functions that hand their arguments on to trtexec."""
    found = set()
    for match in _WRAPPER.finditer(text):
        body = match["body"] or match["line"] or ""
        if re.search(r"trtexec\b[^\n]*(\\\n[^\n]*)*\$[@*{]", body, re.IGNORECASE):
            found.add(match[1] or match[3])
    return frozenset(found)


def note_commands(
    commands: Sequence[Command], place: Callable[[Word], Place], names: Names, findings: Findings, why: str = "",
    wrappers: frozenset[str] = frozenset(), depth: int = 0,
) -> None:  # fmt: skip
    """Note trtexec's options and pins of packages in commands."""
    for command in commands:
        words = list(command)
        while words and words[0].text in _RESERVED:
            words = words[1:]
        if not words:
            continue
        note_pins(words, place, names, findings, why)
        head = words[0].text.rpartition("/")[2]
        for number, word in enumerate(words):
            doubt = _doubt(head, number, word, wrappers)
            if doubt is not None:
                note_flags(words[number + 1 :], place, names, findings, why or doubt)
                break
        if depth < 3:
            _note_inner(words, head, place, names, findings, why, depth)


def _note_inner(
    words: Command, head: str, place: Callable[[Word], Place], names: Names, findings: Findings, why: str, depth: int
) -> None:
    """Read the text after ``bash -c`` or ``eval`` as shell; all its words count at the text's place."""
    for number, word in enumerate(words):
        given = number and (words[number - 1].text in ("-c", "-lc", "-ec", "-xc") or head in ("eval", "ssh", "screen"))
        if word.quoted and given:
            inner = read_shell(word.text, word.line)
            note_commands(inner, place, names, findings, why, depth=depth + 1)


def _doubt(head: str, number: int, word: Word, wrappers: frozenset[str]) -> str | None:
    """Return why a word is only possibly trtexec being run: empty if it surely is, None if it is not."""
    name = word.text.rpartition("/")[2]
    is_variable = name.startswith("$") and "trtexec" in name.lower()
    if name not in ("trtexec", "trtexec.exe") and not is_variable and not (number == 0 and name in wrappers):
        return None
    if number and head in _SAYING:
        return None
    if is_variable:
        return f"{name} is set elsewhere"
    if number == 0 or head in _RUNNING or "trtexec" in head:
        return ""
    return f"trtexec is an argument of {head} here"


def note_flags(
    words: Sequence[Word], place: Callable[[Word], Place], names: Names, findings: Findings, why: str = ""
) -> None:
    """Note each changing option among trtexec's words."""
    for word in words:
        flag = word.text.partition("=")[0]
        if flag.startswith("-") and flag in names.flags:
            findings.add(place(word), names.flags[flag], why)
