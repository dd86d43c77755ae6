"""Whether to move from one version to another: the decision, its evidence and its report."""
