"""Every page: nothing leaves it, nothing is cut, all can be reached and read, by anybody."""

import io
import time
from pathlib import Path
from unicodedata import normalize

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page
from pypdf import PdfReader

from tests.browser.conftest import Open, open_all

NAMES = ("upgrade", "upgrade-bare", "sample", "shipped", "operators")
SCHEMES = ("light", "dark")


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", ["upgrade", "sample", "operators"])
def test_light_and_dark_are_as_asked_for(name: str, scheme: str, opened: Open) -> None:
    with opened(name, scheme=scheme) as found:
        colours = found.page.evaluate(
            "(style => [style.backgroundColor, style.color])(getComputedStyle(document.body))"
        )
    light, dark = sorted(colours, key=lambda colour: -sum(map(int, colour[4:-1].split(","))))
    assert colours == ([light, dark] if scheme == "light" else [dark, light])


WIDER = """() => {
  const wide = document.documentElement.clientWidth;
  const out = [...document.querySelectorAll("body *")].filter(part => !part.closest(".wide > *")
    && part.checkVisibility() && part.getBoundingClientRect().right > wide + 1);
  const over = document.documentElement.scrollWidth - wide;
  return [over, out.slice(0, 5).map(part => part.outerHTML.slice(0, 200))];
}"""


@pytest.mark.parametrize("name", NAMES)
def test_the_page_itself_never_scrolls_sideways(name: str, opened: Open) -> None:
    with opened(name) as found:
        for act in (lambda _: None, open_all):
            act(found.page)
            for width in (1280, 390, 320):
                found.page.set_viewport_size({"width": width, "height": 900})
                assert found.page.evaluate(WIDER) == [0, []], width


SCROLLED = """() => [...document.querySelectorAll(".wide")].filter(part => part.checkVisibility()
  && part.scrollWidth > part.clientWidth).map(part => [part.tabIndex, part.getAttribute("role"),
  part.getAttribute("aria-label") !== "", getComputedStyle(part).overflowX])"""


def test_what_is_wider_scrolls_in_a_named_region_by_keyboard(opened: Open) -> None:
    with opened("shipped", width=390) as found:
        open_all(found.page)
        regions = found.page.evaluate(SCROLLED)
        assert regions
        assert all(region == [0, "region", True, "auto"] for region in regions)
        wide = found.page.locator(".wide").filter(has=found.page.locator("svg")).first
        wide.focus()
        found.page.keyboard.press("ArrowRight")
        found.page.wait_for_function("() => document.activeElement.scrollLeft > 0")


SMALL = tuple(name for name in NAMES if name != "shipped")
"""The page of all records has the sample's pieces, a hundred times."""


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(("name", "width"), [*((name, 1280) for name in SMALL), ("sample", 390)])
def test_axe_finds_nothing_serious(name: str, width: int, scheme: str, opened: Open) -> None:
    with opened(name, width=width, scheme=scheme) as found:
        open_all(found.page)
        violations = Axe().run(found.page).response["violations"]
    bad = [
        (violation["id"], violation["help"], [node["html"][:160] for node in violation["nodes"][:3]])
        for violation in violations
        if violation["impact"] in {"serious", "critical"}
    ]
    assert bad == []


def test_each_plot_has_a_name_a_description_and_its_data(opened: Open) -> None:
    with opened("sample") as found:
        page = found.page
        plots = page.get_by_role("img").all()
        assert len(plots) == page.locator("figure").count() > 0
        for number, plot in enumerate(plots):
            title = page.locator(f"#{plot.get_attribute('aria-labelledby')}").text_content()
            words = page.locator(f"#{plot.get_attribute('aria-describedby')}").text_content() or ""
            assert page.get_by_role("img", name=title, exact=True).count() >= 1
            assert words.endswith("All values are in the table below.")
            figure = page.locator("figure").nth(number)
            points = plot.locator("g > title").count()
            assert points > 0
            data = figure.get_by_role("cell", include_hidden=True).all_text_contents()
            assert sum(text not in {"", "no value", "image not pulled"} for text in data) == points


FOCUSED = """() => {
  const part = document.activeElement, style = getComputedStyle(part), box = part.getBoundingClientRect();
  return { tag: part.tagName, seen: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0,
    shown: part.checkVisibility() && box.width > 0,
    place: [...document.querySelectorAll("*")].indexOf(part), index: part.tabIndex };
}"""


