"""What a command line asks for, as the options that a command gets."""

from typing import TypeVar

from trtmatrix.cli.options import make_parser, read_options
from trtmatrix.plan.context import ProjectOptions

T = TypeVar("T")


def options_of(kind: type[T], *words: str) -> T:
    return read_options(kind, make_parser().parse_args(words))


def project_of(*words: str) -> ProjectOptions:
    return options_of(ProjectOptions, *words)
