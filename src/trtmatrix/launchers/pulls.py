"""What an engine says of a pull that failed: what is wrong, and whether it is worth another try. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from trtmatrix.common.errors import MachineryError, UsageError
from trtmatrix.launchers.references import Trouble, mend, parse_reference
from trtmatrix.tables.table import one_line

WAITS = (2.0, 8.0, 30.0)
"""Seconds before each further try of a pull that may yet succeed. The engine itself, before it gives up,
tries each layer five times more (https://docs.docker.com/reference/cli/dockerd/, max-download-attempts)."""

LONGEST = 300
"""Letters of the engine's own words that are told."""


@dataclass(frozen=True, kw_only=True)
class Sign:
    """Words of an engine, and what they mean.

    ``words``: a pattern, in any case. ``again``: it may be otherwise in a while; ``cut``: only where a part
    had come already: who never answered is not waited for. ``mend``: in place of what mends that trouble.
    """

    words: str
    trouble: Trouble
    cause: str
    again: bool = False
    cut: bool = False
    mend: str = ""


SIGNS = (
    Sign(
        words=r"no space left on device|not enough space|disk quota",
        trouble=Trouble.BROKEN,
        cause="the engine's disk is full",
        mend="free some room (nox -s doctor says how much is needed), or say --keep none",
    ),
    Sign(
        words=r"verification failed|failed verification|unexpected commit digest|digest mismatch"
        r"|does not match digest|did not match,? expected",
        trouble=Trouble.DAMAGED,
        cause="what the registry sent is not what its digest says",
    ),
    Sign(  # Podman unpacks while it reads, and may stumble before it has the digest
        words=r"flate: corrupt|(gzip|zlib|zstd|tar): invalid|gzip: .*corrupt|pigz: .*corrupt|crc32 mismatch"
        r"|(magic number|crc|checksum) mismatch",
        trouble=Trouble.DAMAGED,
        cause="what the registry sent cannot be unpacked",
    ),
    Sign(
        words=r"no matching manifest|does not match the specified platform|no image found in .* for ",
        trouble=Trouble.MISSING,
        cause="it is not there for the engine's platform",
        mend="choose an image for this machine's architecture in matrix.yaml",
    ),
    Sign(
        words=r"toomanyrequests|too many requests|\b429\b|rate limit",
        trouble=Trouble.LIMITED,
        cause="the registry limits how often it is asked",
        again=True,
    ),
    Sign(
        words=r"server gave HTTP response to HTTPS client|x509|certificate|tls: (?!handshake)",
        trouble=Trouble.UNREACHABLE,
        cause="its registry cannot be trusted",
        mend="put its authority's certificate into /etc/docker/certs.d/{host}/ca.crt, or name the registry "
        "in insecure-registries of /etc/docker/daemon.json",
    ),
    Sign(
        words=r"incorrect username or password|wrong (username|password)",
        trouble=Trouble.WRONG_LOGIN,
        cause="the registry refuses the login",
    ),
    Sign(
        words=r"pull access denied|unauthorized|authentication required|no basic auth|credentials"
        r"|access to the resource is denied|insufficient[_ ]scope|\b40[13]\b|forbidden",
        trouble=Trouble.NEEDS_LOGIN,
        cause="the registry gives it to nobody who is not logged in, or has no such image",
    ),
    Sign(
        words=r"manifest unknown|name unknown|not known to registry|repository .* not found"
        r"|manifest .* not found|: not found|\b404\b",
        trouble=Trouble.MISSING,
        cause="the registry has no such image",
    ),
    Sign(
        words=r"blob unknown|unknown blob",
        trouble=Trouble.MISSING,
        cause="the registry lacks a part of it",
        mend="push or mirror the image again; another registry may have it: --registry HOST/PATH",
    ),
    Sign(
        words=r"\b50[0234]\b|internal server error|bad gateway|service unavailable|gateway time-?out",
        trouble=Trouble.BROKEN,
        cause="the registry is in trouble",
        again=True,
    ),
    Sign(
        words=r"no such host|server misbehaving|connection refused|no route to host|network is unreachable",
        trouble=Trouble.UNREACHABLE,
        cause="nobody answers at its registry",
        cut=True,
    ),
    Sign(
        words=r"\bEOF\b|reset by peer|broken pipe|time-?out|timed out|deadline exceeded|download failed"
        r"|connection (was )?(closed|aborted)|(request|context) canceled|ended prematurely|chunk",
        trouble=Trouble.UNREACHABLE,
        cause="the connection was cut",
        again=True,
    ),
)
"""What Docker, containerd and Podman say, the most certain first: a cut one often names what it asked for."""

UNKNOWN = Sign(words="", trouble=Trouble.BROKEN, cause="the engine cannot pull it")


@dataclass(frozen=True, kw_only=True)
class Setback:
    """A try that failed: in short, whether another is worth while, and the error where there is none."""

    cause: str
    again: bool
    error: MachineryError


def explain_pull(reference: str, said: str, *, got_some: bool, command: str = "docker") -> Setback:
    """Return what an engine's words mean for a pull; ``got_some``: a part of the image had come before."""
    text = one_line(said)
    sign = next((sign for sign in SIGNS if re.search(sign.words, text, re.IGNORECASE)), UNKNOWN)
    host = _host(reference)
    error = MachineryError(
        f"{reference} cannot be had: {sign.cause}: {text[:LONGEST]}\n"
        f"  {sign.mend.format(host=host) or mend(sign.trouble, host, reference)}\n"
        f"  try it by hand: {command} pull {reference}"
    )
    return Setback(cause=sign.cause, again=sign.again or (sign.cut and got_some), error=error)


def _host(reference: str) -> str:
    try:
        return parse_reference(reference).host
    except UsageError:  # the engine's own words say what is wrong with the name
        return "its registry"
