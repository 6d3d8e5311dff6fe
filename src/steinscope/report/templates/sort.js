"use strict";
// A click on the name of a column, or the space or enter key, sorts the table by it; a second one turns the order round.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  const body = table.tBodies[0];
  heads.forEach((head, column) => {
    head.querySelector("button").addEventListener("click", () => {
      const ascending = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach((other) => other.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
      const key = (row) => {
        const cell = row.cells[column];
        return "value" in cell.dataset ? Number(cell.dataset.value) : cell.textContent.trim();
      };
      const compare = (a, b) => {
        const first = key(a), second = key(b);
        const missing = (first === "–") - (second === "–");
        if (missing) return missing;
        const order = typeof first === "number" && typeof second === "number"
          ? first - second : String(first).localeCompare(String(second), undefined, { numeric: true });
        return ascending ? order : -order;
      };
      body.append(...[...body.rows].sort(compare));
    });
  });
}
