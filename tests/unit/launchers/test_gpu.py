"""GPU names as users and NVML write them."""

from __future__ import annotations

import pytest

from trtmatrix.common.errors import UsageError
from trtmatrix.launchers.gpu import named_gpus
from trtmatrix.suite.model import PART, Gpu

HERE = (
    Gpu(slug="tesla-t4", name="Tesla T4", compute="7.5", datacenter=True, driver="535.1", index=0),
    Gpu(slug="nvidia-l4", name="NVIDIA L4", compute="8.9", driver="535.1", index=1),
    Gpu(slug="nvidia-l4", name="NVIDIA L4", compute="8.9", driver="535.1", index=2),
)


@pytest.mark.parametrize(
    ("name", "full", "compute", "datacenter"),
    [
        ("Tesla T4", "NVIDIA T4", "7.5", True),
        ("NVIDIA H100 80GB HBM3", "NVIDIA H100", "9.0", True),
        ("NVIDIA RTX 6000 Ada Generation", "NVIDIA RTX 6000 Ada", "8.9", False),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "NVIDIA A100", "8.0", True),
        ("RTX 4070 Ti SUPER", "NVIDIA GeForce RTX 4070 Ti SUPER", "8.9", False),
    ],
)
def test_a_name_is_known_as_nvml_and_as_users_write_it(
    name: str,
    full: str,
    compute: str,
    datacenter: bool,
) -> None:
    (gpu,) = named_gpus([name], [])
    assert (gpu.name, gpu.compute, gpu.datacenter) == (full, compute, datacenter)
    assert not gpu.present
    assert gpu.driver is None
    assert PART.fullmatch(gpu.slug)


@pytest.mark.parametrize("name", ["T4", "Tesla T4", "tesla-t4", "NVIDIA T4", "t4"])
def test_a_gpu_of_this_host_comes_before_the_table(name: str) -> None:
    assert named_gpus([name], HERE) == (HERE[0],)


def test_of_several_alike_the_first_is_taken_and_each_name_counts_once() -> None:
    assert named_gpus(["L4", "NVIDIA L4", "nvidia-l4", "T4"], HERE) == (HERE[1], HERE[0])
    assert len(named_gpus(["H100", "NVIDIA H100 80GB HBM3"], HERE)) == 1
    assert named_gpus([], HERE) == ()


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("NVIDIA GeForce RTX 3090 Laptop GPU", "GeForce RTX 3090"),
        ("?!", "write it as nvidia-smi does"),
    ],
)
def test_a_name_that_is_not_known_gets_a_suggestion(name: str, suggestion: str) -> None:
    with pytest.raises(UsageError) as caught:
        named_gpus([name], [])
    assert suggestion in str(caught.value).partition("not known; ")[2]
