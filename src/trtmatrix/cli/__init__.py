"""The command line: options, commands and exit codes; nothing is decided here.

It may import every other package, each command only when it is called: --help and ``list`` stay light.
:mod:`.entry` parses and runs a command; :mod:`.commands` has those that look at the host and its records.
"""
