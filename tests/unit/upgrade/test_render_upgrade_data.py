"""An upgrade report as JSON: nothing is lost, and the schema that documents it holds."""

from __future__ import annotations

import dataclasses
import json
import math
import types
from enum import Enum
from pathlib import Path
from typing import Any, NoReturn, Union, get_args, get_origin, get_type_hints

import jsonschema
import pytest
from hypothesis import given
from reports import any_upgrade, bare_upgrade, full_upgrade
from shown import PATIENT

from trtmatrix.upgrade.report import SCHEMA, Upgrade, upgrade_json

WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
SHIPPED = json.loads((Path(__file__).parents[3] / "docs" / "upgrade.schema.json").read_text(encoding="utf-8"))


def _refuse(token: str) -> NoReturn:
    raise AssertionError(f"{token} is not JSON")


def parse(upgrade: Upgrade) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(upgrade_json(upgrade), parse_constant=_refuse)
    return data


def rebuild(hint: Any, value: Any) -> Any:
    """Make a value of a type from JSON, by the types alone: no field is named here."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        if value is None:
            return None
        (kind,) = [arg for arg in args if arg is not type(None)]
        return rebuild(kind, value)
    if origin is tuple:
        kinds = [args[0]] * len(value) if args[-1] is Ellipsis else args
        return tuple(rebuild(kind, item) for kind, item in zip(kinds, value, strict=True))
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        hints = get_type_hints(hint)
        assert set(value) == {field.name for field in dataclasses.fields(hint)}
        return hint(**{name: rebuild(hints[name], item) for name, item in value.items()})
    if issubclass(hint, Enum):
        return hint(value)
    if hint is float:
        return WORDS.get(value, value) if isinstance(value, str) else float(value)
    assert type(value) is hint
    return value


def read(upgrade: Upgrade) -> Upgrade:
    data = parse(upgrade)
    assert data.pop("schema") == SCHEMA
    assert data.pop("exit_code") == int(upgrade.exit_code)
    made = rebuild(Upgrade, data)
    assert isinstance(made, Upgrade)
    return made


@pytest.mark.parametrize("upgrade", [full_upgrade(), bare_upgrade()], ids=["full", "bare"])
def test_a_report_comes_back_whole(upgrade: Upgrade) -> None:
    assert repr(read(upgrade)) == repr(upgrade).replace("\\ud800", "\N{REPLACEMENT CHARACTER}")


@PATIENT
@given(any_upgrade())
def test_any_report_comes_back_and_fits_the_schema(upgrade: Upgrade) -> None:
    text = upgrade_json(upgrade)
    text.encode("utf-8")
    jsonschema.validate(json.loads(text), SHIPPED)
    again = read(upgrade)
    assert repr(read(again)) == repr(again)
    assert upgrade_json(again) == text


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
