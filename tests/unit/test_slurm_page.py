"""docs/slurm.md has every rule of a site and every key of its file, and the example that errors show."""

from __future__ import annotations

import os
import re
from pathlib import Path

from test_hosts_page import HEAD, row, rows_of

from trtmatrix.core.slurm import sitekeys
from trtmatrix.core.slurm.checks import EPILOG
from trtmatrix.core.slurm.rules import SITE_RULES
from trtmatrix.core.slurm.sitefile import EXAMPLE
from trtmatrix.core.slurm.words import CONTAINER_LABEL

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "slurm.md"
RENEW = "UPDATE_GOLDEN=1 python -m pytest tests/unit/test_slurm_page.py"


def test_the_table_is_that_of_the_rules() -> None:
    text = PAGE.read_text(encoding="utf-8")
    wanted = [*HEAD, *map(row, SITE_RULES.values())]
    if os.environ.get("UPDATE_GOLDEN") == "1":
        text = text.replace("\n".join(rows_of(text)), "\n".join(wanted), 1)
        PAGE.write_text(text, encoding="utf-8")
    assert list(rows_of(text)) == wanted, f"renew it: {RENEW}"


def test_the_example_is_the_one_that_errors_show() -> None:
    assert f"```yaml\n{EXAMPLE}```\n" in PAGE.read_text(encoding="utf-8")


def test_each_key_is_told() -> None:
    text = PAGE.read_text(encoding="utf-8")
    models = (sitekeys.Site, sitekeys.SiteGpu, sitekeys.Limits)
    names = {field.alias or name for model in models for name, field in model.model_fields.items()} - {
        "schema"
    }
    assert [name for name in names if f"`{name}`" not in text] == []


def test_each_default_of_the_limits_is_told() -> None:
    text = PAGE.read_text(encoding="utf-8")
    limits = sitekeys.Limits()
    for name in ("minutes", "running", "tasks", "cpus", "import_minutes"):
        assert re.search(rf"`{name}` \({getattr(limits, name)}\)", text), name
    assert f"`memory` (`{limits.memory >> 30}g`)" in text


def test_the_epilog_is_where_the_page_and_doctor_say() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert EPILOG in text
    assert CONTAINER_LABEL in text
    assert CONTAINER_LABEL in (ROOT / EPILOG).read_text(encoding="utf-8")


def test_what_the_remedies_point_to_is_there() -> None:
    assert "\n## What a killed job leaves\n" in PAGE.read_text(encoding="utf-8")
