"""What can be made smaller of a failing model, as axes for the search; and the making of each level."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from trtmatrix.core.minimise import Axis, Move, sizes_below
from trtmatrix.onnxmodel import cutting, simpler
from trtmatrix.onnxmodel.resizing import dimensions, resized
from trtmatrix.onnxmodel.sessions import NotComputedError
from trtmatrix.onnxmodel.subject import CannotShrinkError, Subject, Values, extract

SAMPLE, STATIC, FOLD, OUTPUT = "one sample", "one shape", "computed beforehand", "one output"
EARLIER, LATER, AT, OUT = "earlier output", "later inputs", "inputs instead", "left out"
DIM, FED, WEIGHT = "size of ", "fed to ", "weights "
INSTEAD = " → "
EARLY = frozenset({SAMPLE, STATIC, FOLD, OUTPUT})
"""What is tried first: it makes all else simpler, and cheap to run."""


class Shrinker:
    """Offers what can be smaller in a subject, and makes it. ``worst``: the sample that fails most."""

    def __init__(self, subject: Subject, scratch: Path, worst: int = 0) -> None:
        """Take the subject; ``scratch``: a folder for what is computed, on the disk of its files."""
        self.subject, self._worst = subject, worst
        self._values = Values(subject, scratch)

    def axes(self) -> Iterator[Axis]:
        """Yield all axes, in the order in which they are tried: what makes later runs cheap comes first."""
        subject = self.subject
        if len(subject.samples) > 1:
            order = [self._worst, *(n for n in range(len(subject.samples)) if n != self._worst)]
            yield Axis(name=SAMPLE, levels=tuple(map(str, order)))
        if len(subject.samples) == 1 and simpler.is_dynamic(subject):
            yield Axis(name=STATIC, levels=("the sample's",))
        if cutting.can_be_folded(subject):
            yield Axis(name=FOLD, levels=("constants",))
        if len(subject.outputs) > 1:
            yield Axis(name=OUTPUT, levels=subject.outputs)
        yield Axis(name=EARLIER, levels=tuple(cutting.earlier_outputs(subject)), halved=True)
        yield Axis(name=LATER, levels=tuple(cutting.later_inputs(subject)), halved=True)
        yield Axis(name=AT, levels=tuple(cutting.inputs_at(subject)))
        yield Axis(name=OUT, levels=tuple(map(INSTEAD.join, cutting.left_out(subject))))
        for found in dimensions(subject):
            yield Axis(name=DIM + found.name, levels=tuple(map(str, sizes_below(found.size))))
        for name in subject.inputs:
            fed = tuple(sample[name] for sample in subject.samples)
            yield Axis(name=FED + name, levels=tuple(simpler.simpler_values(fed)))
        for name, array in simpler.weights_of(subject):
            yield Axis(name=WEIGHT + name, levels=tuple(simpler.simpler_values((array,))))

    def make(self, move: Move) -> Subject:
        """Return the subject after a move; :class:`CannotShrinkError` where it cannot be made."""
        try:
            return self._make(move)
        except NotComputedError as error:
            raise CannotShrinkError(f"ONNX Runtime cannot compute what would be fed: {error}") from error
        except (ValueError, TypeError, KeyError, IndexError, ArithmeticError, StopIteration) as error:
            # a graph that is not what its operators say: this move is of no use, others may be
            raise CannotShrinkError(f"the graph is odd there: {error!r}"[:200]) from error

    def _make(self, move: Move) -> Subject:
        subject, level = self.subject, move.level
        for prefix, change in self._by_prefix().items():
            if move.axis.startswith(prefix):
                return change(move.axis.removeprefix(prefix), level)
        return {
            SAMPLE: lambda: simpler.one_sample(subject, int(level)),
            STATIC: lambda: simpler.static(subject),
            FOLD: lambda: cutting.folded(subject, self._values),
            OUTPUT: lambda: extract(subject, [level]),
            EARLIER: lambda: extract(subject, [level]),
            LATER: lambda: cutting.start_after(subject, level, self._values),
            AT: lambda: cutting.start_at(subject, level, self._values),
            OUT: lambda: cutting.without(subject, *level.split(INSTEAD, 1)),
        }[move.axis]()

    def _by_prefix(self) -> Mapping[str, Callable[[str, str], Subject]]:
        subject = self.subject
        return {
            DIM: lambda name, level: resized(subject, name, int(level)),
            FED: lambda name, level: simpler.fed_simpler(subject, name, level),
            WEIGHT: lambda name, level: simpler.weighted_simpler(subject, name, level),
        }


def move_text(move: Move) -> str:
    """Return a move in words."""
    return f"{move.axis}: {move.level}"
