"""What mends a container engine that cannot start a container, from what it says. Pure."""

from __future__ import annotations

CURES = {
    "container-init binary not found": "Podman's init is missing: apt-get install catatonit",
    "setting rlimit": "Podman may not raise limits here: containers.conf must have, below [containers], "
    'default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]',
    "unresolvable CDI devices": "write the specification of the GPUs: nvidia-ctk cdi generate "
    "--output=/etc/cdi/nvidia.yaml",
}
"""Part of an engine's message, as Podman 4.3 and runc 1.1 have it → what to do."""


def cure_for(said: str) -> str:
    """Return what to do about an engine's message, on a line of its own; nothing where none is known."""
    cure = next((cure for part, cure in CURES.items() if part in said), "")
    return f"\n  {cure}" if cure else ""