@pytest.mark.parametrize("name", ["upgrade", "sample"])
def test_the_keyboard_goes_through_the_page_in_its_order(name: str, opened: Open) -> None:
    with opened(name) as found:
        steps = []
        for _ in range(40):
            found.page.keyboard.press("Tab")
            steps.append(found.page.evaluate(FOCUSED))
            if steps[-1]["tag"] == "BODY":
                steps.pop()
                break
        assert steps[0]["tag"] == "A"
        assert "skip" in (found.page.locator("a").first.get_attribute("class") or "")
        assert all(step["seen"] and step["shown"] for step in steps)
        places = [step["place"] for step in steps]
        assert places == sorted(set(places))
        assert {step["tag"] for step in steps} >= {"A", "SUMMARY", "DIV"}
        assert not any(step["index"] > 0 for step in steps)


CUT = """() => [...document.querySelectorAll(".wide, body")].filter(part => part.checkVisibility()
  && (part.scrollWidth > part.clientWidth + 1 || part.scrollHeight > part.clientHeight + 1)
  && getComputedStyle(part).overflowX !== "visible").map(part => part.getAttribute("aria-label"))"""
A4 = 794 - 2 * 53  # the width of A4 within margins of 14 mm, in CSS pixels


@pytest.mark.parametrize("name", ["upgrade", "sample"])
def test_nothing_is_cut_on_paper(name: str, opened: Open) -> None:
    with opened(name, width=A4) as found:
        page = found.page
        page.emulate_media(media="print")
        assert page.evaluate(CUT) == []
        ends = "e => [e.scrollWidth, e.clientWidth]"
        scrolled, client = page.locator("html").evaluate(ends)
        assert scrolled <= client + 1
        heads = page.locator("thead th:visible").all_text_contents()
        content = page.pdf(format="A4", prefer_css_page_size=True)
    words, sheets = read_pdf(content)
    assert sheets < 60
    assert [head for head in heads if "".join(head.split()) not in words] == []


def read_pdf(content: bytes) -> tuple[str, int]:
    """Return what can be read on paper, without white space and ligatures, and how many sheets there are."""
    sheets = PdfReader(io.BytesIO(content)).pages
    read = "".join(sheet.extract_text() for sheet in sheets)
    return "".join(normalize("NFKC", read).split()), len(sheets)


def test_what_is_folded_is_on_paper(opened: Open) -> None:
    with opened("upgrade") as found:
        content = found.page.pdf(format="A4")
    words, _ = read_pdf(content)
    for part in ("int64-fp16", "marked8of412tensors"):
        assert part in words


def test_commands_are_copied_whole(opened: Open) -> None:
    with opened("upgrade", permissions=["clipboard-read", "clipboard-write"]) as found:
        page = found.page
        button = page.get_by_role("button", name="Copy the command").nth(1)
        button.focus()
        page.keyboard.press("Enter")
        page.get_by_text("Copied").wait_for()
        assert (
            page.evaluate("navigator.clipboard.readText()")
            == "first line \\\n  --second '<line>' && echo \"$HOME\""
        )


def test_the_page_of_all_records_is_quick_to_open(pages: dict[str, Path], opened: Open) -> None:
    assert pages["shipped"].stat().st_size < 1_500_000
    started = time.monotonic()
    with opened("shipped") as found:
        assert rows(found.page) > 150
        assert time.monotonic() - started < 10


def rows(page: Page) -> int:
    return page.locator("tr.case:visible").count()


SIDES = "parts => parts.map(part => part.getBoundingClientRect()).map(box => [box.left, box.right])"


@pytest.mark.parametrize("width", [1280, 390])
def test_every_version_of_the_overview_is_in_view(width: int, opened: Open) -> None:
    with opened("shipped", width=width) as found:
        sides = found.page.locator("#overview td:visible").evaluate_all(SIDES)
        assert len(sides) > 20
        assert all(left >= 0 and right <= width for left, right in sides)
        hatched = found.page.locator("#overview td.hatched a")
        assert hatched.count() > 5
        assert all(text.endswith(" r") for text in hatched.all_text_contents())
