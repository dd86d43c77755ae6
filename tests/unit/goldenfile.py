"""Compares a text with the accepted one, and says how to accept a change."""

import difflib
import os
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "golden"


def check_golden(name: str, text: str, folder: Path = FOLDER) -> None:
    """Fail with a diff unless ``golden/<name>`` holds this text; UPDATE_GOLDEN=1 writes it."""
    file = folder / name
    if os.environ.get("UPDATE_GOLDEN") == "1":
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    accepted = file.read_text(encoding="utf-8") if file.exists() else ""
    if text == accepted:
        return
    lines = difflib.unified_diff(
        accepted.splitlines(), text.splitlines(), f"golden/{name}", "rendered now", lineterm=""
    )
    test = os.environ.get("PYTEST_CURRENT_TEST", "tests/unit").split(" ")[0]
    remedy = f"Accept a change that is meant, and read it in git:\n  UPDATE_GOLDEN=1 pytest {test}"
    pytest.fail("\n".join((*lines, "", remedy)), pytrace=False)
