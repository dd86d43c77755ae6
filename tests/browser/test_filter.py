"""The filter of the matrix: by mouse, by keyboard, from the address; what it shows, counts and says."""

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page

from tests.browser.conftest import Open, shown_entries
from trtmatrix.judge.entry import Entry, has_evidence
from trtmatrix.suite.model import Evidence, Verdict
from trtmatrix.tables.table import make_tables

TABLES = make_tables(shown_entries())
GPU, CPU = (table.title for table in TABLES)
FINDINGS = ".matrix table:not([id$=c])"
"""The tables of the findings; those of the controls are folded away until a filter asks for them."""


def expected(fits: Callable[[Entry], bool], *, version: str = "") -> set[tuple[str, str]]:
    """Return the rows of which some cell fits, by table and case, as the entries say."""
    return {
        (table.title, row.label)
        for table in TABLES
        for section in table.sections
        for row in section.rows
        if any(e is not None and version in {"", e.cell.version.name} and fits(e) for e in row.entries)
    }


def of(*verdicts: Verdict, version: str = "") -> set[tuple[str, str]]:
    return expected(
        lambda e: has_evidence(e) and e.outcome is not None and e.outcome.verdict in verdicts, version=version
    )


def shown(page: Page) -> set[tuple[str, str]]:
    return {
        (str(gpu), str(case))
        for gpu, case in page.evaluate("""() => [...document.querySelectorAll("tr.case")]
            .filter(row => row.checkVisibility())
            .map(row => [row.closest("table").dataset.gpu, row.cells[0].textContent])""")
    }


def heads(page: Page) -> list[str]:
    return page.locator(f"{FINDINGS} thead th:visible").all_text_contents()


def pick(page: Page, group: str, *labels: str) -> None:
    page.locator(f"#pick-{group} summary").click()
    for label in labels:
        page.locator(f"#pick-{group}").get_by_label(label, exact=True).check()


def address(page: Page) -> str:
    return str(page.evaluate("location.href"))


def said(page: Page) -> str:
    return " ".join(page.get_by_role("status").inner_text().split())


def everything() -> set[tuple[str, str]]:
    return expected(lambda entry: entry is not None)


def unfolded() -> set[tuple[str, str]]:
    return expected(lambda entry: entry.cell.case.control is None)


@pytest.fixture
def page(opened: Open) -> Iterator[Page]:
    with opened("sample") as found:
        yield found.page


def test_at_first_everything_is_shown(page: Page) -> None:
    assert shown(page) == unfolded() < everything()
    folded = sum(len(section.folded) for table in TABLES for section in table.sections)
    assert said(page) == f"Everything is shown: {len(everything()) + folded} cases."


@pytest.mark.parametrize(
    "verdict", [Verdict.PASS, Verdict.FAIL, Verdict.INVALID, Verdict.BUILT, Verdict.NO_VERDICT]
)
def test_by_verdict(verdict: Verdict, page: Page) -> None:
    pick(page, "verdict", verdict.value)
    wanted = of(verdict)
    assert shown(page) == wanted
    assert 0 < len(wanted) < len(everything())
    assert address(page).endswith(f"#verdict={verdict.value.replace(' ', '+')}")


def test_by_surprise_and_by_no_evidence(page: Page) -> None:
    pick(page, "verdict", "not as expected (!)")
    assert shown(page) == expected(lambda e: e.surprise)
    assert page.locator("#pick-verdict .chosen").inner_text() == "not as expected (!)"
    page.get_by_role("button", name="Show everything").click()
    assert shown(page) == unfolded()
    page.locator("#pick-verdict").get_by_label("no evidence").check()
    assert shown(page) == expected(lambda e: not has_evidence(e))
    assert page.locator("tr.folded:visible").count() > 0


def test_by_gpu_hides_the_other_tables(page: Page) -> None:
    pick(page, "gpu", GPU)
    assert shown(page) == {row for row in everything() if row[0] == GPU}
    assert page.locator(f"{FINDINGS}:visible").count() == 1
    assert page.locator("[data-plot='1']:visible").count() == 0


def test_by_version_hides_the_other_columns_and_says_so(page: Page) -> None:
    pick(page, "version", "8.6.0", "10.8.0")
    assert heads(page) == ["case", "8.6.0", "10.8.0"]
    versions = sum(len(table.columns) for table in TABLES)
    assert f"{versions - 2} versions hidden" in said(page)
    pick(page, "verdict", "FAIL")
    assert shown(page) == of(Verdict.FAIL, version="8.6.0") | of(Verdict.FAIL, version="10.8.0")
    page.get_by_role("button", name="Show everything").click()
    assert len(heads(page)) == versions + len(TABLES)


