// Small comforts of every page; all pages work without scripts. focus.js is for the pages where people judge answers.

// A form is sent only once: a second click while the first is on its way does nothing. (The server would notice it, too.)
for (const form of document.querySelectorAll("form[data-once]")) {
  form.addEventListener("submit", (event) => {
    if (form.dataset.sent) {
      event.preventDefault();
      return;
    }
    form.dataset.sent = "yes";
    // After the event, because the value of a disabled button would not be sent.
    setTimeout(() => form.querySelectorAll("button").forEach((button) => (button.disabled = true)));
  });
}

// Coming back with the browser's back button must not leave the form locked.
addEventListener("pageshow", () => {
  for (const form of document.querySelectorAll("form[data-once]")) {
    delete form.dataset.sent;
    form.querySelectorAll("button").forEach((button) => (button.disabled = false));
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
