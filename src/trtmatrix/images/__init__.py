"""Images and what carries them: matrix.lock, registries, packs, records that come home, a check of hosts."""
