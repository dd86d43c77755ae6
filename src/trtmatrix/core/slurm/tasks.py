"""Slurm's ways to write several tasks of an array: ``0-3%2``, ``1,5-7``, ``[1,3,...]``, ``0xE2``."""

from __future__ import annotations

import re
from dataclasses import dataclass

MOST = 1 << 16
"""Tasks that are written out; an array of this tool's has far fewer."""

_BITS = re.compile(rf"0x([0-9a-fA-F]{{1,{MOST // 4}}})(?:%\d+)?")
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?")


@dataclass(frozen=True, kw_only=True)
class Tasks:
    """Tasks of an array. ``whole``: these are all that were meant; else there are more, not known which."""

    numbers: tuple[int, ...]
    whole: bool = True


def parse_tasks(text: str) -> Tasks:
    """Return the tasks of an expression; what cannot be read of it makes the answer not whole.

    Slurm writes 64 characters of it and then dots, unless SLURM_BITSTR_LEN is 0 (man squeue). sacct's JSON
    has a number in base 16 with one bit a task.
    """
    if bits := _BITS.fullmatch(text.strip()):
        value = int(bits[1], 16)
        return Tasks(
            numbers=tuple(bit for bit in range(value.bit_length()) if value >> bit & 1), whole=value > 0
        )
    numbers, whole = list[int](), True
    parts = text.strip().strip("[]").split("%")[0].split(",")
    if text.strip().startswith("[") and not text.strip().endswith("]"):  # cut anywhere, by sacct of 20.11
        parts[-1] = ""
    for part in parts:
        found = _RANGE.fullmatch(part.strip())
        if found is None:
            whole = False
            continue
        first, step = int(found[1]), int(found[3] or 1)
        many = range(first, int(found[2] or first) + 1, max(step, 1))
        room = MOST - len(numbers)
        whole = whole and 0 < len(many) <= room
        numbers += many[:room]
    return Tasks(numbers=tuple(dict.fromkeys(numbers)), whole=whole)
