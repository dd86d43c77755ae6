"""A case made ready on the host, once for all versions: graph, inputs, float64 reference, noise floor, defects."""
