"""Sites in the browser: their users review and read their own site's records and nothing else; central staff see and steer all."""

import pytest
from web_world import BAD, GOOD, PASSWORD, QUESTION, prompt_of, trace

from medloop.contracts import Feedback
from medloop.contracts.queue import QueueContent, QueueItem
from medloop.feedback.insight.metrics import measure
from medloop.feedback.submit import submit
from medloop.store import audit
from medloop.store.integrity import verify_store
from medloop.store.records import crud, sites, users

OTHER = "My child drank bleach. What should I do?"


def rated(shown) -> QueueItem:
    """An item about a logged answer, as the queue makes it."""
    content = QueueContent(
        prompt=shown.conversation.prompt, answers=(shown.conversation.answer,), traces=(shown.trace_id,)
    )  # fmt: skip
    return QueueItem(
        kind="rate", content=content, priority=0.5, reasons={"risk": 0.5}, raters=2, trace_id=shown.trace_id
    )  # fmt: skip


@pytest.fixture
def wards(store, fill):
    """Two sites with a clinician and a program each, and an answer and an item of the queue at each, and at main."""
    for site in ("ward-7", "ward-8"):
        for name, role in ((f"dr.{site}", "clinician"), (f"bot.{site}", "engineer")):
            sites.assign(store, users.add_user(store, name, role, password=PASSWORD, actor="test"), site, actor="test")
    shown = {
        "ward-7": trace(BAD, meta={"site": "ward-7"}), "ward-8": trace(BAD, OTHER, meta={"site": "ward-8"}),
        "main": trace(GOOD, "Is it flu?"),
    }  # fmt: skip
    fill(*shown.values(), *map(rated, shown.values()))
    return shown


def test_a_user_of_a_site_reviews_and_reads_their_own_site_alone(store, browse, wards):
    me = browse("dr.ward-7")
    home = me.get("/web/", follow_redirects=True)
    assert home.url.path == "/web/chat" and "/web/search" not in home.text and "/web/traces" not in home.text
    assert '"/web/queue"' in home.text and '"/web/history"' in home.text and "/web/codebook" not in home.text
    page = me.get("/web/queue").text
    assert QUESTION in page and "This is the last one for you today." in page, "those of other sites do not count"
    for other in ("ward-8", "main"):
        assert me.get(f"/web/rate?trace={wards[other].trace_id}").status_code == 404
    assert QUESTION in me.get(f"/web/rate?trace={wards['ward-7'].trace_id}").text
    done = me.fill_in("/web/queue", thumb="down", comments="Misses it.", consent_training="yes")
    assert done.status_code == 200 and OTHER not in done.text and "Is it flu?" not in done.text  # nothing is left for them
    (mine,) = [row for _, row in crud.page(store, Feedback)]
    assert sites.record_site(store, mine.feedback_id) == "ward-7"
    assert QUESTION in me.get("/web/history").text
    corrected = me.fill_in(f"/web/correct?trace={wards['ward-7'].trace_id}", golden=GOOD, consent_training="yes")
    assert corrected.status_code == 200
    link = me.get("/web/history").text.partition('href="/web/history/')[2].partition('"')[0]
    taught = me.get(f"/web/history/{link}")
    assert taught.status_code == 200 and GOOD in taught.text and "/web/lineage" not in taught.text
    assert verify_store(store).ok
    refused = me.get("/web/traces")
    assert refused.status_code == 403 and "belongs to the site ward-7" in refused.text and QUESTION not in refused.text
    assert "站点 ward-7" in me.get("/web/traces", headers={"Accept-Language": "zh"}).text
    assert browse("clinician").get("/web/queue").status_code == 200  # central staff review all


