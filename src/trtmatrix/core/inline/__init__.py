"""Makes one script of a repro and of what it reaches of the probe, by its syntax tree. Pure."""
