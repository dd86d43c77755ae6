"""Six small images in the order in which a failure comes and goes; one cannot run it, one is flaky."""

from tests.models import images

RIGHT, AGAIN = "trtmatrix/test-right:latest", "trtmatrix/test-fixed:latest"
BROKEN, FLAKY = "trtmatrix/test-broken:latest", "trtmatrix/test-flaky:latest"

ROW = (
    images.OLDER,
    RIGHT,
    BROKEN,
    images.DEFECTIVE,
    FLAKY,
    AGAIN,
)  # right, right, cannot say, wrong, flaky, right again
ABORTS = """

def InferenceSession(*args, **kwargs):
    import os

    os.abort()
"""

EVERY_OTHER = f"""
_Right = InferenceSession
{images.DEFECT}
_Wrong, _sessions = InferenceSession, []


def InferenceSession(*args, **kwargs):
    _sessions.append(1)
    return (_Right if len(_sessions) % 2 else _Wrong)(*args, **kwargs)
"""


def make_row() -> tuple[str, ...]:
    images.make_older()
    images.make_defective()
    images.make_spoilt(RIGHT, "# an older one that is right\n")
    images.make_spoilt(BROKEN, ABORTS)
    images.make_spoilt(FLAKY, EVERY_OTHER)
    images.make_spoilt(AGAIN, "# a newer one that is right\n")
    return ROW


def make_sleeper() -> str:
    code = "\n\ndef InferenceSession(*args, **kwargs):\n    import time\n\n    time.sleep(600)\n"
    return images.make_spoilt("trtmatrix/test-sleeper:latest", code)


def make_empty() -> str:
    text = "FROM scratch\nCOPY nothing /\n"
    return images.make_image(
        "trtmatrix/test-empty:latest", images.BASE, text, lambda folder: (folder / "nothing").touch(), ""
    )
