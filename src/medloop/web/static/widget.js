// Feedback under the answers of any chat page: thumbs, a comment, a correction, a flag for harm.
//
//   <script src="https://medloop.example.org/widget.js" data-key="mlk_…" data-language="zh" defer></script>
//   <div data-medloop-inference="ID OF THE ANSWER">…</div>          the id is the header X-Medloop-Inference
//
// The key may do nothing but this (scope `widget`), and the page's origin is in gateway.widget_origins. Styles are in a
// constructed style sheet inside a shadow root, so the page's own policy (CSP) needs only this script and this address.

(() => {
  const script = document.currentScript;
  const address = new URL("/api/v1/widget/feedback", script.src).href;
  const key = script.dataset.key ?? "";
  const language = (script.dataset.language || document.documentElement.lang || navigator.language || "en").startsWith("zh") ? 1 : 0;
  const word = (name) => WORDS[name][language];
  const WORDS = {
    up: ["Good answer", "回答得好"],
    down: ["Bad answer", "回答不好"],
    more: ["Comment or correct", "评论或更正"],
    comment: ["Comment", "评语"],
    golden: ["The answer that should have been given", "本应给出的回答"],
    critical: ["This answer could harm somebody", "该回答可能造成伤害"],
    send: ["Send", "提交"],
    saved: ["Saved. Thank you.", "已保存，谢谢。"],
    failed: ["Not saved. Please try again.", "未保存，请重试。"],
  };
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(`
    :host { display: block; margin: 0.5em 0; font: inherit; }
    .row { display: flex; flex-wrap: wrap; gap: 0.5em; align-items: center; }
    button, textarea, label { font: inherit; color: inherit; }
    button { min-height: 2.75em; min-width: 2.75em; border: 1px solid currentColor; border-radius: 6px; background: transparent; cursor: pointer; }
    button[aria-pressed=true] { outline: 3px solid currentColor; }
    textarea { display: block; box-sizing: border-box; width: 100%; min-height: 4em; background: transparent; border: 1px solid currentColor; }
    summary { cursor: pointer; min-height: 2em; }
    label { display: block; margin: 0.5em 0; }
  `);

  function make(name, attributes = {}, ...children) {
    const made = document.createElement(name);
    for (const [attribute, value] of Object.entries(attributes)) made.setAttribute(attribute, value);
    made.append(...children);
    return made;
  }

  function attach(answer) {
    if (answer.dataset.medloopReady || !answer.dataset.medloopInference) return;
    answer.dataset.medloopReady = "yes";
    const inference = answer.dataset.medloopInference;
    const host = make("div", { class: "medloop-widget", lang: language ? "zh-Hans" : "en" });
    const root = host.attachShadow({ mode: "open" });
    root.adoptedStyleSheets = [sheet];
    const status = make("span", { role: "status" });
    const up = make("button", { type: "button", "aria-pressed": "false", "aria-label": word("up"), title: word("up") }, "👍");
    const down = make("button", { type: "button", "aria-pressed": "false", "aria-label": word("down"), title: word("down") }, "👎");
    const comment = make("textarea", { maxlength: 20000 });
    const golden = make("textarea", { maxlength: 20000 });
    const critical = make("input", { type: "checkbox" });
    const send = make("button", { type: "button" }, word("send"));
    const more = make("details", {}, make("summary", {}, word("more")), make("label", {}, word("comment"), comment),
      make("label", {}, word("golden"), golden), make("label", {}, critical, ` ${word("critical")}`), send);
    let before = null;

    async function post() {
      const body = { inference_id: inference, critical: critical.checked };
      const thumb = [up, down].find((button) => button.getAttribute("aria-pressed") === "true");
      if (thumb) body.thumb = thumb === up ? "up" : "down";
      if (comment.value.trim()) body.comments = comment.value.trim();
      if (golden.value.trim()) body.golden = golden.value.trim();
      if (!body.thumb && !body.comments && !body.golden && !body.critical) return;
      if (before) body.supersedes = before;
      try {
        const headers = { "Content-Type": "application/json", Authorization: `Bearer ${key}` };
        const response = await fetch(address, { method: "POST", headers, body: JSON.stringify(body), credentials: "omit" });
        if (!response.ok) throw new Error();
        before = (await response.json()).feedback_id;
        status.textContent = word("saved");
      } catch {
        status.textContent = word("failed");
      }
    }
    for (const button of [up, down]) {
      button.addEventListener("click", () => {
        for (const other of [up, down]) other.setAttribute("aria-pressed", String(other === button));
        post();
      });
    }
    send.addEventListener("click", post);
    root.append(make("div", { class: "row" }, up, down, status), more);
    answer.after(host);
  }

  const all = () => document.querySelectorAll("[data-medloop-inference]").forEach(attach);
  all();
  new MutationObserver(all).observe(document.documentElement, { childList: true, subtree: true, attributes: true, attributeFilter: ["data-medloop-inference"] });
})();
