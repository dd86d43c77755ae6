"""From the project and what was asked of it to a plan: what is here, which cells, what is stale."""
