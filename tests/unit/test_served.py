"""Which records stand for a cell: of the same runtime, and not of a trouble that may pass."""

from __future__ import annotations

import pytest
from builders import H200, make_cell, make_entry

from trtmatrix.commands import is_served
from trtmatrix.context import origin_digests
from trtmatrix.core.model import Cause
from trtmatrix.core.plan import Engine, Host

AGAIN = {
    Cause.INTERRUPTED, Cause.LAUNCHER_FAILED, Cause.PROBE_FAILED, Cause.VERSION_MISMATCH, Cause.IMAGE_MISSING,
    Cause.COMPONENT_MISSING, Cause.DRIVER_TOO_OLD, Cause.OUT_OF_GPU_MEMORY, Cause.OUT_OF_HOST_MEMORY,
}  # fmt: skip


@pytest.mark.parametrize("cause", Cause)
def test_what_may_come_out_otherwise_is_tried_again(cause: Cause) -> None:
    assert is_served(make_entry(ended=cause.value)) is (cause not in AGAIN)


def test_a_record_of_a_host_interpreter_is_never_a_container_s() -> None:
    cell = make_cell(gpu=H200)
    host = Host(engine=Engine(available=True), gpus=(H200,))
    assert origin_digests(cell, host, on_host=True) == {"runtime": "host"}
    assert origin_digests(cell, host, on_host=False) == {"runtime": "container"}
