"""Asks the user before something goes out."""

from __future__ import annotations

from typing import TextIO

from trtmatrix.core.errors import UsageError


def ask(question: str, text: str, *, yes: bool, stdin: TextIO, stderr: TextIO) -> bool:
    """Show a text and ask; True where the answer is yes, or ``yes`` says so beforehand.

    :class:`UsageError` where nobody can be asked: stdin is no terminal.
    """
    stderr.write(text)
    if yes:
        return True
    if not stdin.isatty():
        raise UsageError(
            "nobody can be asked here, as stdin is no terminal: look at the list above, then add --yes"
        )
    stderr.write(f"{question} [y/N] ")
    stderr.flush()
    answer = stdin.readline()
    if not answer.endswith("\n"):
        stderr.write("\n")
    return answer.strip().lower() in {"y", "yes"}
