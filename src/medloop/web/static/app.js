// Small comforts of every page; all pages work without scripts. focus.js is for the pages where people judge answers.

// While a form is on its way its buttons rest, and a line says what takes so long where it has one (data-busy).
function lock(form, busy) {
  form.querySelectorAll("button").forEach((button) => (button.disabled = busy));
  form.querySelectorAll("[data-busy]").forEach((line) => (line.hidden = !busy));
}

// A form is sent only once: a second click while the first is on its way does nothing. (The server would notice it, too.)
for (const form of document.querySelectorAll("form[data-once]")) {
  form.addEventListener("submit", (event) => {
    if (form.dataset.sent) {
      event.preventDefault();
      return;
    }
    form.dataset.sent = "yes";
    // After the event, because the value of a disabled button would not be sent.
    setTimeout(() => lock(form, true));
  });
}

// Coming back with the browser's back button must not leave the form locked.
addEventListener("pageshow", () => {
  for (const form of document.querySelectorAll("form[data-once]")) {
    delete form.dataset.sent;
    lock(form, false);
  }
});

// The first problem, or the question to confirm, gets the focus.
document.querySelector("[data-focus]")?.focus();

// While somebody is writing, the session stays alive: at most one request in five minutes.
let lastRequest = Date.now();
addEventListener("input", () => {
  if (Date.now() - lastRequest > 300_000) {
    lastRequest = Date.now();
    fetch("/web/alive").catch(() => {});
  }
});

// Pages that move by themselves: the server says when something has changed, and the moving part is fetched again.
const live = document.querySelector("[data-events]");
const LOST_MS = 6_000; // streams are short; a new one comes at once

async function refresh() {
  const response = await fetch(live.dataset.live);
  if (!response.ok) return;
  const focused = live.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  const open = [...live.querySelectorAll("details")].map((details) => details.open);
  live.replaceChildren(...new DOMParser().parseFromString(await response.text(), "text/html").body.childNodes);
  live.querySelectorAll("details").forEach((details, index) => (details.open = open[index] ?? details.open));
  if (focused) live.querySelector(`[href="${CSS.escape(focused)}"]`)?.focus();
  document.dispatchEvent(new Event("medloop:swapped"));
}

// Nobody at the page for ten minutes: it rests, so that it does not keep a session open, and goes on when somebody comes back.
const REST_MS = 600_000;

function follow() {
  const lost = document.getElementById("lost");
  let source, timer;
  let active = Date.now();
  const open = () => {
    source = new EventSource(live.dataset.events);
    source.addEventListener("changed", () => refresh().catch(() => {}));
    source.addEventListener("open", () => {
      clearTimeout(timer);
      timer = undefined;
      lost.hidden = true;
    });
    source.addEventListener("error", () => {
      if (source.readyState === EventSource.CLOSED) lost.hidden = false;
      else if (Date.now() - active > REST_MS) {
        source.close();
        source = undefined;
      } else timer ??= setTimeout(() => (lost.hidden = false), LOST_MS);
    });
  };
  const wake = () => {
    active = Date.now();
    if (source) return;
    open();
    refresh().catch(() => {});
  };
  for (const name of ["pointerdown", "keydown", "focus"]) addEventListener(name, wake);
  addEventListener("pagehide", () => source?.close());
  open();
}
if (live) follow();

// Keys of every page: / searches, ? shows the list, g and a letter go to a page. Never while somebody types. Where answers are
// judged, g alone opens the guidelines and letters are keys of the form: there a letter counts as the second only soon after g.
const SOON_MS = 1_500;
let going = 0;
const types = (element) => element.matches?.("textarea, select, input:not([type=radio], [type=checkbox])") || element.isContentEditable;
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || types(event.target) || document.querySelector("dialog[open]")) return;
  if (localStorage.getItem("medloop keys off") === "yes") return;
  const judging = document.querySelector("form[data-swap]");
  const second = going && (judging ? event.key !== "g" && Date.now() - going < SOON_MS : true);
  const page = second && document.querySelector(`.rail [data-go="${CSS.escape(event.key)}"]`);
  going = event.key === "g" ? Date.now() : 0;
  if (page) {
    event.stopImmediatePropagation(); // the form has a key of the same letter
    return page.click();
  }
  if (event.key === "/") {
    const field = document.querySelector(".rail [type=search]");
    if (!field || field.offsetParent === null) return;
    event.preventDefault();
    field.focus();
  } else if (event.key === "?" && !judging) document.getElementById("page-keys")?.showModal();
});
document.getElementById("page-keys")?.addEventListener("click", (event) => {
  if (event.target.matches("button")) event.currentTarget.close();
});
