"""Whether the scripts of an archive are those that this version writes, before they are run here."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trtmatrix.bundle_judge import Known
from trtmatrix.core.bundle.facts import RUN, SCRIPT
from trtmatrix.core.bundle.script_check import is_rendered
from trtmatrix.core.errors import UsageError
from trtmatrix.core.record import Record
from trtmatrix.core.redact import redact


def check_scripts(
    file: Path, folder: Path, record: Record, expected: Mapping[str, Any], known: Known | None,
    *, trust: bool = False,
) -> list[str]:  # fmt: skip
    """Return what is to be noted of an archive's scripts.

    ``reproduce.sh`` is run by this host's shell in any case, ``repro.py`` outside of containers where the
    failure was seen there. :class:`UsageError` where one that this version did not write would be run so,
    unless the user said to ``trust`` it.
    """
    script, notes = (folder / RUN).read_text(encoding="utf-8", errors="replace"), []
    if not is_rendered(script, record.product):
        if not trust:
            raise UsageError(
                _refusal(file, folder.name, f"its {RUN} is not {OURS}, and this host's shell runs it")
            )
        notes.append(f"{RUN} is not {OURS}; it was trusted")
    differs = _repro_differs(folder, record, expected, known)
    if differs and record.digests.get("runtime") != "container" and not trust:
        raise UsageError(
            _refusal(file, folder.name, f"{differs}, and it would be run outside of any container")
        )
    return [*notes, *([differs] if differs else [])]


OURS = "what this version writes"


def _refusal(file: Path, top: str, why: str) -> str:
    archive, folder = shlex.quote(str(file)), shlex.quote(top)
    return (
        f"{file}: {why}: it is not run. Read it, and where you trust it say --trust, or run it by hand:\n"
        f"  tar -xzf {archive} && cd {folder} && sh {RUN}"
    )


def _repro_differs(folder: Path, record: Record, expected: Mapping[str, Any], known: Known | None) -> str:
    """Return how ``repro.py`` stands to what this version makes of the project's repro; nothing: the same."""
    if known is None:
        return f"{SCRIPT} is compared with nothing: its repro is not here in the same state"
    there = (folder / SCRIPT).read_text(encoding="utf-8", errors="replace")
    fresh = render_repro(known, record, expected)
    if there in {fresh, _redacted(fresh)}:
        return ""
    return f"{SCRIPT} is not what this version makes of the repro here"


def _redacted(text: str) -> str:
    from trtmatrix.effects.private import known_secrets

    return redact(text, known_secrets()).text


def render_repro(known: Known, record: Record, expected: Mapping[str, Any]) -> str:
    """Return ``repro.py`` as it is written now; nothing where that cannot be done of this expectation."""
    from trtmatrix.core.inline.script import make_script
    from trtmatrix.core.inline.source import InlineError
    from trtmatrix.effects.inline_sources import read_sources

    case, source = known.cell.case, known.loaded.file.read_text(encoding="utf-8")
    own = {**expected, "params": {**case.params, **case.tolerance}}  # in the repro's order, which JSON loses
    try:
        script: str = make_script(source, read_sources(), record.product, own)
    except (InlineError, AttributeError, KeyError, TypeError, ValueError):
        return ""
    return script
