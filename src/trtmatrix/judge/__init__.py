"""What the numbers say: records, judged engines, believed verdicts, expectations, controls, their words.

Pure but for what :mod:`.noise` reads: the installed calibration. It may import ``suite``, ``common`` and the
probe's measures. From the top: :func:`~trtmatrix.judge.compare.make_entries` shows cells by their records,
:func:`~trtmatrix.judge.compare.assess` judges the records of one, :mod:`~trtmatrix.judge.judge` one engine.
"""
