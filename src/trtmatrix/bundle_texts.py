"""The texts of an archive, written once it is known which other files are in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from trtmatrix.bundle_gather import Gathered
from trtmatrix.bundle_parts import external_files
from trtmatrix.core.bundle import facts
from trtmatrix.core.bundle.commands import (
    POLYGRAPHY_NEEDS,
    TRTEXEC_NEEDS,
    command_file,
    polygraphy_command,
    trtexec_command,
)
from trtmatrix.core.bundle.environment import environment_json
from trtmatrix.core.bundle.facts import Failure
from trtmatrix.core.bundle.loader_script import data_loader_script
from trtmatrix.core.bundle.render_issue import render_issue
from trtmatrix.core.bundle.run_script import render_reproduce
from trtmatrix.core.jsontext import to_json
from trtmatrix.effects.packing import Choice, Part

FILES = (facts.MODEL, "check.onnx", facts.INPUTS, facts.REFERENCE, facts.DEFECTS, facts.EXTRA)
"""Files whose digests expected.json holds, so that repro.py can tell that they are others."""

RUNS, RUNS_BARE = "one docker run, with the image by digest", "runs repro.py, checks the files first"


def text_parts(gathered: Gathered, choice: Choice) -> list[Part]:
    """Return the texts of an archive that holds what was chosen."""
    failure = replace(
        gathered.failure, left_out=choice.left_out,
        notes=(*gathered.failure.notes, *choice.told),
    )  # fmt: skip
    expected = make_expected_json(gathered, choice)
    texts = {
        facts.SCRIPT: (make_repro(gathered, expected), "the repro as one script, with what it needs inlined"),
        facts.EXPECTED: (to_json(expected), "what is to come out, and the rules of right and wrong"),
        facts.RUN: (render_reproduce(failure), RUNS if failure.image else RUNS_BARE),
        facts.ENVIRONMENT: (environment_json(failure), "driver, clocks, image, versions"),
        **_other_tools(failure),
    }
    names = (*(item.item.name for item in choice.kept), *texts, facts.ISSUE, facts.SUMS)
    issue = render_issue(replace(failure, files=tuple(sorted(names))))
    texts[facts.ISSUE] = (issue, "the issue: upstream's form, filled")
    return [Part(name=name, text=text, what=what) for name, (text, what) in texts.items()]


def _other_tools(failure: Failure) -> dict[str, tuple[str, str]]:
    """Return the command lines of other tools, of those that can show the failure."""
    polygraphy = command_file(failure, polygraphy_command(failure), POLYGRAPHY_NEEDS)
    trtexec = command_file(failure, trtexec_command(failure), TRTEXEC_NEEDS)
    loader = data_loader_script(failure.recipe) if failure.recipe and (polygraphy or trtexec) else ""
    texts = {
        facts.POLYGRAPHY: (polygraphy, "the same by polygraphy"),
        facts.TRTEXEC: (trtexec, "the same by trtexec"),
        facts.LOADER: (loader, "inputs and reference for these two"),
    }  # fmt: skip
    return {name: pair for name, pair in texts.items() if pair[0]}


def make_expected_json(gathered: Gathered, choice: Choice) -> dict[str, Any]:
    """Return ``expected.json``."""
    from trtmatrix.core.bundle.expected import make_expected

    found = gathered.found
    digests = {
        item.item.name: item.item.sha256 for item in choice.kept
        if item.item.name in FILES or item.item.name.startswith(f"{facts.OTHERS}/")
        or item.item.name in external_files(gathered.files)
    }  # fmt: skip
    expected: dict[str, Any] = make_expected(found.entry, found.calibration, digests, gathered.manner)
    return expected


def make_repro(gathered: Gathered, expected: Mapping[str, Any]) -> str:
    """Return ``repro.py``."""
    from trtmatrix.core.inline.script import make_script
    from trtmatrix.effects.inline_sources import read_sources

    source = gathered.found.loaded.file.read_text(encoding="utf-8")
    script: str = make_script(source, read_sources(), gathered.failure.product, expected)
    return script
