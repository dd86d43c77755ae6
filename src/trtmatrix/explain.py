"""Names the first layer of a user's model that goes wrong at a version: ``--explain``.

The model runs with a few inner tensors as further outputs, as any other model does: by the version's own
launcher, against ONNX Runtime's result of the same graph, in multiples of its noise floors. Which tensors
come next is decided in :mod:`trtmatrix.core.explain`. Records of these runs lie in the cache: the same search
is served from there.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from trtmatrix.core.errors import TrtMatrixError
from trtmatrix.core.explain import Reading, Search, begin_search, is_wrong, learn, next_group, step_budget
from trtmatrix.core.explain_text import describe, step_text
from trtmatrix.core.upgrade.report import WrongLayer

if TYPE_CHECKING:
    from trtmatrix.onnxmodel.marking import Markable

Measure = Callable[[tuple[str, ...]], Reading]
"""Runs the model with these tensors marked; ``survived`` of its readings is set by the search's own outputs."""

Tell = Callable[[str], None]


def search_for_layer(
    markable: Markable, floors: Mapping[str, float], version: str, measure: Measure, tell: Tell
) -> WrongLayer:
    """Return the first layer that goes wrong at a version, or as much as could be found.

    ``floors``: the errors of the model's outputs there, in noise floors. An interrupt ends the search, and
    what is known so far is returned.
    """
    known = {output: value for output, value in floors.items() if output in markable.graph.place}
    search = begin_search(markable.graph, known)
    nodes = {tensor: (node.name, node.operator) for tensor, node in markable.nodes.items()}
    if search is None:
        return WrongLayer(version=version, why_not=_NOT_WRONG if known else _NO_FLOORS)
    budget, cut_short = step_budget(len(markable.inner)), ""
    with _own_interrupt():
        try:
            while (group := next_group(search, budget)) is not None:
                reading = measure(group)
                search = learn(search, reading)
                count = len(search.readings)
                tell(f"{version}: marking {step_text(count, reading)}")
        except KeyboardInterrupt:
            cut_short = f"it was interrupted after {len(search.readings)} markings"
    return describe(search, nodes, version, cut_short)
