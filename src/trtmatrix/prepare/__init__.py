"""A case made ready once for all versions: graph, inputs, float64 reference, noise floor, defects.

It may import ``judge``, ``onnxmodel``, ``authoring`` and what these may. ``CaseCache`` (:mod:`.cases`) keeps
cases by their content, ``CasePool`` (:mod:`.case_pool`) prepares them side by side.
"""
