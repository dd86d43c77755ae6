"""Pulls an image through the engine: cuts are waited out, what cannot get better is told at once."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

import docker
import docker.errors
import requests.exceptions

from trtmatrix.common.errors import MachineryError, UsageError
from trtmatrix.common.text import one_line
from trtmatrix.launchers.references import Trouble, parse_reference

ENGINE_ERRORS = (docker.errors.DockerException, requests.exceptions.RequestException)
"""What Docker's SDK raises where the engine refuses or does not answer."""
WAITS = (2.0, 8.0, 30.0)
"""Seconds before each further try of a pull that may yet succeed. The engine itself, before it gives up,
tries each layer five times more (https://docs.docker.com/reference/cli/dockerd/, max-download-attempts)."""
LEAST, LEAST_SECONDS = 1 << 20, 600.0
"""A pull must get so many bytes further, or a step, in so many seconds: one that drips would never end."""
LONGEST = 300  # letters of the engine's own words that are told
PullNote = Callable[[str, str, int, int], None]
"""Told of each layer: image, layer, bytes so far, bytes in all (0 where not known)."""

AUTHORITY = (
    "put its authority's certificate into /etc/docker/certs.d/HOST/ca.crt, or name the registry in "
    "insecure-registries of /etc/docker/daemon.json"
)
SIGNS: Sequence[tuple[str, Trouble, str]] = (
    ("no space left on device|not enough space|disk quota",
     Trouble.BROKEN, "free some room (nox -s doctor says how much is needed); a run can say --keep none"),
    # Podman unpacks while it reads, and may stumble before it has the digest.
    ("verification failed|failed verification|unexpected commit digest|mismatch|does not match digest"
     "|did not match,? expected|flate: corrupt|(gzip|zlib|zstd|tar): invalid|(gzip|pigz): .*corrupt",
     Trouble.DAMAGED, ""),
    ("no matching manifest|does not match the specified platform|no image found in .* for ",
     Trouble.MISSING, "choose an image for this machine's architecture in matrix.yaml"),
    (r"toomanyrequests|too many requests|\b429\b|rate limit", Trouble.LIMITED, ""),
    ("server gave HTTP response to HTTPS client|x509|certificate|tls: (?!handshake)",
     Trouble.UNREACHABLE, AUTHORITY),
    ("incorrect username or password|wrong (username|password)", Trouble.WRONG_LOGIN, ""),
    ("pull access denied|unauthorized|authentication required|no basic auth|credentials|forbidden"
     r"|access to the resource is denied|insufficient[_ ]scope|\b40[13]\b", Trouble.NEEDS_LOGIN, ""),
    ("manifest unknown|name unknown|not known to registry|(repository|manifest) .* not found|: not found"
     r"|blob unknown|unknown blob|\b404\b", Trouble.MISSING, ""),
    ("no such host|server misbehaving|connection refused|no route to host|network is unreachable",
     Trouble.UNREACHABLE, ""),
)  # fmt: skip
"""What Docker, containerd and Podman say, the most certain first (a cut one often names what it asked for),
and what to do where that is not the trouble's own remedy."""

PASSING = re.compile(
    r"toomanyrequests|too many requests|\b429\b|rate limit|\b50[0234]\b|internal server error|bad gateway"
    r"|service unavailable|time-?out|\bEOF\b|reset by peer|broken pipe|timed out|deadline exceeded"
    r"|download failed|chunk|connection (was )?(closed|aborted)|(request|context) canceled|ended prematurely",
    re.IGNORECASE,
)
"""What may be otherwise in a while, where no other sign is found."""


def explain_pull(reference: str, said: str, command: str = "docker") -> tuple[MachineryError, bool]:
    """Return the error for what an engine says of a pull, and whether another try is worth while.

    ``command``: what pulls by hand.
    """
    text = one_line(said)
    found = (sign for sign in SIGNS if re.search(sign[0], text, re.IGNORECASE))
    _, trouble, remedy = next(found, ("", Trouble.BROKEN, ""))
    try:
        host = parse_reference(reference).host
    except UsageError:  # the engine's own words say what is wrong with the name
        host = "its registry"
    error = MachineryError(
        f"{reference} cannot be had: {text[:LONGEST]}\n"
        f"  {remedy.replace('HOST', host) or trouble.remedy(host)}\n"
        f"  try it by hand: {command} pull {reference}"
    )
    may_pass = trouble in {Trouble.LIMITED, Trouble.BROKEN} and not remedy
    return error, may_pass and PASSING.search(text) is not None


@dataclass(kw_only=True)
class Puller:
    """Pulls by the engine, and tells of it.

    ``platform``: for which, such as ``linux/amd64``, or as the engine likes; ``command``: what pulls by hand;
    ``waits``: seconds before each further try.
    """

    pull_note: PullNote
    note: Callable[[str], None]
    platform: str = ""
    command: str = "docker"
    waits: Sequence[float] = WAITS
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic

    def pull(self, reference: str, client: docker.DockerClient) -> None:
        """Pull an image; :class:`MachineryError` says why it cannot be had."""
        for wait in (*self.waits, None):
            try:
                self._follow(reference, client)
            except ENGINE_ERRORS as error:
                # What Docker's SDK adds tells of the engine, not of the registry.
                said = str(getattr(error, "explanation", None) or error)
                failure, again = explain_pull(reference, said, self.command)
                if wait is None or not again:
                    raise failure from error
                self.note(f"{reference}: {one_line(said)[:LONGEST]}; tried again in {wait:g} s")
                self.sleep(wait)
            else:
                return

    def _follow(self, reference: str, client: docker.DockerClient) -> None:
        """Listen to one pull to its end, as long as it gets further."""
        sizes: dict[str, int] = {}  # of what came of each layer
        steps, mark, since = set[tuple[str, str]](), 0, self.clock()
        events = client.api.pull(reference, stream=True, decode=True, platform=self.platform or None)
        try:
            for event in events:
                if "error" in event:
                    raise docker.errors.APIError(str(event["error"]))
                progress, layer = event.get("progressDetail") or {}, str(event.get("id", ""))
                status, current = str(event.get("status", "")), int(progress.get("current", 0))
                if status.startswith("Retrying in 5 seconds"):  # it counts down from there at the first cut
                    self.note(f"{reference}: layer {layer} was cut off; the engine goes on with it in 5 s")
                what = f"{layer} {status}".strip()
                self.pull_note(reference, what, current, int(progress.get("total", 0)))
                sizes[layer] = max(current, sizes.get(layer, 0))
                if not status.startswith("Retrying"):
                    steps.add((layer, status))
                reached = sum(sizes.values()) + LEAST * len(steps)
                if reached >= mark + LEAST or (status == "Extracting" and current):
                    mark, since = reached, self.clock()
                elif self.clock() - since > LEAST_SECONDS:
                    raise MachineryError(
                        f"{reference} cannot be had: less than {LEAST:,} bytes came in "
                        f"{LEAST_SECONDS / 60:g} minutes\n  look at the connection and the registry, or "
                        f"pull it by hand: {self.command} pull {reference}"
                    )
        finally:
            if isinstance(events, Generator):
                events.close()  # the engine ends a pull that nobody listens to
