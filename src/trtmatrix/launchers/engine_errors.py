"""What Docker's SDK raises where the engine refuses or does not answer."""

from __future__ import annotations

import docker.errors
import requests.exceptions

ENGINE_ERRORS = (docker.errors.DockerException, requests.exceptions.RequestException)
