"""Runs cells on a Slurm cluster: each task of an array is the command that one host would run.

``sitefile`` is slurm.yaml; ``tasks`` (pure) cuts cells into tasks and words what sbatch is told; ``commands``
asks Slurm; ``shared`` is the folder that this host and all nodes see; ``executor`` submits, follows and
collects; ``cluster`` is the site as plans, tables and ``doctor`` see it. May import ``run``.
What is left to do is read from the shared folder's records, not from Slurm.
"""
