"""What an archive says for Polygraphy and trtexec: ONNX Runtime's lines are run, all options exist."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from failures import BUILD, CONTROL, EACH, ONNXRUNTIME, OWN, TORCH
from goldenfile import FOLDER, check_golden

from trtmatrix.core.api import ChangeKind
from trtmatrix.core.bundle.commands import (
    POLYGRAPHY_NEEDS,
    TRTEXEC_NEEDS,
    Commands,
    command_file,
    polygraphy_command,
    trtexec_command,
)
from trtmatrix.core.bundle.facts import INPUTS, LOADER, MODEL, REFERENCE, Failure, OutputLine, Recipe
from trtmatrix.core.bundle.loader_script import data_loader_script
from trtmatrix.core.change_file import parse_change_table
from trtmatrix.core.model import Product, release_of

FLAGS = Path(__file__).parents[2] / "src" / "trtmatrix" / "api_changes.yaml"
POLYGRAPHY = Path(sys.executable).with_name("polygraphy")


def tool(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False, timeout=120)
    print(done.stdout, done.stderr)
    return done


def run_line(folder: Path, line: str) -> subprocess.CompletedProcess[str]:
    """Run one printed line with this Python and its Polygraphy."""
    own = line.replace("python3 ", f"{sys.executable} ").replace("polygraphy run", f"{POLYGRAPHY} run")
    return tool(folder, "sh", "-c", own)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """y = x @ w for two samples with a dynamic batch; names that a file cannot have."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weights = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["in:0", "w"], ["out/y"])], "g",
        [helper.make_tensor_value_info("in:0", TensorProto.FLOAT, ["n", 8])],
        [helper.make_tensor_value_info("out/y", TensorProto.FLOAT, ["n", 4])],
        [numpy_helper.from_array(weights, "w")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / MODEL)
    x: dict[str, Any] = {f"in_0.s{n}": np.full((n + 1, 8), 0.1 * (n + 1), np.float32) for n in range(2)}
    np.savez(tmp_path / INPUTS, **x)
    right: dict[str, Any] = {f"out_y.s{n}": x[f"in_0.s{n}"].astype(np.float64) @ weights for n in range(2)}
    np.savez(tmp_path / REFERENCE, **right)
    (tmp_path / LOADER).write_text(data_loader_script(RECIPE))
    return tmp_path


RECIPE = Recipe(
    precision="fp32", inputs={"in_0": "in:0"}, outputs={"out_y": "out/y"}, samples=2,
    profile={"in:0": ((1, 8), (1, 8), (2, 8))}, shapes={"in:0": (1, 8)},
)  # fmt: skip
LINES = tuple(
    OutputLine(name=f"out_y.s{n}", dtype="float32", shape=(n + 1, 4), rel_l2=1e-6, floors=10.0)
    for n in range(2)
)
FAILURE = replace(ONNXRUNTIME, recipe=RECIPE, outputs=LINES)


def asked(failure: Failure, **options: Any) -> Failure:
    assert failure.recipe is not None
    return replace(failure, recipe=replace(failure.recipe, **options))


def at(failure: Failure, library: str) -> Failure:
    return replace(failure, environment=replace(failure.environment, library=library))


def test_polygraphy_takes_the_lines_and_says_right_and_wrong(archive: Path) -> None:
    lines = polygraphy_command(FAILURE).lines
    assert [run_line(archive, line).returncode for line in lines] == [0, 0]
    reference = {name: array * 1.001 for name, array in np.load(archive / REFERENCE).items()}
    np.savez(archive / REFERENCE, **reference)
    assert [run_line(archive, line).returncode for line in lines] == [0, 1]


@pytest.mark.parametrize("name", [name for name, each in EACH.items() if each.recipe is not None])
def test_polygraphy_understands_every_option_that_is_printed(archive: Path, name: str) -> None:
    for line in polygraphy_command(EACH[name]).lines:
        if "polygraphy run" in line:
            assert run_line(archive, f"{line} --gen-script script.py").returncode == 0


