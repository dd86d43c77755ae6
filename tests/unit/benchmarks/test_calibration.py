"""The calibration that is installed is the present code's, and holds what the ensemble gives."""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from bench.calibrate import SEEDS, TARGET, calibrate, is_current
from bench.groups import Group, read_groups
from judge.test_published import entries

from trtmatrix.judge.factors import VALID_BOUND, VALID_FLOORS
from trtmatrix.judge.noise import SCHEMA, precision_of, read_calibration
from trtmatrix.judge.record import RAN
from trtmatrix.prepare.noise import calibrated_noise
from trtmatrix.suite.model import Verdict
from trtmatrix.suite.repro_files import LoadedRepro

REMEDY = "the calibration is not the present code's: run `python -m bench.calibrate --changed`"
SCALED = "controls:graph=wrong-scale precision=tf32"
SMALL = "clip-after-linear:form=matmul low=0.0 outs=128 precision=tf32 rows=32 width=256"
"""A group whose seeds are measured in less than a second."""

Entry = Mapping[str, Any]


@cache
def groups() -> dict[str, Group]:
    return {group.key: group for group in read_groups()}


@cache
def installed() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(TARGET.read_text(encoding="utf-8"))
    return data


def numbers(entry: Entry) -> Iterator[tuple[str, float]]:
    """Yield each member's largest error and largest c of an entry, by where it stands."""
    for what, by_name in (("error", entry["noise"]["outputs"]), ("c", entry["envelope"])):
        for name, members in by_name.items():
            for member, value in members.items():
                yield f"{what} {name} {member}", value


def allowance(where: str) -> float:
    """Return how much larger a number may be on another CPU: sums in float32 follow its library's order."""
    return 2.0 if precision_of(where.rpartition(" ")[2]) == "fp32" else 1.02


def test_it_holds_the_groups_of_the_benchmark_and_no_others() -> None:
    assert set(installed()["cases"]) == set(groups()), REMEDY
    assert all(is_current(group, installed()["cases"]) for group in groups().values()), REMEDY
    assert (installed()["schema"], installed()["seeds"]) == (SCHEMA, len(SEEDS))
    assert len(SEEDS) >= 20


def test_all_seeds_give_the_largest() -> None:
    stored, found = installed()["cases"][SMALL], calibrate(groups()[SMALL])
    limits, now = dict(numbers(stored)), dict(numbers(found))
    far = [
        where for where, value in now.items()
        if not limits[where] / allowance(where) <= value <= limits[where] * allowance(where)
    ]  # fmt: skip
    assert (far, now.keys()) == ([], limits.keys())
    for what in ("error", "c"):
        assert any(now[where] == pytest.approx(limits[where], rel=1e-3, abs=0)
                   for where in now if where.startswith(what) and now[where])  # fmt: skip


def rewritten(tmp_path: Path, more: str) -> LoadedRepro:
    """Return the controls with code added to their file."""
    file = tmp_path / "controls.py"
    file.write_text(groups()[SCALED].loaded.file.read_text(encoding="utf-8") + more, encoding="utf-8")
    return replace(groups()[SCALED].loaded, file=file)


def test_an_entry_counts_for_the_code_that_made_it_alone(tmp_path: Path) -> None:
    case = groups()[SCALED].case
    noise = calibrated_noise(groups()[SCALED].loaded, case, ["lost-scale"])
    assert noise is not None
    assert noise["outputs"] == installed()["cases"][SCALED]["noise"]["outputs"]
    assert noise["c"]["lost-scale"] == installed()["cases"][SCALED]["envelope"]["lost-scale"]
    assert calibrated_noise(rewritten(tmp_path, "\n# a comment\n"), case, ["lost-scale"]) == noise
    assert calibrated_noise(rewritten(tmp_path, "\nOTHER = 1\n"), case, ["lost-scale"]) is None


def test_each_known_defect_of_each_case_shows_by_its_size_or_its_shape() -> None:
    """But for one case, whose inputs are so large that it can say nothing, as its repro expects."""
    calibration = read_calibration()
    hidden = [
        (key, defect)
        for key, noise in calibration.noises.items() for defect in noise.defects
        if noise.size(defect)[1] < VALID_FLOORS and calibration.bound(noise, defect) > VALID_BOUND
    ]  # fmt: skip
    assert [(key.split()[0], defect) for key, defect in hidden] == [
        ("sdpa-scale:amplitude=1000.0", "lost-scale")
    ]


def test_a_calibrated_floor_is_what_right_engines_show() -> None:
    """Over all published engines that are right, the median error of a repro's outputs is about one floor.

    Products of one row (gemv-pair) have half of it: their kernels add up in float32 in FP16 too.
    """
    noises, shown = read_calibration().noises, defaultdict[str, list[float]](list)
    for entry in entries():
        noise = noises.get(entry.cell.case.noise_key)
        if noise and noise.precision != "fp16-flag" and entry.expected is Verdict.PASS:
            for record in (record for record in entry.records if record.ended == RAN):
                for output, values in ((o, v) for build in record.builds for o, v in build.outputs.items()):
                    # A builder may choose a finer precision than it may use: float32 kernels under TF32.
                    if (floor := noise.floor(output)) and values["rel_l2"] > 0.01 * floor:
                        shown[entry.cell.repro.id].append(values["rel_l2"] / floor)
    medians = {repro: median(quotients) for repro, quotients in shown.items()}
    assert {repro: m for repro, m in medians.items() if not 0.4 < m < 1.3} == {}
    assert len(medians) >= 6
