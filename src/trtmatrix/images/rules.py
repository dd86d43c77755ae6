"""The rules by which a host is held against a plan before a run, and what is told of it. Pure.

A rule that prevents cells names the kinds of :class:`Exclusion` that they get; one without any only warns.
docs/hosts.md has what each rule looks at, and its source.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import groupby

from trtmatrix.suite.model import Exclusion


class Level(str, Enum):
    """How a finding stands."""

    GOOD = "ok"
    LACKING = "--"
    TROUBLE = "!!"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that was looked at; ``remedy`` is what to type or do.

    ``prevents``: what cannot be done because of it, in words; nothing where all can. ``rule``: the id of the
    rule that it comes of, nothing where it comes of none.
    """

    level: Level
    what: str
    found: str
    remedy: str = ""
    prevents: str = ""
    rule: str = ""


def finding_lines(findings: Sequence[Finding]) -> Iterator[str]:
    """Yield the findings for a terminal; those in a row that one remedy mends share its line."""
    for (level, prevents, remedy), items in groupby(findings, lambda f: (f.level, f.prevents, f.remedy)):
        yield from (f"[{level.value}] {item.what}: {item.found}" for item in items)
        if prevents:
            yield f"     prevents {prevents}"
        if remedy:
            yield f"     -> {remedy}"


@dataclass(frozen=True)
class Rule:
    """One rule. ``mends``: the command or step; ``what``: what its findings are about, where not the id."""

    id: str
    excludes: tuple[Exclusion, ...]
    mends: str
    prevents: str = "cells of these versions"
    what: str = ""

    def finding(self, found: str, level: Level = Level.LACKING, **others: str) -> Finding:
        """Return what was found by it; ``others``: words in place of the rule's own."""
        good = level is Level.GOOD
        told = Finding(
            level=level, what=self.what or self.id, found=found, rule=self.id,
            remedy="" if good else self.mends, prevents="" if good or not self.excludes else self.prevents,
        )  # fmt: skip
        return replace(told, **others)  # type: ignore[arg-type]  # all of them are words


_ALL = (
    Rule("engine", (Exclusion.NO_ENGINE,), "install and start Docker, or correct --engine or DOCKER_HOST",
         "all cells in images", "container engine"),
    Rule("engine-limits", (), "delegate cgroup controllers to the user: "
         "https://rootlesscontaine.rs/getting-started/common/cgroup2/", what="limits of containers"),
    Rule("gpu", (Exclusion.NO_GPU, Exclusion.OTHER_GPU), "run on a host with this NVIDIA GPU and its driver",
         "all cells of TensorRT", "GPU"),
    Rule("gpu-access", (Exclusion.NO_GPU_ACCESS,), "install NVIDIA's Container Toolkit: "
         "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html",
         "all cells of TensorRT in images", "container engine"),
    Rule("mig", (Exclusion.NO_GPU_ACCESS,),
         "install NVIDIA's Container Toolkit, or leave MIG: sudo nvidia-smi -mig 0", what="MIG"),
    Rule("driver", (Exclusion.DRIVER_TOO_OLD,), "install a newer driver, or leave these versions out"),
    Rule("compute", (Exclusion.UNSUPPORTED_GPU,), "nothing: these versions do not support this GPU"),
    Rule("component", (Exclusion.COMPONENT_MISSING,), "no remedy: the image does not have it",
         "these cases"),
    Rule("image", (Exclusion.IMAGE_NOT_PULLED, Exclusion.IMAGE_NOT_BUILT), "name the version with --trt "
         "(a run pulls or builds it), or use --pull all, or name a file with --image VERSION=FILE; by hand: "
         "docker pull, or nox -s image -- VERSION"),
    Rule("offline", (Exclusion.NOT_HERE,), "on a host with a network: nox -s pack -- --trt VERSION --to DIR; "
         "here: sh DIR/unpack"),
    Rule("interpreter", (Exclusion.NO_INTERPRETER,),
         "name an interpreter that has this TensorRT with --python PATH"),
    Rule("runtime", (Exclusion.OTHER_RUNTIME,), "leave --runtime out"),
    Rule("platform", (Exclusion.IMAGE_NOT_GIVEN,), "run on a host of one of those platforms"),
    Rule("library", (Exclusion.IMAGE_NOT_PULLED,),
         "correct library: or image: in matrix.yaml; nox -s lock shows what the image says",
         what="TensorRT of the image"),
    Rule("registry", (Exclusion.IMAGE_NOT_GIVEN,), "docker login nvcr.io"),
    Rule("lock", (), "nox -s lock -- --update"),
    Rule("disk-images", (Exclusion.NO_ROOM,),
         "free disk space, run fewer versions (--trt), or remove images after their last cell (--keep none)",
         what="disk for images"),
    Rule("disk", (), "free 5 GB there, or name another folder by --cache or --results"),
    Rule("memory", (), "set a lower limit with --memory: then a cell that needs more ends alone"),
    Rule("memory-limit", (Exclusion.NO_MEMORY,), "give containers more: --memory 4g", "all cells in images",
         "memory limit"),
)  # fmt: skip

RULES: Mapping[str, Rule] = {rule.id: rule for rule in _ALL}
"""All rules, in the order in which they are told."""


def rule_of(why: Exclusion) -> Rule | None:
    """Return the first rule that excludes for a reason, or None: not all that goes wrong is known before."""
    return next((rule for rule in _ALL if why in rule.excludes), None)
