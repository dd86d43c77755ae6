"""Finds packages of TensorRT that are pinned to the version moved from: ``pip install tensorrt==8.6.1``."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from trtmatrix.core.api import ApiChange, ChangeKind
from trtmatrix.core.codescan.names import Names
from trtmatrix.core.codescan.shell_words import Word

if TYPE_CHECKING:
    from trtmatrix.core.codescan.findings import Findings, Place

_PIP = re.compile(r"(tensorrt(?:[-_](?:cu1[0-9]|libs|bindings|lean|dispatch))*)(?:\[[^]]*\])?==([\d.]+)")
_APT = re.compile(r"((?:lib|python3-lib)nv(?:infer|onnxparsers|parsers|infer-[a-z-]+)[a-z-]*?\d*|tensorrt(?:-dev|-libs)?)=([\d.]+)")


def note_pins(
    words: Sequence[Word], place: Callable[[Word], Place], names: Names, findings: Findings, why: str = ""
) -> None:
    """Note pins in a command of pip, uv, conda or apt, where the version moved to is known."""
    tools = {word.text.rpartition("/")[2].rstrip("0123456789.") for word in words[:6]}
    if not names.after or not tools & {"pip", "uv", "apt-get", "apt", "conda", "mamba", "poetry", "pipx"}:
        return
    for word in words:
        for pattern in (_PIP, _APT):
            found = pattern.match(word.text)
            if found and not _same(found[2], names.after):
                findings.add(place(word), [_change(found[0], names)], why)
                break


def _same(one: str, other: str) -> bool:
    """Say whether two versions agree in the numbers that both have."""
    pair = zip(one.split("."), other.split("."), strict=False)
    return all(left == right for left, right in pair)


def _change(pin: str, names: Names) -> ApiChange:
    return ApiChange(
        name=f"pin {pin}", kind=ChangeKind.CHANGED, replacement=f"the package of TensorRT {names.after}",
        note="installs another version than the one moved to", source="this command itself",
    )  # fmt: skip
