"""--explain, --check and the differences over real runs of ONNX Runtime, wrong in one of two columns.

The wrong column's interpreter changes each graph before ONNX Runtime loads it, as a wrong fusion would.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from projects import ROOT, files_of, matrix_text
from spoiling import WIDTH, blocks, save

from trtmatrix.cli.options import make_parser, read_options
from trtmatrix.judge.entry import Entry
from trtmatrix.model.own_model import ModelOptions, model_repro, open_model
from trtmatrix.plan.context import Context, ProjectOptions, open_context
from trtmatrix.plan.survey import take_survey
from trtmatrix.run.perform import Options, perform
from trtmatrix.suite.model import Verdict
from trtmatrix.suite.plan import Pull
from trtmatrix.upgrade.model_section import add_extras
from trtmatrix.upgrade.report import ModelSection

UNIT = ROOT / "tests" / "unit"
RIGHT, WRONG = "onnxruntime-1.31.1", "onnxruntime-1.31.2"

SITE = """\
import os
import sys
sys.path.append({unit!r})
import onnx
import onnxruntime
from spoiling import spoil

right = onnxruntime.InferenceSession


def wrong(content, sess_options, **more):
    if isinstance(content, str):  # its weights lie beside it
        folder = "session.model_external_initializers_file_folder_path"
        sess_options.add_session_config_entry(folder, os.path.dirname(content))
        content = open(content, "rb").read()
    model = spoil(onnx.load_from_string(content), {tensor!r}, [])
    return right(model.SerializeToString(), sess_options=sess_options, **more)


onnxruntime.InferenceSession = wrong
"""


class Project:
    """A project with two columns, and a model with its inputs."""

    def __init__(self, folder: Path, tensor: str, samples: int) -> None:
        import onnxruntime

        self.folder = folder
        site = folder / "site"
        site.mkdir()
        (site / "sitecustomize.py").write_text(SITE.format(unit=str(UNIT), tensor=tensor), encoding="utf-8")
        shim = folder / "python"
        shim.write_text(f'#!/bin/sh\nPYTHONPATH="{site}" exec "{sys.executable}" "$@"\n', encoding="utf-8")
        shim.chmod(0o755)
        library = onnxruntime.__version__
        columns = ((n, {"interpreter": str(p)}, library) for n, p in ((RIGHT, sys.executable), (WRONG, shim)))
        (folder / "matrix.yaml").write_text(matrix_text(*columns))
        self.model = save(blocks(6), folder / "user", external=True)
        self.inputs = folder / "inputs"
        self.inputs.mkdir()
        random = np.random.RandomState(3)
        for number in range(samples):
            x = random.standard_normal((2 + number, WIDTH)).astype(np.float32)
            np.savez(self.inputs / f"{number}.npz", x=x)

    def args(self, *more: str) -> argparse.Namespace:
        words = ["upgrade", f"--from={RIGHT}", f"--to={WRONG}", *files_of(self.folder, ROOT / "repros")]
        words += [f"--model={self.model}", f"--inputs={self.inputs}", "--precision=fp32"]
        args = make_parser().parse_args([*words, *more])
        args.controls = False
        return args

    def section(self, *more: str) -> tuple[ModelSection, list[Entry]]:
        args = self.args(*more)
        context: Context = open_model(
            open_context(read_options(ProjectOptions, args)), read_options(ModelOptions, args)
        )
        name = model_repro(context).repro.id
        context = replace(context, selection=replace(context.selection, repros=(name,)))
        entries = perform(context, take_survey(context, Pull.NEVER), Options(confirm=False)).entries
        bare = ModelSection(name="my.onnx", repro=name, facts=(), reference="", floor="", cases=())
        options = read_options(ModelOptions, args)
        return add_extras(bare, context, list(entries), RIGHT, WRONG, options), list(entries)


def test_everything_about_a_model_that_is_wrong_at_one_version(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    project = Project(tmp_path, "/3/act", samples=2)
    script = tmp_path / "accept.py"
    script.write_text(
        "import numpy as np\n"
        "def check(before, after, reference):\n"
        "    assert [sample['y'].shape for sample in before] == [(2, 8), (3, 8)]\n"
        "    near = max(float(abs(b['y'] - r['y']).max()) for b, r in zip(before, reference))\n"
        "    far = max(float(abs(a['y'] - r['y']).max()) for a, r in zip(after, reference))\n"
        "    print('hello')\n"
        "    return far < 10 * near, far, 'worst error'\n"
    )
    section, entries = project.section("--explain", f"--check={script}")
    verdicts = {entry.cell.version.name: entry.outcome.verdict for entry in entries if entry.outcome}
    assert verdicts == {RIGHT: Verdict.PASS, WRONG: Verdict.FAIL}
    assert section.troubles == ()
    (difference,) = section.differences
    assert (difference.output, difference.samples, difference.nan, difference.note) == ("y", 2, 0, "")
    assert 1e-4 < difference.rel_l2 < 0.5
    assert section.check is not None
    assert (section.check.passed, section.check.label, section.check.error) == (False, "worst error", "")
    assert section.check.figure is not None
    (layer,) = section.wrong_layers
    assert (layer.version, layer.tensor, layer.node, layer.operator) == (WRONG, "/3/act", "/3/Tanh", "Tanh")
    assert layer.why_not == ""
    assert "noise floors; what it is computed from is right: /3/biased" in layer.error
    told = capfd.readouterr().err
    assert "hello" in told
    assert all(f"{WRONG}: marking {step}" in told for step in layer.steps)
    assert not list((tmp_path / "cache" / "explain").glob(".marking-*"))
    kept = sorted((tmp_path / "cache" / "explain" / "results").rglob("*.json"))
    assert project.section("--explain")[0].wrong_layers == (layer,)
    assert sorted((tmp_path / "cache" / "explain" / "results").rglob("*.json")) == kept, "served from records"
    assert (tmp_path / "user" / "my.bin").stat().st_nlink == 1, "the user's own file gets no other name"
