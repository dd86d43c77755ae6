"""The cluster as a run sees it: the site, its shared folder, the GPUs and images that it is known to have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from trtmatrix.context import Context
from trtmatrix.core.config import ImageOrigin, Version
from trtmatrix.core.errors import UsageError
from trtmatrix.core.image_names import is_own
from trtmatrix.core.plan import Engine, GpuAccess, Host
from trtmatrix.core.slurm.boards import site_gpus
from trtmatrix.core.slurm.images import image_digest, image_key, is_image_file, with_site_images
from trtmatrix.core.slurm.layout import OVER
from trtmatrix.core.slurm.site import NodeRuntime, Site
from trtmatrix.effects.gpu import known_gpu
from trtmatrix.effects.shared_folder import SharedFolder

NOT_HAD = "not had yet"
"""Stands for the ID of an image that the site names and that no import has had yet."""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A site with what its shared folder knows by now.

    ``host``: its nodes together, as records and digests see them, with the models of GPUs that it has;
    ``planned``: as a plan does, which also counts on images that the site names. ``repros``: the project's,
    which the suite is made of. ``past``: the arrays that were over when this client began. ``keys``: images',
    by version, as they were first asked for: an image's file may be made anew while arrays run with it.
    """

    site: Site
    folder: SharedFolder
    host: Host
    planned: Host
    repros: Path
    past: frozenset[str] = frozenset()
    keys: dict[str, str] = field(default_factory=dict, compare=False, repr=False)

    def key_of(self, version: Version) -> str:
        """Return the key of a version's image on the shared folder, the same one as long as a run lasts."""
        return _key_once(self.keys, self.site, version)


def _key_once(keys: dict[str, str], site: Site, version: Version) -> str:
    if version.name not in keys:
        keys[version.name] = key_of(site, version)
    return keys[version.name]


def key_of(site: Site, version: Version) -> str:
    """Return the key of a version's image on a site's shared folder; a file's changes with the file."""
    origin = version.origin
    if not isinstance(origin, ImageOrigin):
        raise TypeError(f"{version.name} is no image")
    reference, stamp = origin.reference, ""
    if is_image_file(reference):
        try:
            facts = Path(reference).stat()
        except OSError as error:
            raise UsageError(
                f"{site.file}: images: {version.name}: {reference} cannot be read: {error.strerror}\n"
                "  it must lie where this host and every node see it"
            ) from error
        stamp = f"{facts.st_size} {facts.st_mtime_ns}"
    return image_key(site.runtime, reference, stamp)


def open_cluster(context: Context, site: Site, folder: SharedFolder) -> tuple[Context, Cluster]:
    """Return the context with the site's own images, and the cluster as the shared folder knows it.

    The folder is one that was checked.
    """
    if "host" in context.selection.runtimes:
        raise UsageError("--runtime host: interpreters of this host are not run through Slurm; leave it out")
    context = replace(context, matrix=with_site_images(context.matrix, site))
    past = frozenset(path.parent.name for path in Path(site.shared, "arrays").glob(f"*/{OVER}"))
    return context, look_at(context, site, folder, past)


def look_at(
    context: Context,
    site: Site,
    folder: SharedFolder,
    past: frozenset[str],
    keys: dict[str, str] | None = None,
) -> Cluster:
    """Return the cluster as the shared folder knows it now; ``keys``: images', as a run has them."""
    keys = {} if keys is None else keys
    had, hoped = _images(context, site, folder, keys)
    driver = site.driver_folder or None
    engine = Engine(
        available=True, version="", images=had, gpu_access=site.access or GpuAccess.TOOLKIT,
        ids=frozenset(had.values()), name="Docker", driver_folder=driver,
    )  # fmt: skip
    host = Host(engine=engine, gpus=site_gpus(site, folder.boards(), known_gpu), offline=context.offline)
    planned = replace(host, engine=replace(engine, images={**hoped, **had}))
    return Cluster(
        repros=context.project.repros.resolve(), site=site, folder=folder, host=host,
        planned=planned, past=past, keys=keys,
    )  # fmt: skip


def renewed(context: Context, cluster: Cluster) -> Cluster:
    """Return the cluster with what its jobs have found since."""
    return look_at(context, cluster.site, cluster.folder, cluster.past, cluster.keys)


def _images(
    context: Context, site: Site, folder: SharedFolder, keys: dict[str, str]
) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return the images that were had, by name, as records name them; and those that the site names."""
    had, hoped = dict[str, str](), dict[str, str]()
    for version in context.matrix.versions:
        origin = version.origin
        if not isinstance(origin, ImageOrigin):
            continue
        if version.name in site.images or _may_be_there(origin, site):
            hoped[origin.image] = NOT_HAD
        image = folder.image(_key_once(keys, site, version))
        if image is not None:
            had[origin.image] = image_digest(version, image.id, site.runtime)
    return had, hoped


def _may_be_there(origin: ImageOrigin, site: Site) -> bool:
    """Whether an image that no registry has may be in the nodes' own engine: an import tells."""
    return site.runtime is NodeRuntime.DOCKER and origin.build is None and is_own(origin.image)
