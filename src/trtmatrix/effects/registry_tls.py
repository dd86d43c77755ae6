"""Whom a registry's connection trusts: the system's authorities, and the folders that engines read."""

from __future__ import annotations

import os
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from requests.adapters import HTTPAdapter


def certificate_folders() -> tuple[Path, ...]:
    """Return where Docker (also rootless) and Podman look for certificates: in folders HOST or HOST:PORT.

    Sources: https://docs.docker.com/engine/security/certificates/ and containers-certs.d(5).
    """
    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path(os.path.expanduser("~")) / ".config")  # noqa: PTH111 - may have no home
    own = (home / "containers/certs.d", home / "docker/certs.d")
    return (Path("/etc/docker/certs.d"), *own, Path("/etc/containers/certs.d"))


def trust_of(netloc: str, folders: Sequence[Path]) -> ssl.SSLContext | None:
    """Return the TLS settings for a host with certificates of its own, or None where it has none.

    ``*.crt`` are authorities beside the system's; ``NAME.cert`` with ``NAME.key`` is what we show. Raises
    OSError (ssl.SSLError) where one cannot be read.
    """
    files = sorted(file for folder in folders for file in (folder / netloc).glob("*"))
    authorities = [file for file in files if file.suffix == ".crt"]
    pairs = [(file, file.with_suffix(".key")) for file in files if file.suffix == ".cert"]
    if not authorities and not pairs:
        return None
    context = ssl.create_default_context()
    for authority in authorities:
        context.load_verify_locations(cafile=authority)
    for shown, key in pairs:
        context.load_cert_chain(shown, key)
    return context


class TlsAdapter(HTTPAdapter):
    """Connections with these TLS settings, also through a proxy."""

    def __init__(self, context: ssl.SSLContext) -> None:
        """Keep the settings, which requests adds its own authorities to (REQUESTS_CA_BUNDLE)."""
        self._context = context
        super().__init__()

    def init_poolmanager(self, *args: Any, **keywords: Any) -> None:  # noqa: ANN401 - as requests has it
        """Make connections with these settings."""
        super().init_poolmanager(*args, **keywords, ssl_context=self._context)

    def proxy_manager_for(self, proxy: Any, **keywords: Any) -> Any:  # noqa: ANN401 - as requests has it
        """Make connections through a proxy with these settings."""
        return super().proxy_manager_for(proxy, **keywords, ssl_context=self._context)
