"""The part that touches the world: engines, interpreters, GPUs, files."""
