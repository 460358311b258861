// Small comforts; every page works without this script.

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

// Start a correction from the assistant's text.
for (const button of document.querySelectorAll("button[data-copy]")) {
  button.hidden = false;
  button.addEventListener("click", () => {
    const from = document.getElementById(button.dataset.copy);
    const into = document.getElementById(button.dataset.into);
    into.value = from.value ?? from.textContent;
    into.focus();
  });
}

// Times are shown in UTC; the tooltip shows the reader's local time.
for (const element of document.querySelectorAll("time[datetime]")) {
  const time = new Date(element.dateTime);
  if (!Number.isNaN(time.getTime())) element.title = time.toLocaleString(document.documentElement.lang, { dateStyle: "medium", timeStyle: "long" });
}

// Leaving with unsent text asks first.
for (const form of document.querySelectorAll("form[data-keep]")) {
  let touched = false;
  form.addEventListener("input", () => (touched = true));
  form.addEventListener("submit", () => (touched = false));
  addEventListener("beforeunload", (event) => {
    if (touched) event.preventDefault();
  });
}

// While somebody is writing, the session stays alive: at most one request in five minutes.
let lastRequest = Date.now();
addEventListener("input", () => {
  if (Date.now() - lastRequest > 300_000) {
    lastRequest = Date.now();
    fetch("/web/alive");
  }
});
