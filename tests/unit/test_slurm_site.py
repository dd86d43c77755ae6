"""slurm.yaml: what is right reads as written, no text is a crash, and where the file is looked for."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from trtmatrix import cli
from trtmatrix.core.errors import ConfigError, ExitCode, UsageError
from trtmatrix.core.plan import GpuAccess
from trtmatrix.core.slurm import site, sitekeys
from trtmatrix.core.slurm.site import NodeRuntime, Site, SiteGpu, SiteLimits
from trtmatrix.core.slurm.sitefile import EXAMPLE, parse_site
from trtmatrix.effects.site import read_site

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "docs" / "examples" / "slurm").glob("*.yaml"))
FULL = """\
schema: 1
shared: /shared/me/with blanks/
runtime: docker
gpus:
  - name: "NVIDIA H200"
    gres: "gpu:h200:1"
    constraint: "hopper&nvme"
    partition: a,b
    account: acc
    qos: high
    options: ["--reservation=x", "--nice", "5"]
access: nodes
driver_folder: /opt/driver
limits: {minutes: 30, running: 2, tasks: 10, cpus: 3, memory: 4000m, import_minutes: 15}
setup:
  - module load cuda
images: {10.10: "example.org/a/tensorrt:10", "8.6.0": /images/trt.tar}
options: ["--account=all"]
import_options: ["--partition=cpu"]
scratch: /local/$SLURM_JOB_ID/
"""


def replaced(old: str, new: str) -> str:
    assert FULL.count(old) == 1, old
    return FULL.replace(old, new)


def test_a_full_file_reads_as_written() -> None:
    assert parse_site(FULL, "s.yaml", ["10.10", "8.6.0"]) == Site(
        shared="/shared/me/with blanks", runtime=NodeRuntime.DOCKER,
        gpus=(
            SiteGpu(
                name="NVIDIA H200", gres="gpu:h200:1", constraint="hopper&nvme", partition="a,b",
                account="acc", qos="high", options=("--reservation=x", "--nice", "5"),
            ),
        ),
        access=GpuAccess.NODES, driver_folder="/opt/driver",
        limits=SiteLimits(minutes=30, running=2, tasks=10, cpus=3, memory=4000 << 20, import_minutes=15),
        setup=("module load cuda",), scratch="/local/$SLURM_JOB_ID",
        images={"10.10": "example.org/a/tensorrt:10", "8.6.0": "/images/trt.tar"},
        options=("--account=all",), import_options=("--partition=cpu",), file="s.yaml",
    )  # fmt: skip


def test_what_is_left_out_is_as_the_types_have_it() -> None:
    read = parse_site(EXAMPLE)
    gpu = SiteGpu(name="NVIDIA H200", gres="gpu:h200:1", partition="gpu", account="my-account")
    assert read == Site(
        shared="/shared/me/trtmatrix", runtime=NodeRuntime.PYXIS, gpus=(gpu,), file="slurm.yaml"
    )


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_read_and_fit_the_schema(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert parse_site(text, path.name).runtime.value == path.stem
    schema = json.loads((ROOT / "docs" / "slurm.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(yaml.safe_load(text))


def test_there_is_an_example_of_each_runtime() -> None:
    assert [path.stem for path in EXAMPLES] == sorted(each.value for each in NodeRuntime)


@pytest.mark.parametrize(
    "pair", [(sitekeys.Site, Site), (sitekeys.SiteGpu, SiteGpu), (sitekeys.Limits, SiteLimits)]
)
def test_each_field_has_a_key(pair: tuple[Any, Any]) -> None:
    model, plain = pair
    keys = {field.alias or name for name, field in model.model_fields.items()} - {"schema"}
    assert keys == {field.name for field in fields(plain)} - {"file"}


@pytest.mark.parametrize(
    "gres",
    ["gpu", "gpu:1", "gpu:h200", "gpu:3090:1", "gpu:2080ti:1", "gpu:l4:1,nvme:2"],
)
def test_whatever_asks_for_one_gpu_is_taken(gres: str) -> None:
    assert parse_site(replaced("gpu:h200:1", gres)).gpus[0].gres == gres


@given(st.text())
def test_no_text_is_a_crash(text: str) -> None:
    try:
        parse_site(text)
    except ConfigError as error:
        assert error.problems  # noqa: PT017 - a text that happens to be right is no failure


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from([*sitekeys.Site.model_fields, "schema", "name", "memory"]), inner
            )
        ),
    )
)
def test_no_shape_is_a_crash(value: Any) -> None:
    with pytest.raises(ConfigError):
        parse_site(json.dumps(value))


def test_the_committed_schema_is_the_generated_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["schema", "--site"]) == 0
    text = capsys.readouterr().out
    committed = (ROOT / "docs" / "slurm.schema.json").read_text(encoding="utf-8")
    assert text == committed, "renew it: python -m trtmatrix schema --site > docs/slurm.schema.json"


def test_the_file_is_the_named_one_else_the_environments_else_beside_the_matrix(tmp_path: Path) -> None:
    for name in ("a", "b", "slurm"):
        (tmp_path / f"{name}.yaml").write_text(EXAMPLE.replace("gpu:h200:1", f"gpu:{name}:1"))
    told = {"TRTMATRIX_SITE": str(tmp_path / "b.yaml")}

    def gres(named: Path | None, environment: dict[str, str]) -> str:
        return read_site(named, tmp_path, environment=environment).gpus[0].gres

    assert gres(tmp_path / "a.yaml", told) == "gpu:a:1"
    assert gres(None, told) == "gpu:b:1"
    assert gres(None, {}) == "gpu:slurm:1"


@pytest.mark.parametrize(("named", "environment", "by"), [
    (None, {}, "--executor slurm"), ("x.yaml", {}, "--site"),
    (None, {"TRTMATRIX_SITE": "x.yaml"}, "TRTMATRIX_SITE"),
])  # fmt: skip
def test_a_missing_file_is_told_with_one_to_paste(
    tmp_path: Path, named: str | None, environment: dict[str, str], by: str
) -> None:
    with pytest.raises(UsageError) as caught:
        read_site(tmp_path / named if named else None, tmp_path, environment=environment)
    told = str(caught.value)
    assert told.startswith(f"{by}: there is no ")
    pasted = "\n".join(line[2:] for line in told.split("\n\n", 1)[1].splitlines())
    assert parse_site(pasted) == parse_site(EXAMPLE)
    assert caught.value.exit_code is ExitCode.USAGE


def test_a_file_that_cannot_be_read_is_a_mistake_in_it(tmp_path: Path) -> None:
    (tmp_path / "slurm.yaml").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_site(None, tmp_path, environment={})


def test_the_types_say_no_more_than_the_file_can() -> None:
    assert {each.value for each in sitekeys.Access} == {"toolkit", "cdi", "nodes"}
    assert len(GpuAccess) == len(sitekeys.Access)
    assert site.NodeRuntime is NodeRuntime
