"""The command line: options, commands and exit codes; nothing is decided here.

It may import every other package, each command only when it is called: --help and ``list`` stay light.
:mod:`.parser` declares the options, :mod:`.options` gives them types, :mod:`.entry` runs a command.
"""
