"""Bug archives: what a maintainer needs to see one failing cell fail."""
