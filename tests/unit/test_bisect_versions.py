"""bisect over versions: what goes along with a version that is asked, and what does not."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_bisecting import bisect

from trtmatrix.context import Context
from trtmatrix.core.errors import MachineryError
from trtmatrix.core.plan import Pull
from trtmatrix.scene import Scene, look_around


def test_no_control_and_no_other_product_goes_along_with_a_version_that_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them costs time, and one that must be installed first costs a host without a network more."""
    looks: list[Context] = []

    def look(context: Context, pull: Pull) -> Scene:
        looks.append(context)
        if len(looks) > 1:  # the first look is for what is stored
            raise MachineryError("that is enough")
        return look_around(context, pull)

    monkeypatch.setattr("trtmatrix.scene.look_around", look)
    monkeypatch.setattr("trtmatrix.bugs.ask_versions.stored_reply", lambda *_, **__: None)
    assert bisect(tmp_path, "--case", "sdpa-scale/sdpa-tf32", "--gpu", "nvidia-h200", "--bad", "8.6.0") == 3
    assert [context.controls for context in looks] == [True, False]
    scene = look_around(looks[1], Pull.NEVER)
    assert {str(cell.id) for cell in scene.cells} == {"sdpa-scale/sdpa-tf32@8.6.0#nvidia-h200"}
