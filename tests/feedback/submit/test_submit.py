"""From a body to stored rows: what the trace fills, what is refused, what opens an incident, what is held back."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from pydantic import ValidationError
from sqlalchemy import select

from medloop.contracts import Correction, Feedback, Incident, Preference, RedTeamCase, Trace
from medloop.errors import InputError
from medloop.feedback.submit import phi_scan
from medloop.feedback.submit.bodies import BODY_OF_KIND, CorrectionBody, FeedbackBody, PreferenceBody, TraceBody
from medloop.feedback.submit.doubt import Doubt
from medloop.feedback.submit.sender import Sender
from medloop.feedback.submit.submit import feedback_type_of, fingerprint, prepare_submission
from medloop.store import audit
from medloop.store.db import Store
from medloop.store.records import crud, users
from medloop.store.records.group_commit import GroupCommitWriter
from medloop.store.records.quarantine import decide
from medloop.store.tables import quarantine

CLINICIAN, PROGRAM = Sender("usr_1"), Sender("usr_2", is_program=True)
TALK = [{"role": "user", "content": "Chest pain since noon."}, {"role": "assistant", "content": "Drink tea."}]
DOUBTFUL = "مرحبا محمد كيف حالك"  # a script the scrubber has not learned
WHOLE = {"session_id": "s", "agent_name": "a", "user_query": "q", "agent_response": "r"}


@pytest.fixture
def send(store: Store):
    with GroupCommitWriter(store).running() as writer:
        yield (
            lambda body, sender=CLINICIAN, key=None: (
                writer.submit_and_wait(prepare_submission(store, body, sender, key=key)).answer
            )
        )


@pytest.fixture
def trace(send) -> str:
    body = TraceBody(session_id="sess", agent_name="triage", model_version="m@1", messages=TALK)
    return send(body, PROGRAM)["trace_id"]


def test_a_trace_fills_what_the_body_leaves_out(store: Store, send, trace: str) -> None:
    record = crud.get(store, Feedback, send(FeedbackBody(trace_id=trace, thumb="down"))["feedback_id"])
    assert (record.session_id, record.agent_name, record.model_version, record.trace_id) == ("sess", "triage", "m@1", trace)
    assert (record.user_query, record.agent_response, record.feedback_type) == (
        "Chest pain since noon.",
        "Drink tea.",
        "negative",
    )
    assert (record.recorded_by, record.clinician_id) == ("usr_1", "usr_1")


def test_what_the_body_says_itself_counts_more_than_the_trace(store: Store, send, trace: str) -> None:
    texts = {"user_query": "Chest pain since  noon. ", "agent_response": "Drink tea."}
    record = crud.get(store, Feedback, send(FeedbackBody(trace_id=trace, rating=3, agent_name="mine", **texts))["feedback_id"])
    assert (record.agent_name, record.user_query, record.session_id) == ("mine", texts["user_query"], "sess")
    with pytest.raises(InputError, match="not those of the trace"):  # it would pass for a rating of the trace's answer
        send(FeedbackBody(trace_id=trace, rating=3, user_query="q", agent_response="r"))


def test_a_session_alone_stands_for_its_newest_trace_for_programs_only(store: Store, send, trace: str) -> None:
    body = FeedbackBody(session_id="sess", rating=5)
    record = crud.get(store, Feedback, send(body, PROGRAM)["feedback_id"])
    assert (record.trace_id, record.agent_response) == (trace, "Drink tea.")
    with pytest.raises(InputError, match="no trace"):
        send(FeedbackBody(session_id="never", rating=5), PROGRAM)
    own = send(FeedbackBody(session_id="sess", agent_name="triage", rating=5), CLINICIAN)
    record = crud.get(store, Feedback, own["feedback_id"])  # a session id can be guessed: it opens no text for a person
    assert (record.trace_id, record.user_query, record.agent_response) == (None, "", "") and "trace_id" in own["note"]


@pytest.mark.parametrize(
    "body",
    [
        FeedbackBody(trace_id="t9", thumb="up"),
        FeedbackBody(**WHOLE, trace_id="t9", thumb="up"),
        PreferenceBody(prompt="p", response_a="a", response_b="b", preferred="a", trace_id="t9"),
        CorrectionBody(golden="g", trace_id="t9"),
        CorrectionBody(golden="g", feedback_id="fb_9"),
    ],
)
def test_unknown_ids_are_refused(store: Store, send, body) -> None:
    with pytest.raises(InputError, match="There is no"):
        send(body)
    assert crud.count(store, Feedback) == 0


def test_supersedes_names_an_own_record_of_the_same_kind(store: Store, send) -> None:
    first = send(FeedbackBody(**WHOLE, rating=2))["feedback_id"]
    other = send(PreferenceBody(prompt="p", response_a="a", response_b="b", preferred="a"))["preference_id"]
    second = send(FeedbackBody(**WHOLE, rating=4, supersedes=first))["feedback_id"]
    assert crud.get(store, Feedback, second).supersedes == first and crud.get(store, Feedback, first).rating == 2
    for given, sender in ((first, Sender("usr_9")), (other, CLINICIAN), ("fb_unknown", CLINICIAN)):
        with pytest.raises(InputError, match="supersedes"):
            send(FeedbackBody(**WHOLE, rating=4, supersedes=given), sender)


def test_a_person_speaks_for_nobody_else(store: Store, send) -> None:
    with pytest.raises(InputError, match="somebody else"):
        send(FeedbackBody(**WHOLE, rating=4, clinician_id="usr_7"), CLINICIAN)
    with pytest.raises(InputError, match=r"no such user.*medloop users add"):
        send(FeedbackBody(**WHOLE, rating=4, clinician_id=123), PROGRAM)
    user = users.add_user(store, "123", "clinician", actor="t")
    allowed = replace(PROGRAM, speaks_for=frozenset({user.user_id}))
    for given in (123, "123", user.user_id):  # by name or by id
        with pytest.raises(InputError, match="may not speak for"):
            send(FeedbackBody(**WHOLE, rating=4, clinician_id=given), PROGRAM)
        record = crud.get(store, Feedback, send(FeedbackBody(**WHOLE, rating=4, clinician_id=given), allowed)["feedback_id"])
        assert (record.clinician_id, record.recorded_by) == (user.user_id, "usr_2")


def test_a_given_id_is_stored_once_and_never_changed(store: Store, send) -> None:
    body = {**WHOLE, "feedback_id": "fb_old_1", "timestamp": "2024-05-01T08:00:00Z", "rating": 4}
    first, again = send(FeedbackBody(**body)), send(FeedbackBody(**body))
    assert first == again and crud.count(store, Feedback) == 1
    for other in ({"rating": 1}, {"timestamp": "2024-05-02T08:00:00Z"}, {"comments": "new"}):
        with pytest.raises(InputError, match="other content"):
            send(FeedbackBody(**body | other))
    with pytest.raises(InputError, match="other content"):
        send(FeedbackBody(**body), Sender("usr_9"))
    with pytest.raises(InputError, match="another record"):
        send(PreferenceBody(preference_id="fb_old_1", prompt="p", response_a="a", response_b="b", preferred="a"))


def test_equal_ids_in_one_batch_are_one_record(store: Store) -> None:
    """Two at once: the writer sees both before either is stored."""
    body = FeedbackBody(**WHOLE, feedback_id="fb_twice", rating=4)
    with GroupCommitWriter(store).running() as writer, ThreadPoolExecutor(8) as pool:
        asks = [prepare_submission(store, body, CLINICIAN) for _ in range(8)]
        results = list(pool.map(writer.submit_and_wait, asks))
    assert [result.replayed for result in results].count(False) == 1 and crud.count(store, Feedback) == 1
    assert {result.answer["feedback_id"] for result in results} == {"fb_twice"}


def test_the_critical_flag_opens_an_incident_and_adds_a_red_team_case(store: Store, send, trace: str) -> None:
    answer = send(FeedbackBody(trace_id=trace, critical=True, comments="Missed an infarction"))
    incident = crud.get(store, Incident, answer["incident_id"])
    assert (incident.record_id, incident.state, incident.model_version, incident.opened_by) == (
        answer["feedback_id"], "open", "m@1", "usr_1",
    )  # fmt: skip
    case = crud.get(store, RedTeamCase, answer["case_id"])
    assert (case.prompt, case.answer, case.reason) == ("Chest pain since noon.", "Drink tea.", "Missed an infarction")
    assert case.incident_id == incident.incident_id
    assert "incident_id" not in send(FeedbackBody(trace_id=trace, thumb="down"))


def test_a_golden_answer_with_a_rating_is_also_a_correction(store: Store, send, trace: str) -> None:
    answer = send(FeedbackBody(trace_id=trace, golden="Call an ambulance.", consent=["training"]))
    record = crud.get(store, Correction, answer["correction_id"])
    assert (record.prompt, record.original, record.golden) == ("Chest pain since noon.", "Drink tea.", "Call an ambulance.")
    assert (record.feedback_id, record.consent, record.recorded_by) == (answer["feedback_id"], ("training",), "usr_1")
    assert crud.get(store, Feedback, answer["feedback_id"]).feedback_type == "negative"


def test_a_correction_takes_its_texts_from_the_own_rating_only(store: Store, send) -> None:
    rated = send(FeedbackBody(**WHOLE, thumb="down"))["feedback_id"]
    record = crud.get(store, Correction, send(CorrectionBody(golden="g", feedback_id=rated))["correction_id"])
    assert (record.prompt, record.original, record.feedback_id) == ("q", "r", rated)
    with pytest.raises(InputError, match="not yours"):
        send(CorrectionBody(golden="g", feedback_id=rated), Sender("usr_9"))


def test_a_preference_keeps_the_order_shown(store: Store, send) -> None:
    body = PreferenceBody(prompt="p", response_a="a", response_b="b", preferred="b", shown_first="b", axes={"safety": "tie"})
    record = crud.get(store, Preference, send(body)["preference_id"])
    assert (record.preferred, record.shown_first, record.axes) == ("b", "b", {"safety": "tie"})


def test_each_harmful_answer_of_a_comparison_opens_an_incident(store: Store, send) -> None:
    texts = {"prompt": "p", "response_a": "smoke", "response_b": "drink", "model_a": "m1", "model_b": "m2"}
    answer = send(PreferenceBody(**texts, preferred="both_bad", critical=["b", "a", "b"], comments="Both."))
    record = crud.get(store, Preference, answer["preference_id"])
    assert (record.preferred, record.critical) == ("both_bad", ("b", "a"))
    opened = {incident.incident_id: incident.model_version for incident in crud.iterate(store, Incident)}
    cases = {(case.answer, opened[case.incident_id]) for case in crud.iterate(store, RedTeamCase)}
    assert cases == {("smoke", "m1"), ("drink", "m2")} and sorted(answer["incident_ids"]) == sorted(opened)


def test_what_cannot_be_scanned_is_held_back(store: Store, send, monkeypatch) -> None:
    def named(texts):
        return Doubt(0.9, ("a name",)) if any("Wang" in text for text in texts) else None

    monkeypatch.setattr("medloop.feedback.submit.phi_scan.doubt_about", named)
    answer = send(FeedbackBody(**WHOLE | {"comments": "like Wang"}, thumb="up"))
    with store.read() as conn:
        row = conn.execute(select(quarantine)).one()
    assert answer["quarantined"] and (row.record_id, row.kind, row.state) == (answer["feedback_id"], "rlhf_feedback", "waiting")
    assert (row.reasons, row.doubt) == (["a name"], 0.9)
    assert "quarantine.hold" in [line["action"] for line in audit.show(store, 3)]


def test_what_repeats_a_held_trace_is_held_until_it_is_released(store: Store, send) -> None:
    talk = [TALK[0], {"role": "assistant", "content": DOUBTFUL}]
    trace = send(TraceBody(session_id="s", agent_name="a", model_version="m", messages=talk), PROGRAM)
    assert trace["quarantined"]
    rated, fixed = (
        FeedbackBody(trace_id=trace["trace_id"], thumb="up"),
        CorrectionBody(trace_id=trace["trace_id"], golden="Rest."),
    )
    assert send(rated)["quarantined"] and send(fixed)["quarantined"]
    decide(store, trace["trace_id"], "released", actor="test")
    assert not send(rated)["quarantined"] and not send(fixed)["quarantined"]


def test_a_doubtful_comment_on_a_clean_trace_is_held(store: Store, send, trace: str) -> None:
    assert not send(FeedbackBody(trace_id=trace, thumb="up", comments="Good."))["quarantined"]
    assert send(FeedbackBody(trace_id=trace, thumb="up", comments=DOUBTFUL))["quarantined"]
    assert send(FeedbackBody(trace_id=trace, golden=DOUBTFUL))["quarantined"]


def test_the_subject_is_kept_as_a_keyed_hash(store: Store, send) -> None:
    first = crud.get(store, Feedback, send(FeedbackBody(**WHOLE, thumb="up", subject="patient-4711"))["feedback_id"])
    second = crud.get(store, Feedback, send(FeedbackBody(**WHOLE, thumb="up", subject="patient-4711"))["feedback_id"])
    assert first.subject == second.subject and first.subject.startswith("sub_")
    if store.is_sqlite:
        store.checkpoint()
        assert b"patient-4711" not in store.settings.workspace.database.read_bytes()


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ({"thumb": "up"}, "positive"), ({"thumb": "down"}, "negative"), ({"rating": 3}, "neutral"), ({"rating": 4}, "positive"),
        ({"rating": 2}, "negative"), ({"rating": 5, "critical": True}, "negative"), ({"comments": "hm"}, None),
        ({"rating": 5, "feedback_type": "neutral"}, "neutral"), ({"thumb": "up", "rating": 1}, "neutral"),
    ],
)  # fmt: skip
def test_the_type_follows_from_what_was_said(values: dict, kind: str | None) -> None:
    assert feedback_type_of(FeedbackBody(trace_id="t", **values)) == kind


@pytest.mark.parametrize(
    "values",
    [
        {"trace_id": "t"}, {"thumb": "up"}, {"trace_id": "t", "rating": 6}, {"trace_id": "t", "rating": True}, {"trace_id": "t", "rating": "5"},
        {"trace_id": "t", "thumb": "sideways"}, {"trace_id": "t", "thumb": "up", "comment": "misspelt"}, {"trace_id": "", "thumb": "up"},
        {"trace_id": "t", "thumb": "up", "feedback_id": ""}, {"trace_id": "t", "thumb": "up", "timestamp": "yesterday"},
        {"trace_id": "t", "thumb": "up", "timestamp": "1999-12-31T23:59:59Z"}, {"trace_id": "t", "thumb": "up", "timestamp": "2199-01-01T00:00:00Z"},
        {"trace_id": "t", "thumb": "up", "received": "2026-01-01T00:00:00Z"},
        {"trace_id": "t", "thumb": "up", "recorded_by": "usr_9"}, {"trace_id": "t", "thumb": "up", "processed": True},
        {"trace_id": "t", "thumb": "up", "consent": ["sale"]}, {"trace_id": "t", "thumb": "up", "user_query": "q"},
        {"trace_id": "t", "thumb": "up", "comments": "x" * 20_001}, {"trace_id": "a\0b", "thumb": "up"},
        {"trace_id": "t", "axes": {f"a{n}": 3 for n in range(21)}}, {"trace_id": "t", "axes": {"safety": 9}},
        {"session_id": "s", "user_query": "q", "agent_response": "r", "thumb": "up"},
    ],
)  # fmt: skip
def test_a_body_that_does_not_fit_is_refused(values: dict) -> None:
    with pytest.raises(ValidationError):
        FeedbackBody(**values)


@pytest.mark.parametrize(
    "messages", [[], [TALK[1]], [TALK[0], TALK[0]], [{"role": "system", "content": "x"}], [{"role": "tool", "content": "x"}]]
)
def test_a_trace_is_a_conversation(messages: list) -> None:
    with pytest.raises(ValidationError):
        TraceBody(session_id="s", agent_name="a", model_version="m", messages=messages)


@pytest.mark.parametrize("kind", BODY_OF_KIND.values(), ids=list(BODY_OF_KIND))
def test_the_examples_of_the_description_fit(kind) -> None:
    for example in kind.model_config["json_schema_extra"]["examples"]:
        kind.model_validate(example)


def test_fingerprints_tell_words_apart_and_not_spacing() -> None:
    first = FeedbackBody.model_validate_json('{"trace_id": "t", "thumb": "up"}')
    second = FeedbackBody.model_validate_json('{"thumb":"up","trace_id":"t"}')
    third = FeedbackBody.model_validate_json('{"thumb":"down","trace_id":"t"}')
    assert fingerprint(first) == fingerprint(second) != fingerprint(third)


def test_a_trace_comes_back_as_it_was_sent(store: Store, send, trace: str) -> None:
    record = crud.get(store, Trace, trace)
    assert [message.model_dump() for message in record.conversation.messages] == TALK


LONG_BODIES = {
    "feedback": (FeedbackBody, {**WHOLE, "thumb": "up", "golden": "g", "comments": "c"}, "user_query"),
    "preference": (PreferenceBody, {"prompt": "p", "response_a": "a", "response_b": "b", "preferred": "a"}, "response_b"),
    "correction": (CorrectionBody, {"prompt": "p", "original": "o", "golden": "g"}, "golden"),
}


@pytest.mark.parametrize("kind", LONG_BODIES)
def test_long_texts_are_looked_over_before_the_writer_has_them(send, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    threads: list[str] = []
    real = phi_scan.doubt_about
    monkeypatch.setattr(phi_scan, "doubt_about", lambda texts: (threads.append(threading.current_thread().name), real(texts))[1])
    shape, values, field = LONG_BODIES[kind]
    assert send(shape(**values))["quarantined"] is False and set(threads) == {"medloop-writer"}
    threads.clear()
    assert send(shape(**{**values, field: f"{DOUBTFUL}\n" * 150}))["quarantined"] is True
    assert threads and "medloop-writer" not in threads
