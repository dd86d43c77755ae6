"""bisect over six real images, one of which cannot run and one is flaky, by the real command line."""

import contextlib
import shlex
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import docker
import pytest

from tests import calling
from tests.bundles.bisect_images import AGAIN, BROKEN, FLAKY, RIGHT, ROW, make_empty, make_row, make_sleeper
from tests.calling import Done
from tests.containers.conftest import containers_of
from tests.models.images import BASE, CURRENT_VERSION, DEFECTIVE, OLDER, OLDER_VERSION
from tests.waiting import wait_until

REPROS = Path(__file__).parent / "repros"


def answers(done: Done) -> list[str | None]:
    return [line["answer"] for line in done.data["row"]]


class Project(calling.Project):
    """matrix.yaml whose six versions are six images, results and cache in a folder."""

    def __init__(self, folder: Path, row: tuple[str, ...], libraries: tuple[str, ...]) -> None:
        columns = [
            (f"onnxruntime-1.{number}", image, library)
            for number, (image, library) in enumerate(zip(row, libraries, strict=True), 1)
        ]
        super().__init__(folder, columns=columns, repros=REPROS)
        self.images = [word for image in row for word in ("--image", image)]
        """The options that name all images."""

    def bisect(self, *words: str) -> Done:
        return self.call("bisect", "--json", "--product", "onnxruntime", *words)


CASE = ("--case", "small-attention/scaled")
SAID = ["good", "good", "cannot say", "bad", "bad", "good"]
NAMES = tuple(f"onnxruntime-1.{number}" for number in range(1, 7))


@pytest.fixture(scope="session", autouse=True)
def _images() -> None:
    make_row()


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path, ROW, (OLDER_VERSION, *[CURRENT_VERSION] * 5))


def check_edges(done: Done, names: tuple[str, ...]) -> None:
    """Right, right, cannot say, wrong, flaky, right again: both edges are found, one as a range."""
    assert done.code == 0, done.told
    edges = [done.data[key] for key in ("last_good", "first_bad", "last_bad", "first_fixed")]
    assert edges == [names[1], names[3], names[4], names[5]]
    assert done.data["cannot_say"] == [names[2]]
    assert answers(done) == SAID
    assert done.data["monotone"] is True


def test_both_edges_among_the_versions_of_a_matrix(project: Project) -> None:
    stored = project.call("run", "--trt", f"{NAMES[0]},{NAMES[3]}", *CASE, "--rebuilds", "3")
    assert stored.code == 1  # the defect is a surprise
    done = project.bisect(*CASE, "--bad", NAMES[3])
    check_edges(done, NAMES)
    assert set(done.data["tried"]) == {NAMES[1], NAMES[2], NAMES[4], NAMES[5]}  # what is stored is not run
    said = {line["name"]: line for line in done.data["row"]}
    assert (said[NAMES[4]]["words"], said[NAMES[4]]["reason"][:18]) == ("FLAKY", "1 of 3 builds fail")
    assert said[NAMES[2]]["words"] == "NO VERDICT (crashed)"
    assert said[NAMES[1]]["words"] == "PASS"
    assert all(len(line["image"]) == 71 for line in said.values())
    again = project.bisect(*CASE, "--good", NAMES[0], "--bad", NAMES[3], "--no-run")
    check_edges(again, NAMES)
    assert again.data["tried"] == []


def test_a_list_of_images_and_a_report_that_is_ready_to_paste(project: Project) -> None:
    done = project.bisect(*CASE, "--image", *ROW, "--bad", DEFECTIVE, "--output", "found.md")
    check_edges(done, ROW)
    report = (project.folder / "found.md").read_text()
    assert (
        f"Last good `{RIGHT}`, first bad `{DEFECTIVE}` or one before it that cannot say: `{BROKEN}`" in report
    )
    assert f"Last bad `{FLAKY}`, first fixed `{AGAIN}`." in report
    for image in (RIGHT, DEFECTIVE, FLAKY, AGAIN):
        assert str(docker.from_env().images.get(image).id) in report
    assert str(project.folder) not in report
    words = shlex.split(done.data["commands"][0].removeprefix("nox -s bisect -- "))
    again = project.call("bisect", "--json", *words)
    assert (again.code, again.data["tried"]) == (0, [])
    assert again.data["first_bad"] == DEFECTIVE


