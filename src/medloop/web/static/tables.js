// Tables that sort by a click on a column's head and, when they are long, filter by typed words. Both stay in the address.
// A list that the server sorts and pages (a link in its head) is left to the server.
const words = document.getElementById("table-words")?.dataset;
const LONG = 12;
// A number and its unit or interval; a date, an id or a version is text, in which digits count as numbers, too.
const number = /^[-+−]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?(?=$|[\s%:/])/i;
const address = new URL(location.href);

function value(row, column) {
  const cell = row.cells[column];
  const time = cell?.querySelector("time");
  if (time) return time.dateTime;
  if (cell?.dataset.sort) return cell.dataset.sort;
  const text = cell?.textContent.trim() ?? "";
  const match = text.match(number);
  return match ? Number(match[0].replaceAll(",", "").replace("−", "-")) : text.toLowerCase();
}

function compare(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a).localeCompare(String(b), document.documentElement.lang, { numeric: true });
}

function keep(name, text) {
  if (text) address.searchParams.set(name, text);
  else address.searchParams.delete(name);
  history.replaceState(history.state, "", address);
}

function sort(table, column, down, name) {
  const rows = [...table.tBodies[0].rows];
  rows.sort((a, b) => (down ? -1 : 1) * compare(value(a, column), value(b, column)));
  table.tBodies[0].append(...rows);
  for (const head of table.tHead.rows[0].cells) head.removeAttribute("aria-sort");
  table.tHead.rows[0].cells[column].setAttribute("aria-sort", down ? "descending" : "ascending");
  if (name) keep(name, `${column}${down ? "d" : "a"}`);
}

function sortable(table, name) {
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const label = head.textContent.trim();
    if (!label || head.querySelector(".unseen")) return;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "sort";
    button.title = words.sort;
    button.textContent = label;
    button.addEventListener("click", () => sort(table, column, head.getAttribute("aria-sort") === "ascending", name));
    head.replaceChildren(button);
  });
  const [, column, way] = address.searchParams.get(name)?.match(/^(\d{1,2})([ad])$/) ?? [];
  if (way && column < table.tHead.rows[0].cells.length) sort(table, Number(column), way === "d", "");
}

function filterable(table, name) {
  const box = document.createElement("p");
  const input = document.createElement("input");
  const count = document.createElement("span");
  box.className = "table-filter";
  input.type = "search";
  input.placeholder = words.filter;
  input.setAttribute("aria-label", words.filter);
  count.className = "hint";
  count.setAttribute("role", "status");
  const rows = [...table.tBodies[0].rows];
  const apply = () => {
    const wanted = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const left = rows.filter((row) => (row.hidden = !wanted.every((word) => row.textContent.toLowerCase().includes(word)), !row.hidden));
    count.textContent = wanted.length ? words.left.replace("{n}", left.length).replace("{all}", rows.length) : "";
  };
  input.addEventListener("input", () => { apply(); keep(name, input.value); });
  input.value = address.searchParams.get(name) ?? "";
  apply();
  box.append(input, count);
  (table.closest(".scroll") ?? table).before(box);
}

function prepare() {
  let place = 0;
  for (const table of document.querySelectorAll("main table")) {
    const rows = table.tBodies[0]?.rows.length ?? 0;
    const own = table.tHead?.rows.length === 1 && !table.tHead.querySelector("a, button") && !table.closest("figure, form, .prose, #live");
    if (!own || rows < 2 || table.dataset.plain !== undefined) continue;
    place += 1;
    sortable(table, `sort${place}`);
    if (rows > LONG && !document.querySelector("form.filters, form[role=search].filters")) filterable(table, `rows${place}`);
  }
}

if (words) prepare();
