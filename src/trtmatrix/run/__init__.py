"""Runs a plan: tasks are queued, handed to workers (one start of the probe each), recorded, and judged."""
