"""Engines in lists, dictionaries and tuples; partial functions, lambdas, stacks of contexts, threads."""
import contextlib
import functools
import threading

import tensorrt as trt

logger = trt.Logger()
runtime = trt.Runtime(logger)
engines = [runtime.deserialize_cuda_engine(open(path, "rb").read()) for path in ("a", "b")]
by_name = {"a": engines[0]}
by_name["b"] = engines[1]
more = []
for each in engines:
    more.append(each.create_execution_context())

print([engine.num_bindings for engine in engines])  # expect: removed ICudaEngine.num_bindings
print(by_name["b"].get_binding_name(0))  # expect: removed ICudaEngine.get_binding_name
print({name: engine.max_batch_size for name, engine in by_name.items()})  # expect: removed ICudaEngine.max_batch_size
for context, engine in zip(more, engines):
    context.execute_async(1, [], 0)  # expect: removed IExecutionContext.execute_async
more[0].get_strides(0)  # not found: a name that others have, too, on something out of a list


def pair():
    builder = trt.Builder(logger)
    return builder, builder.create_network()


def shape_of(engine, index):
    return engine.get_binding_shape(index)  # expect: removed ICudaEngine.get_binding_shape


def work(engine, times):
    return engine.is_shape_binding(times)  # expect: removed ICudaEngine.is_shape_binding


first_shape = functools.partial(shape_of, engines[0])
print(first_shape(0))
count = lambda engine: engine.num_bindings  # expect: removed ICudaEngine.num_bindings
print(count(engines[0]), max(engines, key=lambda e: 1).num_bindings)  # expect: removed ICudaEngine.num_bindings
threading.Thread(target=work, args=(engines[1], 3)).start()
b, n = pair()
layers = [n.get_layer(i) for i in range(n.num_layers)]
for layer in layers:
    layer.get_output(0).dynamic_range = (-1, 1)  # possible: deprecated ITensor.dynamic_range
for layer in n:
    layer.get_input(0).set_dynamic_range(-1, 1)  # expect: deprecated ITensor.set_dynamic_range
with contextlib.ExitStack() as stack:
    inner = stack.enter_context(trt.Builder(logger))
    inner.build_engine(n, None)  # not found: what a stack of contexts hands on


@contextlib.contextmanager
def opened(path):
    yield runtime.deserialize_cuda_engine(path)


with opened("c") as third:
    print(third.get_location(0))  # not found: what a generator yields
