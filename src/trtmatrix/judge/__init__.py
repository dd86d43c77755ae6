"""What the numbers say: records, engines judged, verdicts believed or not, expectations, controls, words.

Pure but for :func:`trtmatrix.judge.noise.read_calibration`. It may import ``suite``, ``common`` and the
probe's measures. From the top: :func:`~trtmatrix.judge.compare.make_entries` shows cells by their records,
:func:`~trtmatrix.judge.compare.assess` judges the records of one, :mod:`~trtmatrix.judge.numbers` one engine.
"""
