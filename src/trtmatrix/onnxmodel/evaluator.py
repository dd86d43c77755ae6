"""A node as ONNX's evaluator runs it, with the operators that it computes wrongly corrected."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx

from trtmatrix.onnxmodel import sessions


class SingleNode(sessions.SingleNode):
    """A node that is run by itself, with :data:`trtmatrix.onnxmodel.corrected.OPERATORS`."""

    def by_evaluator(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Return its outputs as ONNX's specification says; :class:`~.sessions.NotComputedError`."""
        if self._evaluator is None:
            from onnx.reference import ReferenceEvaluator  # only who needs it waits for it

            from trtmatrix.onnxmodel.corrected import OPERATORS

            model = onnx.load_from_string(self._model(feeds))
            try:
                self._evaluator = ReferenceEvaluator(model, new_ops=list(OPERATORS))
            except Exception as error:
                raise sessions.NotComputedError.of(error) from error
        return super().by_evaluator(feeds)
