"""Whether to move from one version to another: the answer and what it rests on. Pure."""
