"""What two versions ask of a GPU and its driver, and what outlives a move from one to the other."""

from dataclasses import replace
from typing import Any

import pytest
from builders import H200, make_version

from trtmatrix.suite.matrix import Matrix, Source, Version
from trtmatrix.suite.model import Gpu
from trtmatrix.upgrade.facts import make_engines, make_hardware
from trtmatrix.upgrade.report import FactLine, Weight

RULE = {"known": "read", "source": "notes"}
FROM = make_version("10.4.0", compute={"min": "7.0", "max": "9.0", **RULE}, driver={"least": "560", **RULE})
DRIVER = {"least": "570.86.10", "datacenter": ["535.86", "545.23"], **RULE}
TO = make_version("10.8.0", compute={"min": "7.5", "max": "12.0", **RULE}, driver=DRIVER)
MATRIX = Matrix(
    schema=1, sources={"notes": Source(title="release notes", url="https://example.org")}, versions=(FROM, TO)
)
V100 = Gpu(slug="v100", name="NVIDIA V100", compute="7.0")


def facts(gpu: Gpu, before: Version = FROM, after: Version = TO) -> list[FactLine]:
    return list(make_hardware(before, after, gpu, MATRIX))


def line_of(topic: str, lines: list[FactLine]) -> FactLine:
    return next(line for line in lines if line.topic == topic)


@pytest.mark.parametrize(
    ("compute", "weight", "words"),
    [
        ("8.9", Weight.NOTE, "supports this GPU (8.9)"),
        ("7.0", Weight.AGAINST, "no longer supports this GPU (7.0)"),
        ("6.1", Weight.AGAINST, "does not support this GPU (6.1)"),
        (None, Weight.NOTE, "nvidia-smi --query-gpu=compute_cap"),
    ],
)
def test_compute_capability(compute: str | None, weight: Weight, words: str) -> None:
    line = line_of("GPU", facts(replace(V100, compute=compute)))
    assert line.weight is weight
    assert words in line.text
    assert (line.known, line.sources[0].url) == ("read", "https://example.org")


@pytest.mark.parametrize(
    ("gpu", "weight", "words"),
    [
        (replace(H200, driver="580.1"), Weight.NOTE, "here is 580.1"),
        (replace(H200, driver="570.86.09", datacenter=False), Weight.AGAINST, "update the driver"),
        (replace(H200, driver="535.104"), Weight.NOTE, "does on a data-centre GPU"),
        (replace(H200, driver="535.104", datacenter=False), Weight.AGAINST, "535.86+, 545.23+"),
        (replace(H200, driver=None), Weight.NOTE, "nvidia-smi --query-gpu=driver_version"),
        (replace(H200, index=None, driver="580.1"), Weight.NOTE, "records here were made with 580.1"),
        (V100, Weight.NOTE, "Yours is not known here"),
    ],
)
def test_driver(gpu: Gpu, weight: Weight, words: str) -> None:
    line = line_of("driver", facts(gpu))
    assert (line.weight, words in line.text) == (weight, True), line.text
    assert "10.8.0 needs driver 570.86.10 or later (10.4.0: 560)" in line.text


def test_what_the_images_differ_in_is_told_with_the_worse_known_fact() -> None:
    before = make_version("8.5.3.1", cuda="11.8", python="3.10", torch="2.2.0")
    recalled = {"value": "3.12", "known": "recalled", "source": "notes"}
    after = make_version("10.8.0", cuda="12.8.0", python=recalled, torch_tensorrt="2.6.0")
    lines = [line for line in facts(H200, before, after) if line.topic == "image"]
    assert [(line.text.split(":")[0], line.known) for line in lines] == [
        ("CUDA 11.8 → 12.8.0", "read"), ("Python 3.10 → 3.12", "recalled"), ("torch 2.2.0 → none", "read"),
        ("Torch-TensorRT none → 2.6.0", "read"),
    ]  # fmt: skip
    assert "must be rebuilt" in lines[0].text
    assert not [line for line in facts(H200, after, after) if line.topic == "image"]


@pytest.mark.parametrize(
    ("before", "after", "plans", "plugins"),
    [
        ("10.7.0", "10.8.0", "they load", "should load"),
        ("8.6.1", "10.8.0", "they load", "must be built again"),
        ("8.6.1", "9.3.0", "disagree on 8 → 9", "must be built again"),
        ("8.5.3.1", "8.6.0", "8.5.3.1 is older", "should load"),
        ("10.8.0", "10.7.0", "do not help on the way down", "build again"),
    ],
)
def test_what_outlives_a_move(before: str, after: str, plans: str, plugins: str) -> None:
    made = make_engines(make_version(before), make_version(after))
    lines: dict[str, Any] = {line.topic: line for line in made}
    assert f"plan files of {before} must be built again" in lines["plans"].text
    assert plans in lines["version-compatible plans"].text
    assert plugins in lines["plugin libraries"].text
    assert all(line.sources or line.known == "recalled" for line in lines.values())
    assert all(line.weight is Weight.NOTE for line in lines.values())
