"""Unpacks an archive that may come from anyone: files alone, into one folder, each with its digest checked."""

from __future__ import annotations

from pathlib import Path

from trtmatrix.core.errors import ExitCode, TrtMatrixError


class ChangedError(TrtMatrixError):
    """Files of an archive are not those that its list of digests names; ``problems`` has one line each."""

    exit_code = ExitCode.SURPRISE

    def __init__(self, file: Path, problems: list[str]) -> None:
        """Keep the problems."""
        super().__init__("\n".join([f"{file}: is not as it was made:", *(f"  {one}" for one in problems)]))
        self.problems = tuple(problems)


def read_archive(file: Path, folder: Path) -> Path:
    """Unpack an archive into a folder that is empty or not there; returns the folder with its files.

    :class:`UsageError` where it is no archive of ours, or holds what could harm (links, devices, paths that
    lead out, more than can be meant); :class:`ChangedError` where files differ from SHA256SUMS, are missing
    or extra. Where it raises, nothing is left but what was there.
    """
    raise NotImplementedError
