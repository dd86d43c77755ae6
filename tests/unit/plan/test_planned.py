"""What ``run --plan`` says of sizes, disk and time, in words and as JSON."""

from __future__ import annotations

import json
from dataclasses import replace

from builders import make_cell
from hosts import ENGINE, GB, manifest_of
from images.test_downloads import LOCK, ONE, TWO, built, launch

from trtmatrix.images.downloads import Room, find_downloads, need_here
from trtmatrix.images.rules import Finding, Level
from trtmatrix.run.planned import Planned, PlannedLaunch, plan_json, plan_text
from trtmatrix.suite.plan import Isolation, Keep, Launch

TRIES = (
    launch("10.1.0", ONE),
    launch("10.2.0", TWO),
    launch("10.3.0", ONE),
    built("9.2.0", "trtmatrix/base"),
)


def planned(*launches: Launch, recorded: int = 0, room: float = 100) -> Planned:
    downloads = find_downloads(launches, LOCK, ENGINE)
    return Planned(
        launches=tuple(
            PlannedLaunch(
                launch=each, where="an image", served=0, boards=1, seconds=60.0, command="docker run"
            )
            for each in launches
        ),
        excluded=(), isolation=Isolation.WORKER, need=need_here(downloads, Keep.ALL), downloads=downloads,
        room=Room(path="/d", free=round(room * GB)), recorded=recorded,
    )  # fmt: skip


def test_each_launch_says_what_it_pulls_or_builds() -> None:
    lines = plan_text(planned(*TRIES)).splitlines()
    assert f"  pulls example.org/a@{manifest_of(ONE)}: 7.0 GB in 3 layers" in lines
    assert f"  pulls example.org/a@{manifest_of(TWO)}: 3.0 GB in 1 layer" in lines
    assert "  its image is had for 10.1.0" in lines
    assert "  builds trtmatrix/tensorrt:9.2.0 from wheels" in lines
    assert lines.count("  docker run") == 4


def test_what_the_whole_costs_is_told() -> None:
    lines = plan_text(planned(*TRIES, recorded=3)).splitlines()
    assert "to pull: 2 images, 10.0 GB (layers counted once); to build: 1 image" in lines
    assert "disk: about 28.0 GB while it is unpacked, at least 14.0 GB; 100 GB free at /d" in lines
    rest = "1 without one are taken as long as the others"
    assert lines[-1] == (f"time: about 4 min for 4 cells (by 3 records; {rest}); and the pulls")


def test_what_is_not_known_is_said_to_be_not_known() -> None:
    loose = planned(launch("10.5.0", "example.org/a:5"))
    text = plan_text(replace(loose, room=None))
    assert "its size is not known: it is not locked (nox -s lock -- --update)" in text
    assert "to pull: 1 image, 0.0 GB (layers counted once) and 1 image of unknown size" in text
    assert "how much the engine has is not known here" in text
    assert text.endswith("time: not known for 1 cells: none was run before; and the pulls")
    assert plan_json(loose)["bytes"] is None


def test_json_holds_all_of_it() -> None:
    finding = Finding(level=Level.TROUBLE, what="registry", found="no", rule="registry", prevents="1 cell")
    data = json.loads(json.dumps(plan_json(replace(planned(*TRIES), findings=(finding,)))))
    assert [item["bytes"] for item in data["downloads"]] == [7 * GB, 3 * GB, 0]
    assert data["downloads"][0]["versions"] == ["10.1.0", "10.3.0"]
    assert data["downloads"][0]["layers"][0] == {"digest": "sha256:base", "size": GB}
    assert (data["bytes"], data["seconds"]["cells"]) == (10 * GB, None)
    assert data["launches"][3]["action"] == "build, then run"
    assert data["launches"][0]["cells"] == [str(make_cell(version=TRIES[0].version).id)]
    assert data["findings"][0]["level"] == "!!"
