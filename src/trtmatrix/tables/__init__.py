"""What users read of cells: the answer on a screen, every row as text or Markdown, the page, JSON and JUnit.

``answer`` says what one screen says, ``table`` and ``remarks`` what all rows say; the renderers (``page``,
``markdown``, ``render_*``) lay that out, decide nothing, and return strings. ``templates`` holds the page,
its style and its scripts. ``page`` and ``markdown`` serve the upgrade report too. It may import ``judge``,
``records``, ``suite`` and what lies below them.
"""
