"""Options, commands and exit codes of ``python -m trtmatrix``; nothing is decided here."""
