"""GPU names as NVML, sites and users write them: what tells models apart, and the slug of one. Pure."""

from __future__ import annotations

import re


def slug_of(name: str) -> str:
    """Return a GPU's name as a part of a cell's id: ``NVIDIA H200`` gives ``nvidia-h200``."""
    slug = re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-.") or "gpu"
    return slug if slug.startswith(("nvidia", "tesla", "quadro")) else f"nvidia-{slug}"


def plain_name(name: str) -> str:
    """Reduce a name to what tells GPUs apart."""
    words = re.sub(r"[^a-z0-9]+", " ", name.lower()).split()
    return " ".join(word for word in words if word not in _DROPPED and not _SIZE.fullmatch(word))


_MAKER = {"nvidia", "tesla", "quadro", "geforce", "grid", "generation", "mig"}
_FORM = {
    "pcie",
    "sxm",
    "sxm2",
    "sxm3",
    "sxm4",
    "sxm5",
    "nvl",
    "dgxs",
    "fhhl",
    "hbm2",
    "hbm2e",
    "hbm3",
    "hbm3e",
}
_DROPPED = _MAKER | _FORM
_SIZE = re.compile(r"\d+gb?|\d+[abcq]")
"""A board's or an instance's memory, or a profile of vGPU: ``80gb``, ``1g``, ``40c``."""
