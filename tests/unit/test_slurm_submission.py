"""What sbatch is told for arrays and imports."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtmatrix.core.slurm.site import NodeRuntime, Site, SiteGpu, SiteLimits
from trtmatrix.core.slurm.sitevalues import option_value
from trtmatrix.core.slurm.submission import array_words, import_words, task_numbers, warned

H200 = SiteGpu(
    name="NVIDIA H200", gres="gpu:h200:1", partition="big", account="lab", qos="short",
    constraint="nvme&hbm3", options=("--reservation=trt",),
)  # fmt: skip
SITE = Site(
    shared="/shared/lab", runtime=NodeRuntime.PYXIS, gpus=(H200,), limits=SiteLimits(memory=(36 << 30) + 1),
    options=("--mail-type=NONE",), import_options=("--partition=cpu",),
)  # fmt: skip


def test_an_array_is_told_all_that_the_site_says() -> None:
    words = array_words(
        SITE, H200, key="5f1c2a", tasks=[0, 1, 2, 7], attempt=2, minutes=40, after="17", avoid=("n3", "n4"),
        facts={"sent": "3", "version": "10.7.0"},
    )  # fmt: skip
    assert words == (
        "--parsable", "--job-name=trtmatrix-5f1c2a",
        "--comment=trtmatrix=5f1c2a attempt=2 sent=3 version=10.7.0", "--no-requeue", "--export=NONE",
        "--nodes=1", "--ntasks=1", "--open-mode=append",
        "--output=/shared/lab/arrays/5f1c2a/said.%a.2.%A.txt",
        "--array=0-2,7%8", "--gres=gpu:h200:1", "--time=40", "--signal=B:TERM@60", "--cpus-per-task=4",
        "--mem=36865M", "--dependency=afterok:17", "--kill-on-invalid-dep=yes", "--mail-type=NONE",
        "--constraint=nvme&hbm3", "--partition=big", "--account=lab", "--qos=short",
        "--reservation=trt", "--exclude=n3,n4",
    )  # fmt: skip


def test_what_a_site_does_not_say_is_not_asked_for() -> None:
    bare = SiteGpu(name="NVIDIA L4", gres="gpu:l4:1")
    words = " ".join(array_words(SITE, bare, key="k", tasks=[0], attempt=1, minutes=5))
    for name in ("dependency", "exclude", "constraint", "partition", "account", "qos", "reservation"):
        assert name not in words


def test_a_gpus_own_words_count_not_those_for_all() -> None:
    site = replace(SITE, options=("--account=default", "--partition=cpu", "-q", "long"))
    words = array_words(site, H200, key="k", tasks=[0], attempt=1, minutes=5)
    assert option_value("account", "A", words) == "lab"
    assert option_value("partition", "p", words) == "big"
    assert option_value("qos", "q", words) == "short"


@pytest.mark.parametrize(
    "options", [("--exclude=bad1,bad[3-4]",), ("--exclude", "bad1,bad[3-4]"), ("-xbad1,bad[3-4]",)]
)
def test_nodes_with_trouble_are_avoided_beside_those_that_the_site_excludes(options: tuple[str, ...]) -> None:
    for site, gpu in (
        (replace(SITE, options=options), H200),
        (replace(SITE, options=("-x", "n9")), replace(H200, options=options)),
    ):
        words = array_words(site, gpu, key="k", tasks=[0], attempt=1, minutes=5, avoid=("n3", "n4"))
        assert words[-1] == "--exclude=bad1,bad[3-4],n3,n4"
        bare = array_words(site, gpu, key="k", tasks=[0], attempt=1, minutes=5)
        assert option_value("exclude", "x", bare) == "bad1,bad[3-4]"


def test_an_import_asks_for_no_gpu_and_is_no_array() -> None:
    words = import_words(SITE, key="9d0e", attempt=1)
    assert "--job-name=trtmatrix-import-9d0e" in words
    assert "--output=/shared/lab/images/9d0e.1.txt" in words
    assert not [word for word in words if word.startswith(("--gres", "--array"))]
    assert words[-1] == "--partition=cpu"  # the site's own words are last: the last one counts


@pytest.mark.parametrize(("minutes", "seconds"), [(1, 20), (3, 20), (4, 60), (600, 60)])
def test_a_short_job_is_told_of_its_end_later(minutes: int, seconds: int) -> None:
    assert warned(minutes) == seconds


@given(st.sets(st.integers(0, 60), min_size=1))
def test_ranges_name_each_task_once(tasks: set[int]) -> None:
    named: list[int] = []
    for part in task_numbers(tasks).split(","):
        first, _, last = part.partition("-")
        named += range(int(first), int(last or first) + 1)
    assert named == sorted(tasks)
