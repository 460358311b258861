"""The pages where people judge answers, in a real Chromium: by hotkeys, by touch, in both languages, with a lost connection."""

import re

import pytest
from web_world import BAD, GOOD, PASSWORD, QUESTION, item

from medloop.contracts import Conversation, Correction, Feedback, Incident, Message, Preference, Trace
from medloop.contracts.queue import QueueContent, QueueItem
from medloop.feedback.review import queue
from medloop.feedback.review.propose import Signals, propose
from medloop.store import audit
from medloop.store.records import crud, guidelines, users
from medloop.store.records.marks import iterate_marks
from medloop.store.records.workspace_settings import set_consent_default

DESK, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}
LONG = "\n\n".join(f"{n}. Measure your blood pressure twice, five minutes apart, and write it down." for n in range(1, 60))
SHIFTS = """() => { window.shifts = 0; new PerformanceObserver((list) => { for (const entry of list.getEntries())
  window.shifts += entry.value; }).observe({ type: "layout-shift", buffered: true }); }"""


def only(store, kind):
    (record,) = crud.iterate(store, kind)
    return record


def open_queue(visit, name="clinician", **options):
    page = visit(name, **options)
    page.goto("/web/queue")
    page.evaluate("window.stays = true")
    return page


def wait_until_saved(page) -> str:
    page.wait_for_selector("[role=status]")
    return page.inner_text("[role=status]")


def test_an_answer_is_rated_by_hotkeys_and_the_next_one_comes_without_a_new_page(visit, fill, store):
    fill(item("rate", QUESTION, BAD, raters=1), item("rate", "Cough?", GOOD, raters=1))
    page = open_queue(visit)
    page.evaluate(SHIFTS)
    first = page.inner_text(".message.user")
    for key in ("2", "y", "h", "h", "4", "Control+Enter"):  # what is liked is not queued again
        page.keyboard.press(key)
    assert "Saved." in wait_until_saved(page) and page.inner_text(".message.user") != first
    assert page.evaluate("[window.stays, window.shifts, scrollY, document.activeElement.className]") == [
        True,
        0,
        0,
        "conversation",
    ]
    assert "This is the last one for you today." in page.inner_text("main") and "saved" not in page.url
    stored = only(store, Feedback)
    assert (stored.rating, stored.thumb, stored.critical, stored.user_query) == (4, "up", False, first)


def test_a_critical_flag_by_hotkey_is_confirmed_by_hotkey(visit, fill, store):
    fill(item("rate", QUESTION, BAD, raters=1))
    page = open_queue(visit)
    page.keyboard.press("h")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("[role=alertdialog]")
    assert page.evaluate("document.activeElement.getAttribute('role')") == "alertdialog" and not [*crud.iterate(store, Feedback)]
    page.keyboard.press("Control+Enter")
    assert "a safety incident is open" in wait_until_saved(page) and only(store, Feedback).critical


@pytest.mark.parametrize(("keys", "preferred", "flagged"), [
    (("a",), "first", ()), (("b", "Shift+A"), "second", ("first",)), (("=",), "tie", ()),
    (("x", "Shift+A", "Shift+B"), "both_bad", ("first", "second")),
])  # fmt: skip
def test_two_answers_are_compared_by_hotkeys(visit, fill, store, keys, preferred, flagged):
    fill(item("compare", QUESTION, BAD, GOOD, raters=1))
    page = open_queue(visit, "annotator", locale="zh-CN")
    shown = page.locator(".pair .message").all_inner_texts()
    for key in (*keys, "Control+Enter"):
        page.keyboard.press(key)
    if flagged:
        page.wait_for_selector("[role=alertdialog]")
        page.keyboard.press("Control+Enter")
    assert "已保存" in wait_until_saved(page)
    stored = only(store, Preference)
    texts = {"a": stored.response_a, "b": stored.response_b}
    places = {"a": "first", "b": "second"} if texts["a"] == shown[0] else {"a": "second", "b": "first"}
    assert (places.get(stored.preferred, stored.preferred), {places[side] for side in stored.critical}) == (
        preferred,
        set(flagged),
    )
    assert texts[stored.shown_first] == shown[0] and len([*crud.iterate(store, Incident)]) == len(flagged)
    page.goto("/web/history")
    assert {"tie": "一样好", "both_bad": "两个都不好"}.get(preferred, "选择了回答") in page.inner_text(".records")


