"""``environment.json``: what ran the cell, driver and clocks among it. Pure."""

from __future__ import annotations

from dataclasses import asdict

from trtmatrix.core.bundle.facts import Failure
from trtmatrix.core.jsontext import to_json

SCHEMA = 1


def environment_json(failure: Failure) -> str:
    """Return strict JSON: the product, the image, the environment; what is not known is null."""
    environment = {name: value or None for name, value in asdict(failure.environment).items()}
    image = None
    if failure.image is not None:
        image = {
            "name": failure.image.name, "id": failure.image.id or None,
            "reference": failure.image.reference or None,
        }  # fmt: skip
    found = {
            "schema": SCHEMA,
            "cell": str(failure.cell),
            "product": failure.product.value,
            "version": failure.version,
            "image": image,
            "measured_on": failure.measured_on or None,
            "trtmatrix": failure.tool or None,
            **environment,
    }  # fmt: skip
    return to_json(found)
