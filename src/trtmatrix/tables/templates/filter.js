(function () {
  "use strict";
  var form = document.getElementById("filter");
  if (!form) { return; }
  var names = ["gpu", "version", "finding", "precision", "only", "verdict"];
  var search = document.getElementById("text");
  var boxes = Array.prototype.slice.call(form.querySelectorAll("input[type=checkbox]"));

  function index(table) {
    var heads = Array.prototype.slice.call(table.tHead.rows[0].cells);
    return {
      table: table, frame: table.closest(".wide"), gpu: table.dataset.gpu, heads: heads,
      place: Number(table.dataset.number), folded: table.closest("details.controls"),
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

  function ticked(name) { return boxes.filter(function (box) { return box.name === name && box.checked; }); }
  function chosen(name) { return ticked(name).map(function (box) { return box.value; }); }
  function fits(picked, value) { return !picked.length || picked.indexOf(value) >= 0; }
  function says(cell, verdicts) {
    if (!cell.dataset.v) { return !cell.className && cell.textContent && verdicts.indexOf("none") >= 0; }
    return verdicts.indexOf(cell.dataset.v) >= 0 ||
      (cell.classList.contains("surprise") && verdicts.indexOf("surprise") >= 0);
  }
  function words(item) {
    if (item.words === undefined) { item.words = item.row.textContent.toLowerCase(); }
    return item.words;
  }
  function rowFits(item, group, columns, picked, wanted) {
    if (wanted && group.title.indexOf(wanted) < 0 && words(item).indexOf(wanted) < 0) { return false; }
    var narrow = picked.precision.length || picked.only.length;
    if (narrow && (item.kind !== "case" || !fits(picked.precision, item.row.dataset.precision))) { return false; }
    var traits = (item.row.dataset.only || "").split(" ");
    if (!picked.only.every(function (trait) { return traits.indexOf(trait) >= 0; })) { return false; }
    if (!picked.verdict.length) { return true; }
    if (item.kind === "twin") { return false; }
    if (item.kind === "folded") { return picked.verdict.indexOf("none") >= 0; }
    return item.cells.some(function (cell, at) { return at && columns[at] && says(cell, picked.verdict); });
  }
  function number(count, word) { return count + " " + word + (count === 1 ? "" : "s"); }

  function apply() {
    var picked = {}, wanted = search.value.trim().toLowerCase();
    names.forEach(function (name) { picked[name] = chosen(name); });
    var filtered = wanted || names.some(function (name) { return picked[name].length; });
    var seen = { rows: 0, all: 0, findings: {} };
    tables.forEach(function (one) {
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
        if (shown) { any = true; seen.findings[group.finding] = true; }
      });
      one.heads.forEach(function (cell, at) { cell.hidden = !columns[at]; });
      one.frame.hidden = !any;
      if (one.folded) { one.folded.hidden = !any; one.folded.open = Boolean(filtered && any); }
      plots.forEach(function (plot) {
        if (Number(plot.dataset.plot) === one.place) {
          plot.hidden = !(here && fits(picked.finding, plot.dataset.finding));
        }
      });
    });
    tell(seen, picked);
    names.forEach(function (name) {
      var words = ticked(name).map(function (box) { return box.nextElementSibling.textContent; });
      document.querySelector("#pick-" + name + " .chosen").textContent =
        !words.length ? "all" : words.length > 2 ? words.length + " chosen" : words.join(", ");
    });
  }

  function tell(seen, picked) {
    var versions = boxes.filter(function (box) { return box.name === "version"; }).length;
    var said = seen.rows === seen.all ? "Everything is shown: " + number(seen.all, "case")
      : number(seen.rows, "case") + " of " + seen.all + " shown, of " +
        number(Object.keys(seen.findings).length, "finding");
    if (picked.version.length) { said += "; " + number(versions - picked.version.length, "version") + " hidden"; }
    document.getElementById("shown").textContent = said + ".";
  }

  function write() {
    var asked = new URLSearchParams();
    boxes.forEach(function (box) { if (box.checked) { asked.append(box.name, box.value); } });
    if (search.value.trim()) { asked.append("text", search.value.trim()); }
    var words = String(asked);
    history.replaceState(null, "", location.href.split("#")[0] + (words && "#" + words));
  }
  function read() {
    if (location.hash.length > 1 && location.hash.indexOf("=") < 0) { return; }
    var asked = new URLSearchParams(location.hash.slice(1));
    boxes.forEach(function (box) { box.checked = asked.getAll(box.name).indexOf(box.value) >= 0; });
    search.value = asked.get("text") || "";
    apply();
  }
  function change() { apply(); write(); }

  form.addEventListener("submit", function (event) { event.preventDefault(); });
  form.addEventListener("input", change);
  document.getElementById("all").addEventListener("click", function () {
    boxes.forEach(function (box) { box.checked = false; });
    search.value = "";
    change();
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
