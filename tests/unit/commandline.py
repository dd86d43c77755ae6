"""What a command line asks for, as the options that a command gets."""

from typing import Any

from trtmatrix.cli.entry import parse
from trtmatrix.plan.context import ProjectOptions


def options_of(*words: str) -> Any:
    return parse(words)[1]


def project_of(*words: str) -> ProjectOptions:
    project: ProjectOptions = options_of(*words).project
    return project
