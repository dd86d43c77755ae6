"""Pages on disk, opened in Chromium; what they log or ask for is kept, and must be nothing."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from builders import make_entry
from operators.operatorrecords import NEW, OLD
from playwright.sync_api import Browser, Page
from projects import ROOT
from reports import bare_upgrade, full_upgrade
from shown import NOISE, sample_entries

from tests.browser.chromium import chromium
from trtmatrix.judge.entry import Entry
from trtmatrix.judge.noise import NOT_CALIBRATED
from trtmatrix.operators.show import Overview
from trtmatrix.operators.show import render_html as render_operators
from trtmatrix.tables.page import make_plots, render_html
from trtmatrix.upgrade.document import render_page

NOW = "2025-01-02 03:04 UTC"


def shown_entries() -> tuple[Entry, ...]:
    """The sample, with noise floors at a second version: a plot needs two."""
    second = ("sdpa-fp16-flag", "10.8.0")
    return tuple(
        make_entry(entry.cell, 208, rel_l2=1.2e-4, noise=NOISE)
        if (entry.cell.case.id, entry.cell.version.name) == second
        else entry
        for entry in sample_entries()
    )


@dataclass
class Opened:
    """A page in the browser, and what it logged and asked for."""

    page: Page
    url: str
    logged: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)


Open = Callable[..., AbstractContextManager[Opened]]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Every kind of page: of made-up reports and cells, and of all records that are shipped."""
    folder = tmp_path_factory.mktemp("pages")
    entries = shown_entries()
    made = {
        "upgrade": render_page(full_upgrade()),
        "upgrade-bare": render_page(bare_upgrade()),
        "operators": render_operators(Overview([OLD, NEW])),
        "sample": render_html(entries, make_plots(entries, NOT_CALIBRATED), generated=NOW, again="x"),
    }
    for name, text in made.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    shipped = folder / "shipped.html"
    command = [sys.executable, "-m", "trtmatrix", "report", "--gpu", "H200", "-o", str(shipped)]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode in {0, 1}  # 1: a surprise
    return {file.stem: file for file in folder.iterdir()}


@pytest.fixture(scope="session")
def opened(browser: Browser, pages: dict[str, Path]) -> Open:
    """Return what opens a page by its name; afterwards it must have logged nothing and asked for nothing."""

    @contextmanager
    def open_page(
        name: str, fragment: str = "", *, width: int = 1280, scheme: Any = "light", **options: Any
    ) -> Iterator[Opened]:
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True, **options
        )
        url = pages[name].as_uri()
        found = Opened(page=context.new_page(), url=url)
        found.page.on("console", lambda message: found.logged.append(f"{message.type}: {message.text}"))
        found.page.on("pageerror", lambda error: found.logged.append(str(error)))
        found.page.on("request", lambda request: found.asked.append(request.url))
        found.page.goto(url + fragment)
        try:
            yield found
        finally:
            context.close()
        assert found.logged == []
        assert found.asked == [url]

    return open_page


def open_all(page: Page) -> None:
    page.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true; })")
