// The page of an experiment: newest numbers every few seconds while it runs, and a read-out of the curve by pointer and arrow keys.
// Without scripts the page is complete, and reloading shows the newest numbers.

const EVERY_MS = 5_000;
const NAMESPACE = "http://www.w3.org/2000/svg";
const LEFT = 54, RIGHT = 506, TOP = 36, BOTTOM = 230; // of the plot inside its picture (plots.py)

const live = document.getElementById("live");
let shown = null; // the text that came last
let index = null; // the point that the reader looks at

function curve() {
  const group = live?.querySelector(".curve");
  const points = group ? JSON.parse(group.dataset.points) : [];
  return { group, points };
}

function look(to) {
  const { group, points } = curve();
  if (!group || points.length === 0) return;
  index = Math.min(Math.max(to, 0), points.length - 1);
  const [users, difference, low, high] = points[index];
  const signed = (value) => (value < 0 ? "−" : "+") + Math.abs(value).toFixed(3);
  const values = { users: users.toLocaleString(), value: signed(difference), low: signed(low), high: signed(high) };
  group.querySelector(".readout").textContent = group.dataset.readout.replace(/\{(\w+)\}/g, (_, name) => values[name]);
  if (points.length < 2) return; // the plot is the value itself
  const svg = group.querySelector("svg");
  let line = svg.querySelector(".cursor");
  if (!line) {
    line = document.createElementNS(NAMESPACE, "line");
    line.setAttribute("class", "cursor");
    line.setAttribute("stroke", "currentColor");
    line.setAttribute("y1", TOP);
    line.setAttribute("y2", BOTTOM);
    svg.append(line);
  }
  const first = points[0][0], last = points[points.length - 1][0];
  const x = LEFT + ((RIGHT - LEFT) * (users - first)) / (last - first || 1);
  line.setAttribute("x1", x);
  line.setAttribute("x2", x);
}

function nearest(event) {
  const { group, points } = curve();
  const svg = group?.querySelector("svg");
  if (!svg || points.length === 0) return;
  const box = svg.getBoundingClientRect();
  const x = ((event.clientX - box.left) / box.width) * 520;
  const first = points[0][0], last = points[points.length - 1][0];
  const users = first + ((x - LEFT) / (RIGHT - LEFT)) * (last - first);
  let best = 0;
  points.forEach((point, place) => {
    if (Math.abs(point[0] - users) < Math.abs(points[best][0] - users)) best = place;
  });
  look(best);
}

live?.addEventListener("pointermove", (event) => event.target.closest?.("svg") && nearest(event));
live?.addEventListener("keydown", (event) => {
  if (!event.target.classList?.contains("curve")) return;
  const last = curve().points.length - 1;
  const moves = { ArrowLeft: (index ?? last) - 1, ArrowRight: (index ?? -1) + 1, Home: 0, End: last };
  if (event.key in moves) {
    event.preventDefault();
    look(moves[event.key]);
  }
});

async function refresh() {
  if (document.hidden) return;
  const answer = await fetch(live.dataset.live, { headers: { Accept: "text/html" } });
  if (!answer.ok || answer.redirected) return;
  const text = await answer.text();
  if (text === shown) return;
  const isFirst = shown === null;
  shown = text;
  if (isFirst && !text) return;
  const open = [...live.querySelectorAll("details")].map((details) => details.open);
  const atCurve = document.activeElement?.classList.contains("curve");
  const page = new DOMParser().parseFromString(text, "text/html");
  live.replaceChildren(...page.body.childNodes);
  live.querySelectorAll("details").forEach((details, place) => (details.open = open[place] ?? false));
  if (atCurve) live.querySelector(".curve")?.focus({ preventScroll: true });
  if (index !== null) look(index);
  document.dispatchEvent(new Event("medloop:swapped"));
  if (live.querySelector("[data-ended]")) location.reload(); // other buttons are shown then
}

if (live?.dataset.live) setInterval(() => refresh().catch(() => {}), EVERY_MS);
