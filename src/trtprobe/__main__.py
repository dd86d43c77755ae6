"""``python trtprobe supervise …``, also run by its folder's path."""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    from trtprobe.supervisor import main

    if sys.argv[1:2] != ["supervise"]:
        sys.exit("usage: python trtprobe supervise --job DIR --cases DIR --repros DIR --out DIR")
    sys.exit(main(sys.argv[2:]))
