"""Whether a record from elsewhere is of a cell of this project, and what of it is another thing by now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trtmatrix.judge.record import Record
from trtmatrix.launchers.lock import Lock
from trtmatrix.plan.context import Context
from trtmatrix.plan.digests import cell_digests
from trtmatrix.plan.stale import find_changes
from trtmatrix.suite.cells import Cell
from trtmatrix.suite.gpus import Gpu
from trtmatrix.suite.matrix import ImageOrigin, Version
from trtmatrix.suite.repro_files import LoadedRepro, stored_repros


class KnownCells:
    """The cells of a project, and of the models of its user that were prepared here."""

    def __init__(self, context: Context) -> None:
        """Take the project as read."""
        self._context = context
        self._versions = {version.name: version for version in context.matrix.versions}
        self._repros: dict[tuple[str, str], LoadedRepro | None] = {}

    def unknown(self, record: Record) -> str:
        """Return why a record's cell is none of this project's, or nothing."""
        cell, version = record.cell, self._versions.get(record.cell.version)
        if version is None:
            return f"matrix.yaml has no version {cell.version}: add it, then merge again"
        if version.product is not record.product:
            return (
                f"{cell.version} is of {version.product.value} here, and the record of {record.product.value}"
            )
        if self._repro(record) is not None:
            return ""
        if cell.repro in self._context.repros:
            return f"the repro {cell.repro} has no case {cell.case} here: merge where its repro is as it was"
        return (
            f"there is no repro {cell.repro} here: of a model of your own, prepare it first "
            "(python -m trtmatrix upgrade --model FILE --no-run); else add the repro, then merge again"
        )

    def remarks(self, record: Record) -> tuple[str, ...]:
        """Return what is another thing here than it was for a record that is known."""
        loaded, version = self._repro(record), self._versions[record.cell.version]
        if loaded is None:
            return ()
        case = next(case for case in loaded.repro.cases if case.id == record.cell.case)
        gpu = Gpu(slug=record.cell.gpu, name=str(record.gpu.get("name", "")))
        cell = Cell(repro=loaded.repro, case=case, version=version, gpu=gpu)
        current = {**cell_digests(cell, loaded), "probe": self._context.code.probe}
        row = f"{cell.repro.id}/{case.id}"  # a line a repro is enough
        changes = [
            str(change).replace(row, f"cases of {cell.repro.id}")
            for change in find_changes(record, current, cell)
        ]
        return (
            *(f"{change} changed since: shown as recorded, not as current" for change in changes),
            *image_remarks(record, version, self._context.lock),
        )

    def _repro(self, record: Record) -> LoadedRepro | None:
        """Return the repro that has a record's case, of the project or of the user's own models."""
        key = (record.cell.repro, record.cell.case)
        if key not in self._repros:
            self._repros[key] = next(self._candidates(*key), None)
        return self._repros[key]

    def _candidates(self, repro: str, case: str) -> Iterator[LoadedRepro]:
        loaded = self._context.repros.get(repro)
        if loaded is not None:
            if any(known.id == case for known in loaded.repro.cases):
                yield loaded
            return
        for stored in stored_repros(self._context.project.cache, repro, case):
            yield next(item for item in stored if item.repro.id == repro)


def image_remarks(record: Record, version: Version, lock: Lock) -> tuple[str, ...]:
    """Say where a record was made in another image than the locked one."""
    origin, ran = version.origin, str(record.digests.get("image", ""))
    if not isinstance(origin, ImageOrigin) or record.digests.get("runtime", "container") != "container":
        return ()
    locked: Mapping[str, None] = dict.fromkeys(_locked_ids(origin, lock))
    if not locked or not ran or ran in locked:
        return ()
    return (
        f"made in the image {ran[:19]}, and matrix.lock has {next(iter(locked))[:19]} for {origin.image}",
    )


def _locked_ids(origin: ImageOrigin, lock: Lock) -> Iterator[str]:
    """Yield every digest by which an engine may name the locked image, of any platform."""
    if origin.pin is not None:
        yield from origin.pin.ids
    image = lock.images.get(origin.image)
    if image is not None:
        yield from (digest for one in image.platforms for digest in (one.image_id, one.manifest))
