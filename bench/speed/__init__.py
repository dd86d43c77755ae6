"""The benchmark of speed: each goal as a ratio against its plain alternative, measured in one run."""
