"""The deployer's own acceptance: what a script is given, what it may say, what is said of a wrong one."""

import re
import runpy
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trtmatrix.model import acceptance
from trtmatrix.model.outcomes import CheckOutcome

BEFORE = [{"logits/out": np.arange(6, dtype=np.float32).reshape(2, 3)}]
AFTER = [{"logits/out": np.arange(6, dtype=np.float32).reshape(2, 3) + 1}]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run scripts in this process; what a process of its own adds, the tests without this show."""

    def run_here(command: list[str], *_: Any) -> tuple[int, str]:
        with monkeypatch.context() as patch:
            patch.setattr(sys, "argv", command[-1:])
            patch.setattr(sys, "path", [*sys.path])
            patch.delitem(sys.modules, "accept", raising=False)
            acceptance.main()
        return 0, ""

    monkeypatch.setattr(acceptance, "run_to_end", run_here)


def run_check(script: Path, *sides: Any, **more: Any) -> CheckOutcome:
    """Hand arrays over as files."""

    def save(array: Any) -> Path:
        with tempfile.NamedTemporaryFile(dir=script.parent / ".in", suffix=".npy", delete=False) as file:
            np.save(file, array)
        return Path(file.name)

    (script.parent / ".in").mkdir(exist_ok=True)
    files = [
        side and [{name: save(array) for name, array in sample.items()} for sample in side] for side in sides
    ]
    return acceptance.run_check(script, *files, **more)


def write(folder: Path, code: str) -> Path:
    script = folder / "accept.py"
    script.write_text(code, encoding="utf-8")
    return script


def run(folder: Path, code: str, reference: Any = None, **more: Any) -> CheckOutcome:
    return run_check(write(folder, code), BEFORE, AFTER, reference, **more)


def check(body: str) -> str:
    return "def check(before, after, reference):\n    " + body + "\n"


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return True", {"passed": True}), ("return False, 0.5", {"passed": False, "figure": 0.5}),
        ("return [True, 3, 'agree\\nment']", {"passed": True, "figure": 3.0, "label": "agree ment"}),
        ("import numpy as np; return np.bool_(True), np.float32(0.5)", {"passed": True, "figure": 0.5}),
        ("after[0]['logits/out'][:] = 0; return after[0]['logits/out'].sum() == 0", {"passed": True}),
    ],
)  # fmt: skip
def test_what_a_script_may_say(body: str, said: dict[str, Any], tmp_path: Path) -> None:
    assert run(tmp_path, check(body)) == CheckOutcome(script=str(tmp_path / "accept.py"), **said)


@pytest.mark.usefixtures("here")
def test_every_sample_comes_in_order_with_its_own_names_and_dtypes(tmp_path: Path) -> None:
    script = write(tmp_path, """
def check(before, after, reference):
    for part in (before, after, reference):
        assert [list(sample) for sample in part] == [["y/0", "ids"], ["y/0", "ids"]]
        assert [int(sample["ids"]) for sample in part] == [0, 1]
        assert part[0]["y/0"].shape == (0, 4) and part[1]["y/0"].dtype == "float16"
    return reference[1]["y/0"][0] == 7
