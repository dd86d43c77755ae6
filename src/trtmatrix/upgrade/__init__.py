"""Whether to move from one version to another on a GPU: the decision, its evidence and its report.

``decide`` is pure: a ``question.Question`` (entries, facts, the user's own model and code) in, a
``report.Upgrade`` out, which is the JSON. ``document`` puts that into sections, which ``render`` shows as
text, Markdown and a page. ``command`` reads what is stored, runs the user's model, prints and writes. It may
import everything but ``cli`` and ``bugs``.
"""
