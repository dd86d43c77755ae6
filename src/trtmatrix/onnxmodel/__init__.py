"""ONNX models of the user's own as files and graphs: nothing here knows of versions or runs.

Offers what a file says of itself (:mod:`.reading`), its inputs (:mod:`.samples`), reference and noise floor
(:mod:`.computing`), computed from the graph in other precisions (:mod:`.rewriting`, :mod:`.rounding`) by ONNX
Runtime or ``onnx.reference`` (:mod:`.sessions`), and what a model's repro calls (:mod:`.preparing`). It may
import ``judge`` and what is below, and the probe's measurements.
"""
