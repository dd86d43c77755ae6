"""Images and what carries them: matrix.lock, registries, packs, records that come home, the check of a host.

It may import what plans are made of (``plan``, ``launchers``, ``records``, ``judge``, ``suite``, ``common``);
it knows nothing of running cells, Slurm, bugs or the command line.
"""
