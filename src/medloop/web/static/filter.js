// The count follows the form; a newer question makes the answer to an older one worthless. Without scripts the button counts.

const WAIT_MS = 250;
const form = document.getElementById("filter");
const count = document.getElementById("count");
let timer = 0;
let older = null;

async function ask() {
  older?.abort();
  older = new AbortController();
  const { signal } = older;
  const query = new URLSearchParams(new FormData(form));
  query.set("part", "count");
  try {
    const response = await fetch(`${form.action}?${query}`, { credentials: "same-origin", signal });
    if (!response.ok) return;
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    if (!signal.aborted) count.replaceChildren(...page.body.childNodes);
  } catch (error) {
    if (error.name !== "AbortError") throw error;
  }
}

form?.addEventListener("input", ({ target }) => {
  const place = /^f(\d\d)$/.exec(target.name)?.[1];
  if (place) form.elements[`v${place}`].setAttribute("list", `words-${target.value}`);
  clearTimeout(timer);
  timer = setTimeout(ask, WAIT_MS);
});