def test_by_finding(page: Page) -> None:
    pick(page, "finding", "streams")
    assert {case for _, case in shown(page)} <= {"two-streams"}
    assert page.locator("tbody[data-finding='sdpa-scale']:visible").count() == 0
    assert said(page).endswith(" shown, of 1 finding.")


def test_by_text(page: Page) -> None:
    page.get_by_role("searchbox").fill("DOCKER: denied")
    assert {case for _, case in shown(page)} == {"control-lost-scale-tf32 †"}
    page.get_by_role("searchbox").fill("not done after 300 s")
    assert {case for _, case in shown(page)} == {"explicit-tf32"}
    page.get_by_role("searchbox").fill("nothing has this text")
    assert shown(page) == set()
    assert said(page).startswith("0 cases of ")


def test_all_of_it_by_keyboard_alone(page: Page) -> None:
    page.get_by_role("searchbox").focus()
    page.keyboard.type("tf32")
    page.keyboard.press("Tab")
    for group in ("gpu", "version", "finding", "precision", "only", "verdict"):
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.parentNode.id") == f"pick-{group}"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.value") == "FAIL"
    page.keyboard.press("Space")
    assert shown(page) == {row for row in of(Verdict.FAIL) if "tf32" in row[1]}
    assert address(page).endswith("#verdict=FAIL&text=tf32")
    for _ in range(8):
        page.keyboard.press("Shift+Tab")
    assert page.evaluate("document.activeElement.id") == "all"
    page.keyboard.press("Enter")
    assert shown(page) == unfolded()
    assert "#" not in address(page)


def test_the_address_brings_the_filter_back(opened: Open) -> None:
    with opened("sample") as found:
        pick(found.page, "version", "8.6.0", "10.8.0")
        pick(found.page, "verdict", "FAIL", "NO VERDICT")
        found.page.get_by_role("searchbox").fill("a&b=c #d")
        found.page.get_by_role("searchbox").fill("tf32")
        rows, columns, url = shown(found.page), heads(found.page), address(found.page)
    with opened("sample", url[url.index("#") :]) as found:
        assert (shown(found.page), heads(found.page), address(found.page)) == (rows, columns, url)
        assert found.page.locator("#pick-version .chosen").inner_text() == "8.6.0, 10.8.0"
        found.page.get_by_role("searchbox").fill("a&b=c #d")
        assert address(found.page).endswith("&text=a%26b%3Dc+%23d")
        found.page.evaluate("location.hash = '#verdict=BUILT'")
        found.page.wait_for_function("() => document.getElementById('text').value === ''")
        assert shown(found.page) == of(Verdict.BUILT)


def test_links_within_the_page_leave_the_filter_alone(page: Page) -> None:
    pick(page, "verdict", "BUILT")
    rows = shown(page)
    page.get_by_role("link", name="Versions", exact=True).click()
    assert shown(page) == rows


def test_a_mark_of_the_overview_leads_to_its_cases(page: Page) -> None:
    page.locator("#overview a.tally").filter(has_text="BAD").first.click()
    page.wait_for_function("() => document.querySelector('#pick-version .chosen').textContent !== 'all'")
    assert shown(page)
    assert len(heads(page)) == 2
    assert page.evaluate("document.activeElement.id") == "text"


def test_without_a_script_everything_is_shown_and_there_is_no_form(opened: Open) -> None:
    with opened("sample", java_script_enabled=False) as found:
        assert found.page.locator("tr.case:visible").count() == len(unfolded())
        assert found.page.locator("form:visible").count() == 0


def test_a_filter_holds_on_paper_and_is_told_there(opened: Open) -> None:
    with opened("sample", "#verdict=BUILT") as found:
        found.page.emulate_media(media="print")
        assert shown(found.page) == of(Verdict.BUILT)
        assert found.page.get_by_role("status").is_visible()


def test_what_was_measured_and_what_went_wrong_narrow_the_rows(page: Page) -> None:
    pick(page, "only", "cases that were measured")
    seen = {Evidence.MEASURED, Evidence.RECORDED}
    measured = expected(lambda entry: entry.outcome is not None and entry.evidence in seen)
    assert shown(page) == measured
    words = "regressions: wrong after a version that is right"
    page.locator("#pick-only").get_by_label(words, exact=True).check()
    assert shown(page) < measured
    assert shown(page) <= of(Verdict.FAIL, Verdict.FLAKY)


def test_a_precision_leaves_its_own_rows(opened: Open) -> None:
    with opened("shipped") as found:
        pick(found.page, "precision", "fp16")
        left = found.page.evaluate("""() => [...document.querySelectorAll("tr.case")]
            .filter(row => row.checkVisibility()).map(row => row.dataset.precision)""")
        assert len(left) > 10
        assert set(left) == {"fp16"}
