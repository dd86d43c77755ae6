"""The keys that slurm.yaml may have, with the type and the rule of each; its JSON Schema."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from trtmatrix.core.matrixkeys import Keys, schema_number
from trtmatrix.core.plan import GpuAccess
from trtmatrix.core.slurm import site, sitevalues
from trtmatrix.core.slurm.site import NodeRuntime


class Access(str, Enum):
    """How a container of Docker is given its GPU."""

    TOOLKIT = "toolkit"
    CDI = "cdi"
    NODES = "nodes"


Count = Annotated[int, Field(ge=1, le=1_000_000, strict=True)]
Minutes = Annotated[
    int, BeforeValidator(sitevalues.check_minutes), Field(ge=1, le=sitevalues.MOST_MINUTES, strict=True)
]  # fmt: skip
Size = Annotated[
    int, BeforeValidator(sitevalues.read_size),
    Field(json_schema_extra={"type": "string", "pattern": "^[1-9][0-9]*[mMgGtT][iI]?[bB]?$"}),
]  # fmt: skip
Text = Annotated[str, Field(min_length=1)]
Options = Annotated[tuple[Text, ...], AfterValidator(sitevalues.check_options)]
GpuOptions = Annotated[tuple[Text, ...], AfterValidator(sitevalues.check_gpu_options)]
Line = Annotated[str, AfterValidator(sitevalues.check_line)]


class SiteGpu(Keys):
    """How one model of GPU is asked for."""

    name: Annotated[str, AfterValidator(sitevalues.check_gpu_name)]
    gres: Annotated[str, AfterValidator(sitevalues.check_gres)]
    constraint: Text | None = None
    partition: Text | None = None
    account: Text | None = None
    qos: Text | None = None
    options: GpuOptions = ()


class Limits(Keys):
    """Limits of the site's jobs; memory is of one task, minutes are its ``--time``."""

    minutes: Minutes = site.SiteLimits.minutes
    running: Count = site.SiteLimits.running
    tasks: Count = site.SiteLimits.tasks
    cpus: Count = site.SiteLimits.cpus
    memory: Size = site.SiteLimits.memory
    import_minutes: Minutes = site.SiteLimits.import_minutes


class Site(Keys):
    """The whole of slurm.yaml."""

    schema_: Annotated[Literal[1], BeforeValidator(schema_number)] = Field(alias="schema")
    shared: Annotated[str, AfterValidator(sitevalues.check_shared)]
    runtime: NodeRuntime
    gpus: Annotated[tuple[SiteGpu, ...], Field(min_length=1)]
    access: Access = Access.TOOLKIT
    driver_folder: Annotated[str, AfterValidator(sitevalues.check_folder)] = ""
    limits: Limits = Limits()
    setup: tuple[Line, ...] = ()
    scratch: Annotated[str, AfterValidator(sitevalues.check_scratch)] = ""
    images: dict[str, Text] = Field(default_factory=dict)
    options: Options = ()
    import_options: Options = ()


MODELS: dict[str, type[Keys]] = {"": Site, "gpus": SiteGpu, "limits": Limits}
"""Which keys are known below a key."""


def to_site(raw: Site, file: str) -> site.Site:
    """Return slurm.yaml as the program works with it."""
    return site.Site(
        shared=raw.shared, runtime=raw.runtime, gpus=tuple(map(_to_gpu, raw.gpus)),
        access=GpuAccess[raw.access.name], driver_folder=raw.driver_folder,
        limits=site.SiteLimits(**dict(raw.limits)), setup=raw.setup, scratch=raw.scratch,
        images=dict(raw.images), options=raw.options, import_options=raw.import_options, file=file,
    )  # fmt: skip


def _to_gpu(raw: SiteGpu) -> site.SiteGpu:
    return site.SiteGpu(
        name=raw.name, gres=raw.gres, constraint=raw.constraint or "", partition=raw.partition or "",
        account=raw.account or "", qos=raw.qos or "", options=raw.options,
    )  # fmt: skip


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of slurm.yaml, for editors."""
    schema = Site.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
