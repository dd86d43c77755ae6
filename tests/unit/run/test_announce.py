"""What a run says before it starts: how many tests, what is fetched, what is kept; it asks for nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from nowhere import go_nowhere

from trtmatrix.images.downloads import image_words
from trtmatrix.plan.context import ProjectOptions, open_context
from trtmatrix.plan.survey import take_survey
from trtmatrix.run.perform import announce
from trtmatrix.suite.cells import Selection
from trtmatrix.suite.model import NO_GPU
from trtmatrix.suite.plan import Launch, Pull


def test_the_first_run_says_what_it_fetches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    go_nowhere(monkeypatch, tmp_path)
    selection = Selection(versions=("onnxruntime",), repros=("cumsum-axes",))
    context = open_context(ProjectOptions(selection=selection))
    survey = take_survey(context, Pull.NAMED)
    first = announce(context, survey.plan.launches, survey.host.engine)
    assert first == (
        "7 tests to run; to fetch: 1 Python environment, about 210 MB; "
        f"about 248 MB will be kept in {tmp_path}/cache"
    )
    (tmp_path / "cache" / "cases").mkdir(parents=True)
    assert "about 210 MB will be kept" in announce(context, survey.plan.launches, survey.host.engine)


@pytest.mark.parametrize(
    ("versions", "words"),
    [
        (("10.7.0",), "1 image, 10 to 34 GB, 1 to 5 min at 1 Gbit/s"),
        (("10.7.0", "10.8.0"), "2 images, 10 to 34 GB each, 1 to 5 min each at 1 Gbit/s"),
        (("8.5.3.1", "8.6.0"), "2 images to build"), ((), ""),
    ],
)  # fmt: skip
def test_images_that_are_not_here_are_counted_with_their_size(
    versions: tuple[str, ...], words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    go_nowhere(monkeypatch, tmp_path)
    context = open_context(ProjectOptions())
    launches = [
        Launch(version=version, gpu=NO_GPU, cells=(), pull=True)
        for version in context.matrix.versions if version.name in versions
    ]  # fmt: skip
    assert image_words(launches, context.lock, take_survey(context, Pull.ALL).host.engine) == words
