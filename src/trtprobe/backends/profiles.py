"""The optimization profile of a network with dynamic inputs."""

from __future__ import annotations

from typing import Any, List, Mapping, Tuple

from trtprobe import ends
from trtprobe.backends.base import Range


def add_profile(builder: Any, network: Any, config: Any, ranges: Tuple[Tuple[str, Range], ...]) -> None:
    """Give the builder the range of each dynamic input; does nothing where no input is dynamic.

    ``BuildFailed`` names the input that has no range, or whose range does not fit it.
    """
    inputs = {t.name: t for t in map(network.get_input, range(network.num_inputs))}
    asked = dict(ranges)
    unknown = sorted(set(asked) - set(inputs))
    if unknown:
        raise ends.BuildFailed(
            "the profile names %s; the network's inputs are %s" % (", ".join(unknown), ", ".join(inputs))
        )
    wanting = [name for name, tensor in inputs.items() if _needs_range(tensor)]
    lacking = [name for name in wanting if name not in asked]
    if lacking:
        shapes = ["%s %s" % (name, list(inputs[name].shape)) for name in lacking]
        raise ends.BuildFailed("dynamic inputs without shapes in the profile: %s" % ", ".join(shapes))
    if wanting:
        _add(builder, config, inputs, {name: asked[name] for name in wanting})


def _needs_range(tensor: Any) -> bool:
    return bool(tensor.is_shape_tensor) or any(int(size) < 0 for size in tensor.shape)


def _add(builder: Any, config: Any, inputs: Mapping[str, Any], asked: Mapping[str, Range]) -> None:
    profile = builder.create_optimization_profile()
    for name, (least, best, most) in asked.items():
        tensor = inputs[name]
        try:
            if tensor.is_shape_tensor:
                profile.set_shape_input(name, list(least), list(best), list(most))
            else:
                _check([int(size) for size in tensor.shape], (least, best, most))
                profile.set_shape(name, least, best, most)
        except (ValueError, RuntimeError, TypeError) as error:
            raise ends.BuildFailed("the profile of %s is refused: %s" % (name, error)) from error
    if config.add_optimization_profile(profile) < 0:
        words = ["%s %s" % (name, " to ".join(map(str, shapes))) for name, shapes in asked.items()]
        raise ends.BuildFailed("the optimization profile is refused: %s" % ", ".join(words))


def _check(shape: List[int], asked: Range) -> None:
    """Raise where a shape is not one of the input's."""
    for wanted in asked:
        if len(wanted) != len(shape) or any(own >= 0 and own != n for own, n in zip(shape, wanted)):
            raise ValueError("%s is no shape of the input, which is %s" % (list(wanted), shape))
