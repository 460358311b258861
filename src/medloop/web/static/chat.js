// The chat page: asks /v1/chat/completions as a stream and shows what comes as text, never as HTML. A conversation stays in this
// tab for a reload, as long as the login (focus.js removes it); the server keeps nothing for it.

const box = document.querySelector("#chat");
const log = document.querySelector("#chat-log");
const form = document.querySelector("#chat-form");
const text = document.querySelector("#chat-text");
const stop = document.querySelector("#chat-stop");
const words = JSON.parse(box.dataset.words);
const json = { "Content-Type": "application/json", "X-CSRF-Token": box.dataset.csrf };

const KEPT = `medloop chat ${document.querySelector(".name").dataset.user}`;
let exchanges = []; // of this conversation: { question, words, about, problem, visible, said }
let episode = null;
let running = null; // AbortController of the answer that is being written

function keep() {
  try {
    sessionStorage.setItem(KEPT, JSON.stringify({ episode, exchanges }));
  } catch {
    sessionStorage.removeItem(KEPT); // there is no room: better nothing than an old state
  }
}

// What the model is told again: questions and answers without notices and reasoning.
const turns = () => exchanges.filter((exchange) => exchange.visible && !exchange.problem)
  .flatMap((exchange) => [{ role: "user", content: exchange.question }, { role: "assistant", content: exchange.visible }]);

function element(name, { className = "", content = "", ...attributes } = {}, ...children) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (content) made.textContent = content;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// The model's own words apart from its reasoning; an unclosed <think> is reasoning to the end.
function split(answer) {
  const reasoning = [];
  const visible = answer.replace(/<think>([\s\S]*?)(?:<\/think>|$)/gi, (_, chain) => {
    reasoning.push(chain.trim());
    return "";
  });
  return { reasoning: reasoning.filter(Boolean).join("\n\n"), visible: visible.trim() };
}

class Answer {
  constructor() {
    this.words = "";
    this.about = null;
    this.notice = element("div", { className: "box bad chat-notice", role: "alert", hidden: "" });
    this.reasoning = element("details", { className: "reasoning", hidden: "" }, element("summary", { content: words.reasoning }));
    this.thought = element("div", { className: "message thought chat-text", dir: "auto" });
    this.reasoning.append(this.thought);
    this.body = element("div", { className: "message assistant chat-text", dir: "auto", content: words.thinking, "aria-busy": "true" });
    this.meta = element("p", { className: "hint chat-meta" });
    this.section = element("section", {}, element("h2", { content: words.assistant }), this.notice, this.reasoning, this.body, this.meta);
    log.append(this.section);
  }

  show() {
    const prefix = this.about?.prefix ?? 0;
    const notice = [...this.words].slice(0, prefix).join("").trim();
    const { reasoning, visible } = split([...this.words].slice(prefix).join(""));
    this.notice.hidden = !notice;
    this.notice.replaceChildren(element("strong", { content: words.safety }), element("p", { className: "chat-text", content: notice }));
    this.reasoning.hidden = !reasoning;
    this.thought.textContent = reasoning;
    this.body.textContent = visible || words.thinking;
    return visible;
  }

  finish(exchange) {
    const problem = exchange.problem;
    const visible = this.show();
    this.body.removeAttribute("aria-busy");
    if (!visible) this.body.hidden = true;
    if (problem) this.section.append(element("p", { className: "error", role: "alert", content: problem }));
    if (!this.about) return visible;
    const version = this.about.version + (this.about.fallback ? ` (${words.fallback})` : "");
    this.meta.textContent = `${words.answered_by}${words.colon}${version}`;
    this.meta.title = `${this.about.inference_id} · ${this.about.snapshot}`;
    const acted = this.about.guards.map((act) => `${words[`guard_${act.guard}`] ?? act.guard}${words.colon}${words[`finding_${act.finding}`] ?? act.finding}`);
    if (acted.length) this.meta.textContent += ` · ${words.guards}${words.colon}${acted.join(words.list_semicolon)}`;
    const rules = this.about.rules || [];
    const shown = (id) => box.dataset.links ? element("a", { href: `/web/codebook/${encodeURIComponent(id)}`, content: `${id.slice(0, 13)} ` }) : `${id.slice(0, 13)} `;
    if (rules.length) this.meta.append(` · ${words.rules}${words.colon}`, ...rules.map(shown));
    this.cite();
    this.section.append(feedback(this.about.inference_id, visible, exchange.said));
    return visible;
  }

