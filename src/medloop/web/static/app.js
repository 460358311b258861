// What makes the pages pleasant; each of them works without it.

// A form is sent once: a second press while the first is on its way does nothing. (The server would notice it, too.)
for (const form of document.querySelectorAll("form[data-once]")) {
  form.addEventListener("submit", (event) => {
    if (form.dataset.sent) {
      event.preventDefault();
      return;
    }
    form.dataset.sent = "yes";
    // After the event: a disabled button would not be part of what is sent.
    setTimeout(() => form.querySelectorAll("button").forEach((button) => (button.disabled = true)));
  });
}

// Coming back with the browser's arrow must not leave the form locked.
addEventListener("pageshow", () => {
  for (const form of document.querySelectorAll("form[data-once]")) {
    delete form.dataset.sent;
    form.querySelectorAll("button").forEach((button) => (button.disabled = false));
  }
});

// The first problem, or the question to confirm, gets the focus.
document.querySelector("[data-focus]")?.focus();

// Start a correction from the assistant's words.
for (const button of document.querySelectorAll("button[data-copy]")) {
  button.hidden = false;
  button.addEventListener("click", () => {
    const from = document.getElementById(button.dataset.copy);
    const into = document.getElementById(button.dataset.into);
    into.value = from.value ?? from.textContent;
    into.focus();
  });
}

// Times are UTC for everybody; pointing at one says what that is on the reader's own clock.
for (const time of document.querySelectorAll("time[datetime]")) {
  const at = new Date(time.dateTime);
  if (!Number.isNaN(at.getTime())) time.title = at.toLocaleString(document.documentElement.lang, { dateStyle: "medium", timeStyle: "long" });
}

// Leaving with half-written text asks first.
for (const form of document.querySelectorAll("form[data-keep]")) {
  let touched = false;
  form.addEventListener("input", () => (touched = true));
  form.addEventListener("submit", () => (touched = false));
  addEventListener("beforeunload", (event) => {
    if (touched) event.preventDefault();
  });
}

// While somebody writes, the session stays alive: at most one question to the server in five minutes.
let asked = Date.now();
addEventListener("input", () => {
  if (Date.now() - asked > 300_000) {
    asked = Date.now();
    fetch("/web/alive");
  }
});
