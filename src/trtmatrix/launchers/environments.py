"""Python environments that are made once, whole, and found again by their folder."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path

from packaging.requirements import Requirement

from trtmatrix.common.errors import MachineryError
from trtmatrix.common.file_lock import hold
from trtmatrix.launchers.wheels import install_wheels


def has_environment(folder: Path) -> bool:
    """Whether an environment is there, whole."""
    return (folder / "complete").exists()


def have_environment(
    folder: Path, wheels: Sequence[str], create: Callable[[Path], None], note: Callable[[str], None],
    wheelhouse: Path | None = None,
) -> Path:  # fmt: skip
    """Return the Python of an environment with these wheels, made now if it is not there.

    ``create`` makes it without any wheel; ``note`` is told of what takes long. Raises
    :class:`MachineryError` where a wheel cannot be had.
    """
    with hold(folder.parent / f"{folder.name}.lock", note):
        if not has_environment(folder):
            note(f"installing {', '.join(wheels)} into {folder} (once)")
            for old in (folder, *folder.parent.glob(f"{folder.name}.partial-*")):
                shutil.rmtree(old, ignore_errors=True)
            # The pip of a run that was interrupted may still be writing: never where this one does.
            partial = Path(tempfile.mkdtemp(prefix=f"{folder.name}.partial-", dir=folder.parent))
            create(partial)
            install_wheels(partial / "bin" / "python", tuple(wheels), wheelhouse)
            (partial / "complete").touch()
            partial.rename(folder)
    return folder / "bin" / "python"


def have_own_environment(root: Path, named: str | None, note: Callable[[str], None]) -> Path:
    """Return a Python below ``root`` with all that this program needs, but for the program; made once.

    ``named``: a Python 3.10 or later; without one uv fetches its own into ``root``. Raises
    :class:`MachineryError` where there is none.
    """
    needed = [Requirement(text) for text in importlib.metadata.requires("trtmatrix") or ()]
    plain = sorted(str(one) for one in needed if not (one.marker and "extra" in str(one.marker)))
    which = (
        ["--no-python-downloads", "--python", named] if named else ["--managed-python", "--python", "3.12"]
    )

    def create(folder: Path) -> None:
        command = [sys.executable, "-m", "uv", "venv", "--quiet", "--allow-existing", *which, str(folder)]
        place = {**os.environ, "UV_PYTHON_INSTALL_DIR": str(root / "python")}
        done = subprocess.run(command, env=place, capture_output=True, text=True, check=False)
        new = [str(folder / "bin" / "python"), "-c", "import sys; sys.exit(sys.version_info < (3, 10))"]
        if done.returncode or subprocess.run(new, check=False).returncode:
            raise MachineryError(f"no Python 3.10 from {named or 'uv'}: {done.stderr.strip()[-300:]}")

    key = sha256("\n".join([*which, *plain]).encode()).hexdigest()[:16]
    return have_environment(root / "env" / key, plain, create, note)