def test_hotkeys_are_listed_never_act_while_somebody_types_and_can_be_switched_off(visit, fill):
    fill(item("rate", QUESTION, BAD))
    page = open_queue(visit)
    page.focus("#f-comments")
    page.keyboard.type("2 of 5? Yes, so so: h")
    assert page.input_value("#f-comments") == "2 of 5? Yes, so so: h" and not page.is_checked("[name=critical]")
    assert page.locator("[name=rating]:checked").count() == 0 and not page.is_visible("dialog")
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    assert page.is_visible("dialog") and "Send" in page.inner_text("dialog")
    page.uncheck("[data-keys-on]")
    page.keyboard.press("Escape")
    page.keyboard.press("5")
    assert page.locator("[name=rating]:checked").count() == 0


def test_skip_gives_the_item_to_others_and_shows_the_next(visit, fill, store):
    fill(item("rate", QUESTION, BAD, raters=1), item("compare", "Cough?", BAD, GOOD, raters=1))
    page = open_queue(visit)
    first = page.inner_text(".message.user")
    page.keyboard.press("s")
    page.wait_for_function("text => document.querySelector('.message.user').innerText !== text", arg=first)
    assert page.evaluate("window.stays") and not page.is_visible("[role=status]")
    other = queue.next_item(store, users.get_user(store, "other").user_id)
    assert other is not None and other.content.prompt[0].content == first


@pytest.mark.parametrize("key", ["u", "Control+z"])
def test_undo_by_key_brings_the_sent_form_back_and_keeps_what_was_typed_for_the_next(visit, fill, store, key):
    fill(item("correct", QUESTION, BAD, raters=1), item("rate", "Cough?", BAD, raters=1))
    page = open_queue(visit)
    sent = page.inner_text(".message.user")
    field = "#f-golden" if page.locator("#f-golden").count() else "#f-comments"
    page.fill(field, "Call now.")
    page.keyboard.press("Control+Enter")
    wait_until_saved(page)
    typed = "#f-comments" if field == "#f-golden" else "#f-golden"
    page.fill(typed, "half a thought")
    page.keyboard.press("Control+z")  # in a text field it belongs to the text
    page.fill(typed, "half a thought")
    page.keyboard.press("Escape")
    page.keyboard.press(key)
    page.wait_for_function("text => document.querySelector('.message.user').innerText === text", arg=sent)
    assert page.input_value(field) == "Call now." and "Taken back." in page.inner_text("[role=status]")
    assert page.evaluate("window.stays") and not [*iterate_marks(store)]
    page.keyboard.press("Control+Enter")
    page.wait_for_selector(typed)
    assert page.input_value(typed) == "half a thought" and len([*iterate_marks(store)]) == 1
    page.reload()
    assert page.input_value(typed) == "half a thought"


