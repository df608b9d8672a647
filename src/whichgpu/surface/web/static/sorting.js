// Sorts the rows of small tables in place; aria-sort states the current order.
const value = (row, place) => {
  const cell = row.cells[place];
  return cell.dataset.value !== undefined ? Number(cell.dataset.value) : cell.textContent.trim().toLowerCase();
};

function order(table, place) {
  const heads = table.tHead.rows[0].cells;
  const rising = heads[place].getAttribute("aria-sort") !== "ascending";
  for (const head of heads) head.setAttribute("aria-sort", "none");
  heads[place].setAttribute("aria-sort", rising ? "ascending" : "descending");
  const rows = [...table.tBodies[0].rows];
  rows.sort((one, other) => {
    const [a, b] = [value(one, place), value(other, place)];
    return (a < b ? -1 : a > b ? 1 : 0) * (rising ? 1 : -1);
  });
  table.tBodies[0].append(...rows);
}

function wire(table) {
  [...table.tHead.rows[0].cells].forEach((head, place) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    const arrow = document.createElement("span");
    arrow.className = "arrow";
    arrow.setAttribute("aria-hidden", "true");
    button.append(arrow);
    button.addEventListener("click", () => order(table, place));
    head.append(button);
    head.setAttribute("aria-sort", "none");
  });
}

export function startSorting(root = document) {
  root.querySelectorAll("table[data-sortable]").forEach(wire);
}
