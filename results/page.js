document.querySelectorAll("table.sortable").forEach(table => {
  const key = (row, i) => { const cell = row.cells[i], v = cell.dataset.value; return v !== undefined ? +v : cell.textContent.trim(); };
  const rank = v => typeof v === "number" ? 0 : (v === "" || v === "-") ? 2 : 1;
  table.tHead.querySelectorAll("th").forEach((head, i) => head.querySelector("button").addEventListener("click", () => {
    const falling = head.getAttribute("aria-sort") === "ascending" || (!head.hasAttribute("aria-sort") && table.querySelector(`td:nth-child(${i + 1})[data-value]`) !== null);
    table.tHead.querySelectorAll("th").forEach(other => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", falling ? "descending" : "ascending");
    for (const body of table.tBodies) {
      const rows = [...body.rows].filter(row => !row.classList.contains("part")).map(row => [key(row, i), row]);
      rows.sort(([a], [b]) => rank(a) - rank(b) || (falling ? -1 : 1) * (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), undefined, { numeric: true })));
      rows.forEach(([, row]) => body.append(row));
    }
  }));
});
