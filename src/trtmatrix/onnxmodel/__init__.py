"""ONNX models of the user's own as files and graphs: nothing here knows of versions or runs.

Offers what a file says of itself (:mod:`.reading`), what it is fed with (:mod:`.inputs`), reference and noise
floor, computed from the graph in other precisions (:mod:`.computing`) by ONNX Runtime or ``onnx.reference``
(:mod:`.sessions`), whose faults are corrected (:mod:`.corrected`) or found (:mod:`.crosscheck`), and what a
model's repro calls (:mod:`.preparing`). May import ``judge`` and what is below, and the probe's measurements.
"""
