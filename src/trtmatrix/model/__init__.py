"""A model of the user's own: ``run --model``, ``prepare``, ``upgrade --model``.

It makes a repro of a model (:mod:`.own_model`) from a template (:mod:`.page`), so that all else treats it as
any other; runs the deployer's acceptance script (:mod:`.acceptance`), and names the first layer that goes
wrong (:mod:`.explain`). It may import all that prepares and runs cells, and ``onnxmodel``.
"""
