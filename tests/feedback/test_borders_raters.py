"""Raters are users, over HTTP and on both databases: what no clinician or annotator stands behind teaches no model anything."""

from __future__ import annotations

from typing import Any

import pytest
from clinic import CHOICE, GOOD, HARMFUL, QUESTION, Clinic

from medloop.contracts import Trace
from medloop.feedback.review.queue import QueueConfig
from medloop.loop.feedback import fill_queue, queue_new_complaints
from medloop.store.records import crud, review_queue, users
from medloop.testing.feedback import PARTS

CORRECTION = {"prompt": QUESTION, "original": HARMFUL, "golden": GOOD, "reason": "Never drink it.", "consent": ["training"]}
RATED = {"session_id": "s1", "agent_name": "triage", "user_query": QUESTION, "consent": ["training"]}
NOBODY = "No clinician or annotator stands behind this record"


def learnt(clinic: Clinic) -> list[str]:
    """Every answer that training could imitate."""
    try:
        pairs = clinic.pairs()
    except users.InputError:
        return []
    answers = [
        str(row["conversation"]["messages"][-1]["content"])
        for name in ("sft_train.jsonl", "sft_test.jsonl")
        for row in clinic.built(name)
    ]
    liked = [str(row["completion"]) for row in clinic.built("thumbs.jsonl") if row["label"]]
    rules = [row["rule"]["text"] for row in clinic.built("rules.jsonl")]
    return sorted({*(str(pair["chosen"]) for pair in pairs), *answers, *liked, *rules})


@pytest.mark.parametrize("who", ["bot", "root"])
def test_what_no_rater_stands_behind_teaches_nothing_and_the_response_says_so(clinic: Clinic, who: str) -> None:
    sent: list[tuple[str, dict[str, Any]]] = [
        ("correction", CORRECTION),
        ("preference", {**CHOICE, "preferred": "a"}),
        ("feedback", {**RATED, "agent_response": GOOD, "thumb": "up"}),
        ("feedback", {**RATED, "agent_response": HARMFUL, "thumb": "down", "golden": GOOD}),
    ]
    for kind, body in sent:
        answer = clinic.call(who, "POST", f"/rlhf/{kind}", **body)
        assert answer.status_code == 201 and NOBODY in answer.json()["note"], kind
    assert "note" not in clinic.call(who, "POST", "/rlhf/feedback", **RATED, agent_response=HARMFUL, thumb="down").json()
    assert learnt(clinic) == []


def test_a_clinician_stands_behind_the_same_and_so_does_a_key_that_speaks_for_one(clinic: Clinic) -> None:
    clinic.keys["bot"] = users.new_key(clinic.store, clinic.users["bot"], speaks_for=[clinic.users["dr-li"]], actor="t")
    for who, more in (("dr-wu", {}), ("bot", {"clinician_id": "dr-li"})):
        answer = clinic.call(who, "POST", "/rlhf/correction", **CORRECTION, **more)
        assert answer.status_code == 201 and "note" not in answer.json()
    assert learnt(clinic) == ["Never drink it.", GOOD]


def test_a_program_cannot_take_an_experts_answer_out_of_the_data(clinic: Clinic) -> None:
    clinic.sent("dr-wu", "correction", **CORRECTION)
    clinic.sent("bot", "preference", **CHOICE, preferred="b")
    clinic.sent("bot", "preference", **CHOICE, preferred="tie")
    clinic.sent("bot", "feedback", **RATED, agent_response=GOOD, thumb="down")
    assert learnt(clinic) == ["Never drink it.", GOOD]


def test_one_key_with_invented_names_does_not_outvote_a_clinician(clinic: Clinic) -> None:
    """Names that nobody has are refused; without a name the key is one rater, and not one whose likes are learnt."""
    clinic.sent("dr-wu", "feedback", **RATED, agent_response=GOOD, thumb="up")
    clinic.sent("dr-wu", "preference", **CHOICE, preferred="a")
    for n in range(12):
        invented = {"clinician_id": f"dr-invented-{n}"}
        for kind, body in (("feedback", {**RATED, "agent_response": GOOD, "thumb": "down"}), ("preference", CHOICE)):
            more = {} if kind == "feedback" else {"preferred": "b"}
            assert clinic.call("bot", "POST", f"/rlhf/{kind}", **body, **more, **invented).status_code == 422
        for name in ("dr-li", "dr-wu"):  # users, but the key does not speak for them
            body = {**CHOICE, "preferred": "b", "clinician_id": name}
            assert clinic.call("bot", "POST", "/rlhf/preference", **body).status_code == 422
        clinic.sent("bot", "feedback", **{**RATED, "session_id": f"s{n}"}, agent_response=GOOD, thumb="down")
        clinic.sent("bot", "preference", **CHOICE, preferred="b", session_id=f"s{n}")
    assert learnt(clinic) == [GOOD]
    assert {str(pair["chosen"]) for pair in clinic.pairs()} == {GOOD}


