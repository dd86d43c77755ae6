from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Optional, Tuple, Union

import tensorrt as trt


@dataclass
class Loaded:
    name: str
    engine: trt.ICudaEngine
    contexts: List[trt.IExecutionContext]


def count(engine: trt.ICudaEngine) -> int:
    return engine.num_bindings  # expect: removed ICudaEngine.num_bindings


def quoted(engine: "trt.ICudaEngine", context: "Optional[trt.IExecutionContext]" = None):
    if context is None:
        context = engine.create_execution_context()
    return context.get_binding_shape(0)  # expect: removed IExecutionContext.get_binding_shape


def either(engine: Union[str, bytes, trt.ICudaEngine]):
    if isinstance(engine, (str, bytes)):
        engine = open_plan(engine)
    return engine.max_batch_size  # expect: removed ICudaEngine.max_batch_size


def open_plan(path) -> trt.ICudaEngine | None:
    return cache.get(path)


def each(loaded: Loaded, all_of: Dict[str, Loaded], pair: Tuple[trt.Builder, trt.INetworkDefinition]):
    builder, network = pair
    print(loaded.engine.get_binding_name(0))  # expect: removed ICudaEngine.get_binding_name
    for context in loaded.contexts:
        context.execute(1, [])  # expect: removed IExecutionContext.execute
    for name, one in all_of.items():
        print(name, one.engine.num_bindings)  # expect: removed ICudaEngine.num_bindings
    print(open_plan("x").get_binding_index("x"))  # expect: removed ICudaEngine.get_binding_index
    return builder.build_engine(network, None)  # expect: removed Builder.build_engine


def narrowed(thing):
    if isinstance(thing, trt.ICudaEngine):
        return thing.num_bindings  # expect: removed ICudaEngine.num_bindings
    return thing.num_bindings  # expect: removed ICudaEngine.num_bindings


cache: Dict[str, trt.ICudaEngine] = {}
