"""``python trtprobe supervise …``, also run by its folder's path."""

import os
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    from trtprobe.compat import with_driver_library

    renewed = with_driver_library(os.environ)
    if renewed is not None:
        os.execve(sys.executable, [sys.executable, "-B", *sys.argv], renewed)  # noqa: S606 - this very program
    if sys.argv[1:2] == ["surface"]:
        from trtprobe.surfacing import main
    else:
        from trtprobe.supervisor import main

    if sys.argv[1:2] not in (["supervise"], ["surface"]):
        sys.exit("usage: python trtprobe supervise --job DIR --cases DIR --repros DIR --out DIR")
    sys.exit(main(sys.argv[2:]))
