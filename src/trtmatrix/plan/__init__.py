"""From the project and what was asked to a plan: what is here, which cells, what is stale, in which order."""