  cite() {
    if (!this.about.citations.length) return;
    const list = element("div", { className: "chat-sources" }, element("h3", { content: words.sources }));
    for (const source of this.about.citations) {
      const where = `[${source.number}] ${source.title || source.document}${source.page ? `, ${words.page_number} ${source.page}` : ""}`;
      const passage = element("div", { className: "message system chat-text", dir: "auto", content: source.text });
      list.append(element("details", { className: "folded" }, element("summary", { content: where }), passage));
    }
    this.section.append(list);
  }
}

// `said` is what was said of this answer: the record that the next one replaces, what that one said, whether an incident is open.
function feedback(id, visible, said) {
  const name = (part) => `${part}-${id}`;
  const status = element("span", { className: "hint", role: "status" });
  const area = (part, hint = "") => element("div", { className: "field" },
    element("label", { for: name(part), content: words[part] }),
    ...(hint ? [element("p", { className: "hint", content: hint })] : []),
    element("textarea", { id: name(part), rows: 3, maxlength: 20000 }));
  const tick = (part) => element("label", { className: "switch" }, element("input", { type: "checkbox", id: name(part) }), element("span", { content: words[part] }));
  const up = element("button", { className: "plain", type: "button", "aria-pressed": "false", content: `👍 ${words.up}` });
  const down = element("button", { className: "plain", type: "button", "aria-pressed": "false", content: `👎 ${words.down}` });
  const consent = tick("consent");
  const send = element("button", { type: "button", content: words.send_feedback });
  const more = element("details", { className: "folded chat-more" }, element("summary", { content: words.more }),
    area("comment"), area("correction", words.correction_hint), tick("critical"), element("p", { className: "hint", content: words.critical_hint }), element("p", { className: "buttons" }, send));
  consent.firstChild.checked = said.consent ?? box.dataset.consent === "yes";
  const value = (part) => more.querySelector(`#${CSS.escape(name(part))}`);
  for (const part of ["comment", "correction"]) value(part).value = said[part] ?? "";
  value("critical").checked = said.critical ?? false;
  const press = (pressed) => { for (const button of [up, down]) button.setAttribute("aria-pressed", String(button === pressed)); };
  if (said.thumb) press(said.thumb === "up" ? up : down);
  if (said.before) status.textContent = said.reported ? words.saved_critical : words.saved;
  const note = () => {
    for (const part of ["comment", "correction"]) said[part] = value(part).value;
    [said.critical, said.consent, said.thumb] = [value("critical").checked, consent.firstChild.checked, thumb() && (thumb() === up ? "up" : "down")];
    keep();
  };
  const thumb = () => [up, down].find((button) => button.getAttribute("aria-pressed") === "true");

  function confirm() {
    const yes = element("button", { className: "danger", type: "button", content: words.critical_yes });
    const no = element("button", { className: "plain", type: "button", content: words.critical_no });
    const question = element("div", { className: "confirm", role: "alertdialog", "aria-label": words.critical_sure, tabindex: "-1" },
      element("h3", { content: words.critical_sure }), element("p", { content: words.critical_sure_text }), element("p", { className: "buttons" }, yes, no));
    yes.addEventListener("click", () => { question.remove(); post(true); });
    no.addEventListener("click", () => { question.remove(); value("critical").checked = false; note(); });
    more.querySelector("[role=alertdialog]")?.remove();
    more.open = true;
    more.append(question);
    question.scrollIntoView({ block: "center" }); // the bar below would cover it
    question.focus({ preventScroll: true });
  }

  async function post(sure = false) {
    const body = { trace_id: id, critical: value("critical").checked, consent: consent.firstChild.checked ? ["training"] : [] };
    if (thumb()) body.thumb = thumb() === up ? "up" : "down";
    if (value("comment").value.trim()) body.comments = value("comment").value.trim();
    const golden = value("correction").value.trim();
    if (golden && golden !== visible) body.golden = golden;
    const says = JSON.stringify(body);
    if ((!body.thumb && !body.comments && !body.golden && !body.critical) || says === said.sent) {
      status.textContent = words.nothing_new;
      return;
    }
    if (body.critical && !said.reported && !sure) return confirm();
    if (said.before) body.supersedes = said.before;
    try {
      const response = await fetch("/api/v1/rlhf/feedback", { method: "POST", headers: { ...json, "Idempotency-Key": crypto.randomUUID() }, body: JSON.stringify(body) });
      const stored = await response.json();
      if (!response.ok) throw new Error(response.status === 401 || response.status === 403 ? words.expired : stored.error);
      [said.before, said.sent, said.reported] = [stored.feedback_id, says, body.critical];
      note();
      status.textContent = stored.incident_id ? words.saved_critical : words.saved;
    } catch (error) {
      status.textContent = error instanceof TypeError ? words.not_saved : error.message || words.not_saved;
    }
  }
  for (const button of [up, down]) {
    button.addEventListener("click", () => {
      press(button);
      post();
    });
  }
  send.addEventListener("click", () => post());
  consent.firstChild.addEventListener("change", () => said.before && post());
  more.addEventListener("input", note);
  more.addEventListener("toggle", () => {
    if (more.open && !value("correction").value) value("correction").value = visible;
  }, { once: true });
  return element("div", { className: "chat-feedback" }, element("p", { className: "buttons" }, up, down, consent, status), more);
}

