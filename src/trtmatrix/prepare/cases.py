"""Prepares cases once: graph, inputs, float64 reference, noise, defects; kept by content in the cache.

A prepared case is only used as it was prepared: a changed bit in a reference must be no verdict. Its
``case.json`` has the SHA-256 of each of its files, and its own. A file is read once a process, and looked at
(inode, size, time of change) each time after that.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import orjson

from trtmatrix.common.border import ARRAY, BorderError, opened, read_json, remove_tree
from trtmatrix.common.errors import UsageError
from trtmatrix.common.paths import digest_stream, publish_folder
from trtmatrix.suite.repro_files import LoadedRepro
from trtmatrix.suite.repros import Case

if TYPE_CHECKING:  # only what prepares a case needs NumPy: a run that is served starts without it
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[Any]

Blobs = dict[str, dict[str, Path]]
"""Defect → output → the file that holds the defect's shape."""

CASE = "case.json"
NOISE = "noise.json"
SEAL = "seal"
FOLDERS = ("inputs", "reference", "extra", "others")
REMEMBERED = 8
"""Arrays that are known again when another case gives them."""


def case_key(loaded: LoadedRepro, case: Case) -> str:
    """Return the name of a case's folder: from the repro's code, the host's code, params and defects."""
    code = loaded.code
    identity = [loaded.digest, code.authoring, code.noise, case_digest(case), *case.defects]
    return sha256("\n".join(identity).encode()).hexdigest()[:40]


def case_digest(case: Case) -> str:
    """Return the SHA-256 of a case's parameters (hexadecimal)."""
    return sha256(json.dumps(dict(case.params), sort_keys=True).encode()).hexdigest()


def read_noise_file(folder: Path) -> dict[str, Any]:
    """Return the noise of a prepared case; nothing where its repro does not emulate it."""
    try:
        return read_json(folder / NOISE)
    except FileNotFoundError:
        return {}


def read_content(folder: Path) -> str:
    """Return the digest of what a prepared case gives to a product: graphs, inputs and the like."""
    return str(read_json(folder / CASE)["content"])


# --- Whether a case is as it was prepared

_KNOWN: dict[tuple[int, int, int, int], str] = {}
"""Device, inode, size and time of change of a file that this process has read → its SHA-256."""


def digest_known(file: Path) -> str:
    """Return the SHA-256 of a file (hexadecimal), read where this process has not read it as it is."""
    facts = os.stat(file, follow_symlinks=False)  # noqa: PTH116 - as Path's, but quicker
    key = (facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns)
    if key not in _KNOWN:
        with opened(file, ARRAY) as (stream, _):
            _KNOWN[key] = digest_stream(stream)
    return _KNOWN[key]


