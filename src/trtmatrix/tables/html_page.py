"""The shell of a page that needs nothing else: one style and at most one script, by their hashes."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from hashlib import sha256

from trtmatrix.tables.html_pieces import text


def render_page(title: str, body: Iterable[str], *, style: str, script: str = "") -> str:
    """Return the page: ``body`` is markup, all else text.

    Its policy forbids to load anything and to run anything but the style and script that are in it; each is
    named by its SHA-256. Source: https://www.w3.org/TR/CSP3/#external-hash.
    """
    policy = [
        "default-src 'none'", f"style-src {_hash(style)}",
        *([f"script-src {_hash(script)}"] if script else []),
        "base-uri 'none'", "form-action 'none'",
    ]  # fmt: skip
    lines = (
        "<!DOCTYPE html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{"; ".join(policy)}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        f"<title>{text(title)}</title>",
        f"<style>{style}</style>",
        "</head>",
        "<body>",
        *body,
        *([f"<script>{script}</script>"] if script else []),
        "</body>",
        "</html>",
    )
    return "\n".join(lines) + "\n"


def _hash(content: str) -> str:
    return f"'sha256-{b64encode(sha256(content.encode()).digest()).decode()}'"
