"""Whether to move from one version to another on a GPU: the decision, its evidence and its report.

``decide`` is pure: a ``question.Question`` (entries, facts, the user's own model and code) in, a
``report.Upgrade`` out. ``document`` puts that into sections, ``render_text`` and ``render`` show it.
``move`` and ``command`` read what is stored, run the user's model and write. It imports ``run`` and all below.
"""