def test_polygraphy_reads_shapes_levels_and_limits_as_they_are_meant(archive: Path) -> None:
    line = polygraphy_command(asked(OWN, level=2)).lines[1]
    run_line(archive, f"{line} --gen-script script.py")
    script = (archive / "script.py").read_text()
    for part in (
        "add('ids:0', min=[1, 1], opt=[1, 7], max=[4, 64])", "fp16=True", "int8=True", "tf32=True",
        "builder_optimization_level=2", "trt.MemoryPoolType.WORKSPACE: 4294967296", "'logits': 39.4",
        "precision_constraints='obey'", "postprocess",
    ):  # fmt: skip
        assert part in script
    assert "strongly_typed" not in script


RELEASES = (
    "8.5.3.1",
    "8.6.0",
    "8.6.1.6",
    "9.2.0.5",
    "10.0.0.6",
    "10.7.0.23",
    "10.14.1.48",
    "11.0.0.1",
    "11.4.0.106",
)
PRECISIONS = ("tf32", "fp32", "fp16", "fp16-flag")


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("release", RELEASES)
def test_trtexec_of_a_release_has_every_flag_that_is_printed(release: str, precision: str) -> None:
    table = parse_change_table(FLAGS.read_text(encoding="utf-8"), "api_changes.yaml")
    gone = {
        change.flag
        for change in table.flags
        if change.kind is ChangeKind.REMOVED and release_of(change.since) <= release_of(release)
    }
    words = " ".join(trtexec_command(at(asked(OWN, precision=precision, level=3), release)).lines)
    used = set(re.findall(r"--[A-Za-z0-9]+", words))
    assert not used & gone
    assert ("--builderOptimizationLevel" in used) is not release.startswith("8.5")
    assert ("--stronglyTyped" in used) is (precision == "fp16" and release.startswith(("9.", "10.")))
    assert ("--noTF32" in used) is (precision == "fp32")
    assert ("--int32" in used) is release.startswith(("8", "9"))


@pytest.mark.parametrize(
    ("precision", "release", "wanted"),
    [
        ("tf32", "8.6.1.6", "--trt --tf32 --int8 --pool"),
        ("fp32", "8.6.1.6", "--trt --int8 --pool"),
        ("fp16", "8.6.1.6", "--trt --tf32 --fp16 --int8 --pool"),
        ("fp16", "9.2.0.5", "--trt --tf32 --strongly-typed --pool"),
        ("fp16-flag", "10.7.0.23", "--trt --tf32 --fp16 --int8 --pool"),
        ("fp16", "11.0.0.1", "--trt --tf32 --pool"),
        ("tf32", "11.0.0.1", "--trt --tf32 --pool"),
    ],
)
def test_precisions(precision: str, release: str, wanted: str) -> None:
    assert wanted in polygraphy_command(at(asked(OWN, precision=precision), release)).lines[1]


def test_trtexec_is_given_the_first_sample_and_its_output_is_compared(archive: Path) -> None:
    bins, run, compare = trtexec_command(replace(FAILURE, product=Product.TENSORRT)).lines
    assert "--minShapes=in:0:1x8" in run
    assert "--shapes=in:0:1x8" in run
    assert "--loadInputs=in:0:input-0.bin" in run
    assert run_line(archive, bins).returncode == 0
    assert np.array_equal(np.fromfile(archive / "input-0.bin", np.float32), np.full(8, 0.1, np.float32))
    right = np.load(archive / REFERENCE)["out_y.s0"].ravel()
    values = ", ".join([*(f"{value:.6g}" for value in right[:3]), "-nan"])  # as C++ writes it
    (archive / "trtexec.json").write_text(
        f'[\n  {{ "name" : "out/y"\n  , "dimensions" : "1x4"\n  , "values" : [ {values} ]\n  }}\n]\n'
    )
    done = run_line(archive, compare)
    assert done.returncode == 0
    assert "out/y: relative L2 error nan, NaN 1," in done.stdout


