"""Every name that the probe uses exists in NVIDIA's own bindings, release by release.

The wheels of the bindings hold no libraries; with empty ones under the right names they import on
any machine, and their public surface can be read. The stand-in is held to the same surface.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from bench.surfaces import make_stubs

from tests.probe.jobs import MAIN, PROBE, STANDINS
from tests.probe.pythons import cache_folder, find_pythons

RELEASES = {  # bindings: (wheel, Python, the libraries' number)
    "8.6.1": ("tensorrt-bindings==8.6.1", "3.10", 8),
    "10.0.1": ("tensorrt-cu12-bindings==10.0.1", "3.12", 10),
    "10.7.0": ("tensorrt-cu12-bindings==10.7.0", "3.12", 10),
    "10.8.0": ("tensorrt-cu12-bindings==10.8.0.43", "3.12", 10),
    "11.4.0": ("tensorrt-cu12-bindings==11.4.0.106", "3.12", 11),
}

FILES = ("tensorrt_gpu.py", "gpu_engine.py", "refusals.py")
CLASSES = {  # how these files call an object: its class
    "trt": "", "names": "NetworkDefinitionCreationFlag", "config": "IBuilderConfig", "parser": "OnnxParser",
    "builder": "Builder", "_runtime": "Runtime", "plan": "IHostMemory", "engine": "ICudaEngine",
    "context": "IExecutionContext", "create_engine_inspector": "EngineInspector",
    "network": "INetworkDefinition", "layer": "ILayer", "tensor": "ITensor",
    "profile": "IOptimizationProfile",
}  # fmt: skip

ABSENT = {  # what the probe asks for before it uses it: the releases that lack it
    "BuilderFlag.INT8": {"11.4.0"},
    "BuilderFlag.FP8": {"11.4.0"},
    "ParserError.node_name": {"8.6.1"},
    "ParserError.node_operator": {"8.6.1"},
    "ICudaEngine.device_memory_size": {"11.4.0"},
    "ICudaEngine.device_memory_size_v2": {"8.6.1", "10.0.1"},
    "BuilderFlag.FP16": {"11.4.0"},
    "NetworkDefinitionCreationFlag.EXPLICIT_BATCH": {"11.4.0"},
    "NetworkDefinitionCreationFlag.STRONGLY_TYPED": {"8.6.1"},
    "DataType.INT64": {"8.6.1"},
    # precision constraints are gone in 11: asked for by their flag
    "BuilderFlag.OBEY_PRECISION_CONSTRAINTS": {"11.4.0"},
    "ILayer.precision": {"11.4.0"},
    "ILayer.set_output_type": {"11.4.0"},
}

READ = """
import json, sys
trt = __import__(sys.argv[1])
def there(path):
    found = trt
    for part in path.split("."):
        if not hasattr(found, part):
            return False
        found = getattr(found, part)
    return True
facts = {path: there(path) for path in json.loads(sys.argv[2])}
class Logger(trt.ILogger):
    def __init__(self):
        trt.ILogger.__init__(self)
    def log(self, severity, text):
        pass
Logger()
severities = [int(trt.ILogger.INTERNAL_ERROR), int(trt.ILogger.ERROR), int(trt.ILogger.WARNING)]
print(json.dumps([facts, trt.DataType.HALF.name, str(trt.ILogger.ERROR), severities]))
"""


def used_names() -> list[str]:
    """Return what the backend uses of the bindings, as dotted names, from its source."""
    trees = [ast.parse((PROBE / "backends" / file).read_text(encoding="utf-8")) for file in FILES]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    found = {_dotted(node) for node in nodes if isinstance(node, ast.Attribute)}
    asked = {_asked(node) for node in nodes if isinstance(node, ast.Call)}
    known = {f"DataType.{name}" for name in ("FLOAT", "HALF", "INT8", "UINT8", "INT32", "INT64", "BOOL")}
    known |= {"BuilderFlag.INT8", "BuilderFlag.FP8", "ParserError.code", "ParserError.node"}
    known |= {"ParserError.node_name", "ParserError.node_operator"}
    return sorted((found | asked | known) - {"", "__version__"})


def _dotted(node: ast.expr) -> str:
    """Return ``IBuilderConfig.set_flag`` for ``config.set_flag``; nothing for what is not the bindings'."""
    if not isinstance(node, ast.Attribute):
        return ""
    owner = node.value.func if isinstance(node.value, ast.Call) else node.value
    word = owner.id if isinstance(owner, ast.Name) else owner.attr if isinstance(owner, ast.Attribute) else ""
    if word in CLASSES:
        return f"{CLASSES[word]}.{node.attr}".lstrip(".")
    above = _dotted(node.value)
    return f"{above}.{node.attr}" if above else ""


def _asked(node: ast.Call) -> str:
    """Return ``BuilderFlag.FP16`` for ``hasattr(trt.BuilderFlag, "FP16")``."""
    if not (isinstance(node.func, ast.Name) and node.func.id == "hasattr"):
        return ""
    owner, name = node.args
    assert isinstance(name, ast.Constant)
    assert isinstance(name.value, str)
    if isinstance(owner, ast.Name):
        return f"{CLASSES[owner.id]}.{name.value}".lstrip(".")
    return f"{_dotted(owner)}.{name.value}"


def wheel_of(release: str) -> Path:
    """Return the folder of a release's bindings, downloaded once."""
    wheel, version, _ = RELEASES[release]
    folder = cache_folder() / f"bindings-{release}"
    if not (folder / "complete").exists():
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:"]
        command += [
            "--disable-pip-version-check",
            f"--python-version={version}",
            "--dest",
            str(folder),
            wheel,
        ]
        subprocess.run(command, check=True)
        (found,) = folder.glob("*.whl")
        zipfile.ZipFile(found).extractall(folder)
        (folder / "complete").touch()
    return folder


def read_surface(python: Path, module: str, **environment: str) -> list[object]:
    done = subprocess.run(
        [python, "-c", READ, module, json.dumps(used_names())], capture_output=True, text=True,
        check=False, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    surface: list[object] = json.loads(done.stdout)
    return surface


@pytest.mark.usefixtures("driver")  # which fails or is left out where nothing can be compiled
@pytest.mark.parametrize("release", RELEASES)
def test_nvidia_s_bindings_have_what_is_used_and_the_stand_in_has_the_same(
    release: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    _, version, number = RELEASES[release]
    if version not in find_pythons():
        if version in request.config.getoption("--require-pythons").split(","):
            pytest.fail(f"Python {version} was not found: the bindings of {release} are for it")
        pytest.skip(f"no Python {version}")
    make_stubs(tmp_path, number)
    real = read_surface(
        find_pythons()[version],
        "tensorrt_bindings",
        PYTHONPATH=str(wheel_of(release)),
        LD_LIBRARY_PATH=str(tmp_path),
    )
    facts = real[0]
    assert isinstance(facts, dict)
    missing = {name for name, there in facts.items() if not there}
    assert missing == {name for name, releases in ABSENT.items() if release in releases}
    assert read_surface(MAIN, "tensorrt", PYTHONPATH=str(STANDINS), STANDIN_TENSORRT=release) == real
