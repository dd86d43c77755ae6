"""Cells in one warm process, and the same cells each in a process of its own: the verdicts are the same."""
