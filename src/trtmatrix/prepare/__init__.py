"""A case made ready once for all versions: graph, inputs, float64 reference, noise floor, defects."""
