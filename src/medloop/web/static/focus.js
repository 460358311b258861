// The pages where people judge answers: the next item without a new page, hotkeys, drafts that survive a lost connection.

const NOTICE_MS = 10_000;
const DRAFT = "medloop draft ";
const CHAT = "medloop chat ";
const KEYS_OFF = "medloop keys off";
const main = document.getElementById("main");
const formNow = () => main.querySelector("form[data-swap]");

// Drafts: what was typed stays in this tab until it is sent; logging out or another person at the same tab removes it. So it is with
// the conversation of the chat page (chat.js), which does not outlive the login: the page to log in removes it, too.

const owner = document.querySelector(".name")?.dataset.user ?? "";
const draftKey = (form) => `${DRAFT}${owner} ${form.dataset.draft}`;
const isTyped = (field) => field.name && field.type !== "hidden" && field.type !== "submit";

function saveDraft(form) {
  const fields = [...form.elements].filter(isTyped);
  const values = fields.map((field) => (/radio|checkbox/.test(field.type) ? (field.checked ? [field.name, field.value] : null) : field.value ? [field.name, field.value] : null));
  sessionStorage.setItem(draftKey(form), JSON.stringify(values.filter(Boolean)));
}

function restoreDraft(form) {
  const saved = sessionStorage.getItem(draftKey(form));
  if (!saved || form.querySelector("[role=alert], [role=alertdialog]")) return; // the server has drawn what was typed
  const values = JSON.parse(saved);
  for (const field of [...form.elements].filter(isTyped)) {
    if (/radio|checkbox/.test(field.type)) field.checked = values.some(([name, value]) => name === field.name && value === field.value);
    else field.value = values.find(([name]) => name === field.name)?.[1] ?? "";
  }
}

function dropDrafts(keep) {
  for (const key of Object.keys(sessionStorage)) {
    if ((key.startsWith(DRAFT) || key.startsWith(CHAT)) && !keep(key)) sessionStorage.removeItem(key);
  }
}

// A line above the bar: what was saved, or why nothing was sent.

function warn(name, address) {
  const text = document.getElementById("offline").content.querySelector(`[data-warn=${name}]`).cloneNode(true);
  if (address) text.querySelector("a").href = address;
  main.querySelector("[data-notice]")?.remove();
  const notice = document.createElement("div");
  notice.className = "notice bad";
  notice.setAttribute("role", "alert");
  notice.dataset.notice = "stays";
  notice.append(text);
  main.append(notice);
}

function hideNoticeLater() {
  const notice = main.querySelector("[data-notice]");
  const expiring = notice?.dataset.notice === "stays" ? notice.querySelector("[data-undo]") : notice;
  if (expiring) setTimeout(() => expiring.remove(), NOTICE_MS);
}

// Sending: the answer of the server is the next page; its main part takes the place of this one.

async function send(form, button) {
  if (form.dataset.sent) return;
  form.dataset.sent = "yes";
  const body = new URLSearchParams(new FormData(form, button));
  const address = button?.getAttribute("formaction") ?? form.getAttribute("action");
  let response, page;
  try {
    response = await fetch(address, { method: "POST", body });
    page = new DOMParser().parseFromString(await response.text(), "text/html");
  } catch {
    warn("offline");
    return;
  } finally {
    delete form.dataset.sent;
  }
  const here = encodeURIComponent(location.pathname + location.search);
  if (response.status === 401) return warn("session", `/web/login?next=${here}`);
  if (response.status === 403) return warn("form", location.pathname + location.search);
  const next = page.getElementById("main");
  if (!next) return warn("offline");
  if (response.ok && response.redirected && form.dataset.draft) sessionStorage.removeItem(draftKey(form));
  swap(next, page, response);
}

function swap(next, page, response) {
  main.replaceChildren(...next.childNodes);
  main.className = next.className;
  document.title = page.title;
  if (response.redirected) {
    const address = new URL(response.url);
    for (const name of ["saved", "kind", "record", "critical", "why", "lapsed"]) address.searchParams.delete(name);
    history.replaceState(null, "", address.pathname + address.search);
  } else if (formNow()?.dataset.draft) saveDraft(formNow()); // drawn again: what the server says counts, not the older draft
  const urgent = main.querySelector("[data-focus]");
  scrollTo(0, 0);
  if (urgent) urgent.focus();
  else (main.querySelector(".conversation") ?? main).focus({ preventScroll: true });
  document.dispatchEvent(new Event("medloop:swapped"));
}

document.addEventListener("submit", (event) => {
  if (event.target.matches("form[data-swap], form[data-undo]")) {
    event.preventDefault();
    send(event.target, event.submitter);
  } else if (event.target.getAttribute("action") === "/web/logout") dropDrafts(() => false);
});

document.addEventListener("input", (event) => {
  const form = event.target.closest?.("form[data-swap]");
  if (form) saveDraft(form);
});
document.addEventListener("change", (event) => {
  if (event.target.matches("select[data-submit]")) event.target.form.requestSubmit();
});

// Buttons that need a script.

document.addEventListener("click", (event) => {
  const button = event.target.closest?.("button");
  if (button?.dataset.open) document.getElementById(button.dataset.open).showModal();
  if (button?.dataset.copy) {
    const from = document.getElementById(button.dataset.copy);
    const into = document.getElementById(button.dataset.into);
    into.value = from.value;
    into.focus();
    saveDraft(button.form);
  }
});

// Hotkeys: every control names its own in aria-keyshortcuts. They can be switched off, and never act while somebody types.

const keysOff = () => localStorage.getItem(KEYS_OFF) === "yes";
const isText = (element) => element.matches("textarea, select, input:not([type=radio], [type=checkbox])") || element.isContentEditable;

function nameOf(event) {
  if (event.key.toLowerCase() === "z" && (event.ctrlKey || event.metaKey) && !event.shiftKey) return "Control+Z";
  if (event.key === "Enter") return event.ctrlKey || event.metaKey ? "Control+Enter" : "";
  if (event.ctrlKey || event.metaKey || event.altKey || event.key.length !== 1) return "";
  const letter = event.key.toUpperCase();
  return event.shiftKey && /[A-Z]/.test(letter) ? `Shift+${letter}` : letter;
}

document.addEventListener("keydown", (event) => {
  if (!main.querySelector("form[data-swap], form[data-undo]") || document.querySelector("dialog[open]") || event.isComposing || event.repeat) return;
  if (event.key === "Escape" && isText(event.target)) return event.target.blur();
  const name = nameOf(event);
  if (!name || (name !== "Control+Enter" && (isText(event.target) || keysOff()))) return;
  const open = main.querySelector("[role=alertdialog]") ?? main; // a question that is open is answered first
  const control = open.querySelector(`[aria-keyshortcuts~="${CSS.escape(name)}"]`);
  if (!control) return;
  event.preventDefault();
  control.click();
  if (control.matches("input")) control.focus();
});

document.addEventListener("change", (event) => {
  if (event.target.matches("[data-keys-on]")) localStorage.setItem(KEYS_OFF, event.target.checked ? "no" : "yes");
});

function prepare() {
  const form = formNow();
  if (form) restoreDraft(form);
  const switchOn = main.querySelector("[data-keys-on]");
  if (switchOn) switchOn.checked = !keysOff();
  hideNoticeLater();
}

if (owner) dropDrafts((key) => key.startsWith(`${DRAFT}${owner} `) || key === `${CHAT}${owner}`);
else if (document.querySelector('form[action="/web/login"]')) dropDrafts((key) => key.startsWith(DRAFT));
prepare();
document.addEventListener("medloop:swapped", prepare);
