"""What every package may use: paths, locks, processes, progress, archives, the border, errors, text."""
