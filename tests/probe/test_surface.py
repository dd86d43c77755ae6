"""Every name that the probe uses exists in NVIDIA's own bindings, release by release, and in the stand-in.

What a release has is read from the surfaces that the package ships; test_read_surface.py reads them again
from NVIDIA's wheels.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess

import pytest

from tests.probe.jobs import MAIN, PROBE, STANDINS
from trtmatrix.api.section import find_surface

BINDINGS = ("8.6.1", "10.0.1", "10.7.0", "10.8.0.43", "11.4.0.106")

FILES = ("tensorrt_gpu.py", "gpu_engine.py", "refusals.py")
CLASSES = {  # how these files call an object: its class
    "trt": "", "names": "NetworkDefinitionCreationFlag", "config": "IBuilderConfig", "parser": "OnnxParser",
    "builder": "Builder", "_runtime": "Runtime", "plan": "IHostMemory", "engine": "ICudaEngine",
    "context": "IExecutionContext", "create_engine_inspector": "EngineInspector",
    "network": "INetworkDefinition", "layer": "ILayer", "tensor": "ITensor",
    "profile": "IOptimizationProfile",
}  # fmt: skip

ABSENT = {  # of what the probe asks for before it uses it: what a release does not have
    "8.6.1": {"ParserError.node_name", "ParserError.node_operator", "ICudaEngine.device_memory_size_v2",
              "NetworkDefinitionCreationFlag.STRONGLY_TYPED", "DataType.INT64"},
    "10.0.1": {"ICudaEngine.device_memory_size_v2"},
    "11.4.0.106": {  # precision constraints are asked for by their flag
        "BuilderFlag.INT8", "BuilderFlag.FP8", "BuilderFlag.FP16", "BuilderFlag.OBEY_PRECISION_CONSTRAINTS",
        "ICudaEngine.device_memory_size", "NetworkDefinitionCreationFlag.EXPLICIT_BATCH", "ILayer.precision",
        "ILayer.set_output_type",
    },
}  # fmt: skip

READ = """
import json, sys
import tensorrt as trt
def there(path):
    found = trt
    for part in path.split("."):
        if not hasattr(found, part):
            return False
        found = getattr(found, part)
    return True
absent = [path for path in json.loads(sys.argv[1]) if not there(path)]
class Logger(trt.ILogger):
    def __init__(self):
        trt.ILogger.__init__(self)
    def log(self, severity, text):
        pass
Logger()
severities = [int(trt.ILogger.INTERNAL_ERROR), int(trt.ILogger.ERROR), int(trt.ILogger.WARNING)]
print(json.dumps([absent, trt.DataType.HALF.name, str(trt.ILogger.ERROR), severities]))
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
    return sorted((found | asked | known) - {"", "__version__", "__version__.split"})


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


@pytest.mark.parametrize("bindings", BINDINGS)
def test_nvidia_s_bindings_have_what_is_used_and_the_stand_in_has_the_same(bindings: str) -> None:
    surface, release = find_surface(bindings), ".".join(bindings.split(".")[:3])
    assert surface is not None
    missing = {name for name in used_names() if surface.find(name) is None}
    assert missing == ABSENT.get(bindings, set())
    environment = {"PYTHONPATH": str(STANDINS), "STANDIN_TENSORRT": release, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [MAIN, "-c", READ, json.dumps(used_names())], capture_output=True, text=True, check=False,
        env={**os.environ, **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    absent, *words = json.loads(done.stdout)
    assert set(absent) == missing
    assert words == ["HALF", "Severity.ERROR", [0, 1, 2]], "as NVIDIA's print them"