def key_of(store, name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {users.new_key(store, users.get_user(store, name), actor='test')}"}


def test_an_id_of_another_site_is_refused_exactly_like_an_unknown_one(store, browse, running, wards, fill):
    shared = [trace(BAD, meta={"site": "ward-7"}, session_id="shared"), trace(GOOD, meta={"site": "ward-8"}, session_id="shared")]
    fill(*shared, trace(GOOD, meta={"site": "ward-8"}, session_id="only-8"))
    person, program = key_of(store, "dr.ward-7"), key_of(store, "bot.ward-7")

    def refusal(who, **body) -> tuple[int, str]:
        answer = running.post("/api/v1/rlhf/feedback", json={"thumb": "down", **body}, headers=who)
        return answer.status_code, answer.text.replace(next(iter(body.values())), "ID")

    for who in (person, program):
        unknown = refusal(who, trace_id="trc_nothing")
        assert unknown[0] == 422
        assert {refusal(who, trace_id=wards[site].trace_id) for site in ("ward-8", "main")} == {unknown}
    assert refusal(program, session_id="only-8") == refusal(program, session_id="nothing")
    own = running.post("/api/v1/rlhf/feedback", json={"session_id": "shared", "thumb": "down"}, headers=program)
    assert own.status_code == 201  # the newest trace of the session at this site, whatever others logged after it
    assert crud.get(store, Feedback, own.json()["feedback_id"]).trace_id == shared[0].trace_id
    me = users.get_user(store, "dr.ward-7").user_id
    assert browse("dr.ward-7").get(f"/web/rate?trace={wards['ward-8'].trace_id}").status_code == 404
    assert not [row for row in audit.page(store, limit=20) if row["action"] == "traces.read" and row["actor"] == me]


def test_who_moved_neither_repeats_nor_replaces_nor_settles_what_belongs_to_the_site_they_left(store, browse, running, wards):
    mover = users.add_user(store, "dr.mover", "clinician", password=PASSWORD, actor="test")
    me, before = key_of(store, "dr.mover"), browse("dr.mover")
    item = running.get("/api/v1/queue/next", headers=me).json()
    assert item["trace_id"] == wards["ward-7"].trace_id
    old = running.post("/api/v1/rlhf/feedback", json={"trace_id": item["trace_id"], "thumb": "down"}, headers=me).json()
    undo = {"kind": "rate", "record": old["feedback_id"], "back": "queue"}
    assert before.get("/web/queue").status_code == 200
    sites.assign(store, mover, "ward-8", actor="test")
    me, page = key_of(store, "dr.mover"), browse("dr.mover")

    def refusal(named: str, **body) -> tuple[int, str]:
        kind = "correction" if "golden" in body else "feedback"
        name = "feedback_id" if kind == "correction" else "supersedes"
        answer = running.post(f"/api/v1/rlhf/{kind}", json={name: named, **body}, headers=me)
        return answer.status_code, answer.text.replace(named, "ID")

    texts = {"session_id": "x", "agent_name": "a", "user_query": "q", "agent_response": "a", "thumb": "up"}
    for body in ({"golden": "x"}, {"golden": "x", "prompt": QUESTION, "original": BAD}, texts):
        unknown = refusal("fb_nothing", **body)
        assert unknown[0] == 422 and refusal(old["feedback_id"], **body) == unknown
    done = running.post(f"/api/v1/queue/{item['item_id']}/done", json={"record_id": old["feedback_id"]}, headers=me)
    assert done.status_code == 404
    assert running.post(f"/api/v1/queue/{item['item_id']}/skip", headers=me).status_code == 404
    assert page.post("/web/queue/skip", item=item["item_id"]).status_code == 404
    assert page.post("/web/queue/undo", **undo).status_code == 422
    assert not any(row["action"].endswith((".withdraw", ".skip", ".finish")) for row in audit.page(store, limit=30))
    assert running.get("/api/v1/queue/next", headers=me).json()["trace_id"] == wards["ward-8"].trace_id


def test_what_was_stored_before_ids_had_a_site_is_not_stored_again(store, running, wards, monkeypatch):
    key, body = key_of(store, "dr.ward-7"), {"trace_id": wards["ward-7"].trace_id, "thumb": "down", "feedback_id": "fb_1"}
    with monkeypatch.context() as before:
        before.setattr(submit, "with_site_ids", lambda store, body, sender: body)
        assert running.post("/api/v1/rlhf/feedback", json=body, headers=key).json()["feedback_id"] == "fb_1"
    again = running.post("/api/v1/rlhf/feedback", json=body, headers=key)
    assert again.status_code == 200 and again.json()["feedback_id"] == "fb_1" and crud.count(store, Feedback) == 1
    colleague = users.add_user(store, "dr.colleague", "clinician", password=PASSWORD, actor="test")
    sites.assign(store, colleague, "ward-7", actor="test")
    sites.assign(store, users.get_user(store, "dr.ward-7"), "ward-8", actor="test")
    for name, site in (("dr.colleague", "ward-7"), ("dr.ward-7", "ward-8")):  # another sender's, and of the site that one left
        sent = running.post("/api/v1/rlhf/feedback", json=body | {"trace_id": wards[site].trace_id}, headers=key_of(store, name))
        assert sent.status_code == 201 and sent.json()["feedback_id"] == f"{site}~fb_1"


def test_what_somebody_read_before_they_moved_is_gone(store, browse, wards):
    mover = users.add_user(store, "dr.mover", "clinician", password=PASSWORD, actor="test")
    before = browse("dr.mover")
    assert before.fill_in(f"/web/rate?trace={wards['main'].trace_id}", thumb="up").status_code == 200
    held = before.get("/web/queue").text.partition('name="item" value="')[2].partition('"')[0]
    (sent,) = [row for _, row in crud.page(store, Feedback)]
    sites.assign(store, mover, "ward-8", actor="test")
    me = browse("dr.mover")
    assert "Is it flu?" not in me.get("/web/history").text
    assert me.get(f"/web/rate?again={sent.feedback_id}").status_code == 404
    page = me.get(f"/web/rate?item={held}")
    assert page.status_code == 404 or OTHER in page.text  # the item in their hands is theirs only if it is of ward-8


def test_lists_over_http_have_the_records_of_the_site_and_ids_are_its_own(store, browse, running, wards):
    def rate(who, site: str, **more):
        body = {"trace_id": wards[site].trace_id, "thumb": "down", "feedback_id": "fb_1", **more}
        return running.post("/api/v1/rlhf/feedback", json=body, headers=who)

    seven, eight, bot, main = (key_of(store, name) for name in ("dr.ward-7", "dr.ward-8", "bot.ward-7", "clinician"))
    for who, site, stored in ((seven, "ward-7", "ward-7~fb_1"), (eight, "ward-8", "ward-8~fb_1"), (main, "main", "fb_1")):
        sent = rate(who, site)
        assert sent.status_code == 201 and sent.json()["feedback_id"] == stored, "the id of another site does not matter"
    assert rate(seven, "ward-7").status_code == 200  # sent again
    assert rate(seven, "ward-7", thumb="up").status_code == 422  # another record under the id of one's own site
    for named in ("fb_1", "ward-7~fb_1"):  # by either id
        body = {"feedback_id": named, "golden": GOOD, "prompt": QUESTION, "original": BAD}
        assert running.post("/api/v1/rlhf/correction", json=body, headers=seven).status_code == 201
    assert rate(seven, "ward-7", feedback_id="fb_2", supersedes="fb_1").status_code == 201
    stolen = {"feedback_id": "ward-8~fb_1", "golden": GOOD, "prompt": OTHER, "original": BAD}
    assert running.post("/api/v1/rlhf/correction", json=stolen, headers=seven).status_code == 422
    assert rate(main, "main", feedback_id="ward-7~fb_9").status_code == 422  # nobody takes an id of a site beforehand
    listed = {
        name: running.get("/api/v1/rlhf/feedback", headers=who).json()["items"] for name, who in (("7", seven), ("bot", bot))
    }
    assert {row["feedback_id"] for row in listed["7"]} == {row["feedback_id"] for row in listed["bot"]}
    assert {row["feedback_id"] for row in listed["bot"]} == {"ward-7~fb_1", "ward-7~fb_2"}
    assert "user_query" in listed["7"][0] and "user_query" not in listed["bot"][0]
    assert running.get("/api/v1/rlhf/feedback/ward-8~fb_1", headers=bot).status_code == 404
    exported = running.get("/api/v1/rlhf/export", headers=bot).text
    assert "ward-7~fb_1" in exported and "fb_1" not in exported.replace("ward-7~fb_1", "")
    for who, stored in ((bot, "ward-7~fb_1"), (main, "fb_1")):  # to read, too, by the client's own id
        assert running.get("/api/v1/rlhf/feedback/fb_1", headers=who).json()["feedback_id"] == stored
    assert running.get("/api/v1/rlhf/feedback/fb_2", headers=main).status_code == 404  # ward-7 alone has such an id
    later = running.get("/api/v1/rlhf/feedback?order=oldest&after=fb_1", headers=seven)
    assert [row["feedback_id"] for row in later.json()["items"]] == ["ward-7~fb_2"]
    by_site = {row.site: row for row in measure(store).sites}
    assert {name: (row.feedback, row.corrections) for name, row in by_site.items()} == {
        "main": (1, 0), "ward-7": (1, 2), "ward-8": (1, 0)
    }  # fmt: skip
    page = browse("engineer").get("/web/sites").text
    assert "Feedback by site" in page and page.count("ward-8") >= 2


def test_a_move_of_somebody_who_waits_names_the_site_that_they_belong_to(store, browse):
    sites.assign(store, users.get_user(store, "other"), "ward-7", actor="test")
    users.add_user(store, "dr.new", "clinician", password=PASSWORD, actor=users.get_user(store, "admin").user_id)
    assert users.get_user(store, "dr.new").waits
    moved = browse("admin").post("/web/sites/assign", name="dr.new", site="ward-7")
    assert "dr.new belongs to ward-7 now, and waits for the approval of a second admin" in moved.text
    assert users.get_user(store, "dr.new").site == "ward-7"


def test_an_admin_moves_users_and_who_comes_to_main_waits_for_a_second_admin(store, browse, running):
    for role in ("clinician", "auditor"):  # they see the page, and no form
        page = browse(role).get("/web/sites")
        assert page.status_code == 200 and "/web/sites/assign" not in page.text
        assert browse(role).post("/web/sites/assign", name="other", site="ward-7").status_code == 403
    admin = browse("admin")
    assert "A site begins with its first user" in admin.get("/web/sites").text
    slip = admin.post("/web/sites/assign", name="other", site="ward-7")
    assert slip.status_code == 422 and "ward-7 is new: a site begins with this user." in slip.text
    assert users.get_user(store, "other").site == "main" and 'value="ward-7"' in slip.text
    assert "other belongs to ward-7 now." in admin.post("/web/sites/assign", name="other", site="ward-7", new="yes").text
    page = admin.get("/web/sites").text
    assert "<strong>ward-7</strong>" in page and "other" in page
    assert admin.post("/web/sites/assign", name="other", site="Ward 7").status_code == 422
    assert admin.post("/web/sites/assign", name="admin", site="ward-7").status_code == 422  # nobody moves themselves
    assert admin.post("/web/sites/assign", name="auditor", site="ward-7").status_code == 422
    back = admin.post("/web/sites/assign", name="other", site="main")
    assert (
        "other belongs to main now, and waits for the approval of a second admin" in back.text
        and users.get_user(store, "other").waits
    )
    assert any(row["action"] == "users.site" and row["detail"]["waits"] for row in audit.page(store, limit=5))
    assert (
        "other belongs to ward-7 now." in admin.post("/web/sites/assign", name="other", site="ward-7", new="yes").text
    )  # it was a slip
    assert "belongs to" not in admin.get("/web/sites?done=waits&name=nobody&at=main").text
    assert not users.get_user(store, "other").waits and audit.page(store, limit=1)[0]["detail"]["wait_ended"]
    key, warm = key_of(store, "admin"), key_of(store, "engineer")
    assert running.get("/api/v1/deploy", headers=warm).status_code != 401
    moved = running.post("/api/v1/sites/ward-9/users", json={"name": "engineer"}, headers=key)
    assert moved.status_code == 200 and moved.json()["site"] == "ward-9" and not moved.json()["waits"]
    assert running.get("/api/v1/deploy", headers=warm).status_code == 401  # what was known about the key is forgotten
    listed = running.get("/api/v1/sites", headers=key).json()["sites"]
    assert [row["site"] for row in listed] == ["main", "ward-7", "ward-9"]


def test_a_move_ends_no_wait_but_that_of_a_move(store):
    admin = users.get_user(store, "admin").user_id
    new = users.add_user(store, "dr.new", "clinician", password=PASSWORD, actor=admin)

    def waits(site: str) -> bool:
        sites.assign(store, users.get_user(store, "dr.new"), site, actor=admin)
        return users.get_user(store, "dr.new").waits

    users.set_password(store, new, PASSWORD + "x", actor="cli")
    assert [waits(site) for site in ("ward-7", "main", "ward-8")] == [True] * 3  # nobody has approved the clinician yet
    users.approve_user(store, users.get_user(store, "dr.new"), actor="cli")
    assert [waits(site) for site in ("ward-7", "main", "ward-8")] == [False, True, False]
    assert waits("main")
    users.set_password(store, new, PASSWORD + "y", actor=admin)  # another reason to wait
    assert waits("ward-7")
    users.change_user(store, users.get_user(store, "dr.new"), actor="cli", role="engineer")
    assert [waits(site) for site in ("main", "ward-7")] == [False, False]


def test_an_item_that_is_not_wholly_of_one_site_is_for_central_staff(store, browse, running, fill, wards):
    """About answers of two sites, about an answer that nobody logged, or about an answer of the site and a record of another."""
    here, elsewhere = wards["ward-7"].trace_id, wards["ward-8"].trace_id
    key = key_of(store, "dr.ward-8")
    foreign = running.post("/api/v1/rlhf/feedback", json={"trace_id": elsewhere, "thumb": "down"}, headers=key).json()
    own = {"traces": (here,)}
    shown = (
        {"traces": (here, elsewhere)}, {"traces": (here, "trc_nothing")}, own | {"records": (foreign["feedback_id"],)}, own
    )  # fmt: skip
    items = [
        QueueItem(
            kind="compare", content=QueueContent(prompt=prompt_of(f"Which one? {n}"), answers=("A.", "B."), **names),
            priority=0.9, reasons={}, raters=2,
        )
        for n, names in enumerate(shown)
    ]  # fmt: skip
    fill(*items)
    assert [sites.record_site(store, item.item_id) for item in items] == ["main", "main", "main", "ward-7"]
    assert "Which one? 3" in browse("dr.ward-7").get("/web/queue").text


def test_the_queue_over_http_gives_a_site_its_own_items_alone(store, running, wards):
    key = key_of(store, "dr.ward-7")
    item = running.get("/api/v1/queue/next", headers=key).json()
    assert item["trace_id"] == wards["ward-7"].trace_id
    body = {"trace_id": item["trace_id"], "thumb": "up", "feedback_id": "fb_x"}
    assert running.post("/api/v1/rlhf/feedback", json=body, headers=key).status_code == 201
    done = running.post(f"/api/v1/queue/{item['item_id']}/done", json={"record_id": "fb_x"}, headers=key)
    assert done.status_code == 200 and done.json()["state"] == "open"  # by the client's own id; a second rater is asked
    assert running.get("/api/v1/queue/next", headers=key).status_code == 204  # others have items left
