"""The filter of the matrix's page: its form, its style, and the script that does it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trtmatrix.suite.model import Verdict
from trtmatrix.tables.html_pieces import text
from trtmatrix.tables.table import Table

FILTER_STYLE = """
form.filter { border: 1px solid var(--line); border-radius: 8px; background: var(--card);
  padding: .8rem 1rem; margin: .6rem 0 1rem; } form.filter .picks { display: grid; gap: .4rem 1.5rem;
  grid-template-columns: repeat(auto-fit, minmax(15rem, 1fr)); align-items: start; }
form.filter fieldset { border: 0; margin: 0; padding: .2rem 0 .4rem .3rem; }
form.filter label.pick { display: flex; gap: .45rem; align-items: baseline; padding: .1rem 0; }
form.filter summary { font-weight: 600; }
form.filter summary .chosen { font-weight: normal; color: var(--soft); }
form.filter input[type=checkbox] { width: 1.05rem; height: 1.05rem; accent-color: var(--link); flex: none;
  transform: translateY(.15rem); }
form.filter .row { display: flex; flex-wrap: wrap; gap: .6rem 1rem; align-items: end; margin-bottom: .6rem; }
form.filter .row label { flex: 1 1 16rem; } form.filter input[type=search] { display: block; width: 100%;
  font: inherit; padding: .3rem .6rem; border: 1px solid var(--edge); border-radius: 6px;
  background: var(--page); color: var(--ink); }
