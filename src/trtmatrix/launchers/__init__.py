"""Apptainer and pyxis beside Docker and Podman: launchers whose containers are child processes.

A host without a daemon for containers, such as a node of a cluster, runs the same probe over the same job
folder through them. ``child`` is the launcher, ``images`` keeps what is pulled, ``found`` says what is here.
Options are those of the documentation: the real ones were not run by us, only stand-ins (tests/launchers).
"""
