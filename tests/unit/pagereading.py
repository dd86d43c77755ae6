"""Reads a page of ours: its tags and texts, the policy, and that every tag is closed in its turn."""

import re
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser

VOID = {"meta", "br", "input"}
OPEN_ENDED = {"dt", "dd"}
"""What HTML closes by itself: https://html.spec.whatwg.org/multipage/syntax.html#optional-tags."""


def body_of(page: str) -> str:
    """Return a page's own markup: style, script and policy are the templates' own."""
    return page.partition("<body>\n")[2].partition("<script>")[0]


class Page(HTMLParser):
    """Collects tags and texts, and fails where a tag is not closed in its turn."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.whole = text
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag in OPEN_ENDED and self.open[-1] in OPEN_ENDED:
            self.open.pop()
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag == "dl" and self.open[-1] in OPEN_ENDED:
            self.open.pop()
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & set(self.open):
            self.texts.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.tags if name == tag]

    @property
    def text(self) -> str:
        """What can be read, white space run together; the style and the script are not."""
        return " ".join(" ".join(self.texts).split())


def check_safe(page: Page, scripts: int) -> None:
    """Fail unless the page loads nothing, runs only what its policy names, and links only to https."""
    assert {"link", "img", "iframe", "object", "form-action"}.isdisjoint(tag for tag, _ in page.tags)
    for _, attrs in page.tags:
        assert not {"src", "srcset", "style"} & attrs.keys()
        assert not any(name.startswith("on") for name in attrs)
    for attrs in page.all("a"):
        assert (attrs["href"] or "").startswith(("https://", "#"))
    assert "url(" not in page.whole
    assert "@import" not in page.whole
    (policy,) = [m["content"] or "" for m in page.all("meta") if "http-equiv" in m]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    for tag, number in (("style", 1), ("script", scripts)):
        found = re.findall(rf"<{tag}>(.*?)</{tag}>", page.whole, flags=re.DOTALL)
        assert len(found) == len(page.all(tag)) == number
        for content in found:
            digest = b64encode(sha256(content.encode()).digest()).decode()
            assert f"{tag}-src 'sha256-{digest}'" in policy


def check_ids(page: Page) -> None:
    """Fail where an id is given twice, or where one is referred to that is not there."""
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    named = {"aria-labelledby", "aria-describedby", "for"}
    wanted = {attrs[name] for _, attrs in page.tags for name in named & attrs.keys()}
    wanted |= {(a["href"] or "")[1:] for a in page.all("a") if (a["href"] or "").startswith("#")}
    assert {name for name in wanted if "=" not in (name or "")} <= set(ids)
