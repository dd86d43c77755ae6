"""Asks a cluster what it is: for doctor, and for a plan."""

from __future__ import annotations

from collections.abc import Sequence

from trtmatrix.core.slurm.facts import (
    NODES_FORMAT,
    PARTITIONS_FORMAT,
    ConfigFacts,
    NodeFacts,
    PartitionFacts,
    parse_config,
    parse_nodes,
    parse_partitions,
    parse_ping,
    parse_version,
)
from trtmatrix.effects.slurm_commands import Answer, Run, SlurmAway, run_command

SECONDS = 20.0
COMMANDS = ("sbatch", "squeue", "scancel", "sinfo", "scontrol")
"""What must be here; sacct may be."""


class SlurmFacts:
    """Questions to a cluster. ``UsageError`` without its commands, ``SlurmAway`` without answer."""

    def __init__(self, *, run: Run = run_command) -> None:
        """``run`` runs a command."""
        self._run = run

    def version(self) -> str:
        """Return the release of the commands that are here; it is known without a controller."""
        return parse_version(self._run(["squeue", "--version"], SECONDS).out)

    def ping(self) -> tuple[bool, str]:
        """Return whether a controller answers, and what ``scontrol ping`` says."""
        try:
            answer = self._run(["scontrol", "ping"], SECONDS)
        except SlurmAway as error:
            return False, str(error).splitlines()[0]
        return parse_ping(answer.out or answer.err)

    def config(self) -> ConfigFacts:
        """Return some of the controller's settings."""
        return parse_config(self._ask(["scontrol", "show", "config"]).out)

    def nodes(self) -> tuple[NodeFacts, ...]:
        """Return the nodes of all partitions, with what they have."""
        return parse_nodes(self._ask(["sinfo", "--noheader", "--Node", f"--format={NODES_FORMAT}"]).out)

    def partitions(self) -> tuple[PartitionFacts, ...]:
        """Return the partitions."""
        return parse_partitions(self._ask(["sinfo", "--noheader", f"--format={PARTITIONS_FORMAT}"]).out)

    def _ask(self, command: Sequence[str]) -> Answer:
        answer = self._run(command, SECONDS)
        if answer.code:
            raise SlurmAway(f"{command[0]}: {answer.words}\n  is the controller up? scontrol ping")
        return answer
