"""How a process gets into a version: containers, wheels, interpreters of the host; images and GPUs."""
