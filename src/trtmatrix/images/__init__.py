"""Images and what carries them: matrix.lock, registries, packs, records that come home, the check of a host.

It offers the commands ``lock``, ``pack``, ``unpack``, ``merge`` and ``doctor``, and what every run asks
before it starts: whether its images are locked (:mod:`.pins`) and what cannot run here (:mod:`.preflight`).
It may import what plans are made of (``plan``, ``launchers``, ``records``, ``judge``, ``suite``, ``common``);
it knows nothing of running cells, Slurm, bugs or the command line. Its pure modules stand in pyproject.toml.
"""