def test_a_correction_that_raters_of_more_weight_dislike_is_not_learnt(clinic: Clinic) -> None:
    clinic.sent("dr-wu", "correction", **CORRECTION)
    for who in ("dr-li", "dr-xu"):
        clinic.sent(who, "feedback", **RATED, agent_response=GOOD, thumb="down")
    assert learnt(clinic) == []
    assert {row["reason"] for row in clinic.built("dropped.jsonl")} >= {"outweighed"}


def test_a_program_does_not_answer_a_complaint_in_the_queue(clinic: Clinic) -> None:
    trace_id = clinic.trace()
    clinic.sent("dr-wu", "feedback", trace_id=trace_id, thumb="down")
    queue_new_complaints(clinic.store)
    for who, state in (("bot", "open"), ("dr-li", "done")):
        clinic.sent(who, "correction", trace_id=trace_id, golden=f"Ask {who}.")
        queue_new_complaints(clinic.store)
        assert [row.state for row in review_queue.list_items(clinic.store)] == [state]


# A check item cannot be told from another comparison


def comparisons(clinic: Clinic) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Pairs of answers in the queue: ordinary ones, and check items; as annotators get them."""
    for number in range(8):
        question = f"My {PARTS[number]} hurts since yesterday, what should I do about it?"
        clinic.trace(question, f"Rest for {number} days.")
        clinic.trace(question, f"A cold pack helps, {number} times a day.")
        flagged = clinic.trace(f"My chest hurts, number {number}. What now?", f"Sleep for {number} hours.")
        clinic.sent("dr-wu", "feedback", trace_id=flagged, critical=True)
        clinic.sent("dr-wu", "correction", trace_id=flagged, golden=f"Call an ambulance, house {number}.", consent=["training"])
    assert fill_queue(clinic.settings, clinic.store, config=QueueConfig(check=0.5, raters=1)).checks >= 6
    held: tuple[list[dict[str, Any]], list[dict[str, Any]]] = ([], [])
    while (answer := clinic.call("ann", "GET", "/queue/next?kind=compare")).status_code == 200:
        body = answer.json()
        held["ambulance" in str(body["content"]["answers"])].append(body)
        assert clinic.call("ann", "POST", f"/queue/{body['item_id']}/skip").status_code == 204
    return held


def shape(value: Any) -> Any:
    """Names, types, lengths of lists: everything but the words and the numbers."""
    if isinstance(value, dict):
        return {name: shape(part) for name, part in value.items()}
    return [shape(part) for part in value] if isinstance(value, list) else type(value).__name__


def test_a_check_item_looks_like_any_other_comparison(clinic: Clinic) -> None:
    ordinary, checks = comparisons(clinic)
    assert len(ordinary) >= 6 and len(checks) >= 6
    shapes = [{str(shape({**body, "stratum": "", "until": ""})) for body in group} for group in (ordinary, checks)]
    assert shapes[0] == shapes[1] and len(shapes[0]) == 1
    assert {str(body["reasons"]) for body in (*ordinary, *checks)} == {"{}"}
    # The trace that an item names may be that of either answer: a clinician can open it. In check items a random id decides.
    assert {_side(clinic, body) for body in ordinary} == {0, 1} >= {_side(clinic, body) for body in checks}


def _side(clinic: Clinic, body: dict[str, Any]) -> int:
    """Which of the two answers is that of the trace; numbers in it may have been scrubbed."""
    trace = crud.get(clinic.store, Trace, body["trace_id"])
    assert trace is not None
    return [str(answer)[:6] for answer in body["content"]["answers"]].index(str(trace.conversation.answer)[:6])


def test_the_record_of_a_check_item_looks_like_any_other(clinic: Clinic) -> None:
    """What its rater sees afterwards, and what they may do with its trace, tells nothing either."""
    records = []
    for group in comparisons(clinic):
        body = group[0]
        texts = dict(zip(("response_a", "response_b"), body["content"]["answers"], strict=True))
        choice = {"prompt": body["content"]["prompt"][-1]["content"], **texts, "preferred": "a", "trace_id": body["trace_id"]}
        sent = clinic.call("ann", "POST", "/rlhf/preference", **choice, shown_first=body["shown_first"])
        rating = clinic.call("ann", "POST", "/rlhf/feedback", trace_id=body["trace_id"], thumb="up")
        record = clinic.call("ann", "GET", f"/rlhf/preference/{sent.json().get('preference_id')}")
        records.append([(answer.status_code, shape(answer.json())) for answer in (sent, rating, record)])
    assert records[0] == records[1] and records[0][0][0] == 201