// The events of a stream, one JSON value each; the last event of a whole answer is [DONE].
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    buffer += value;
    const lines = buffer.split("\n");
    buffer = lines.pop();
    for (const line of lines) if (line.startsWith("data: ")) yield line.slice(6);
  }
}

async function ask(question) {
  running = new AbortController();
  stop.hidden = false;
  const messages = [...turns(), { role: "user", content: question }];
  const exchange = { question, words: "", about: null, problem: words.failed, visible: "", said: {} };
  exchanges.push(exchange);
  keep(); // a reload in the middle shows that the answer broke off
  showQuestion(question);
  const answer = new Answer();
  answer.section.scrollIntoView({ block: "nearest" });
  let problem = words.failed;
  try {
    const body = { model: "medloop", stream: true, messages, ...(episode ? { metadata: { episode_id: episode } } : {}) };
    const response = await fetch("/v1/chat/completions", { method: "POST", headers: json, body: JSON.stringify(body), signal: running.signal });
    if (!response.ok) {
      const { error } = await response.json();
      const known = { no_backend: words.no_model, loading: words.loading };
      problem = response.status === 401 || response.status === 403 ? words.expired : (known[error.code] ?? error.message);
      throw new Error(problem);
    }
    for await (const event of events(response)) {
      if (event === "[DONE]") {
        problem = "";
        break;
      }
      const chunk = JSON.parse(event);
      if (chunk.error) throw new Error(chunk.error.message);
      if (chunk.medloop) answer.about = chunk.medloop;
      answer.words += chunk.choices[0]?.delta.content ?? "";
      answer.show();
    }
  } catch (error) {
    if (error.name === "AbortError") problem = words.stopped;
  }
  running = null;
  stop.hidden = true;
  if (!exchanges.includes(exchange)) return; // another conversation has begun
  episode = answer.about?.episode_id ?? episode;
  Object.assign(exchange, { words: answer.words, about: answer.about, problem });
  finish(answer, exchange);
  keep();
}

function showQuestion(question) {
  log.append(element("section", {}, element("h2", { content: words.you }), element("div", { className: "message user chat-text", dir: "auto", content: question })));
}

function finish(answer, exchange) {
  exchange.visible = answer.finish(exchange);
  if (!exchange.problem) return;
  const again = element("button", { className: "plain", type: "button", content: words.again });
  again.addEventListener("click", () => { again.remove(); if (!running) ask(exchange.question); });
  answer.section.append(again);
}

// After a reload.
function restore() {
  const kept = JSON.parse(sessionStorage.getItem(KEPT) ?? "null");
  if (!kept) return;
  ({ episode, exchanges } = kept);
  for (const exchange of exchanges) {
    showQuestion(exchange.question);
    const answer = new Answer();
    [answer.words, answer.about] = [exchange.words, exchange.about];
    finish(answer, exchange);
  }
  log.lastElementChild?.scrollIntoView({ block: "nearest" });
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  const question = text.value.trim();
  if (!question || running) return;
  text.value = "";
  ask(question);
});
text.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
});
addEventListener("keydown", (event) => {
  if (event.key === "Escape") running?.abort();
});
stop.addEventListener("click", () => running?.abort());
document.querySelector("#chat-new").addEventListener("click", () => {
  running?.abort();
  [exchanges, episode] = [[], null];
  sessionStorage.removeItem(KEPT);
  log.replaceChildren();
  text.focus();
});
restore();
text.focus();
