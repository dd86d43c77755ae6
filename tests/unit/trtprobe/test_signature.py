"""How much of a known defect an output contains: what the two numbers are, and what leaves them alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from trtprobe import measure
from trtprobe.measure import measure_output, measure_signature, measure_with_signatures

Array = NDArray[Any]
Triple = tuple[Array, Array, Array]

ANY = st.floats(-1e3, 1e3, width=16) | st.sampled_from([math.nan, math.inf, -math.inf, 0.0])


def triples(elements: st.SearchStrategy[Any]) -> st.SearchStrategy[Triple]:
    """Draw an output, its reference and a defect, of one shape."""
    shapes = arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5)
    return shapes.flatmap(
        lambda shape: st.tuples(
            arrays.arrays(np.float32, shape, elements=elements),
            arrays.arrays(np.float64, shape, elements=elements),
            arrays.arrays(np.float32, shape, elements=elements),
        )
    )


def plain(y: Array, r: Array, d: Array) -> dict[str, float]:
    """Compute the signature element by element, as the definitions read; empty where d is zero."""
    rows = [tuple(map(float, row)) for row in zip(y.ravel(), r.ravel(), d.ravel(), strict=True)]
    both = [(a - b, c) for a, b, c in rows if all(map(math.isfinite, (a, b, c)))]
    product = math.fsum(e * c for e, c in both)
    error2, defect2 = math.fsum(e * e for e, _ in both), math.fsum(c * c for _, c in both)
    if not defect2:
        return {}
    return {"c": product / defect2, "explained": product**2 / error2 / defect2 if error2 else 0}


@given(triples(ANY))
def test_both_numbers_are_what_their_names_say(triple: Triple) -> None:
    assert measure_signature(*triple) == pytest.approx(plain(*triple), rel=1e-9, abs=1e-12)


def test_noise_at_right_angles_to_a_defect_has_none_of_it() -> None:
    d = np.tile([1.0, 1.0, 2.0, -2.0], 9000)
    noise = np.tile([1.0, -1.0, 3.0, 3.0], 9000)
    assert measure_signature(5 + noise, np.full(d.shape, 5.0), d) == {"c": 0, "explained": 0}
    found = measure_signature(5 + noise + d, np.full(d.shape, 5.0), d)
    assert found == {"c": 1, "explained": pytest.approx(10 / 30)}


@given(triples(ANY), st.integers(1, 7))
def test_one_pass_measures_what_several_would(triple: Triple, block: int) -> None:
    y, r, d = triple
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure, "BLOCK", block)
        measured, signatures = measure_with_signatures(y, r, {"a": d, "b": -d, "c": np.zeros(d.shape)})
        assert measured == pytest.approx(measure_output(y, r), rel=0, nan_ok=True)
        alone = {"a": measure_signature(y, r, d), "b": measure_signature(y, r, -d)}
        assert signatures == {name: found for name, found in alone.items() if found}
