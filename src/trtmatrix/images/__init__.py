"""Images and what carries them: matrix.lock, registries, packs, records that come home, the check of a host.

It offers the commands ``lock``, ``pack``, ``unpack``, ``merge`` and ``doctor`` (:mod:`.lock`, :mod:`.pack`,
:mod:`.unpacker`, :mod:`.merge`, :mod:`.doctor`), and what every run asks before it starts: whether its images
are locked (:mod:`.pins`) and what of it cannot run here (:mod:`.preflight`). It may import ``core``,
``effects``, ``launchers`` and what a scene is; it knows nothing of running cells, Slurm, bugs or the command
line. What touches neither disk nor clock stands in a contract of pyproject.toml: :mod:`.changes`,
:mod:`.checks`, :mod:`.downloads`, :mod:`.fates`, :mod:`.image_facts`, :mod:`.manifests`, :mod:`.rules`.
"""
