"""What a move from one release of TensorRT to another does to code that uses its API.

Offers ``section.make_api_section`` (the difference of two shipped surfaces, and the uses of it in code), and
``report`` (what is told of that). A scan of Python goes from ``names`` (what expressions hold)
to ``python_scan`` (what is used, and what keeps it from running at the version moved to).
Imports ``suite`` and ``common``.
``python -m bench.surfaces`` reads the surfaces from NVIDIA's wheels.
"""
