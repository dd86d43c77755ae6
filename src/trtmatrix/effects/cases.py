"""Prepares cases once: graph, inputs and float64 reference, kept by content in the cache."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from trtmatrix.core.errors import UsageError
from trtmatrix.core.model import Case
from trtmatrix.effects.repro_files import LoadedRepro, digest_package

Array = NDArray[Any]


def case_key(loaded: LoadedRepro, case: Case) -> str:
    """Return the name of a case's folder: from the repro's code, the authoring code, the params."""
    identity = [loaded.repro.digest, digest_authoring(), case_digest(case)]
    return sha256("\n".join(identity).encode()).hexdigest()[:40]


def case_digest(case: Case) -> str:
    """Return the SHA-256 of a case's parameters (hexadecimal)."""
    return sha256(json.dumps(dict(case.params), sort_keys=True).encode()).hexdigest()


_authoring: list[str] = []


def digest_authoring() -> str:
    """Return the digest of what repros may import to build graphs; computed once."""
    if not _authoring:
        _authoring.append(digest_package("trtmatrix.authoring"))
    return _authoring[0]


class CaseCache:
    """Folders of prepared cases below ``<cache>/cases``; equal arrays share one file."""

    def __init__(self, cache: Path) -> None:
        """Name the folder; it is made on the first write."""
        self.root = cache / "cases"
        self.blobs = cache / "blobs"
        self._seen: dict[int, tuple[Array, Path]] = {}

    def folder(self, loaded: LoadedRepro, case: Case) -> Path:
        """Return where a case lies, prepared or not."""
        return self.root / case_key(loaded, case)

    def prepare(self, loaded: LoadedRepro, case: Case) -> Path:
        """Return a case's folder, prepared now if it is not there.

        :class:`UsageError` where the repro's ``prepare`` raises or returns something unusable.
        """
        final = self.folder(loaded, case)
        if final.is_dir():
            return final
        try:
            prepared = loaded.module.prepare(dict(case.params))
            models = {f"{key}.onnx": _model(prepared[key]) for key in ("model", "check") if key in prepared}
            others = dict(prepared.get("others", {}))
            models.update({f"others/{name}.onnx": _model(model) for name, model in others.items()})
            arrays = {key: _arrays(prepared, key) for key in ("inputs", "reference", "extra")}
        except Exception as error:
            raise UsageError(
                f"{loaded.file}: prepare() of the case {case.id} failed: {error!r}\n"
                f"  see it whole: python -m trtmatrix prepare {loaded.repro.id}/{case.id} --traceback"
            ) from error
        self.root.mkdir(parents=True, exist_ok=True)
        self.blobs.mkdir(exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=self.root))
        try:
            partial.chmod(0o755)
            (partial / "others").mkdir()
            for name, model in models.items():
                os.link(self._write_model(model), partial / name)
            for key, named in arrays.items():
                self._write_arrays(partial / key, named, narrow=key == "reference")
            facts = {"repro": loaded.repro.id, "case": case.id, "params": dict(case.params)}
            (partial / "case.json").write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n")
            _rename(partial, final)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        return final

    def _write_arrays(self, folder: Path, arrays: dict[str, Array], *, narrow: bool) -> None:
        folder.mkdir()
        for name, array in arrays.items():
            os.link(self._blob(array, narrow=narrow), folder / f"{name}.npy")

    def _blob(self, array: Array, *, narrow: bool) -> Path:
        """Return the file that holds an array; one that several cases share is looked at once.

        References are narrowed to the smallest exact dtype; an input's dtype is the graph's.
        """
        known = self._seen.get(id(array))
        if known is None or known[0] is not array or not known[1].exists():
            stored = smallest_exact(array) if narrow else array
            known = (array, self._write_array(np.ascontiguousarray(stored)))
            self._seen[id(array)] = known
        return known[1]

    def _write_array(self, array: Array) -> Path:
        data = array.view(np.uint8).reshape(-1).data if array.size else b""
        return self._write_blob(
            f"{array.dtype.str} {array.shape}".encode(), data, ".npy", lambda out: np.save(out, array)
        )

    def _write_model(self, content: bytes) -> Path:
        return self._write_blob(b"", content, ".onnx", lambda out: out.write(content))

    def _write_blob(
        self, head: bytes, data: bytes | memoryview, suffix: str, write: Callable[[IO[bytes]], object]
    ) -> Path:
        """Return the file named after its content, written now if it is not there."""
        content = sha256(head)
        content.update(data)
        path = self.blobs / f"{content.hexdigest()}{suffix}"
        if not path.exists():
            with tempfile.NamedTemporaryFile(dir=self.blobs, suffix=".partial", delete=False) as out:
                write(out)
            Path(out.name).chmod(0o644)
            Path(out.name).replace(path)
        return path


def _arrays(prepared: dict[str, Any], key: str) -> dict[str, Array]:
    """Return the named arrays that ``prepare()`` gave; ``TypeError`` where they are none."""
    named = dict(prepared.get(key, {}) if key == "extra" else prepared[key])
    for name, array in named.items():
        if not isinstance(array, np.ndarray) or array.dtype.hasobject:
            raise TypeError(f"{key}[{name!r}] is no NumPy array of numbers but {type(array).__name__}")
        if key == "reference" and array.dtype != np.float64:
            raise TypeError(f"reference[{name!r}] is {array.dtype}: a reference is computed in float64")
    return named


def _model(model: Any) -> bytes:  # noqa: ANN401 - onnx.ModelProto, imported only here
    """Return a model's bytes; raises where it is not valid ONNX."""
    import onnx

    onnx.checker.check_model(model)
    content: bytes = model.SerializeToString()
    return content


def _rename(partial: Path, final: Path) -> None:
    """Publish a folder; where another run was faster, keep its."""
    try:
        partial.rename(final)
    except OSError:
        if not final.is_dir():
            raise


def smallest_exact(array: Array) -> Array:
    """Return a float64 array in the smallest float dtype that holds every value exactly."""
    for dtype in (np.float16, np.float32):
        if _holds(dtype, array.reshape(-1)[:4096]) and _holds(dtype, array):
            with np.errstate(over="ignore"):
                return array.astype(dtype)
    return array


def _holds(dtype: type[np.floating[Any]], array: Array) -> bool:
    """Whether a dtype holds every value of a float64 array exactly."""
    with np.errstate(over="ignore"):
        narrow = array.astype(dtype)
    return np.array_equal(narrow.astype(np.float64), array, equal_nan=True)
