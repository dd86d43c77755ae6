"""The cases of all repros by what their noise depends on: one group a noise key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from trtmatrix.authoring.arithmetic import Arithmetic
from trtmatrix.suite.repro_files import LoadedRepro, read_repros
from trtmatrix.suite.repros import Case, Scalar

Params = Mapping[str, Any]
Arrays = Mapping[str, NDArray[Any]]
REPROS = Path(__file__).resolve().parent.parent / "repros"
BF16 = {"sdpa-scale/explicit-tf32", "sdpa-scale/explicit-tf32-head64"}
"""Cases whose mathematics is also looked at in bfloat16, which no case of the suite asks for yet: there the
noise is larger than the defect. The whole is computed, since a part has a larger c by chance."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """Cases that have the same noise; ``case`` stands for them, with the known defects of all."""

    loaded: LoadedRepro
    case: Case

    @property
    def key(self) -> str:
        """The noise key."""
        return self.case.noise_key

    @property
    def params(self) -> Mapping[str, Scalar]:
        """The parameters that ``emulate`` is given."""
        return self.case.params

    def emulate(self, arithmetic: Arithmetic, defect: str = "", seed: int = 0) -> Arrays:
        """Return the outputs of the small part; in bfloat16 of the whole."""
        return self.emulate_by(dict(self.params), arithmetic, defect, seed)

    def emulate_by(
        self, params: Params, arithmetic: Arithmetic, defect: str = "", seed: int = 0, small: bool = True
    ) -> Arrays:
        """Return what a repro's ``emulate`` does, of the part that stands for this group."""
        part = small and self.small
        found: Arrays = self.loaded.module.emulate(params, arithmetic, defect, seed=seed, small=part)
        return found

    @property
    def small(self) -> bool:
        """Whether a part stands for the whole."""
        return self.case.precision != "bf16"


def read_groups(folder: Path = REPROS) -> list[Group]:
    """Return the groups of all repros that can be emulated, in the order of their first case."""
    found: dict[str, Group] = {}
    for loaded in read_repros(folder):
        for case in loaded.repro.cases:
            for each in (case, *_in_bf16(loaded, case)):
                if each.noise_key:
                    found[each.noise_key] = _merge(found.get(each.noise_key), loaded, each)
    return list(found.values())


def _in_bf16(loaded: LoadedRepro, case: Case) -> list[Case]:
    if f"{loaded.repro.id}/{case.id}" not in BF16:
        return []
    key = case.noise_key.replace(f"precision={case.precision}", "precision=bf16")
    return [replace(case, params={**case.params, "precision": "bf16"}, noise_key=key)]


def _merge(known: Group | None, loaded: LoadedRepro, case: Case) -> Group:
    if known is None:
        return Group(loaded=loaded, case=replace(case, control=None, defect="", limits={}))
    defects = tuple(dict.fromkeys((*known.case.defects, *case.defects)))
    return replace(known, case=replace(known.case, defects=defects))
