"""The chat page in a real browser: a streamed answer, its notice, its version and sources, feedback, a phone, no model at all."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from medloop.contracts import Correction, Feedback
from medloop.contracts.assistant import Passage, PassagesFound
from medloop.serve.gateway.backends import BackendAddress
from medloop.settings import Settings
from medloop.store.records import crud
from medloop.store.records.workspace_settings import set_consent_default
from medloop.testing.chat_double import ChatDouble

SHOTS = Path(__file__).parents[2] / "build/shots"  # to be looked at; not in the repository
ANSWER = "<think>An adult with a cough and no red flag.</think>\nRest, and drink enough. See a doctor if it lasts for three weeks.\n\n<b>not bold</b>"


@pytest.fixture
def model():
    with ChatDouble(ANSWER) as double:
        yield double


@pytest.fixture
def settings(workspace: Path, template: Path, model: ChatDouble) -> Settings:
    shutil.copytree(template, workspace, dirs_exist_ok=True)
    values = {"home": workspace, "device": "cpu", "threads": 1, "offline": True, "gateway": {"backends": model.url}}
    return Settings.model_validate(values)


def ask(page, question: str) -> None:
    answered = page.locator(".chat-feedback").count()
    page.fill("#chat-text", question)
    page.keyboard.press("Control+Enter")
    page.wait_for_selector(f".chat-feedback >> nth={answered}")


def test_a_question_is_asked_answered_and_judged(visit, store, model) -> None:
    page = visit("clinician", viewport={"width": 1200, "height": 900})
    page.goto("/web/chat")
    ask(page, "I have had a mild cough for two weeks. What can I do at home?")
    visible = page.inner_text(".message.assistant")
    assert visible.startswith("Rest, and drink enough.") and "<b>not bold</b>" in visible and "<think>" not in visible
    assert page.inner_text(".chat-meta").startswith("Answered by: base") and not page.is_visible(".message.thought")
    page.click(".reasoning summary")
    assert page.inner_text(".message.thought") == "An adult with a cough and no red flag."
    page.click("button:has-text('Bad answer')")
    page.wait_for_selector("[role=status]:has-text('Saved')")
    page.click(".chat-more summary")
    page.fill("textarea[id^=comment]", "Misses the fever.")
    page.fill("textarea[id^=correction]", "Rest. See a doctor today if you have a fever.")
    page.check("input[id^=critical]")
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / "chat_desk_en.png", full_page=True)
    page.click("button:has-text('Send feedback')")
    page.click("[role=alertdialog] button:has-text('Yes, report it')")
    page.wait_for_selector("[role=status]:has-text('safety incident')")
    first, second = crud.iterate(store, Feedback)
    assert (first.thumb, first.model_version) == ("down", "base") and second.supersedes == first.feedback_id
    assert second.critical and second.comments == "Misses the fever." and second.trace_id == first.trace_id
    (correction,) = crud.iterate(store, Correction)
    assert correction.golden.startswith("Rest. See a doctor today")
    ask(page, "And if it gets worse?")
    assert [message["role"] for message in model.requests[-1]["messages"]] == ["user", "assistant", "user"]
    assert "<think>" not in model.requests[-1]["messages"][1]["content"]
    page.click("#chat-new")
    assert page.inner_text("#chat-log") == "" and page.console_lines == []


def kept(page) -> list[str]:
    return page.evaluate("Object.keys(sessionStorage).filter((key) => key.startsWith('medloop chat '))")


def test_a_reload_keeps_the_conversation_in_this_tab_and_nothing_outlives_the_login(visit, store, model) -> None:
    page = visit("clinician")
    page.goto("/web/chat")
    ask(page, "I have had a mild cough for two weeks.")
    page.click("button:has-text('Bad answer')")
    page.wait_for_selector("[role=status]:has-text('Saved')")
    page.click(".chat-more summary")
    page.fill("textarea[id^=comment]", "Misses the fever.")
    page.reload()
    assert page.inner_text(".message.user") == "I have had a mild cough for two weeks."
    assert page.inner_text(".message.assistant").startswith("Rest, and drink enough.") and not page.is_visible(".message.thought")
    assert page.get_attribute("button:has-text('Bad answer')", "aria-pressed") == "true"
    page.click("button:has-text('Good answer')")  # the comment of before the reload goes with it
    page.wait_for_function("document.querySelector('.chat-feedback [role=status]').textContent.startsWith('Saved')")
    for _ in range(100):
        if len(rows := list(crud.iterate(store, Feedback))) == 2:
            break
        page.wait_for_timeout(50)
    first, second = rows
    assert second.supersedes == first.feedback_id and second.comments == "Misses the fever."
    ask(page, "And if it gets worse?")
    messages = model.requests[-1]["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "user"] and "<think>" not in messages[1]["content"]
    page.goto("/web/language/zh?next=/web/chat")
    assert page.locator(".message.user").count() == 2 and "回答版本" in page.inner_text(".chat-meta >> nth=0")
    page.click("#chat-new")
    page.reload()
    assert page.inner_text("#chat-log") == "" and kept(page) == []
    ask(page, "Only the first person reads this.")
    page.context.clear_cookies()  # the session is over
    page.goto("/web/")
    assert "/web/login" in page.url and kept(page) == []
    assert page.console_lines == []


def test_logging_out_and_another_person_at_the_same_tab_remove_the_conversation(visit, model) -> None:
    page = visit("clinician")
    page.goto("/web/chat")
    ask(page, "Only the first person reads this.")
    assert kept(page) == ["medloop chat clinician"]
    page.evaluate("sessionStorage.setItem('medloop chat other', sessionStorage.getItem('medloop chat clinician'))")
    page.reload()
    assert kept(page) == ["medloop chat clinician"], "what somebody else left in this tab is removed"
    page.click("form[action='/web/logout'] button")
    page.wait_for_url("**/web/login*")
    assert kept(page) == []


def test_a_reload_in_the_middle_of_an_answer_says_that_it_broke_off(visit, model) -> None:
    page = visit("clinician")
    page.goto("/web/chat")
    page.route("**/v1/chat/completions", lambda route: None)  # it never answers
    page.fill("#chat-text", "Is it flu?")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector(".message.user")
    page.reload()
    page.unroute("**/v1/chat/completions")
    assert "The answer broke off" in page.inner_text("#chat-log [role=alert]:not([hidden])")
    page.click("button:has-text('Ask again')")
    page.wait_for_selector(".chat-feedback")
    assert len(model.requests[-1]["messages"]) == 1, "what broke off is not told to the model"


def test_harm_is_confirmed_consent_is_in_sight_and_nothing_new_is_not_called_saved(visit, store) -> None:
    set_consent_default(store, ("training",), actor="test")
    page = visit("clinician")
    page.goto("/web/chat")
    ask(page, "I have had a mild cough for two weeks. What can I do at home?")
    assert page.is_visible("input[id^=consent]") and page.is_checked("input[id^=consent]")
    page.click(".chat-more summary")
    page.click("button:has-text('Send feedback')")
    page.wait_for_selector("[role=status]:has-text('Nothing new')")
    page.click("button:has-text('Good answer')")
    page.wait_for_selector("[role=status]:has-text('Saved')")
    page.click("button:has-text('Send feedback')")
    page.wait_for_selector("[role=status]:has-text('Nothing new')")
    page.uncheck("input[id^=consent]")
    page.wait_for_selector("[role=status]:has-text('Saved')")
    first, second = crud.iterate(store, Feedback)
    assert (first.consent, second.consent, second.supersedes) == (("training",), (), first.feedback_id)
    page.check("input[id^=critical]")
    page.click("button:has-text('Send feedback')")
    page.click("[role=alertdialog] button:has-text('Cancel, remove the flag')")
    assert not page.is_checked("input[id^=critical]") and page.locator("[role=alertdialog]").count() == 0
    page.check("input[id^=critical]")
    page.click("button:has-text('Send feedback')")
    page.wait_for_selector("[role=alertdialog]")
    is_free = "(box) => { const at = box.getBoundingClientRect(); return box.contains(document.elementFromPoint(at.x + 30, at.bottom - 30)); }"
    assert page.eval_on_selector("[role=alertdialog]", is_free), "the bar at the bottom does not cover it"
    assert len([*crud.iterate(store, Feedback)]) == 2
    page.click("[role=alertdialog] button:has-text('Yes, report it')")
    page.wait_for_selector("[role=status]:has-text('safety incident')")
    assert [record.critical for record in crud.iterate(store, Feedback)] == [False, False, True] and page.console_lines == []


@pytest.mark.parametrize(("locale", "acted"), [
    ("en-GB", "Dose: a dose outside the usual range was replaced"), ("zh-CN", "剂量：超出常用范围的剂量已被替换"),
])  # fmt: skip
def test_what_a_guard_did_is_said_in_words(visit, model, locale, acted) -> None:
    model.answer = "It helps to rest. Take 8 g of paracetamol every day. See a doctor if it gets worse."
    page = visit("clinician", locale=locale)
    page.goto("/web/chat")
    ask(page, "My headache is mild. What can I take?")
    assert acted in page.inner_text(".chat-meta") and "rest. [A dose" in page.inner_text(".message.assistant")


def test_the_notice_stands_first_on_a_phone_in_chinese_and_sources_open(app_parts, visit) -> None:
    page = visit("clinician", viewport={"width": 390, "height": 844}, locale="zh-CN", has_touch=True)
    page.goto("/web/chat")
    ask(page, "我爸突然胸口剧痛，出冷汗，左胳膊发麻")
    assert "120" in page.inner_text(".chat-notice") and "回答版本：" not in page.inner_text(".chat-notice")
    page.tap(".chat-sources summary")
    assert page.inner_text(".chat-sources .message") == "胸痛应立即就医。"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.screenshot(path=SHOTS / "chat_phone_zh.png", full_page=True)
    assert page.console_lines == []


@pytest.fixture
def app_parts(monkeypatch):
    """An assistant with documents, as the composition will have them."""
    from medloop.loop import assistant

    passage = Passage(passage_id="p1", document="chest.pdf", title="胸痛指南", page=3, text="胸痛应立即就医。")
    found = PassagesFound(index="sha256:" + "1" * 64, passages=(passage,))
    before = assistant.parts_of

    def parts(store, settings):
        made = before(store, settings)
        made.find_passages = lambda question: found
        return made

    monkeypatch.setattr(assistant, "parts_of", parts)


def test_a_broken_stream_and_a_missing_model_are_said(visit, model) -> None:
    page = visit("clinician")
    page.goto("/web/chat")
    model.faults.append("dies_midway")
    page.fill("#chat-text", "I have a mild cough.")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector(".error")
    assert "not complete" in page.inner_text(".error")
    page.click("button:has-text('Ask again')")
    page.wait_for_selector(".chat-feedback >> nth=1")
    model.stop()
    page.fill("#chat-text", "I have a mild cough.")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector(".error:has-text('No model server answers')")


def test_the_page_says_what_to_start_where_there_is_no_model(browse, app) -> None:
    app.state.gateway.pool.backends.clear()
    page = browse("clinician").get("/web/chat").text
    assert "medloop api serve --with-model embedded:tiny" in page and "No model server answers." in page
    assert browse("annotator").get("/web/chat").status_code == 403


def test_the_page_says_that_the_model_is_loading(browse, app, monkeypatch) -> None:
    async def look_later(_: object) -> None:
        """The model server does not answer meanwhile."""

    pool = app.state.gateway.pool
    address = BackendAddress("http://127.0.0.1:9", log="logs/model-server.log")
    starting = replace(pool.backends[0], address=address, models=(), has_lived=False)
    monkeypatch.setattr(pool, "look_at", look_later)
    monkeypatch.setattr(pool, "backends", [starting])
    page = browse("clinician").get("/web/chat").text
    assert "<strong>The model is loading." in page and "<code>logs/model-server.log</code>" in page
    assert "medloop api serve --with-model" not in page
    page = browse("clinician").get("/web/chat", headers={"Accept-Language": "zh"}).text
    assert "<strong>模型正在加载" in page
