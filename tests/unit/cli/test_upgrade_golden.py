"""Golden reports from the shipped records and facts: each was read by eye as one who must decide."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from goldenfile import check_golden
from nowhere import go_nowhere

from trtmatrix.cli import entry as cli

MOVES = [
    ("8.6.1", "9.3.0", "L4", 11),
    ("10.0.1.6", "10.7.0", "L4", 11),
    ("10.7.0", "10.8.0", "L4", 12),
    ("8.5.3.1", "8.6.0", "H200", 12),
    ("8.6.0", "8.5.3.1", "H200", 11),
    ("10.4.0", "10.7.0", "V100", 11),
    ("tensorrt-rtx-1.4", "tensorrt-rtx-1.7", "", 12),
]


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    go_nowhere(monkeypatch, tmp_path)


@pytest.mark.parametrize(("before", "after", "gpu", "code"), MOVES)
def test_report(before: str, after: str, gpu: str, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["upgrade", "--full", "--from", before, "--to", after, *(["--gpu", gpu] if gpu else [])]
    assert cli.run(words) == code
    check(f"{before}-to-{after}{f'-{gpu}' if gpu else ''}", capsys)


def check(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Compare what was printed, without what changes with every new release of the API's data."""
    text = capsys.readouterr().out
    assert not re.search(r"/(tmp|home|root|work)/", text)
    assert all(len(line) <= 100 for line in text.splitlines() if "https://" not in line)
    check_golden(f"upgrade/{name.lower()}.txt", text)