@pytest.mark.parametrize(("size", "locale"), [(DESK, "en-GB"), (PHONE, "zh-CN")])
@pytest.mark.parametrize("kind", ["rate", "compare", "correct"])
def test_sending_is_always_in_view_and_on_a_desk_the_form_too(visit, fill, kind, size, locale):
    fill(item(kind, QUESTION, LONG, *([BAD] if kind == "compare" else []), raters=1))
    page = open_queue(visit, viewport=size, locale=locale)
    page.mouse.move(size["width"] // 3, 400)  # over the conversation
    for _ in range(3):
        box, height = page.locator(".bar button").first.bounding_box(), size["height"]
        assert 0 <= box["y"] and box["y"] + box["height"] <= height, box
        first_field = page.locator(".panel input:visible, .panel textarea:visible").first.bounding_box()
        if size is DESK:
            assert 0 <= first_field["y"] < height and first_field["x"] > 600
        page.mouse.wheel(0, 2500)
        page.wait_for_timeout(100)
    assert page.evaluate("document.querySelector('.conversation').scrollTop + scrollY") > 1000
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_an_expired_session_loses_nothing(visit, fill, store):
    fill(item("rate", QUESTION, BAD, raters=1))
    page = open_queue(visit)
    page.keyboard.press("2")
    page.fill("#f-comments", "Misses the red flag.")
    page.context.clear_cookies()
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("[role=alert]")
    assert "session has expired" in page.inner_text("[role=alert]") and page.input_value("#f-comments")
    page.click("[role=alert] a")
    page.fill("#name", "clinician")
    page.fill("#password", PASSWORD)
    page.keyboard.press("Enter")
    page.wait_for_url("**/web/queue")
    assert page.input_value("#f-comments") == "Misses the red flag." and page.is_checked("[name=rating][value='2']")
    page.keyboard.press("Control+Enter")
    wait_until_saved(page)
    assert only(store, Feedback).comments == "Misses the red flag."
    page.goto("/web/")
    assert page.evaluate("Object.keys(sessionStorage).length") == 0


def test_a_lost_connection_loses_nothing_and_sends_nothing_twice(visit, fill, store):
    fill(item("rate", QUESTION, BAD, raters=1))
    page = open_queue(visit, locale="zh-CN")
    page.fill("#f-comments", "漏掉了危险信号。")
    page.route("**/web/rate", lambda route: (route.fetch(), route.abort())[1])  # stored, but the answer never arrives
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("[role=alert]")
    assert "无法连接服务器" in page.inner_text("[role=alert]") and page.input_value("#f-comments")
    page.unroute("**/web/rate")
    page.keyboard.press("Control+Enter")
    assert "已保存" in wait_until_saved(page) and only(store, Feedback).comments == "漏掉了危险信号。"


def test_the_queue_by_language_and_words(visit, fill, store):
    fill(item("rate", QUESTION, BAD), item("rate", "孩子发烧39度怎么办？", "多喝水。"), item("rate", "Cough and fever?", GOOD))
    page = open_queue(visit)
    page.select_option("[name=language]", "zh")
    page.wait_for_url("**language=zh*")
    assert "发烧" in page.inner_text(".message.user") and "This is the last one" in page.inner_text("main")
    page.select_option("[name=language]", "en")
    page.wait_for_url("**language=en*")
    page.fill("[name=find]", "FEVER cough")
    page.keyboard.press("Enter")
    page.wait_for_url("**find=FEVER*")
    assert page.inner_text(".message.user") == "Cough and fever?"
    page.keyboard.press("3")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("[role=status]")
    assert "No item in the queue matches" in page.inner_text("main") and page.input_value("[name=find]") == "FEVER cough"
    searches = [line for line in audit.show(store, 50) if line["action"] == "queue_items.search"]
    assert searches and "fever" not in str(searches).lower()


def test_consent_starts_as_the_workspace_has_it_and_is_remembered_in_this_session_alone(browse, store):
    someone, page = browse("clinician"), "/web/rate?own=true"
    ticked = re.compile(r'name="consent_(\w+)" value="yes" checked')
    assert not ticked.findall(someone.get(page).text)
    set_consent_default(store, ("training",), actor="test")
    assert ticked.findall(someone.get(page).text) == ["training"]
    someone.fill_in(page, question="q", answer="a", thumb="up", consent_evaluation="yes")
    again = someone.get(page).text
    assert ticked.findall(again) == ["evaluation"] and "the boxes that you chose last" in again
    assert "您上次的选择" in someone.get(page, headers={"Accept-Language": "zh"}).text
    cookie = someone.client.cookies["medloop_consent"]
    later = browse("clinician")
    later.client.cookies.set("medloop_consent", cookie)
    preset = later.get(page).text
    assert ticked.findall(preset) == ["training"] and "the boxes that you chose last" not in preset
    someone.fill_in(page, question="q2", answer="a", thumb="up")
    assert not ticked.findall(someone.get(page).text)  # none was a choice, too


def test_the_whole_conversation_is_readable_with_passages_and_folded_reasoning(visit, fill):
    talk = [
        ("system", "Be brief."),
        ("user", "I am pregnant."),
        ("assistant", "Since **when**?"),
        ("user", "In week 30. May I take ibuprofen?"),
    ]
    content = QueueContent(
        prompt=tuple(Message(role=role, content=text) for role, text in talk),
        answers=("<think>Third trimester is risky.</think>## Advice\n\n- *Stop* it now.\n- Ask [us](javascript:hit).",),
        contexts=("NSAIDs are contraindicated after week 20.",),
    )
    fill(QueueItem(kind="rate", content=content, priority=0.5))
    page = open_queue(visit)
    assert page.locator(".message.user").all_inner_texts() == ["I am pregnant.", "In week 30. May I take ibuprofen?"]
    assert page.inner_text(".earlier .assistant strong") == "when"
    answer = page.locator(".message.assistant").last
    assert answer.locator("h5, li").all_inner_texts() == ["Advice", "Stop it now.", "Ask [us](javascript:hit)."]
    assert answer.locator("a").count() == 0
    for text in ("Third trimester", "contraindicated", "Be brief"):
        assert not page.get_by_text(text).first.is_visible()
    for summary in page.locator(".conversation summary").all():
        summary.click()
    for text in ("Third trimester", "contraindicated", "Be brief"):
        assert page.get_by_text(text).first.is_visible()


def test_passages_reach_the_queue_without_names(store, fill):
    told = Conversation(messages=(Message(role="user", content="May I?"), Message(role="assistant", content="No.")))
    crud.add(store, [Trace(session_id="s", agent_name="a", model_version="m", conversation=told, contexts=("Call +1 212 555 0142.",))], actor="t")  # fmt: skip
    propose(store, Signals(strata_of=lambda text: ("routine",)), actor="test")
    handed = queue.next_item(store, "usr_1")
    assert handed is not None and len(handed.content.contexts) == 1 and "555" not in handed.content.contexts[0]


def test_guidelines_stand_beside_the_form_and_are_the_workspaces_own(visit, fill, store):
    fill(item("rate", QUESTION, BAD))
    page = open_queue(visit)
    assert not page.get_by_text("Order of importance").is_visible()
    page.keyboard.press("g")
    assert page.get_by_text("Order of importance").is_visible()
    guidelines.save(store, "zh", "# 本院规定\n\n<script>window.hit=1</script>先看**安全**。", was=0, actor="test")
    page = open_queue(visit, locale="zh-CN")
    page.click(".guidelines summary")
    assert "本院规定" in page.inner_text(".guidelines") and page.inner_text(".guidelines strong") == "安全"
    assert page.evaluate("window.hit") is None and page.locator(".guidelines script").count() == 0
    page = open_queue(visit)
    assert "Order of importance" in page.inner_html(".guidelines")


def test_no_score_of_a_machine_is_told_before_the_judgement(browse, fill):
    fill(item("rate", QUESTION, BAD).model_copy(update={"reasons": {"uncertainty": 0.9137, "risk": 0.7251}, "priority": 0.8642}))
    page = browse("annotator").get("/web/queue").text
    assert "unsure" not in page and "high risk" not in page and not re.search(r"0\.(91|72|86)|91 ?%|model_version", page)


UNNAMED = """() => {
  const named = (e) => [...(e.labels ?? [])].some((label) => label.textContent.trim()) || e.getAttribute("aria-label") || e.getAttribute("aria-labelledby") || e.innerText?.trim();
  const controls = [...document.querySelectorAll("input:not([type=hidden]), select, textarea:not([hidden]), button, summary, a, [role=region], dialog")];
  const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
  const targets = [...document.querySelectorAll("[aria-describedby], [aria-labelledby]")].flatMap((e) =>
    `${e.getAttribute("aria-describedby") ?? ""} ${e.getAttribute("aria-labelledby") ?? ""}`.split(" ").filter(Boolean));
  return [controls.filter((e) => !named(e)).map((e) => e.outerHTML), ids.filter((id, n) => ids.indexOf(id) !== n),
    targets.filter((id) => !ids.includes(id)), document.querySelectorAll("[tabindex]:not([tabindex='0'], [tabindex='-1'])").length];
}"""


@pytest.mark.parametrize("kind", ["rate", "compare", "correct"])
def test_every_control_has_a_name_and_every_reference_an_end(visit, fill, kind):
    fill(item(kind, QUESTION, LONG, *([BAD] if kind == "compare" else []), raters=1))
    assert open_queue(visit).evaluate(UNNAMED) == [[], [], [], 0]


def test_the_assistants_text_sent_unchanged_is_no_correction_and_what_was_typed_stays(visit, fill, store):
    fill(
        item(
            "correct", QUESTION, "<think>Chest pain is urgent.</think>\nRest and  drink tea.\n\nCall if it gets worse.", raters=1
        )
    )
    page = open_queue(visit)
    page.click("[data-copy=original]")
    page.fill("#f-reason", "It is late.")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("#e-golden")
    assert "identical to the original" in page.inner_text("#e-golden") and page.input_value("#f-reason") == "It is late."
    assert page.input_value("#f-golden").startswith("Rest and") and not [*crud.iterate(store, Correction)]
