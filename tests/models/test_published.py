"""35 models of ONNX's own tests through ``upgrade --models``: each ends as its published outputs say.

The two versions are real releases of ONNX Runtime, an older one from its wheel and the one that is installed;
no container is needed. All models are cells of one run. What is newer than the older release reads has its
opset lowered, unless the word is about that.
"""

import contextlib
import io
import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnxmodels import FLOAT, INT64, make_model, node
from projects import ROOT, files_of, matrix_text

from tests.models import images
from tests.probe.pythons import cache_folder
from trtmatrix.cli.entry import run

OLDER, CURRENT = f"onnxruntime-{images.OLDER_VERSION}", f"onnxruntime-{onnxruntime.__version__}"
LOWERED = 21  # the newest opset that the older release reads; its newest IR version is 10
PASS, FAIL, NONE = "PASS", "FAIL", "NO VERDICT"
GO, ENOUGH, DONT = "go", "not enough evidence", "don't"
RIGHT = (PASS, PASS, GO)
WORDS: Mapping[str, tuple[str, str, str]] = {
    # floors: float32 and float16 as they are, in float64, and outputs that a member of the ensemble hits
    "layer_normalization_4d_axis1": RIGHT,  # with Mean and InvStdDev
    "group_normalization_epsilon": RIGHT, "batchnorm_epsilon": RIGHT, "softmax_large_number": RIGHT,
    "basic_conv_with_padding": RIGHT, "gru_defaults": RIGHT, "gridsample_bilinear": RIGHT,
    "cast_FLOAT_to_FLOAT16": RIGHT, "cumsum_1d": RIGHT, "gather_0": RIGHT, "scatternd": RIGHT,
    "where_example": RIGHT, "optional_get_element_tensor": RIGHT,
    # inputs that decide a shape
    "top_k": RIGHT, "expand_dim_changed": RIGHT, "reshape_reordered_all_dims": RIGHT, "slice": RIGHT,
    "resize_upsample_sizes_nearest": RIGHT, "loop11": RIGHT,
    # control flow
    "if": RIGHT, "scan9_sum": RIGHT,
    # integers and booleans, of the data's own length, and scalars
    "argmax_keepdims_random": RIGHT, "nonzero_example": RIGHT, "triu": RIGHT, "equal": RIGHT,
    "quantizelinear": RIGHT, "dynamicquantizelinear": RIGHT,
    # wrong at the older release: numbers, a shape; at both: ONNX Runtime resizes otherwise than ONNX says
    "averagepool_3d_dilations_large_count_include_pad_is_1_ceil_mode_is_True": (FAIL, PASS, GO),
    "maxpool_2d_ceil_output_size_reduce_by_one": (FAIL, PASS, GO),
    "resize_downsample_scales_linear_align_corners": (FAIL, FAIL, ENOUGH),
    # an operator that the older release does not have
    "attention_4d": (NONE, PASS, GO),
}  # fmt: skip
REFUSED: Mapping[str, str] = {
    "strnormalizer_export_monday_casesensintive_lower": "input x is string, which cannot be fed",
    "sequence_insert_at_back": "input sequence is sequence, which cannot be fed",
    "cast_FLOAT_to_BFLOAT16": "output output is bfloat16, which cannot be fed or compared",
    "reduce_sum_empty_set": "input data is float32 [2, 0, 4]: a dimension of size 0 has nothing to compute",
}
KEPT = frozenset({"attention_4d"})  # models whose opset stays what it is
Array = NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class Published:
    """A model with its published inputs and outputs, by name, and how near the outputs must be."""

    model: onnx.ModelProto
    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]
    rtol: float
    atol: float

    def agrees(self, outputs: Mapping[str, Array]) -> bool:
        return outputs.keys() == self.outputs.keys() and all(
            y.shape == outputs[name].shape
            and np.allclose(outputs[name], y, rtol=self.rtol, atol=self.atol, equal_nan=True)
            for name, y in self.outputs.items()
        )


@pytest.fixture(scope="session", autouse=True)
def _images() -> None:
    """Need no image."""


@pytest.fixture(scope="session")
def published() -> dict[str, Any]:
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some overflow on purpose
        cases = collect_testcases(None)
    return {case.name.removeprefix("test_"): case for case in cases}


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("published")
    wheels = [f"onnxruntime=={images.OLDER_VERSION}", "numpy"]
    columns = (
        (OLDER, {"wheels": wheels}, images.OLDER_VERSION),
        (CURRENT, {"wheels": [f"onnxruntime=={onnxruntime.__version__}", "numpy"]}, onnxruntime.__version__),
    )
    (folder / "matrix.yaml").write_text(matrix_text(*columns))
    (folder / "cache").mkdir()
    environments = cache_folder() / "published-environments"
    environments.mkdir(parents=True, exist_ok=True)
    (folder / "cache" / "envs").symlink_to(environments)
    return folder


def as_array(value: Any) -> Array:
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


def read(case: Any, *, lowered: bool) -> Published:
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    if lowered:
        model.ir_version = min(model.ir_version, 10)
        for opset in model.opset_import:
            opset.version = min(opset.version, LOWERED)
    inputs, outputs = case.data_sets[0]
    return Published(
        model=model, rtol=case.rtol, atol=case.atol,
        inputs={i.name: as_array(a) for i, a in zip(model.graph.input, inputs, strict=True)},
        outputs={o.name: as_array(a) for o, a in zip(model.graph.output, outputs, strict=True)},
    )  # fmt: skip


def write(folder: Path, name: str, known: Published) -> None:
    folder.mkdir(exist_ok=True)
    onnx.save(known.model, folder / f"{name}.onnx")
    if known.inputs:
        np.savez(folder / f"{name}.npz", **known.inputs)  # type: ignore[arg-type]  # arrays alone


