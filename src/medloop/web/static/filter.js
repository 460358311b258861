// The count follows the form; a newer question makes the answer to an older one worthless. Without scripts the button counts.

const WAIT_MS = 250;
const form = document.getElementById("filter");
const count = document.getElementById("count");
let timer = 0;
let asked = 0;

async function ask() {
  const mine = ++asked;
  const query = new URLSearchParams(new FormData(form));
  query.set("part", "count");
  const response = await fetch(`${form.action}?${query}`, { credentials: "same-origin" });
  if (!response.ok || mine !== asked) return;
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  if (mine === asked) count.replaceChildren(...page.body.childNodes);
}

form?.addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(ask, WAIT_MS);
});
