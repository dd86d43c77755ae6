"""Whether to move from one version to another on a GPU: the decision, its evidence and its report.

``decide`` is pure: a :class:`~trtmatrix.upgrade.question.Question` (entries, facts, the user's own model and code)
in, an :class:`~trtmatrix.upgrade.report.Upgrade` out. ``document`` puts that into sections, which ``render_text``
and ``render`` show; ``move`` and ``command`` are what touches disk and runs. Above ``run``, ``api`` and ``tables``.
"""
