"""Empty shared libraries under NVIDIA's names: with them NVIDIA's bindings import on any machine.

The bindings ask the libraries for a handful of C functions when they are loaded, and call none of them
while their surface is read.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from trtmatrix.core.errors import MachineryError

LIBRARIES = ("nvinfer", "nvinfer_plugin", "nvonnxparser", "nvparsers")

SYMBOLS = (
    "createInferBuilder_INTERNAL", "createInferRefitter_INTERNAL", "createInferRuntime_INTERNAL",
    "createNvOnnxParser_INTERNAL", "createNvOnnxParserRefitter_INTERNAL", "getBuilderPluginRegistry",
    "getPluginRegistry", "initLibNvInferPlugins", "getNvOnnxParserVersion",
    # 8.6's UFF and Caffe parsers, as C++ names them
    "_ZN11nvuffparser15createUffParserEv", "_ZN11nvuffparser8FieldMapC1EPKcPKvNS_9FieldTypeEi",
    "_ZN14nvcaffeparser117createCaffeParserEv", "_ZN14nvcaffeparser123shutdownProtobufLibraryEv",
)  # fmt: skip


def find_compiler() -> str | None:
    """Return the C compiler, or None where there is none."""
    return shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")


def need_compiler() -> str:
    """Return the C compiler; :class:`MachineryError` says what to do where there is none."""
    found = find_compiler()
    if found is None:
        raise MachineryError(
            "there is no C compiler, which the stand-ins for NVIDIA's libraries need\n"
            "  install one (Debian: apt-get install gcc), or name one in CC"
        )
    return found


def compile_library(path: Path, source: str) -> Path:
    """Compile a shared library whose soname is its file's name; returns its folder."""
    found = need_compiler()
    command = [found, "-shared", "-fPIC", "-x", "c", "-", f"-Wl,-soname,{path.name}", "-o", str(path)]
    done = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
    if done.returncode:
        raise MachineryError(f"{found} could not compile {path.name}: {done.stderr.strip()[-500:]}")
    return path.parent


def make_stubs(folder: Path, number: int) -> Path:
    """Compile the libraries of a major release into a folder; returns it."""
    source = "\n".join(f"void *{symbol}(void) {{ return 0; }}" for symbol in SYMBOLS)
    for name in LIBRARIES:
        compile_library(folder / f"lib{name}.so.{number}", source)
    return folder
