"""What a record says may stand in a table that somebody pastes into an issue: it is no markup there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from merges import make_place

from trtmatrix.cli import entry as cli

MARKUP = "|<img src=x>|`|<img src=y>|**b**|[c](http://d)|@someone|\n\n# x"


@pytest.mark.parametrize("field", ["remark", "detail"])
def test_no_word_of_a_record_is_markup(
    field: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = make_place(tmp_path / "place", capsys)
    measured = {"outputs": {"y": {"count": 12, "sum_abs": 1.0}}, "scalars": {}}
    if field == "remark":
        place.measure(measurements={**measured, "remark": MARKUP})
    else:
        place.measure(ended="crashed", detail=MARKUP)
    cli.run(place.words("table", "--full", "--offline", f"--output={tmp_path / 'table.md'}"))
    text = (tmp_path / "table.md").read_text()
    assert "img src" in text
    outside = re.sub(r"\\.", "", text)  # what is escaped is text
    outside = re.sub(r"`[^`\n]*`", "", outside)  # as is what stands in a code span
    for raw in ("<img", "**b", "](http://d)", "\n# x"):
        assert raw not in outside, text
    widths = {line.count("|") for line in text.splitlines() if line.startswith("|")}
    assert len(widths) == 1