def test_int64_inputs_are_narrowed_where_the_release_does_so(archive: Path) -> None:
    whole: dict[str, Any] = {f"in_0.s{n}": np.arange(3) for n in range(2)}
    np.savez(archive / INPUTS, **whole)
    assert tool(archive, sys.executable, LOADER, "bins", ".", "--int32").returncode == 0
    assert (archive / "input-0.bin").stat().st_size == 12
    assert tool(archive, sys.executable, LOADER, "bins", ".").returncode == 0
    assert (archive / "input-0.bin").stat().st_size == 24


def test_the_loader_says_how_it_is_called(archive: Path) -> None:
    done = tool(archive, sys.executable, LOADER, "compare")
    assert done.returncode == 1
    assert "compare FILE.json" in done.stderr


def test_softmax_is_kept_in_float32_by_its_type() -> None:
    text = data_loader_script(asked(OWN).recipe or RECIPE)
    assert "KEEP_FP32 = ('SOFTMAX',)" in text
    line = polygraphy_command(OWN).lines[1]
    assert (
        "--precision-constraints obey --trt-network-postprocess-script polygraphy_inputs.py:keep_fp32" in line
    )


def test_what_cannot_be_shown_so_is_said() -> None:
    assert polygraphy_command(TORCH).lines == trtexec_command(TORCH).lines == ()
    assert "neither polygraphy nor trtexec" in polygraphy_command(TORCH).notes[0]
    assert "this is ONNX Runtime" in trtexec_command(ONNXRUNTIME).notes[0]
    odd = asked(OWN, inputs={"a": "a,b"})
    assert "a,b: its name has a comma" in trtexec_command(odd).notes[0]
    assert "cannot mark inner tensors" in trtexec_command(asked(OWN, marked=("scores",))).notes[0]
    assert "plugins" in polygraphy_command(BUILD).notes[0]


def test_an_error_below_the_noise_is_not_told_by_its_size() -> None:
    small = replace(CONTROL, outputs=(replace(CONTROL.outputs[0], floors=2.0),))
    assert "only 2 noise floors" in polygraphy_command(small).notes[0]
    assert polygraphy_command(CONTROL).notes == ()


def test_a_tolerance_of_the_users_own_decides() -> None:
    own = replace(OWN, params={"atol": 0.01, "rtol": 0.0})
    assert "--atol 0.01 --rtol 0" in polygraphy_command(own).lines[1]
    assert "snr" not in polygraphy_command(own).lines[1]


def test_marked_tensors_are_outputs_once(archive: Path) -> None:
    first, second = polygraphy_command(asked(CONTROL, marked=("y", "scores"))).lines[1:]
    assert "--trt-outputs y scores --" in first
    assert "--onnx-outputs y scores --" in second
    assert run_line(archive, f"{second} --gen-script script.py").returncode == 0


@pytest.mark.parametrize("name", EACH)
def test_files(name: str) -> None:
    failure = EACH[name]
    files = {
        "polygraphy": command_file(failure, polygraphy_command(failure), POLYGRAPHY_NEEDS),
        "trtexec": command_file(failure, trtexec_command(failure), TRTEXEC_NEEDS),
    }
    for tool_name, text in files.items():
        if text:
            check_golden(f"{tool_name}-{name}.sh", text, FOLDER / "bundle")
    told = {tool_name for tool_name, text in files.items() if text}
    missing = {"torch": {"polygraphy", "trtexec"}, "onnxruntime": {"trtexec"}}.get(name, set())
    assert told == {"polygraphy", "trtexec"} - missing


def test_a_file_fails_where_one_of_its_lines_does(tmp_path: Path) -> None:
    commands = Commands(lines=("true", "false", "true"))
    (tmp_path / "file.sh").write_text(command_file(CONTROL, commands, "nothing"))
    assert tool(tmp_path, "sh", "file.sh").returncode == 1
    (tmp_path / "file.sh").write_text(command_file(CONTROL, replace(commands, lines=("true",)), "nothing"))
    assert tool(tmp_path, "sh", "file.sh").returncode == 0
