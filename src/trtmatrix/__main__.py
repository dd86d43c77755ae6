"""``python -m trtmatrix``."""

from trtmatrix.cli import main

if __name__ == "__main__":
    main()
