"""Six small images in the order in which a failure comes and goes; one cannot run it, one is flaky."""

from __future__ import annotations

from tests.models.images import (
    BASE,
    DEFECT,
    DEFECTIVE,
    OLDER,
    make_defective,
    make_image,
    make_older,
    make_spoilt,
)  # fmt: skip

RIGHT, AGAIN = "trtmatrix/test-right:latest", "trtmatrix/test-fixed:latest"
BROKEN, FLAKY = "trtmatrix/test-broken:latest", "trtmatrix/test-flaky:latest"

ROW = (OLDER, RIGHT, BROKEN, DEFECTIVE, FLAKY, AGAIN)  # right, right, cannot say, wrong, flaky, right again
ABORTS = """

def InferenceSession(*args, **kwargs):
    import os

    os.abort()
"""

EVERY_OTHER = f"""
_Right = InferenceSession
{DEFECT}
_Wrong, _sessions = InferenceSession, []


def InferenceSession(*args, **kwargs):
    _sessions.append(1)
    return (_Right if len(_sessions) % 2 else _Wrong)(*args, **kwargs)
"""


def make_row() -> tuple[str, ...]:
    make_older()
    make_defective()
    make_spoilt(RIGHT, "# an older one that is right\n")
    make_spoilt(BROKEN, ABORTS)
    make_spoilt(FLAKY, EVERY_OTHER)
    make_spoilt(AGAIN, "# a newer one that is right\n")
    return ROW


def make_sleeper() -> str:
    """Return an image whose ONNX Runtime takes ten minutes to begin."""
    code = "\n\ndef InferenceSession(*args, **kwargs):\n    import time\n\n    time.sleep(600)\n"
    return make_spoilt("trtmatrix/test-sleeper:latest", code)


def make_empty() -> str:
    text = "FROM scratch\nCOPY nothing /\n"
    return make_image(
        "trtmatrix/test-empty:latest", BASE, text, lambda folder: (folder / "nothing").touch(), ""
    )
