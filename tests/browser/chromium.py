"""The Chromium of the host, driven by Playwright: no browser is downloaded."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")


def find_chromium() -> str | None:
    """Return the browser's path: the one named by TRTMATRIX_TEST_CHROMIUM, else the first on the PATH."""
    named = os.environ.get("TRTMATRIX_TEST_CHROMIUM")
    return named or next((path for name in NAMES if (path := shutil.which(name))), None)


@contextmanager
def chromium() -> Iterator[Browser]:
    args = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=find_chromium(), args=[*args, "--disable-dev-shm-usage"]
        )
        try:
            yield browser
        finally:
            browser.close()