CHECK = """\
import numpy as np, onnxruntime
files = "/case"
feeds = {name: np.load(f"{files}/inputs/{name}.npy") for name in "qkv"}
for _ in range(2):
    (y,) = onnxruntime.InferenceSession(f"{files}/model.onnx").run(None, feeds)
    if np.abs(y - np.load(f"{files}/reference/y.npy")).max() > 1e-4:
        raise SystemExit(7)
"""


def test_a_command_over_images(project: Project) -> None:
    assert project.call("prepare", "small-attention/scaled", "--to", "case").code == 0
    (project.folder / "case" / "check.py").write_text(CHECK)
    (project.folder / "case").chmod(0o755)
    command = (
        f"docker run --rm --network=none --volume={project.folder}/case:/case:ro {{image}} "
        "python3 /case/check.py; code=$?; test $code -lt 128 || exit 125; exit $code"
    )
    done = project.bisect("--exec", command, *project.images, "--bad", DEFECTIVE)
    check_edges(done, ROW)
    said = {line["name"]: line["words"] for line in done.data["row"]}
    assert (said[DEFECTIVE], said[BROKEN], said[OLDER]) == ("exit code 7", "exit code 125", "exit code 0")


def test_images_that_cannot_be_looked_into_are_told(project: Project) -> None:
    silent = ["127.0.0.1:1/trtmatrix/nowhere:1", make_empty(), BASE]
    row = [word for image in (RIGHT, *silent, DEFECTIVE) for word in ("--image", image)]
    done = project.bisect(*CASE, *row)
    assert done.code == 0
    assert done.data["cannot_say"] == silent
    said = [(line["words"], line["reason"]) for line in done.data["row"]]
    assert {words for words, _ in said[1:4]} == {"not run"}
    assert "say --pull" in said[1][1]
    assert "python3" in said[2][1]
    assert said[3][1] == "no release of ONNX Runtime in it: it has nothing that is known"
    pulled = project.bisect(*CASE, *row, "--pull")
    assert pulled.code == 0
    assert pulled.data["row"][1]["reason"] != said[1][1]
    rtx = project.call(
        "bisect", "--json", "--product", "tensorrt-rtx", *CASE, "--image", OLDER, "--image", RIGHT
    )
    assert rtx.code == 2  # the case is not for that product
    assert "--product onnxruntime" in rtx.told


@contextmanager
def started(project: Project, *words: str) -> Iterator[subprocess.Popen[str]]:
    child = project.start("bisect", *project.files, "--product", "onnxruntime", *words)
    try:
        yield child
    finally:
        child.kill()
        child.wait()


def interrupt(child: subprocess.Popen[str]) -> str:
    child.send_signal(signal.SIGINT)
    printed, told = child.communicate(timeout=60)
    assert child.returncode == 130, told
    return printed


def test_an_interrupted_search_prints_what_is_known_and_leaves_no_container(project: Project) -> None:
    sleeper = make_sleeper()
    row = [word for image in (RIGHT, sleeper, DEFECTIVE) for word in ("--image", image)]
    with started(project, *CASE, *row, "--bad", DEFECTIVE, "--rebuilds", "1") as child:
        assert child.stderr is not None
        assert any(f"{sleeper}: asked" in line for line in child.stderr)
        wait_until(lambda: containers_of(child.pid), 60, "a container")
        printed = interrupt(child)
        assert containers_of(child.pid) == []
    told = " ".join(printed.split())
    assert "The search was cut short: it was interrupted" in told
    assert f"Last good {RIGHT}, first bad {DEFECTIVE} or one before it that was not tried" in told
    assert f"--good {RIGHT} --bad {DEFECTIVE}" in printed


def test_an_interrupted_command_ends_with_all_that_it_started(project: Project) -> None:
    command = "test {version} = " + NAMES[5] + " && exit 1; echo $$ > pid; sleep 600 & wait"
    with started(project, "--exec", command) as child:
        file = project.folder / "pid"
        wait_until(lambda: file.is_file() and file.read_text().strip(), 60, "the command")
        session = file.read_text().strip()
        printed = interrupt(child)
    wait_until(lambda: not processes_of(session), 10, "the end of what it has started")
    assert f"{NAMES[5]} bad exit code 1 run now" in " ".join(printed.split())


def processes_of(session: str) -> list[str]:
    found = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended just now
            fields = file.read_text().rpartition(")")[2].split()
            found += [file.parent.name] if fields[3] == session and fields[0] != "Z" else []
    return found
