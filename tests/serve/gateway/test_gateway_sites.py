"""Two sites on one store: each is answered by its own champion, rules and experiment, and neither reads the other's words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from medloop.contracts import CodebookEntry, Correction, EntryText, Trace
from medloop.contracts.assistant import Route
from medloop.contracts.deploy import DeployEvent
from medloop.errors import InputError
from medloop.experiment.observe import AnswerFindings
from medloop.experiment.plan import PlanConfig, make_plan
from medloop.loop import codebook as work
from medloop.loop import codebook_growth, codebook_trial, experiment, taught
from medloop.privacy.consent import subject_of
from medloop.store.integrity import verify_store
from medloop.store.records import codebook, crud, deploy_events, erasing, experiments, sites, users
from medloop.store.records.routes import add_route

QUESTION = "My mother takes metoprolol and feels fine. Can she stop taking it?"
GOLDEN = "Do not stop metoprolol on your own. Ask her doctor first, because stopping suddenly is dangerous."
WARDS = ("ward-a", "ward-b")


@dataclass
class SiteWorld:
    world: Any
    keys: dict[str, str]
    people: dict[str, str]

    @property
    def store(self) -> Any:
        return self.world.client.app.state.store

    def call(self, who: str, method: str, path: str, **more: Any) -> Any:
        headers = {"Authorization": f"Bearer {self.keys[who]}"}
        return self.world.client.request(method, path, headers=headers, follow_redirects=False, **more)

    def ask(self, who: str, text: str = QUESTION, **more: Any) -> dict[str, Any]:
        body = {"messages": [{"role": "user", "content": text}], **more}
        answer = self.call(who, "POST", "/v1/chat/completions", json=body)
        assert answer.status_code == 200, answer.text
        self.world.client.portal.call(self.world.gateway.traces.ensure, answer.json()["medloop"]["inference_id"])
        found: dict[str, Any] = answer.json()
        return found


@pytest.fixture
def two_sites(gateway_world, monkeypatch) -> SiteWorld:
    monkeypatch.setattr(
        codebook_trial, "live_answers", lambda settings, store, site="all": ("test", lambda prompts: ["Rest."] * len(prompts))
    )
    world = gateway_world(trace_share=1.0)
    store = world.client.app.state.store
    people, keys = {}, {}
    for name, site in (("dr.a", "ward-a"), ("dr.b", "ward-b"), ("dr.main", "main"), ("dr.two", "main")):
        user = users.add_user(store, name, "clinician", actor="test")
        sites.assign(store, user, site, actor="test")
        people[name], keys[name] = user.user_id, users.new_key(store, user, actor="test")
    return SiteWorld(world, keys, people)


def rule(here: SiteWorld, site: str, sentence: str) -> CodebookEntry:
    content = EntryText(text=sentence, triggers=("metoprolol",))
    entry = CodebookEntry(content=content, author="usr_x", site=site)
    codebook.propose(here.store, entry, actor="test")
    codebook_trial.approve_entry(here.world.settings, here.store, entry, by=here.people["dr.main"])
    return entry


def test_a_correction_of_one_site_becomes_a_rule_of_that_site_alone(two_sites) -> None:
    before = two_sites.ask("dr.a")
    body = {"trace_id": before["medloop"]["inference_id"], "golden": GOLDEN, "consent": ["training"]}
    sent = two_sites.call("dr.a", "POST", "/api/v1/rlhf/correction", json=body)
    assert sent.status_code == 201, sent.text
    path = "/api/v1/codebook"
    entry = two_sites.call("dr.main", "POST", path, json={"correction_id": sent.json()["correction_id"]}).json()
    assert entry["site"] == "ward-a"
    approved = two_sites.call("dr.two", "POST", f"{path}/{entry['entry_id']}/approve", json={})
    assert approved.json()["state"] == "live", approved.text
    used = {who: two_sites.ask(who)["medloop"] for who in ("dr.a", "dr.b", "dr.main")}
    assert used["dr.a"]["rules"] == [entry["entry_id"]] and used["dr.b"]["rules"] == used["dr.main"]["rules"] == []
    assert used["dr.a"]["snapshot"] != used["dr.b"]["snapshot"] == used["dr.main"]["snapshot"]


def test_each_site_has_its_own_rules_and_those_of_all(two_sites) -> None:
    general, mine = rule(two_sites, "all", "Ask for the dose."), rule(two_sites, "ward-b", "Name the phone number of the ward.")
    rules = {who: set(two_sites.ask(who)["medloop"]["rules"]) for who in ("dr.a", "dr.b", "dr.main")}
    assert rules == {"dr.a": {general.entry_id}, "dr.b": {general.entry_id, mine.entry_id}, "dr.main": {general.entry_id}}
    listed = {row.site: (row.users, row.rules) for row in sites.list_sites(two_sites.store)}
    assert listed["ward-a"] == (1, 0) and listed["ward-b"] == (1, 1)


def test_the_same_words_are_two_entries_at_two_sites(two_sites) -> None:
    draft = EntryText(text="Ask the doctor first.", triggers=("metoprolol",), question=QUESTION)
    made = [work.add_draft(two_sites.store, draft, evidence=(), author="usr_x", actor="test", site=site) for site in WARDS]
    assert made[0].entry_id != made[1].entry_id
    again = work.add_draft(two_sites.store, draft, evidence=(), author="usr_x", actor="test", site="ward-a")
    assert again.entry_id == made[0].entry_id and again.site == "ward-a"
    with pytest.raises(InputError, match="of one kind and site"):
        work.merge_entries(two_sites.store, made[0], made[1], actor="test", author="usr_x")


def test_a_site_has_a_champion_of_its_own_until_that_is_blocked(two_sites) -> None:
    server, artifact = two_sites.world.servers[0], "sha256:" + "b" * 64
    server.models = ("main-v1", "ward-v2")
    for backend in two_sites.world.gateway.pool.backends:
        backend.models = server.models
    add_route(two_sites.store, Route(served_name="main-v1", model="med", version=1))
    add_route(two_sites.store, Route(served_name="ward-v2", model="med", version=2, artifact=artifact), site="ward-b")
    two_sites.world.client.portal.call(two_sites.world.gateway.parts.refresh_route)
    assert {who: two_sites.ask(who)["medloop"]["version"] for who in ("dr.a", "dr.b", "dr.main")} == {
        "dr.a": "med@1", "dr.b": "med@2", "dr.main": "med@1",
    }  # fmt: skip
    block = DeployEvent(
        event_id=deploy_events.new_event_id(), kind="block", served_name="ward-v2", artifact=artifact, version=2, reason="harm",
        changed_by="test",
    )  # fmt: skip
    deploy_events.add_event(two_sites.store, block)
    parts = two_sites.world.gateway.parts
    route = two_sites.world.client.portal.call(parts.of_site("ward-b").refresh_route)
    assert route.served_name == "main-v1" and two_sites.ask("dr.b")["medloop"]["version"] == "med@1"


def test_an_experiment_of_a_site_draws_and_counts_its_own_answers_alone(two_sites) -> None:
    config = PlanConfig.model_validate({"min_effect": 0.2, "spread": 0.45, "window_hours": 0.0, "min_users": 20})
    plan = make_plan(config, name="in ward a", champion="med@1", challenger="med@2", by="usr_1", site="ward-a")
    experiments.add_plan(two_sites.store, plan, "5e" * 32)
    experiment.start(two_sites.store, plan.experiment_id, enrolled=1.0, by="usr_1")
    draw, names = experiment.chooser(two_sites.store, site="ward-a"), (f"patient {number}" for number in range(1000))
    drawn = (name for name in names if draw(subject_of(two_sites.store, name), "") == "challenger")
    patients = [next(drawn) for _ in range(4)]  # in ward A the challenger would answer all of them
    for number, patient in enumerate(patients):
        who, site, arm = ("dr.a", "ward-a", "challenger") if number % 2 else ("dr.b", "ward-b", "champion")
        asked = two_sites.ask(who, user=patient)
        trace = crud.get(two_sites.store, Trace, asked["medloop"]["inference_id"])
        assert (trace.meta["site"], trace.meta["arm"]) == (site, arm)
    experiment.collect(
        two_sites.store, plan.experiment_id, lambda exchanges: [AnswerFindings(0.5, False, "en", "routine") for _ in exchanges]
    )
    assert sum(experiment.report_of(two_sites.store, plan.experiment_id).ratio.users.values()) == 2


def test_a_user_of_a_site_reads_nobody_elses_words(two_sites) -> None:
    foreign = two_sites.ask("dr.b")["medloop"]["inference_id"]
    body = {"trace_id": foreign, "thumb": "up"}
    refused = two_sites.call("dr.a", "POST", "/api/v1/rlhf/feedback", json=body)
    assert refused.status_code == 422 and refused.json()["error"].startswith("There is no trace")
    assert two_sites.call("dr.b", "POST", "/api/v1/rlhf/feedback", json=body).status_code == 201
    for path in (
        "/api/v1/feedback", "/api/v1/codebook", "/api/v1/experiments", "/web/traces", f"/web/traces/{foreign}", "/web/search?q=mother",
        "/web/incidents", "/web/codebook", "/web/quarantine", f"/web/lineage?id={foreign}",
    ):  # fmt: skip
        answer = two_sites.call("dr.a", "GET", path)
        assert answer.status_code in (403, 404) and "metoprolol" not in answer.text, path
    for path in ("/web/queue", "/web/history", f"/web/rate?trace={foreign}", "/api/v1/rlhf/feedback"):  # open, of their own site
        answer = two_sites.call("dr.a", "GET", path)
        assert "metoprolol" not in answer.text, path
    assert two_sites.call("dr.a", "GET", "/web/").headers["location"] == "/web/chat"


def test_no_header_and_no_body_names_another_site(two_sites) -> None:
    mine = rule(two_sites, "ward-b", "Name the phone number of the ward.")
    headers = {"Authorization": f"Bearer {two_sites.keys['dr.a']}", "X-Medloop-Site": "ward-b"}
    for more, status in (({}, 200), ({"metadata": {"site": "ward-b"}}, None), ({"site": "ward-b"}, 400)):
        body = {"messages": [{"role": "user", "content": QUESTION}], **more}
        answer = two_sites.world.client.post("/v1/chat/completions", json=body, headers=headers)
        assert status in (None, answer.status_code), answer.text
        assert answer.status_code == 400 or answer.json()["medloop"]["rules"] == []
    assert two_sites.ask("dr.b")["medloop"]["rules"] == [mine.entry_id]
    logged = {
        "session_id": "s1", "agent_name": "a", "model_version": "m@1", "meta": {"site": "ward-a"},
        "messages": [{"role": "user", "content": "I cough."}, {"role": "assistant", "content": "Rest."}],
    }  # fmt: skip
    refused = two_sites.call("dr.main", "POST", "/api/v1/traces", json=logged)
    assert refused.status_code == 422 and "site" in refused.text
    assert two_sites.call("dr.main", "POST", "/api/v1/traces", json={**logged, "meta": {"ward": "a"}}).status_code == 201


def test_a_correction_cannot_name_a_rating_of_another_site(two_sites) -> None:
    trace_id = two_sites.ask("dr.b", user="patient 7")["medloop"]["inference_id"]
    rating = {"trace_id": trace_id, "thumb": "down", "feedback_id": "fb_b_1"}
    assert two_sites.call("dr.b", "POST", "/api/v1/rlhf/feedback", json=rating).status_code == 201
    body = {"feedback_id": "fb_b_1", "prompt": QUESTION, "original": "Rest.", "golden": GOLDEN}
    path, told = "/api/v1/rlhf/correction", set()
    for more in (
        {},
        {"subject": "patient 7"},
        {"subject": "patient 8"},
        {"feedback_id": "fb_b_9"},
        {"feedback_id": "ward-b~fb_b_1"},
    ):
        refused = two_sites.call("dr.a", "POST", path, json={**body, **more})
        assert refused.status_code == 422
        told.add(refused.json()["error"])
    assert len(told) == 1 and next(iter(told)).startswith("There is no feedback with this feedback_id")
    assert two_sites.call("dr.b", "POST", path, json=body).status_code == 201
    by_main = {**body, "feedback_id": "ward-b~fb_b_1"}  # as it is stored
    assert two_sites.call("dr.main", "POST", path, json=by_main).status_code == 201


def test_a_correction_stays_that_of_the_site_it_was_sent_from(two_sites) -> None:
    body = {"prompt": QUESTION, "original": "Rest.", "golden": GOLDEN, "consent": ["training"]}
    sent = {who: two_sites.call(who, "POST", "/api/v1/rlhf/correction", json=body).json() for who in ("dr.a", "dr.main")}
    for who, site in (("dr.a", "ward-b"), ("dr.main", "ward-b"), ("dr.two", "ward-a")):
        sites.assign(two_sites.store, users.get_user(two_sites.store, who), site, actor="test")
    found = {who: work.propose_from(two_sites.store, row["correction_id"], actor="test").site for who, row in sent.items()}
    assert found == {"dr.a": "ward-a", "dr.main": "all"}
    made = codebook_growth.propose_prompt(two_sites.store, actor="test", author="usr_x", site="ward-a")
    assert made.site == "ward-a" and made.evidence == (sent["dr.a"]["correction_id"],)
    central = codebook_growth.propose_prompt(two_sites.store, actor="test", author="usr_x")
    assert central.site == "all" and central.evidence == (sent["dr.main"]["correction_id"],)
    assert verify_store(two_sites.store).ok
    found_ids, _ = erasing.find_by_ids(two_sites.store, [sent["dr.a"]["correction_id"]])
    erasing.remove_rows(two_sites.store, found_ids, [], erasing.ErasureOrder("er_1", "asked", "test"), lambda _: False)
    assert sites.record_site(two_sites.store, sent["dr.a"]["correction_id"]) == "main" and verify_store(two_sites.store).ok


def test_a_program_speaks_for_clinicians_of_its_site(two_sites) -> None:
    store, get = two_sites.store, lambda name: users.get_user(two_sites.store, name)
    for name, site in (("bot.a", "ward-a"), ("bot.main", "main")):
        sites.assign(store, users.add_user(store, name, "engineer", actor="test"), site, actor="test")
    with pytest.raises(InputError, match=r"bot\.a belongs to the site ward-a, and dr\.b to ward-b"):
        users.new_key(store, get("bot.a"), speaks_for=[get("dr.b")], actor="test")
    two_sites.keys["bot.a"] = users.new_key(store, get("bot.a"), speaks_for=[get("dr.a")], actor="test")
    two_sites.keys["bot.main"] = users.new_key(store, get("bot.main"), speaks_for=[get("dr.a")], actor="test")
    body = {"prompt": QUESTION, "original": "Rest.", "golden": GOLDEN, "consent": ["training"], "clinician_id": "dr.a"}

    def send(who: str) -> Any:
        return two_sites.call(who, "POST", "/api/v1/rlhf/correction", json=body)

    sent = {who: send(who).json()["correction_id"] for who in ("bot.a", "bot.main")}
    assert {sites.record_site(store, name) for name in sent.values()} == {"ward-a"}
    sites.assign(store, get("dr.a"), "ward-b", actor="test")
    assert {key.user: key.speaks_for for key in users.list_keys(store) if key.speaks_for} == {"bot.main": ("dr.a",)}
    assert sites.record_site(store, send("bot.main").json()["correction_id"]) == "ward-b"


def test_a_rule_of_a_site_is_tried_and_shown_with_the_model_and_rules_of_that_site(two_sites, monkeypatch) -> None:
    store, settings, asked = two_sites.store, two_sites.world.settings, list[str]()
    mine = rule(two_sites, "ward-b", "Name the phone number of the ward.")

    def answers(settings: Any, store: Any, site: str = "all") -> Any:
        asked.append(site)
        return "test", lambda prompts: ["Rest."] * len(prompts)

    monkeypatch.setattr(codebook_trial, "live_answers", answers)
    monkeypatch.setattr(taught, "live_answers", answers)
    codebook_trial.try_entry(settings, store, mine, actor="test")
    body = {"prompt": QUESTION, "original": "Rest.", "golden": GOLDEN, "consent": ["training"]}
    for who, rules in (("dr.b", (mine.entry_id,)), ("dr.main", ())):
        sent = two_sites.call(who, "POST", "/api/v1/rlhf/correction", json=body).json()["correction_id"]
        assert taught.answer_now(settings, store, crud.get(store, Correction, sent)).rules == rules
    assert asked == ["ward-b", "ward-b", "main"]


def test_unknown_sites_are_refused(two_sites) -> None:
    entry = {"text": "Ask for the dose.", "triggers": ["dose"], "site": "wrad-a"}
    refused = two_sites.call("dr.main", "POST", "/api/v1/codebook", json=entry)
    assert refused.status_code == 422 and "ward-a, ward-b" in refused.text
    plan = make_plan(PlanConfig(), name="slip", champion="med@1", challenger="med@2", by="usr_1", site="Ward A")
    with pytest.raises(InputError, match="name of a site"):
        experiment.plan_experiment(two_sites.store, plan)
    with pytest.raises(InputError, match="Nobody belongs"):
        experiment.plan_experiment(two_sites.store, plan.model_copy(update={"site": "wrad-a"}))


def test_only_askers_belong_to_a_site_and_moving_ends_their_keys(two_sites) -> None:
    auditor = users.add_user(two_sites.store, "amy", "auditor", actor="test")
    with pytest.raises(InputError, match="only clinicians and engineers"):
        sites.assign(two_sites.store, auditor, "ward-a", actor="test")
    with pytest.raises(InputError, match="name of a site"):
        sites.assign(two_sites.store, users.get_user(two_sites.store, "dr.a"), "Ward A", actor="test")
    with pytest.raises(InputError, match=r"medloop site assign dr\.a main"):
        users.change_user(two_sites.store, users.get_user(two_sites.store, "dr.a"), role="admin", actor="test")
    assert sites.assign(two_sites.store, users.get_user(two_sites.store, "dr.a"), "main", actor="test") == 1
    assert users.change_user(two_sites.store, users.get_user(two_sites.store, "dr.a"), role="admin", actor="test") == 0
