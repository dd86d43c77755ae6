"""The pure part: no disk, no clock, no processes, no network."""
