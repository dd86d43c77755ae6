"""How often is the judge wrong? Made-up engines, right ones and defective ones, judged blind.

``python -m bench.verdicts`` makes at least 2000 outcomes over all repros and precisions, prints the rates,
and fails where a goal is missed; ``--write`` keeps bench/verdicts.json and docs/verdict-rates.md.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):  # before NumPy: a process a core
    os.environ.setdefault(name, "1")

from bench.groups import Group, read_groups  # noqa: E402
from bench.outcomes import RIGHT, Maker, Outcome  # noqa: E402
from bench.rates import render_rates  # noqa: E402
from trtmatrix.judge.factors import FAIL_FACTOR  # noqa: E402
from trtmatrix.judge.judge import Subject, judge_build, read_floors, read_signs  # noqa: E402
from trtmatrix.judge.noise import (  # noqa: E402
    Noise,
    read_calibration,
    read_noise,
)
from trtmatrix.judge.record import Measured  # noqa: E402
from trtmatrix.prepare.noise import measure_members  # noqa: E402
from trtmatrix.suite.model import Product, Verdict  # noqa: E402

HERE = Path(__file__).resolve().parent
FIRST_SEED = 1000
"""Far from the calibration's seeds."""


@dataclass(frozen=True, kw_only=True)
class Judged:
    """An outcome with what the judge said of it.

    ``size``: of what is wrong, in floors; ``error``: of the whole output; ``usable``: the case has a
    signature of just this defect that can tell; ``mute``: the case says nothing, whatever comes out.
    """

    repro: str
    precision: str
    key: str
    seed: int
    label: str
    member: str
    size: float
    error: float
    known: bool
    usable: bool
    mute: bool
    verdict: str
    reason: str


def noise_of(group: Group) -> Noise:
    """Return what the host knows of a case before it runs: the calibration's noise, else its own seed's."""
    from bench.calibrate import defect_sizes

    if group.key in read_calibration().noises:
        return read_calibration().noises[group.key]
    sizes = {name: size for name in group.case.defects if (size := defect_sizes(group, name))}
    shown = {name: max(by_output, key=lambda output: by_output[output]) for name, by_output in sizes.items()}
    outputs, c = measure_members(group.emulate_by, group.params, shown)
    noise = {
        "precision": group.case.precision,
        "key": group.key,
        "defects": sizes,
        "outputs": outputs,
        "c": c,
    }
    found = read_noise(noise)
    if found is None:
        raise ValueError(f"{group.key}: no output was emulated")
    return found


def judge_group(group: Group, seeds: Iterable[int], count: int) -> list[Judged]:
    """Make ``count`` right and as many wrong outcomes for each seed, and judge them."""
    noise = noise_of(group)
    subject = Subject(
        case=group.case, noise=noise, calibration=read_calibration(),
        known=group.loaded.repro.defects, product=Product.TENSORRT,
    )  # fmt: skip
    found = []
    for seed in seeds:
        maker = Maker(group=group, seed=seed, floor=noise.floor)
        found += [_judged(outcome, subject, noise, seed) for outcome in maker.outcomes(count)]
    return found


def _judged(outcome: Outcome, subject: Subject, noise: Noise, seed: int) -> Judged:
    said = judge_build(outcome.build, subject)
    floors = read_floors(outcome.build, subject)
    signs = {sign.name: sign for sign in read_signs(outcome.build, subject)}
    sign = signs.get(outcome.label)
    return Judged(
        repro=noise.key.partition(":")[0], precision=noise.precision, key=noise.key, seed=seed,
        label=outcome.label, member=outcome.member, size=_digits(outcome.floors),
        error=_digits(max(floors.values(), default=math.nan)), known=outcome.known,
        usable=bool(sign and sign.usable), mute=bool(says_nothing(subject, noise)),
        verdict=said.verdict.value, reason=said.reason,
    )  # fmt: skip


def says_nothing(subject: Subject, noise: Noise) -> str:
    """Return why the case can say nothing of any engine, or nothing."""
    nothing = {output: {"c": 0.0, "explained": 0.0} for output in noise.outputs}
    perfect = Measured(
        outputs={output: {"rel_l2": 0.0} for output in noise.outputs}, scalars={},
        signatures=dict.fromkeys(subject.case.defects, nothing),
    )  # fmt: skip
    said = judge_build(perfect, subject)
    return said.reason if said.verdict is Verdict.INVALID else ""


def _digits(value: float) -> float:
    return float(f"{value:.4g}") if math.isfinite(value) else 1e300


def _one(job: tuple[str, tuple[int, ...], int]) -> list[Judged]:
    key, seeds, count = job
    group = next(group for group in read_groups() if group.key == key)
    return judge_group(group, seeds, count)


def missed_goals(judged: Sequence[Judged]) -> list[str]:
    """Return what was promised and did not hold."""
    fail = Verdict.FAIL.value
    spoken = [j for j in judged if not j.mute]
    goals = {
        "a right engine fails": [j for j in judged if j.label == RIGHT and j.verdict == fail],
        "a defect of 10 floors is not found": [
            j for j in spoken if j.label != RIGHT and j.size >= 10 and j.verdict != fail
        ],
        "a known defect of half a floor is not found": [
            j for j in spoken if j.known and j.size >= 0.5 and j.usable and j.verdict != fail
        ],
    }  # fmt: skip
    return [
        f"{goal}: {j.key} seed {j.seed} {j.label} by {j.member}: {j.size:g} floors, {j.verdict} {j.reason}"
        for goal, found in goals.items() for j in found
    ]  # fmt: skip


def main() -> int:
    """Run the benchmark; 1 where a goal was missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.verdicts", description=__doc__)
    parser.add_argument("--seeds", type=int, default=5, help="seeds a group (5)")
    parser.add_argument(
        "--count", type=int, default=3, help="right outcomes a seed, and as many wrong ones (3)"
    )
    parser.add_argument("--only", default="", metavar="WORD", help="groups whose key contains this")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument(
        "--write", action="store_true", help="write bench/verdicts.json and docs/verdict-rates.md"
    )
    args = parser.parse_args()
    seeds = tuple(range(FIRST_SEED, FIRST_SEED + args.seeds))
    jobs = [(group.key, seeds, args.count) for group in read_groups() if args.only in group.key]
    with ProcessPoolExecutor(args.processes) as pool:
        judged = [one for found in pool.map(_one, jobs) for one in found]
    text = render_rates([asdict(one) for one in judged], FAIL_FACTOR)
    if args.write:
        (HERE / "verdicts.json").write_text(json.dumps([asdict(one) for one in judged], indent=0) + "\n")
        (HERE.parent / "docs" / "verdict-rates.md").write_text(text, encoding="utf-8")
    print(text)
    missed = missed_goals(judged)
    print("\n".join(missed) or "all goals were met", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
