// A cell that is pointed at or focused opens how its number came about. All text becomes text nodes.

const MOVES = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

// `root` is a document, or an element or shadow root of one.
export function explainCells(root, arithmetic) {
  const popover = makePopover(root.ownerDocument ?? root, root.querySelector("main") ?? root);
  for (const table of root.querySelectorAll("figure.matrix table")) {
    const cells = table.querySelectorAll("td[data-cell]");
    if (cells.length === 0) continue;
    // One stop for the tab key per table, arrows inside it: a hundred cells are not a hundred stops.
    cells.forEach((cell, place) => (cell.tabIndex = place === 0 ? 0 : -1));
    const open = (event) => {
      const cell = event.target.closest("td[data-cell]");
      if (cell) popover.show(cell, arithmetic[cell.dataset.cell]);
    };
    table.addEventListener("pointerover", open);
    table.addEventListener("focusin", open);
    table.addEventListener("pointerleave", () => popover.settle(root.activeElement, arithmetic));
    table.addEventListener("focusout", () => popover.hide());
    table.addEventListener("click", (event) => event.target.closest("td[data-cell]")?.focus());
    table.addEventListener("keydown", (event) => moveInGrid(event, table, popover));
  }
  root.addEventListener("scroll", popover.follow, { passive: true, capture: true });
}

function makePopover(page, home) {
  const box = page.createElement("div");
  box.id = "popover";
  box.setAttribute("role", "tooltip");
  box.hidden = true;
  home.append(box);
  let shown = null;
  const hide = () => {
    box.hidden = true;
    shown?.removeAttribute("aria-describedby");
  };
  const follow = () => {
    if (!box.hidden) place(box, shown.getBoundingClientRect());
  };
  const show = (cell, lines) => {
    hide();
    if (!lines) return;
    const [title, ...steps] = lines;
    box.replaceChildren(line(page, "strong", title), ...steps.map((step) => line(page, "pre", step)));
    box.hidden = false;
    shown = cell;
    cell.setAttribute("aria-describedby", box.id);
    follow();
  };
  const settle = (focused, arithmetic) => {
    if (focused?.dataset?.cell) show(focused, arithmetic[focused.dataset.cell]);
    else hide();
  };
  return { show, hide, settle, follow };
}

function line(page, kind, text) {
  const element = page.createElement(kind);
  element.textContent = text;
  return element;
}

function place(box, cell) {
  const { innerWidth, innerHeight } = window;
  const left = Math.min(cell.left, innerWidth - box.offsetWidth - 12);
  const fitsBelow = cell.bottom + box.offsetHeight + 8 < innerHeight;
  const top = fitsBelow ? cell.bottom + 8 : cell.top - box.offsetHeight - 8;
  box.style.left = `${Math.max(left, 12)}px`;
  box.style.top = `${Math.max(top, 8)}px`;
}

function moveInGrid(event, table, popover) {
  if (event.key === "Escape") return popover.hide();
  const move = MOVES[event.key];
  const cell = event.target.closest("td[data-cell]");
  if (!move || !cell) return;
  event.preventDefault();
  const rows = [...table.tBodies[0].rows];
  const row = rows[rows.indexOf(cell.parentElement) + move[0]];
  const next = row?.cells[cell.cellIndex + move[1]];
  if (!next?.dataset.cell) return;
  cell.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}
