"""How the probe gets into a version: containers, environments of wheels, interpreters of the host.

A ``Launcher`` (``launcher``) makes a launch ready and runs it: ``containers`` (Docker, Podman),
``child_containers`` (Apptainer, pyxis), ``wheels`` (environments, interpreters). ``container`` says what any
container is given, ``gpu`` and ``docker_engine`` what this host has, ``references`` what images are called.
May import ``suite`` and ``common``.
"""
