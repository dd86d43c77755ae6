"""Whether to move from one version to another on a GPU: the decision, its evidence and its report."""
