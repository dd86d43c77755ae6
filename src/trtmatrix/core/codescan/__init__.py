"""The scanner of users' code: which names of TensorRT it uses that change between two versions. Pure.

``scan.py`` is the way in. Python is read as one program (``statements``, ``definitions``, ``expressions``,
``calls``, ``attributes`` over ``reader``), values flow as ``values`` has them, ``names`` knows TensorRT.
"""

from __future__ import annotations

from trtmatrix.core.codescan.scan import FileKind, Scan, kind_of_file, scan_code

__all__ = ["FileKind", "Scan", "kind_of_file", "scan_code"]
