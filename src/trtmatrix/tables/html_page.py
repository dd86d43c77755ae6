"""The shell of all pages: their templates, colours and style, and a policy that lets nothing be loaded."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from functools import cache
from hashlib import sha256
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from trtmatrix.common.text import one_line


@cache
def templates() -> Environment:
    """Return the environment of the templates: everything is escaped, and a wrong name is an error."""
    found = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"), autoescape=True, trim_blocks=True,
        lstrip_blocks=True, undefined=StrictUndefined, keep_trailing_newline=True,
    )  # fmt: skip
    found.filters["zip"] = zip
    found.filters["line"] = lambda text: one_line(text, 4000)
    return found


def read_template(name: str) -> str:
    """Return a file of the templates as it is, such as a script."""
    return (Path(__file__).parent / "templates" / name).read_text(encoding="utf-8")


GLYPHS = {"good": "✓", "bad": "✕", "warn": "!", "unsure": "?", "": "·"}
"""What stands beside a colour, so that colour is never all there is."""


def is_safe(url: str) -> bool:
    """Whether an address may become a link: https, and nothing that could end the attribute."""
    return url.startswith("https://") and url.isprintable() and not any(c.isspace() for c in url)


COPY = read_template("copy.js")
"""The script that puts a button beside each command."""


def make_style(*more: str) -> str:
    """Return the style of a page, with what only that page needs."""
    style, paper = (templates().get_template(name).render() for name in ("style.css", "print.css"))
    return "\n".join((style, *more, paper))


def render_page(title: str, body: Iterable[str], *, style: str, script: str = "") -> str:
    """Return the page: ``body`` is markup, all else text.

    Its policy forbids to load anything and to run anything but the style and script that are in it; each is
    named by its SHA-256. Source: https://www.w3.org/TR/CSP3/#external-hash.
    """
    policy = "default-src 'none'; "
    for kind, content in (("style", style), ("script", script)):
        digest = b64encode(sha256(content.encode()).digest()).decode()
        policy += f"{kind}-src 'sha256-{digest}'; " if content else ""
    return templates().get_template("page.html").render(
        title=title, body="\n".join(body), policy=f"{policy}base-uri 'none'; form-action 'none'", style=style,
        script=script,
    )  # fmt: skip
