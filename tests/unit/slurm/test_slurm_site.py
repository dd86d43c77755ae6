"""slurm.yaml: its mistakes, its examples, and the page that tells of it."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path

import pytest

from trtmatrix.common.errors import ConfigError
from trtmatrix.slurm import sitefile
from trtmatrix.slurm.sitefile import EXAMPLE, parse_site
from trtmatrix.suite.keys import keys_schema

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGE = (DOCS / "slurm.md").read_text(encoding="utf-8")


def mistakes(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_site(text)
    return str(caught.value)


def test_the_example_is_right_and_the_one_of_the_page() -> None:
    site = parse_site(EXAMPLE)
    assert site.gpu("nvidia-h200").partition == "gpu"
    assert f"```yaml\n{EXAMPLE}```\n" in PAGE


@pytest.mark.parametrize("file", sorted((DOCS / "examples" / "slurm").glob("*.yaml")), ids=lambda f: f.stem)
def test_each_whole_example_is_right(file: Path) -> None:
    assert parse_site(file.read_text(encoding="utf-8"), str(file)).runtime == file.stem


def test_every_mistake_is_told_at_once_with_its_line() -> None:
    told = mistakes(
        "schema: 1\nshared: shared\nruntime: docker\ngpus:\n"
        "  - {name: NVIDIA L4, gres: 'gpu:2', parttion: a}\n"
        "limits: {memory: 36}\nimport_minutes: 3\n"
    )
    wanted = [(2, "absolute path"), (5, "asks not for one GPU"), (5, "perhaps you meant 'partition'")]
    for line, words in (*wanted, (6, "with a unit"), (7, "unknown key")):
        assert re.search(rf"^slurm.yaml:{line}: .*{re.escape(words)}", told, re.MULTILINE), (words, told)


@pytest.mark.parametrize(
    ("gres", "told"),
    [
        ("gpu:2080ti", "asks not for one GPU"), ("gpu:h200:2", "asks not for one GPU"),
        ("gpu:a100_1g.5gb:1", "part of a GPU"),
        ("gpu", ""),("gpu:3090:1", ""), ("gpu:l4:1,license:2", ""),
    ],
)  # fmt: skip
def test_gres_asks_for_one_whole_gpu(gres: str, told: str) -> None:
    text = EXAMPLE.replace("gpu:h200:1", gres)
    assert told in mistakes(text) if told else parse_site(text)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("options: ['--array=0']", "--array: this is set for each job"), ("options: ['-n2']", "this is set"),
        ("options: [job.sh]", "take 'job.sh' for its script"),
        ("options: ['--qos long']", "is one word to sbatch"), ("access: cdi", "takes no access"),
        ("images: {'10.7.0': /images/a.tar}", "nor the path of a .sqsh file"),
        ("setup: ['']", "setup[0]"), ("scratch: local", "absolute path"), ("runtime: podman", "runtime"),
        ("options: ['--export=NIL', '--nice=100']", ""), ("scratch: /local/$SLURM_JOB_ID", ""),
        ("images: {'10.7.0': 'a/b:c', '10.8.0': /images/a.sqsh}", ""), ("setup: [module load x]", ""),
    ],
)  # fmt: skip
def test_a_key_that_undoes_or_lacks_something_is_refused(line: str, told: str) -> None:
    key = line.partition(":")[0]
    text = "".join(each for each in EXAMPLE.splitlines(keepends=True) if not each.startswith(f"{key}:"))
    assert told in mistakes(f"{text}{line}\n") if told else parse_site(f"{text}{line}\n")


def test_the_page_has_every_key_and_the_schema_is_the_one_that_is_shipped() -> None:
    models = (sitefile.Site, sitefile.SiteGpu, sitefile.Limits)
    names = {field.name for model in models for field in fields(model)} - {"schema"}
    assert [name for name in sorted(names) if f"`{name}`" not in PAGE] == []
    assert json.loads((DOCS / "slurm.schema.json").read_text()) | {"$schema": ""} == {
        **keys_schema(sitefile.Site), "$schema": "",
    }  # fmt: skip
