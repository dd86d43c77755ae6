"""What an upgrade is decided from: two versions, a GPU, what is known of them, model and code. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field

from trtmatrix.api.types import ApiSection
from trtmatrix.suite.gpus import Gpu
from trtmatrix.suite.matrix import Matrix, Version
from trtmatrix.upgrade.report import ModelSection
from trtmatrix.upgrade.sides import Entries

DOOR = "nox -s"


@dataclass(frozen=True, kw_only=True)
class Own:
    """The user's own model: its section, its entries, and whether its user gave a limit of the error.

    ``tolerance``: ``--atol`` or ``--rtol`` was given, so that its verdicts need no noise floor.
    """

    section: ModelSection
    entries: Entries
    tolerance: bool = False


@dataclass(frozen=True, kw_only=True)
class Question:
    """Whether to move from one version to another on a GPU.

    ``gpu_word`` is how commands name the GPU. ``options``: what every command needs beside (other files than
    the usual). ``restricted``: the options that narrow what is looked at, as typed. ``left_out``: findings
    that they leave out. ``code``: code was named, so that an API difference that is not known is lacking.
    """

    before: Version
    after: Version
    gpu: Gpu
    matrix: Matrix
    entries: Entries
    gpu_word: str = ""
    options: tuple[str, ...] = ()
    restricted: str = ""
    left_out: tuple[str, ...] = ()
    own: Own | None = None
    api: ApiSection = field(default_factory=ApiSection)
    code: bool = False
    command: str = ""
    generated: str = ""

    @property
    def downgrade(self) -> bool:
        """Whether the version moved to is the older one."""
        return self.after.release < self.before.release

    @property
    def between(self) -> tuple[Version, ...]:
        """The versions of the product that lie between the two, in release order."""
        low, high = sorted((self.before.release, self.after.release))
        found = (v for v in self.matrix.versions if v.product is self.after.product)
        return tuple(sorted((v for v in found if low < v.release < high), key=lambda v: v.release))

    def run_command(
        self, versions: Iterable[str], repros: Iterable[str] = (), cases: Iterable[str] = (), *extra: str
    ) -> str:
        """Return the command that measures some cells on enough engines; all cases where none is named."""
        words = ["--trt", ",".join(versions)]
        words += ["--gpu", self.gpu_word] if self.gpu_word else []
        for option, names in (("--repro", tuple(repros)), ("--case", tuple(cases))):
            words += [option, ",".join(names)] if names else []
        return f"{DOOR} matrix -- {shlex.join([*words, *extra, *self.options])}"
