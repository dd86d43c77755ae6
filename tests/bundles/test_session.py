"""A session over a real container: it starts once, again after its death, and is gone on every way out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import docker

from tests.bundles.deep import write_deep
from tests.bundles.started import WRONG, columns, count_starts, left_over
from tests.models import images
from tests.models.conftest import REPOSITORY, Project
from trtmatrix.model.own_model import ModelOptions, model_repro, open_model
from trtmatrix.plan.context import Context, ProjectOptions, open_context
from trtmatrix.run.session import Session
from trtmatrix.suite.model import Cause, Verdict
from trtmatrix.suite.repro_files import LoadedRepro

SLEEPS = "\n\ndef InferenceSession(*args, **kwargs):\n    import time\n\n    time.sleep(600)\n"


def opened(folder: Path, image: str) -> tuple[Context, list[LoadedRepro]]:
    """Return a project's context and three models that differ by their inputs."""
    project = Project(folder, columns=columns(image))
    model = write_deep(folder / "deep", samples=3)
    context = open_context(
        ProjectOptions(
            matrix=folder / "matrix.yaml", repros=REPOSITORY / "repros", results=project.results,
            cache=folder / "cache",
        )
    )  # fmt: skip
    found = []
    for number in range(3):
        inputs = model.parent / "inputs" / f"{number}.npz"
        mine = open_model(context, ModelOptions(model=model, inputs=inputs, precision="fp32"))
        found.append(model_repro(mine))
    return replace(mine, repros={found[0].repro.id: found[0]}), found


def test_trials_share_a_container_and_a_process_and_the_next_one_survives_its_death(tmp_path: Path) -> None:
    context, (first, second, third) = opened(tmp_path, images.make_defective())
    with count_starts() as started, Session(context, WRONG, "") as session:
        entries = [session.ask(first), session.ask(second)]
        workers = [entry.record.worker for entry in entries if entry.record]
        (name,) = left_over()
        docker.from_env().containers.get(name).kill()
        entries.append(session.ask(third))
        again = session.ask(first)
    assert [entry.outcome and entry.outcome.verdict for entry in entries] == [Verdict.FAIL] * 3
    assert [(worker["number"], worker["position"]) for worker in workers] == [(0, 0), (0, 1)]
    assert again.record is not None
    assert entries[0].record is not None
    assert again.record.run == entries[0].record.run  # a record that stands is not made again
    assert started == [WRONG, WRONG]


def test_a_trial_that_hangs_ends_at_its_time_limit_and_the_next_one_is_run(tmp_path: Path) -> None:
    context, (first, second, _) = opened(
        tmp_path, images.make_spoilt("trtmatrix/test-sleeper:latest", SLEEPS)
    )
    hasty = [
        replace(loaded, repro=replace(loaded.repro, cases=(replace(loaded.repro.cases[0], seconds=1.0),)))
        for loaded in (first, second)
    ]
    with count_starts() as started, Session(context, WRONG, "") as session:
        causes = [entry.outcome.cause for entry in map(session.ask, hasty) if entry.outcome]
    assert causes == [Cause.TIME_OUT] * 2
    assert started == [WRONG]
