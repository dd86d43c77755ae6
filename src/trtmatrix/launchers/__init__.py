"""How the probe gets into a version: containers, environments of wheels, interpreters of the host."""
