"""An archive that shows one failure to its maintainers: what goes in, and its text. Pure."""
