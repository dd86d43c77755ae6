"""Makes shell text of Dockerfiles and Makefiles, line by line: what RUN, CMD and recipes run."""

from __future__ import annotations

import json
import re
import shlex

_INSTRUCTION = re.compile(r"\s*(?:ONBUILD\s+)?([A-Za-z]+)\s+(.*)", re.DOTALL)
_OPTIONS = re.compile(r"(\s*--(?:mount|network|security|interval|timeout|retries|start-period)=\S+)+\s*")
_MAKE_ASSIGNMENT = re.compile(r"^\s*(?:export\s+|override\s+)?([\w.-]+)\s*(\+|[:?]{1,3})?=\s?(.*)$", re.DOTALL)


def dockerfile_as_shell(text: str) -> str:
    """Return shell text with the same lines: RUN, CMD, ENTRYPOINT, HEALTHCHECK, and ENV and ARG as variables.

    A CMD under an ENTRYPOINT that ends in trtexec is its arguments.
    """
    lines, given, entry = text.split("\n"), [], ""
    place = 0
    while place < len(lines):
        block, following = _instruction(lines, place)
        given_text, entry = _as_shell("\n".join(block), entry)
        rows = given_text.split("\n")
        given += [*rows, *[""] * (len(block) - len(rows))][: len(block)]
        place = following
    return "\n".join(given)


def _instruction(lines: list[str], place: int) -> tuple[list[str], int]:
    """Return the lines of the instruction here, its comments and here-documents with it."""
    block = [lines[place]]
    place += 1
    while place < len(lines) and (block[-1].rstrip().endswith("\\") and not block[-1].lstrip().startswith("#")):
        line = lines[place]
        comment = line.lstrip().startswith("#") or not line.strip()
        block.append("\\" if comment else line)
        place += 1
    for end in re.findall(r"<<-?\s*['\"]?(\w+)", "\n".join(block)) if not block[0].lstrip().startswith("#") else ():
        while place < len(lines):
            block.append(lines[place])
            place += 1
            if block[-1].strip() == end:
                break
    return block, place


def _as_shell(block: str, entry: str) -> tuple[str, str]:
    found = _INSTRUCTION.match(block)
    if not found or block.lstrip().startswith("#"):
        return "", entry
    word, rest = found[1].upper(), found[2]
    blank = "\n" * block[: found.start(2)].count("\n")
    match word:
        case "RUN":
            options = _OPTIONS.match(rest)
            rest = " " * len(options[0]) + rest[options.end() :] if options and "\n" not in options[0] else rest
            heredoc = re.match(r"<<-?\s*['\"]?\w+", rest)
            return blank + (f"bash {rest}" if heredoc else _exec_form(rest)), entry
        case "ENTRYPOINT":
            words = _exec_form(rest)
            return blank + words, words if words.rstrip().endswith("trtexec") else ""
        case "CMD":
            return blank + (f"{entry.strip()} " if entry else "") + _exec_form(rest), entry
        case "HEALTHCHECK":
            return blank + rest.partition("CMD")[2], entry
        case "ENV" | "ARG":
            old = re.match(r"(\w+)\s+([^=].*)", rest, re.DOTALL)
            return blank + (f"{old[1]}={shlex.quote(old[2])}" if old else f"export {rest}"), entry
        case _:
            return "", entry


def _exec_form(rest: str) -> str:
    """Return ``["trtexec", "--x"]`` as words, each on its own line of the block; shell form as it stands."""
    if not rest.lstrip().startswith("["):
        return rest
    try:
        json.loads(rest.replace("\\\n", "\n"))
    except ValueError:
        return rest
    plain = re.sub(r'"((?:[^"\\]|\\.)*)"', lambda word: shlex.quote(_loaded(word[0])), rest)
    return re.sub(r"^\s*\[|\]\s*$|(?<=')\s*,|(?<=[\w=/.:-])\s*,(?=\s|$|\\)", " ", plain)


def _loaded(text: str) -> str:
    try:
        return str(json.loads(text))
    except ValueError:
        return text


def makefile_as_shell(text: str) -> str:
    """Return shell text with the same lines: variables as a shell's, recipes as they are run."""
    given, continued, in_variable = [], False, False
    for line in text.split("\n"):
        row = re.sub(r"\$\((\w+)\)", r"${\1}", line).replace("$$", "$")
        assignment = _MAKE_ASSIGNMENT.match(row)
        if continued:
            given.append(row)
        elif line.startswith("\t"):
            given.append(re.sub(r"^\s*[@+-]*", "", row))
        elif assignment and not line.startswith("#"):
            given.append(_make_variable(assignment))
            in_variable = True
        else:
            given.append("")
        continued = row.rstrip().endswith("\\") and (continued or bool(given[-1]))
        if in_variable and not continued:
            given[-1] += '"'
            in_variable = False
    return "\n".join(given)


def _make_variable(found: re.Match[str]) -> str:
    """Write a variable of make as one of a shell; its text goes on over continued lines."""
    value = found[3].replace('"', '\\"')
    name = re.sub(r"\W", "_", found[1])
    return f'{name}{"+" if found[2] == "+" else ""}="{value}'
