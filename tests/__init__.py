"""All tests; ``python -m tests`` runs the suites that this host allows."""
