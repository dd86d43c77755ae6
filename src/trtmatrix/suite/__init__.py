"""What is tested: versions, GPUs, repros and their cases, and the cells that these make together."""
