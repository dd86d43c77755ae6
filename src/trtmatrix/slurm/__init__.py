"""Runs cells on a Slurm cluster: each task of an array is the command that one host would run.

``sitefile`` is slurm.yaml; ``cluster`` the site with its shared folder; ``tasks`` (pure) cuts cells into
tasks and words what sbatch is told; ``commands`` asks Slurm; ``executor`` submits, follows and collects: what
is left to do is read from the shared folder's records, not from Slurm. May import ``run``.
"""
