"""``python -m tests.browser.screenshots``: makes the screenshots in docs again, of real records."""

import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser

from tests.browser.chromium import chromium

ROOT = Path(__file__).resolve().parents[2]
HEIGHTS = {1280: 1500, 390: 1800}  # width → height of a screenshot, in pixels
COMMANDS = {
    "report": ("upgrade", "--from", "8.5.3.1", "--to", "8.6.0", "--gpu", "H200", "--no-run"),
    "matrix": ("report", "--gpu", "H200"),
}
"""Picture → the command whose page it shows."""


def main() -> None:
    """Write docs/<picture>-<width>.png, or into the folder named."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs"
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        for name, command in COMMANDS.items():
            page = Path(folder) / f"{name}.html"
            done = subprocess.run([sys.executable, "-m", "trtmatrix", *command, "-o", str(page)], cwd=ROOT,
                                  check=False, stdout=subprocess.DEVNULL)  # fmt: skip
            if not page.exists():
                sys.exit(f"python -m trtmatrix {' '.join(command)} ended with {done.returncode} and no page")
            for width, height in HEIGHTS.items():
                file = target / f"{name}-{width}.png"
                file.write_bytes(shoot(browser, page, width, height))
                print(f"{file}: {file.stat().st_size // 1000} kB")


def shoot(browser: Browser, page: Path, width: int, height: int) -> bytes:
    context = browser.new_context(viewport={"width": width, "height": height}, offline=True)
    opened = context.new_page()
    opened.goto(page.as_uri())
    content = opened.screenshot()
    context.close()
    return content


if __name__ == "__main__":
    main()
