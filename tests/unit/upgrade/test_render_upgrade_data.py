"""An upgrade report as JSON: strict, and the schema that documents it holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

import jsonschema
import pytest
from hypothesis import given
from reports import any_upgrade, bare_upgrade, full_upgrade
from shown import PATIENT

from trtmatrix.upgrade.report import SCHEMA, Upgrade, upgrade_json

SHIPPED = json.loads((Path(__file__).parents[3] / "docs" / "upgrade.schema.json").read_text(encoding="utf-8"))


def _refuse(token: str) -> NoReturn:
    raise AssertionError(f"{token} is not JSON")


def parse(upgrade: Upgrade) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(upgrade_json(upgrade), parse_constant=_refuse)
    return data


def test_what_a_report_holds_is_in_its_data() -> None:
    upgrade = full_upgrade()
    data = parse(upgrade)
    assert (data["schema"], data["exit_code"], data["decision"]) == (SCHEMA, 11, "don't")
    assert data["performance"][2]["after"] == {"median": "NaN", "low": 0.5, "high": "Infinity", "count": 3}
    assert data["performance"][1]["why_not"] == "another driver"
    assert data["findings"][1]["cases"][0]["after"]["word"] == "FLAKY 1/4"
    assert "\N{REPLACEMENT CHARACTER}" in data["reasons"][-1]["text"], "half a character"
    assert parse(bare_upgrade())["model"] is None


@PATIENT
@given(any_upgrade())
def test_any_report_fits_the_schema(upgrade: Upgrade) -> None:
    upgrade_json(upgrade).encode("utf-8")
    jsonschema.validate(parse(upgrade), SHIPPED)


def test_the_schema_refuses_what_it_does_not_know() -> None:
    data = parse(full_upgrade())
    jsonschema.validate(data, SHIPPED)
    for broken in (
        {**data, "more": 1},
        {**data, "decision": "maybe"},
        {k: v for k, v in data.items() if k != "api"},
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(broken, SHIPPED)
