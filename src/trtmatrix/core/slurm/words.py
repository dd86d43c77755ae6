"""The words that the scripts on the nodes and the client share: files, facts, kinds of trouble."""

from __future__ import annotations

from enum import Enum


class Trouble(str, Enum):
    """What kept a script from running its cells; each is trouble with the site, never a cell's."""

    IMAGE = "image"
    """The image is not there, or cannot be loaded or had."""
    GPU = "gpu"
    """The GPU of the job cannot be found, or is another model than was asked for."""
    RUNTIME = "runtime"
    """The container could not be started."""
    SETUP = "setup"
    """A line of ``setup`` in the site's file failed, or the node gave the job no environment."""
    FILES = "files"
    """The shared folder, or the node's own disk, does not do what it must."""
    CANCELLED = "cancelled"
    """The job was told to end (scancel, preemption), and did."""
    TIME = "time"
    """The job's time limit came."""


STARTED, ENDED, GPU_FILE, LOG_FILE = "started", "ended", "gpu.csv", "log"
"""Files of an attempt: lines of ``name=value`` (the first two), nvidia-smi's answer, the last of the log."""

FACTS = (
    "name", "uuid", "compute_cap", "memory.total", "driver_version", "mig.mode.current",
    "clocks.sm", "clocks.mem", "power.limit",
)  # fmt: skip
"""What nvidia-smi is asked for, in this order (``--query-gpu=… --format=csv,noheader,nounits``): MiB, MHz, W.

Source: ``nvidia-smi --help-query-gpu``.
"""
CONTAINER_LABEL = "io.trtmatrix.slurm"
"""The label of each container of Docker that a job starts: its value is the job's own id (SLURM_JOB_ID)."""
