"""What a person does about one failure: an archive for its maintainers, a bisect, the smallest graph.

``make`` and ``verify`` are the archive, ``script`` is its script; ``bisect`` asks versions, images or a
command by one ``search``; ``minimise`` asks a version that stays open. May import everything but ``cli``.
"""
