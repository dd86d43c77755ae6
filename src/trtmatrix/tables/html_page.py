"""The shell of all pages: their templates, colours and style, and a policy that lets nothing be loaded."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from trtmatrix.tables.table import one_line

LIGHT: Mapping[str, str] = {
    "page": "#ffffff", "card": "#f6f8fa", "head": "#eaeef2", "line": "#c9d1d9", "edge": "#78828d",
    "ink": "#1b1f24", "soft": "#57606a", "link": "#0550ae",
    "good": "#116329", "good-back": "#dafbe1", "bad": "#a40e26", "bad-back": "#ffe3e1",
    "warn": "#744500", "warn-back": "#fff3c4", "unsure": "#4b3d9e", "unsure-back": "#ece9ff",
    "plain-back": "#eaeef2",
    "mark-good": "#1a7f37", "mark-bad": "#c2182b", "mark-other": "#6e5bd0", "mark-line": "#7d8690",
}  # fmt: skip
"""Name → colour where the reader wants a light page; tests hold what stands on what against WCAG 2.2."""

DARK: Mapping[str, str] = {
    "page": "#0f1318", "card": "#171c22", "head": "#222931", "line": "#3a434d", "edge": "#7f8a95",
    "ink": "#e8ecf0", "soft": "#a6b0ba", "link": "#84b9ff",
    "good": "#7ee195", "good-back": "#12331f", "bad": "#ffa8a2", "bad-back": "#4a1519",
    "warn": "#f2c661", "warn-back": "#3d2e06", "unsure": "#c3b6ff", "unsure-back": "#2b2357",
    "plain-back": "#2a323b",
    "mark-good": "#4cc46a", "mark-bad": "#ff7b72", "mark-other": "#a696ff", "mark-line": "#7f8a95",
}  # fmt: skip
"""The same where the reader wants a dark one."""


@cache
def templates() -> Environment:
    """Return the environment of the templates: everything is escaped, and a wrong name is an error."""
    found = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"), autoescape=True, trim_blocks=True,
        lstrip_blocks=True, undefined=StrictUndefined, keep_trailing_newline=True,
    )  # fmt: skip
    found.filters["line"] = lambda text: one_line(text, 4000)
    return found


def read_template(name: str) -> str:
    """Return a file of the templates as it is, such as a script."""
    return (Path(__file__).parent / "templates" / name).read_text(encoding="utf-8")


COPY = read_template("copy.js")
"""The script that puts a button beside each command."""


def make_style(*more: str) -> str:
    """Return the style of a page, with what only that page needs."""
    light, dark = (" ".join(f"--{name}: {colour};" for name, colour in c.items()) for c in (LIGHT, DARK))
    themes = (
        f":root {{ color-scheme: light dark; {light} }}\n"
        f"@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"
    )
    paper = read_template("print.css").replace("LIGHT", f"color-scheme: light; {light}")
    return "\n".join(part.strip() for part in (themes, read_template("style.css"), *more, paper))


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
    return templates().get_template("page.html").render(
        title=title, body="\n".join(body), policy="; ".join(policy), style=style, script=script
    )  # fmt: skip


def _hash(content: str) -> str:
    return f"'sha256-{b64encode(sha256(content.encode()).digest()).decode()}'"