def call(project: Path, *words: str) -> tuple[int, str]:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = run([*words, *files_of(project, ROOT / "repros")])
    return int(code), printed.getvalue()


def upgrade(project: Path, before: str, after: str, *words: str) -> tuple[int, dict[str, Any]]:
    """Ask about a move; returns the exit code and the answer with its models by name."""
    code, printed = call(project, "upgrade", f"--from={before}", f"--to={after}", "--json", *words)
    told: dict[str, Any] = json.loads(printed)
    return code, {**told, "models": {model["name"]: model for model in told["models"]}}


@pytest.fixture(scope="module")
def forward(project: Path, published: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    for name in WORDS:
        write(project / "many", name, read(published[name], lowered=name not in KEPT))
    return upgrade(project, OLDER, CURRENT, f"--models={project / 'many'}")


def records_of(project: Path, model: Mapping[str, Any]) -> list[dict[str, Any]]:
    files = (project / "results").rglob(f"{model['repro']}/*/*.json")
    return sorted((json.loads(file.read_text()) for file in files), key=lambda one: str(one["started"]))


def outputs_of(project: Path, record: Mapping[str, Any]) -> dict[str, Array]:
    outputs = project / "cache" / "outputs"
    return {
        name: np.load(outputs / f"{kept['sha256']}.npz")["output"]
        for name, kept in record.get("kept", {}).items() if "@" not in name
    }  # fmt: skip


@pytest.mark.parametrize("name", WORDS)
def test_each_model_ends_with_the_word_that_its_published_outputs_say(
    published: dict[str, Any], project: Path, forward: tuple[int, dict[str, Any]], name: str
) -> None:
    before, after, decision = WORDS[name]
    known = read(published[name], lowered=name not in KEPT)
    model = forward[1]["models"][name]
    (case,) = model["cases"]
    assert (case["before"]["verdict"], case["after"]["verdict"]) == (before, after), case
    assert model["decision"] == decision
    assert model["reference"].startswith("onnx.reference"), model["troubles"]
    newest = {record["cell"]["version"]: record for record in records_of(project, model)}
    for version, verdict in ((OLDER, before), (CURRENT, after)):
        if verdict != NONE:
            record = newest[version]
            assert known.agrees(outputs_of(project, record)) == (verdict == PASS), (version, record["ended"])


def test_many_take_turns_the_worst_decides_and_the_way_back_is_answered_from_records(
    project: Path, forward: tuple[int, dict[str, Any]]
) -> None:
    code, told = forward
    assert (code, told["decision"], len(told["models"])) == (12, ENOUGH, len(WORDS))
    visits = [record for record in records_of(project, told["models"]["top_k"]) if "confirms" not in record]
    seen = [record["cell"]["version"] for record in visits]  # a sampled one is seen once more
    assert len(seen) == 6
    assert all(one != other for one, other in pairwise(seen)), "A B A B"
    files = set((project / "results").rglob("*.json"))
    code, told = upgrade(project, CURRENT, OLDER, f"--models={project / 'many'}")
    back = {PASS: GO, FAIL: DONT, NONE: DONT}
    wanted = {name: ENOUGH if word == ENOUGH else back[before] for name, (before, _, word) in WORDS.items()}
    assert {name: model["decision"] for name, model in told["models"].items()} == wanted
    assert (code, set((project / "results").rglob("*.json"))) == (11, files)


def test_a_mistake_costs_its_model_alone_and_what_cannot_be_fed_or_compared_says_why(
    project: Path, published: dict[str, Any], forward: tuple[int, dict[str, Any]]
) -> None:
    assert forward
    write(project / "mistaken", "gather_0", read(published["gather_0"], lowered=True))
    write(project / "mistaken", "abs", read(published["abs"], lowered=True))
    np.savez(project / "mistaken" / "abs.npz", wrong=np.zeros(3))
    for name in REFUSED:
        onnx.save(published[name].model, project / "mistaken" / f"{name}.onnx")
    code, told = upgrade(project, OLDER, CURRENT, f"--models={project / 'mistaken'}")
    assert code == 2
    assert told["models"].pop("gather_0")["decision"] == GO
    for name, words in {**REFUSED, "abs": "wrong is no input of the graph"}.items():
        assert words in told["models"].pop(name)["mistake"]
    assert not told["models"]


def test_a_run_says_why_a_model_is_inconclusive(project: Path) -> None:
    """A sum that ties in float32 and not in float64: the floor is as large as the index itself."""
    nodes, small = [node("Add", "x small", "sum"), node("ArgMax", "sum", "index", axis=1)], [[0, 1e-9]]
    ends = {"x": (FLOAT, [4, 2])}, {"index": (INT64, [4, 1])}
    model = make_model(nodes, *ends, {"small": np.array(small, np.float32)})
    known = Published(model=model, inputs={"x": np.ones((4, 2), np.float32)}, outputs={}, rtol=0, atol=0)
    write(project / "ties", "ties", known)
    words = [f"--model={project / 'ties' / 'ties.onnx'}", f"--inputs={project / 'ties' / 'ties.npz'}"]
    code, printed = call(project, "run", f"--trt={CURRENT}", *words)
    assert code == 0
    assert "INVALID: the noise floor 1 is above 0.1: it hides too much" in " ".join(printed.split())
    scores = onnx.helper.make_tensor_value_info("sum", onnx.TensorProto.FLOAT, [4, 2])
    model.graph.output.append(scores)  # with what the index is chosen by, and without it
    write(project / "ties", "ties", known)
    code, told = upgrade(project, OLDER, CURRENT, *words)
    assert (code, told["decision"]) == (0, GO)
