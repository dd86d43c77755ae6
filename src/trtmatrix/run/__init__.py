"""Performs a plan: schedules launches, feeds cells, stores their records."""
