"""Runs cells on a Slurm cluster: each task of an array is the command that one host would run."""
