"""Imports no TensorRT; its callers hand engines in: possible, as it speaks of TensorRT alone."""


def sizes(engine, names):
    return {name: engine.get_binding_shape(name) for name in names}  # possible: removed ICudaEngine.get_binding_shape


def rows(table):
    return table.num_bindings  # possible: removed ICudaEngine.num_bindings