""")  # fmt: skip
    samples = [
        {"y/0": np.zeros((0, 4), np.float16), "ids": np.int64(0)},
        {"y/0": np.full(3, 7, np.float16), "ids": np.int64(1)},
    ]
    assert run_check(script, samples, samples, samples) == CheckOutcome(script=str(script), passed=True)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("code", "words"),
    [
        (check("return before[0]['logit']"), "accept.py:2: check() raised KeyError: 'logit' at: return befo"),
        (check("return None"), "returned None (NoneType): it must return True or False, (passed, figure)"),
        (check("return before[0]['logits/out'] == 1"), "check() returned array([[False, True"),
        (check("return True, float('nan')"), "returned (True, nan) (tuple): it must return"),
        (check("return True, False"), "returned (True, False) (tuple): it must return"),
        ("x = 1\nimport no_such_module\n", "accept.py:2: loading it raised ModuleNotFoundError"),
        ("def check(before:\n", "accept.py: loading it raised SyntaxError: "),
        ("x = 1\n", "accept.py: there is no function check(before, after, reference)"),
        ("\n\ndef check(a, b): ...\n", "accept.py: check() raised TypeError: check() takes 2 positional"),
    ],
)
def test_what_is_said_of_a_script_that_is_wrong(code: str, words: str, tmp_path: Path) -> None:
    outcome = run(tmp_path, code)
    assert outcome.passed is None
    assert words in outcome.error


def test_a_script_that_ends_its_process_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    outcome = run(tmp_path, check("import os; os._exit(5)"))
    assert outcome.passed is None
    assert outcome.error == "accept.py: it ended its process with code 5 and said nothing"
    assert capfd.readouterr() == ("", "")


def test_what_hangs_is_ended_with_what_it_started(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code = check(
        "import subprocess, sys; p = subprocess.Popen(['sleep', '600']); print(p.pid)\n    while True: pass"
    )
    started = time.monotonic()
    outcome = run(tmp_path, code, seconds=3)
    assert time.monotonic() - started < 30
    assert outcome.error == "accept.py: check() did not end within 3 s and was stopped"
    stat, end = Path(f"/proc/{capfd.readouterr().err.split()[0]}/stat"), time.monotonic() + 10
    while stat.exists() and ") Z " not in stat.read_text():
        assert time.monotonic() < end


def test_a_script_may_import_and_print(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "metrics.py").write_text("def iou(): return 0.9\n")
    outcome = run(tmp_path, "import metrics\n" + check("print('top-1'); return True, metrics.iou()"))
    assert (outcome.figure, capfd.readouterr()) == (0.9, ("", "top-1\n")), "beside the report, not in it"
    assert sorted(path.name for path in tmp_path.iterdir()) == [".in", "accept.py", "metrics.py"]


DOCS = Path(__file__).resolve().parents[3] / "docs" / "acceptance.md"


@pytest.mark.usefixtures("here")
def test_the_examples_of_the_documentation_work(tmp_path: Path) -> None:
    found = re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    examples = [code for code in found if "return" in code]
    assert len(examples) == 2
    random = np.random.RandomState(0)
    samples = [{name: random.rand(4, 8).astype(np.float32) for name in ("logits", "embedding")} for _ in "ab"]
    other = [{name: random.rand(4, 8).astype(np.float32) for name in sample} for sample in samples]
    for code in examples:
        script = write(tmp_path, code)
        for reference in (None, samples):
            assert run_check(script, samples, samples, reference).passed is True
            assert run_check(script, samples, other, reference).passed is False


# The acceptance script for detectors that is shipped: boxes are matched by IoU, whatever their order.
CHECK = runpy.run_path(str(Path(__file__).parents[3] / "docs" / "examples" / "check_boxes.py"))["check"]
RNG = np.random.default_rng(0)
LOW = RNG.uniform(0, 100, (1, 40, 2))
BOXES = np.concatenate([LOW, LOW + RNG.uniform(10, 40, (1, 40, 2))], -1).astype(np.float32)
SCORES, LABELS = RNG.uniform(0.5, 1, (1, 40)).astype(np.float32), RNG.integers(0, 5, (1, 40))
TEN, ORDER = np.arange(40) < 10, RNG.permutation(40)
FOUND: dict[str, tuple[bool, Sequence[Any]]] = {
    "none": (True, (BOXES, SCORES, LABELS)),
    "order": (True, [array[:, ORDER] for array in (BOXES, SCORES, LABELS)]),
    "little": (True, (BOXES + RNG.normal(0, 0.2, BOXES.shape), SCORES, LABELS)),
    "one more of a low score": (True, [
        np.append(array, more, 1)
        for array, more in ((BOXES, BOXES[:, :1] + 500), (SCORES, [[0.1]]), (LABELS, [[0]]))
    ]),
    "labels": (False, (BOXES, SCORES, np.where(TEN, 7, LABELS))),
    "moved": (False, (BOXES + 1000 * TEN[:, None], SCORES, LABELS)),
    "lost": (False, [array[:, :30] for array in (BOXES, SCORES, LABELS)]),
    "none found": (False, [array[:, :0] for array in (BOXES, SCORES, LABELS)]),
}  # fmt: skip


@pytest.mark.parametrize("change", FOUND)
def test_boxes_are_matched(change: str) -> None:
    passed, arrays = FOUND[change]
    names = ("boxes", "scores", "labels")
    right, found = (dict(zip(names, side, strict=True)) for side in ((BOXES, SCORES, LABELS), arrays))
    said, share, label = CHECK([right], [found], [right])
    assert (bool(said), share >= 0.99, label) == (passed, passed, "share of boxes matched by IoU")