#shown { font-weight: 600; } #hidden { color: var(--soft); }
a.tally { text-decoration: none; } a.tally:hover .chip { text-decoration: underline; }
"""


def render_filter(tables: Sequence[Table]) -> str:
    """Return the form; it is not shown until the script runs, as without it nothing would be filtered."""
    groups = (
        ("gpu", "GPU", [(table.title, table.title) for table in tables]),
        ("version", "Version", [(name, name) for name in _versions(tables)]),
        ("finding", "Finding", [(name, name) for name in _findings(tables)]),
        ("verdict", "Verdict", _verdicts()),
    )
    picks = "\n".join(_group(name, title, options) for name, title, options in groups)
    return (
        '<form class="filter" id="filter" hidden aria-label="Filter of the tables and plots">\n'
        '<div class="row"><label for="text">Text in a case or in what is known of it\n'
        '<input type="search" id="text" name="text" autocomplete="off"></label>\n'
        '<button type="button" id="all">Show everything</button></div>\n'
        f'<div class="picks">\n{picks}\n</div>\n'
        '<p role="status"><span id="shown"></span> <span id="hidden"></span></p>\n</form>'
    )


def _versions(tables: Sequence[Table]) -> Iterable[str]:
    return dict.fromkeys(version.name for table in tables for version in table.columns)


def _findings(tables: Sequence[Table]) -> Iterable[str]:
    return dict.fromkeys(section.repro.id for table in tables for section in table.sections)


def _verdicts() -> list[tuple[str, str]]:
    return [
        *((verdict.value, verdict.value) for verdict in Verdict),
        ("surprise", "not as expected (!)"),
        ("none", "no evidence"),
    ]


def _group(name: str, title: str, options: Sequence[tuple[str, str]]) -> str:
    picks = "\n".join(
        f'<label class="pick"><input type="checkbox" name="{name}" value="{text(value)}"> '
        f"<span>{text(words)}</span></label>"
        for value, words in options
    )
    return (
        f'<details id="pick-{name}"><summary>{title}: <span class="chosen">all</span></summary>\n'
        f'<fieldset><legend class="hear">{title}: none ticked means all</legend>\n{picks}\n'
        "</fieldset></details>"
    )


FILTER = """
(function () {
  "use strict";
  var form = document.getElementById("filter");
  if (!form) { return; }
  var names = ["gpu", "version", "finding", "verdict"];
  var search = document.getElementById("text");
  var boxes = Array.prototype.slice.call(form.querySelectorAll("input[type=checkbox]"));
  var unknown = [];

  function index(table) {
    var heads = Array.prototype.slice.call(table.tHead.rows[0].cells);
    return {
      table: table, frame: table.closest(".wide"), gpu: table.dataset.gpu, heads: heads,
      versions: heads.map(function (cell) { return cell.textContent; }),
      groups: Array.prototype.map.call(table.tBodies, function (body) {
        var rows = Array.prototype.slice.call(body.rows);
        return {
          body: body, finding: body.dataset.finding, title: rows[0].textContent.toLowerCase(),
          rows: rows.slice(1).map(function (row) {
            return {
              row: row, kind: row.classList[0], cells: Array.prototype.slice.call(row.cells),
              count: row.classList.contains("folded") ? Number(row.dataset.count) : 1
            };
          })
        };
      })
    };
  }
  var tables = Array.prototype.map.call(document.querySelectorAll(".matrix table"), index);
  var plots = Array.prototype.slice.call(document.querySelectorAll("[data-plot]"));

  function chosen(name) {
    return boxes.filter(function (box) { return box.name === name && box.checked; })
      .map(function (box) { return box.value; });
  }
  function fits(picked, value) { return !picked.length || picked.indexOf(value) >= 0; }
  function says(cell, verdicts) {
    if (!cell.dataset.v) { return cell.className === "none" && verdicts.indexOf("none") >= 0; }
    return verdicts.indexOf(cell.dataset.v) >= 0 ||
      (cell.classList.contains("surprise") && verdicts.indexOf("surprise") >= 0);
  }
  function words(item) {
    if (item.words === undefined) { item.words = item.row.textContent.toLowerCase(); }
    return item.words;
  }
  function rowFits(item, group, columns, picked, wanted) {
    if (wanted && group.title.indexOf(wanted) < 0 && words(item).indexOf(wanted) < 0) { return false; }
    if (!picked.verdict.length) { return true; }
    if (item.kind === "twin") { return false; }
    if (item.kind === "folded") { return picked.verdict.indexOf("none") >= 0; }
    return item.cells.some(function (cell, at) { return at && columns[at] && says(cell, picked.verdict); });
  }
  function number(count, word) { return count + " " + word + (count === 1 ? "" : "s"); }

  function apply() {
    var picked = {}, wanted = search.value.trim().toLowerCase();
    names.forEach(function (name) { picked[name] = chosen(name); });
    var seen = { rows: 0, all: 0, findings: {}, hidden: {}, tables: 0, without: [] };
    tables.forEach(function (one, place) {
      var here = fits(picked.gpu, one.gpu), any = false;
      var columns = one.versions.map(function (version, at) { return !at || fits(picked.version, version); });
      var some = columns.some(function (shown, at) { return at && shown; });
      one.groups.forEach(function (group) {
        var shown = 0, all = 0, mine = here && some && fits(picked.finding, group.finding);
        group.rows.forEach(function (item) {
          var fit = mine && rowFits(item, group, columns, picked, wanted);
          item.row.hidden = !fit;
          if (item.kind !== "twin") { all += item.count; shown += fit ? item.count : 0; }
          item.cells.forEach(function (cell, at) {
            if (item.kind !== "folded") { cell.hidden = !columns[at]; }
          });
        });
        group.body.hidden = !shown;
        seen.rows += shown;
        seen.all += all;
        if (shown) { any = true; seen.findings[group.finding] = true; delete seen.hidden[group.finding]; }
        else if (!seen.findings[group.finding]) { seen.hidden[group.finding] = true; }
      });
      one.heads.forEach(function (cell, at) { cell.hidden = !columns[at]; });
      one.frame.hidden = !any;
      if (any) { seen.tables += 1; } else { seen.without.push(one.gpu.split(" · ")[0]); }
      plots.forEach(function (plot) {
        if (Number(plot.dataset.plot) === place) {
          plot.hidden = !(here && fits(picked.finding, plot.dataset.finding));
        }
      });
    });
    tell(seen, picked);
    names.forEach(function (name) {
      var words = picked[name];
      document.querySelector("#pick-" + name + " .chosen").textContent =
        !words.length ? "all" : words.length > 2 ? words.length + " chosen" : words.join(", ");
    });
    return picked;
  }

  function tell(seen, picked) {
    var findings = Object.keys(seen.findings).length, hidden = Object.keys(seen.hidden);
    var versions = boxes.filter(function (box) { return box.name === "version"; }).length;
    document.getElementById("shown").textContent = seen.rows === seen.all && !picked.version.length
      ? "Everything is shown: " + number(seen.all, "case") + "."
      : number(seen.rows, "case") + " of " + seen.all + " shown, in " + number(findings, "finding") +
        " and " + number(seen.tables, "table") + ".";
    var gone = [];
    if (seen.rows < seen.all) { gone.push(number(seen.all - seen.rows, "case")); }
    if (hidden.length) { gone.push("all of " + hidden.join(", ")); }
    if (picked.version.length) { gone.push(number(versions - picked.version.length, "version")); }
    if (seen.without.length) { gone.push("the table of " + seen.without.join(" and that of ")); }
    var said = gone.length ? "Hidden: " + gone.join("; ") + "." : "";
    if (!seen.rows) { said = "Nothing fits. " + said; }
    if (unknown.length) { said += " The address asks for what is not here: " + unknown.join(", ") + "."; }
    document.getElementById("hidden").textContent = said;
  }

  function write(picked) {
    var parts = names.filter(function (name) { return picked[name].length; }).map(function (name) {
      return name + "=" + picked[name].map(encodeURIComponent).join(",");
    });
    if (search.value.trim()) { parts.push("text=" + encodeURIComponent(search.value.trim())); }
    var bare = location.href.split("#")[0];
    history.replaceState(null, "", parts.length ? bare + "#" + parts.join("&") : bare);
  }

  function decoded(value) {
    try { return decodeURIComponent(value); } catch (error) { return value; }
  }
  function read() {
    var hash = location.hash.slice(1), asked = {};
    if (hash && hash.indexOf("=") < 0) { return; }
    hash.split("&").forEach(function (part) {
      var at = part.indexOf("=");
      if (at > 0) { asked[part.slice(0, at)] = part.slice(at + 1); }
    });
    unknown = [];
    names.forEach(function (name) {
      var values = asked[name] ? asked[name].split(",").map(decoded) : [];
      boxes.forEach(function (box) {
        if (box.name === name) { box.checked = values.indexOf(box.value) >= 0; }
      });
      values.forEach(function (value) {
        var known = boxes.some(function (box) { return box.name === name && box.value === value; });
        if (!known) { unknown.push(name + " " + value); }
      });
    });
    search.value = asked.text ? decoded(asked.text) : "";
    apply();
  }

  form.addEventListener("submit", function (event) { event.preventDefault(); });
  form.addEventListener("input", function () { unknown = []; write(apply()); });
  document.getElementById("all").addEventListener("click", function () {
    boxes.forEach(function (box) { box.checked = false; });
    search.value = "";
    unknown = [];
    write(apply());
    search.focus();
  });
  window.addEventListener("hashchange", function () {
    var filtering = location.hash.indexOf("=") > 0;
    read();
    if (filtering) { form.scrollIntoView(); search.focus({ preventScroll: true }); }
  });
  form.hidden = false;
  read();
  if (location.hash.length < 2 || location.hash.indexOf("=") < 0) { apply(); }
})();
"""
"""The script: what it hides carries the attribute ``hidden``; it writes the form's state into the address."""
