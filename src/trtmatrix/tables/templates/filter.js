(() => {
  "use strict";
  const form = document.getElementById("filter");
  if (!form) { return; }
  const names = ["gpu", "version", "finding", "precision", "only", "verdict"];
  const search = document.getElementById("text");
  const boxes = [...form.querySelectorAll("input[type=checkbox]")];
  const plots = [...document.querySelectorAll("[data-plot]")];
  const tables = [...document.querySelectorAll(".matrix table")].map((table) => {
    const heads = [...table.tHead.rows[0].cells];
    return {
      heads, versions: heads.map((cell) => cell.textContent), gpu: table.dataset.gpu, place: table.dataset.number,
      frame: table.closest(".wide"), folded: table.closest("details.controls"),
      groups: [...table.tBodies].map((body) => ({
        body, finding: body.dataset.finding, title: body.rows[0].textContent.toLowerCase(),
        rows: [...body.rows].slice(1).map((row) => ({
          row, kind: row.classList[0], cells: [...row.cells], count: Number(row.dataset.count || 1)
        }))
      }))
    };
  });

  const ticked = (name) => boxes.filter((box) => box.name === name && box.checked);
  const fits = (picked, value) => !picked.length || picked.includes(value);
  const words = (item) => (item.words ??= item.row.textContent.toLowerCase());
  const number = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;

  function says(cell, verdicts) {
    if (!cell.dataset.v) { return !cell.className && cell.textContent && verdicts.includes("none"); }
    return verdicts.includes(cell.dataset.v) ||
      (cell.classList.contains("surprise") && verdicts.includes("surprise"));
  }
  function rowFits(item, group, columns, picked, wanted) {
    if (wanted && !group.title.includes(wanted) && !words(item).includes(wanted)) { return false; }
    const narrow = picked.precision.length || picked.only.length;
    if (narrow && (item.kind !== "case" || !fits(picked.precision, item.row.dataset.precision))) { return false; }
    const traits = (item.row.dataset.only || "").split(" ");
    if (!picked.only.every((trait) => traits.includes(trait))) { return false; }
    if (!picked.verdict.length) { return true; }
    if (item.kind === "twin") { return false; }
    if (item.kind === "folded") { return picked.verdict.includes("none"); }
    return item.cells.some((cell, at) => at && columns[at] && says(cell, picked.verdict));
  }

  function apply() {
    const wanted = search.value.trim().toLowerCase(), findings = new Set();
    const picked = Object.fromEntries(names.map((name) => [name, ticked(name).map((box) => box.value)]));
    const filtered = wanted || names.some((name) => picked[name].length);
    let rows = 0, all = 0;
    for (const one of tables) {
      const here = fits(picked.gpu, one.gpu);
      const columns = one.versions.map((version, at) => !at || fits(picked.version, version));
      const some = columns.some((shown, at) => at && shown);
      let any = false;
      for (const group of one.groups) {
        const mine = here && some && fits(picked.finding, group.finding);
        let shown = 0;
        for (const item of group.rows) {
          const fit = mine && rowFits(item, group, columns, picked, wanted);
          item.row.hidden = !fit;
          if (item.kind !== "twin") { all += item.count; shown += fit ? item.count : 0; }
          if (item.kind !== "folded") { item.cells.forEach((cell, at) => { cell.hidden = !columns[at]; }); }
        }
        group.body.hidden = !shown;
        rows += shown;
        if (shown) { any = true; findings.add(group.finding); }
      }
      one.heads.forEach((cell, at) => { cell.hidden = !columns[at]; });
      one.frame.hidden = !any;
      if (one.folded) { one.folded.hidden = !any; one.folded.open = Boolean(filtered && any); }
      for (const plot of plots.filter((each) => each.dataset.plot === one.place)) {
        plot.hidden = !(here && fits(picked.finding, plot.dataset.finding));
      }
    }
    const versions = boxes.filter((box) => box.name === "version").length, left = picked.version.length;
    const said = rows === all ? `Everything is shown: ${number(all, "case")}`
      : `${number(rows, "case")} of ${all} shown, of ${number(findings.size, "finding")}`;
    document.getElementById("shown").textContent =
      said + (left ? `; ${number(versions - left, "version")} hidden.` : ".");
    for (const name of names) {
      const chosen = ticked(name).map((box) => box.nextElementSibling.textContent);
      document.querySelector(`#pick-${name} .chosen`).textContent =
        !chosen.length ? "all" : chosen.length > 2 ? `${chosen.length} chosen` : chosen.join(", ");
    }
  }

  function change() {
    apply();
    const asked = new URLSearchParams();
    for (const box of boxes.filter((each) => each.checked)) { asked.append(box.name, box.value); }
    if (search.value.trim()) { asked.append("text", search.value.trim()); }
    history.replaceState(null, "", location.href.split("#")[0] + (String(asked) && `#${asked}`));
  }
  function read() {
    const asked = new URLSearchParams(location.hash.slice(1));
    for (const box of boxes) { box.checked = asked.getAll(box.name).includes(box.value); }
    search.value = asked.get("text") || "";
    apply();
  }

  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", change);
  document.getElementById("all").addEventListener("click", () => {
    for (const box of boxes) { box.checked = false; }
    search.value = "";
    change();
    search.focus();
  });
  window.addEventListener("hashchange", () => {
    const filtering = location.hash.includes("=");
    if (filtering || location.hash.length < 2) { read(); }
    if (filtering) { form.scrollIntoView(); search.focus({ preventScroll: true }); }
  });
  form.hidden = false;
  read();
})();
