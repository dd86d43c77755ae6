"""Runs cells on a Slurm cluster: each task of an array is the command that one host would run.

What is left to do is read from the shared folder's records, not from Slurm. May import ``run``.
"""
