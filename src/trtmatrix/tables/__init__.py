"""What users read of cells: the answer on a screen, every row as text or Markdown, the page, JSON and JUnit.

``answer`` says what one screen says, ``table``, ``summary`` and ``remarks`` what all rows say; the renderers
(``screen``, ``render_*``) lay that out, decide nothing, and return strings. ``templates`` holds the page, its
style and its scripts. Plots, Markdown and the pieces of pages (``plots``, ``markdown``, ``html_*``) serve the
upgrade report too. It may import ``judge``, ``records``, ``suite`` and what lies below them.
"""
