"""Engine plans that cells share: how many are kept, and what is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from trtprobe import plans
from trtprobe.files import write_json
from trtprobe.job import Job, Limits
from trtprobe.plans import Plans

FACTS = {"build_seconds": 1.5, "engine_bytes": 4}
PLAN = memoryview(b"plan")


def test_no_more_is_kept_than_there_is_room_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "ALL", 9)
    for number, name in enumerate("abc"):
        Plans(tmp_path / str(number), "r/a").keep(name, PLAN, FACTS)
    assert [Plans(tmp_path / "9").find(name) is not None for name in "abc"] == [True, True, False]


def test_a_plan_that_cannot_be_kept_costs_no_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    Plans(tmp_path / "file" / "0", "r/a").keep("a", PLAN, FACTS)
    monkeypatch.setattr(plans, "LARGEST", 3)
    large = Plans(tmp_path / "0", "r/a")
    large.keep("a", PLAN, FACTS)
    assert large.find("a") is None


def test_plans_do_not_count_as_a_cell_s_output(tmp_path: Path) -> None:
    for folder in ("job", "out/0"):
        (tmp_path / folder).mkdir(parents=True)
    write_json(tmp_path / "job" / "job.json", {"product": "tensorrt", "output_bytes": 100_000})
    (tmp_path / "job" / "heartbeat").touch()
    limits = Limits(Job(tmp_path / "job"), tmp_path / "out", 60.0)
    assert limits.check() is None
    plan = memoryview(bytes(1 << 20))
    Plans(tmp_path / "out" / plans.FOLDER / "0", "r/a").keep("a", plan, FACTS)
    assert limits.check() is None
    (tmp_path / "out" / "0" / "y.npy").write_bytes(plan)
    assert limits.check() is not None
