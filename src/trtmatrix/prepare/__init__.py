"""A case made ready once for all versions: graph, inputs, float64 reference, noise floor, defects.

It may import ``judge``, ``onnxmodel``, ``authoring`` and what these may. :class:`~trtmatrix.prepare.cases.CaseCache`
keeps cases by their content, :class:`~trtmatrix.prepare.case_pool.CasePool` prepares them side by side.
"""
