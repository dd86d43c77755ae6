"""Benchmarks: what the judge's verdicts are worth, and what its bounds are learnt from."""
