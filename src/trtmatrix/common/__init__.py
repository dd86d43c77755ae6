"""What every package may use of the host: paths, locks, processes, time limits, archives, errors."""
