"""ONNX's own tests of its operators, run on each version: ``trtmatrix operators``.

:mod:`.cases` makes the suite from the installed ``onnx``; :mod:`.perform` runs it through the launchers, and
:mod:`.verdicts` judges what comes out, of which :mod:`trtmatrix.records.operators` keeps one file for each
version and GPU; :mod:`.show` renders them, and :mod:`.models` says what they mean for a model.
The package may import ``model`` and what lies below it.
"""