def sealed(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return what ``case.json`` holds: facts with a digest of themselves."""
    text = json.dumps(facts, sort_keys=True, allow_nan=False)
    text = json.dumps(orjson.loads(text), sort_keys=True)  # as it is read again
    return {**facts, SEAL: sha256(text.encode()).hexdigest()}


def find_change(folder: Path) -> str:
    """Return what of a prepared case is not as it was prepared, in words; nothing where all is.

    ``OSError`` where a file is there and cannot be read.
    """
    name = CASE
    try:
        facts = read_json(folder / CASE)
        if facts.pop(SEAL, "") != sealed(facts)[SEAL]:
            return f"{CASE} differs"
        wanted: dict[str, str] = facts["files"]
        for name, digest in wanted.items():
            if digest_known(folder / name) != digest:
                return f"{name} differs"
    except (FileNotFoundError, NotADirectoryError):
        return f"{name} is gone"
    except BorderError as error:
        return f"{name} {error}"
    start = len(str(folder)) + 1
    files = (f"{place}/{name}"[start:] for place, _, names in os.walk(folder) for name in names)
    return next((f"{name} is extra" for name in files if name not in wanted and name != CASE), "")


# --- Preparing


class CaseCache:
    """Folders of prepared cases below ``<cache>/cases``; equal arrays share one file."""

    def __init__(self, cache: Path, tag: str = "") -> None:
        """Name the folder; it is made on the first write. ``tag`` marks what is not whole yet."""
        self.root = cache / "cases"
        self.blobs = cache / "blobs"
        self.tag = tag
        self._seen: dict[int, tuple[Array, Path]] = {}
        self._digests: dict[Path, str] = {}  # of blobs, by what was to be written
        self._noises: dict[tuple[str, ...], tuple[dict[str, Any], Blobs]] = {}

    def folder(self, loaded: LoadedRepro, case: Case) -> Path:
        """Return where a case lies, prepared or not."""
        return self.root / case_key(loaded, case)

    def is_whole(self, folder: Path, note: Callable[[str], object] = lambda _: None) -> bool:
        """Whether a case is prepared and as it was then; one that is not is removed, and ``note`` is told."""
        if not folder.is_dir():
            return False
        if why := find_change(folder):
            remove_tree(folder)
            note(f"a prepared case is not as it was made, and is prepared anew: {why} in {folder}")
        return not why

    def prepare(self, loaded: LoadedRepro, case: Case) -> Path:
        """Return a case's folder, prepared now if it is not there as it was made.

        :class:`UsageError` where the repro's ``prepare`` or ``emulate`` raises or returns something unusable.
        """
        final = self.folder(loaded, case)
        if self.is_whole(final):
            return final
        try:
            prepared = loaded.module.prepare(dict(case.params))
            models = {f"{key}.onnx": _model(prepared[key]) for key in ("model", "check") if key in prepared}
            others = dict(prepared.get("others", {}))
            models.update({f"others/{name}.onnx": _model(model) for name, model in others.items()})
            beside = _beside(models["model.onnx"])
            arrays = {key: _arrays(prepared, key) for key in ("inputs", "reference", "extra")}
        except Exception as error:
            raise _broken("prepare", loaded, case, error) from error
        self.root.mkdir(parents=True, exist_ok=True)
        self.blobs.mkdir(exist_ok=True)
        external = {name: self.keep_file(file) for name, file in beside.items()}
        files = {**external, **{name: self._write_model(model) for name, model in models.items()}}
        for key, named in arrays.items():
            narrow = key == "reference"
            files.update({f"{key}/{name}.npy": self._blob(named[name], narrow=narrow) for name in named})
        noise, shapes = self._noise(loaded, case, arrays["reference"])
        facts: dict[str, Any] = {"repro": loaded.repro.id, "case": case.id, "params": dict(case.params)}
        if external:  # the probe need not read them to know their content
            facts["external"] = {name: blob.stem for name, blob in external.items()}
        # What a product is given: graphs, inputs and extra arrays, but no reference.
        given = {name: blob.name for name, blob in files.items() if not name.startswith("reference/")}
        facts["content"] = sha256("\n".join(map(" ".join, sorted(given.items()))).encode()).hexdigest()
        for defect, by_output in shapes.items():
            files |= {f"defects/{defect}/{output}.npy": blob for output, blob in by_output.items()}
        self._write_folder(final, facts, files, noise)
        return final

    def remove_partial(self) -> None:
        """Remove what processes that were killed left under this tag."""
        for folder in self.root.glob(f".partial-{self.tag}*"):
            remove_tree(folder)
        for file in self.blobs.glob(f"{self.tag}*.partial"):
            file.unlink(missing_ok=True)

    def _noise(
        self, loaded: LoadedRepro, case: Case, reference: Mapping[str, Array]
    ) -> tuple[dict[str, Any], Blobs]:
        """Return a case's noise and its defects' files; computed once for all cases that share them."""
        from trtmatrix.prepare.noise import compute_noise, has_noise

        if not has_noise(loaded, case):
            return {}, {}
        key = (loaded.repro.id, case.noise_key or case_digest(case), case.precision, *case.defects)
        if key not in self._noises:
            try:
                noise, shapes = compute_noise(loaded, case, reference)
            except Exception as error:
                raise _broken("emulate", loaded, case, error) from error
            self._noises[key] = noise, {
                defect: {output: self._write_array(d) for output, d in by_output.items()}
                for defect, by_output in shapes.items()
            }  # fmt: skip
        return self._noises[key]

    def _write_folder(
        self, final: Path, facts: Mapping[str, Any], files: Mapping[str, Path], noise: Mapping[str, Any]
    ) -> None:
        """Write a case's folder whole or not at all; its large ``files`` are links."""
        partial = Path(tempfile.mkdtemp(prefix=f".partial-{self.tag}", dir=self.root))
        try:
            for name in FOLDERS:
                (partial / name).mkdir()
            for name, blob in files.items():
                (partial / name).parent.mkdir(parents=True, exist_ok=True)
                os.link(blob, partial / name)
            digests = {name: self._digests[blob] for name, blob in files.items()}
            if noise:
                _write_json(partial / NOISE, noise)
                digests[NOISE] = digest_known(partial / NOISE)
            _write_json(partial / CASE, sealed({**facts, "files": digests}))
            publish_folder(partial, final)
        finally:
            remove_tree(partial)

    def _blob(self, array: Array, *, narrow: bool) -> Path:
        """Return the file that holds an array; one that several cases share is looked at once.

        References are narrowed to the smallest exact dtype; an input's dtype is the graph's.
        """
        import numpy as np

        known = self._seen.pop(id(array), None)
        if known is None or known[0] is not array or not self._is_right(known[1]):
            stored = smallest_exact(array) if narrow else array
            known = (array, self._write_array(np.asarray(stored, order="C")))
        self._seen[id(array)] = known
        while len(self._seen) > REMEMBERED:  # an array that is remembered stays in memory
            del self._seen[next(iter(self._seen))]
        return known[1]

    def _is_right(self, blob: Path) -> bool:
        """Whether a file is there and holds what was written: one that somebody changed is written again."""
        try:
            return digest_known(blob) == self._digests.get(blob)
        except (FileNotFoundError, BorderError):
            return False

    def _write_array(self, array: Array) -> Path:
        import numpy as np

        return self._write_blob(*_array_bytes(array), ".npy", lambda out: np.save(out, array))

    def _write_model(self, model: bytes | Path) -> Path:
        if isinstance(model, Path):
            return self.keep_file(model, ".onnx")
        return self._write_blob(b"", model, ".onnx", lambda out: out.write(model))

    def keep_file(self, file: Path, suffix: str = "") -> Path:
        """Return the file named after a file's content, copied now if it is not there.

        What lies in the cache already, and is changed by nobody, is linked instead.
        """
        from trtmatrix.onnxmodel.reading import digest_file

        self.blobs.mkdir(parents=True, exist_ok=True)
        digest = digest_file(file)
        path = self.blobs / f"{digest}{suffix}"
        self._digests[path] = digest
        if self._is_right(path):
            return path
        partial = self.blobs / f"{self.tag}{os.urandom(6).hex()}.partial"
        try:
            if file.resolve().is_relative_to(self.root.parent.resolve()):
                with contextlib.suppress(OSError):
                    os.link(file, partial)
            if not partial.exists():
                shutil.copyfile(file, partial)
                partial.chmod(0o644)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
        return path

    def _write_blob(
        self, head: bytes, data: bytes | memoryview, suffix: str, write: Callable[[IO[bytes]], object]
    ) -> Path:
        """Return the file named after its content, written now if it is not there."""
        path = self.blobs / _blob_name(head, data, suffix)
        if self._is_right(path):
            return path
        content = _Hashed()
        write(content)  # type: ignore[arg-type]  # it is only written to
        self._digests[path] = content.total.hexdigest()
        if not self._is_right(path):
            partial = self.blobs / f"{self.tag}{os.urandom(6).hex()}.partial"
            try:
                with partial.open("xb") as out:
                    write(out)
                partial.chmod(0o644)
                partial.replace(path)
            finally:
                partial.unlink(missing_ok=True)
        return path


class _Hashed:
    """Takes the digest of what is written to it."""

    def __init__(self) -> None:
        self.total = sha256()

    def write(self, data: bytes | memoryview) -> int:
        self.total.update(data)
        return len(data)


def _arrays(prepared: dict[str, Any], key: str) -> dict[str, Array]:
    """Return the named arrays that ``prepare()`` gave; ``TypeError`` where they are none."""
    import numpy as np

    named = dict(prepared.get(key, {}) if key == "extra" else prepared[key])
    for name, array in named.items():
        if not isinstance(array, np.ndarray) or array.dtype.hasobject:
            raise TypeError(f"{key}[{name!r}] is no NumPy array of numbers but {type(array).__name__}")
        if key == "reference" and array.dtype != np.float64 and array.dtype.kind not in "iu":
            raise TypeError(
                f"reference[{name!r}] is {array.dtype}: a reference is computed in float64, or is of integers"
            )
    return named


def _beside(model: bytes | Path) -> dict[str, Path]:
    """Return the files with the weights of a model that is a file, by the names that it gives them."""
    if isinstance(model, bytes):
        return {}
    from trtmatrix.onnxmodel.graphs import find_external

    return find_external(model)


def _model(model: Any) -> bytes | Path:  # noqa: ANN401 - onnx.ModelProto, imported only here
    """Return a model's bytes, raises where it is not valid ONNX; a path is taken as it is, however large."""
    if isinstance(model, Path):
        return model
    import onnx

    onnx.checker.check_model(model)
    content: bytes = model.SerializeToString()
    return content


def _broken(function: str, loaded: LoadedRepro, case: Case, error: Exception) -> UsageError:
    return UsageError(
        f"{loaded.file}: {function}() of the case {case.id} failed: {error!r}\n"
        f"  see it whole: python -m trtmatrix prepare {loaded.repro.id}/{case.id} --traceback"
    )


def _array_bytes(array: Array) -> tuple[bytes, bytes | memoryview]:
    """Return what identifies an array: dtype and shape, and its values; it must be contiguous."""
    import numpy as np

    data = array.reshape(-1).view(np.uint8).data if array.size else b""
    return f"{array.dtype.str} {array.shape}".encode(), data


def _blob_name(head: bytes, data: bytes | memoryview, suffix: str) -> str:
    content = sha256(head)
    content.update(data)
    return f"{content.hexdigest()}{suffix}"


def _write_json(path: Path, data: Mapping[str, Any]) -> None:
    text = json.dumps(data, indent=1, sort_keys=True, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")


def smallest_exact(array: Array) -> Array:
    """Return a float64 array in the smallest float dtype that holds every value exactly; integers stay."""
    import numpy as np

    def holds(dtype: type[np.floating[Any]], part: Array) -> bool:
        return np.array_equal(part.astype(dtype).astype(np.float64), part, equal_nan=True)

    if array.dtype.kind in "iu":
        return array
    with np.errstate(over="ignore"):
        for dtype in (np.float16, np.float32):
            if holds(dtype, array.reshape(-1)[:4096]) and holds(dtype, array):  # most are told by a few
                return array.astype(dtype)
    return array
