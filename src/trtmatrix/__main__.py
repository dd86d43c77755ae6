"""``python -m trtmatrix``."""

from trtmatrix.cli.entry import main

if __name__ == "__main__":
    main()
