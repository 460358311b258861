"""What goes into the queue: reasons, quotas, no repetition, complaints first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from queue_desk import thumb, trace

from medloop.contracts import Message, Missing, Reward, Score
from medloop.contracts.queue import QueueContent, QueueItem
from medloop.feedback.review import queue
from medloop.feedback.review.lanes import QueueCandidate, Signals, choose_batch, priority, uncertainty
from medloop.feedback.review.novelty import SeenQuestions
from medloop.feedback.review.propose import answer_key, candidates_from_samples, disagreement, propose
from medloop.feedback.review.queue import QueueConfig
from medloop.settings import Settings
from medloop.store.db import Store, open_store
from medloop.store.records import crud, marks, quarantine
from medloop.store.records import review_queue as rows
from medloop.store.records.shown_items import was_shown

KEEN = QueueConfig(explore=0, learn=0)


@pytest.fixture
def desk(sqlite_settings: Settings) -> Iterator[Store]:
    with open_store(sqlite_settings) as opened:
        yield opened


def strata(text: str) -> tuple[Any, ...]:
    return ("emergency",) if "chest" in text else ("routine",)


SIGNALS = Signals(strata_of=strata)


def candidate(question: str, **reasons: float) -> QueueCandidate:
    return QueueCandidate(prompt=(Message(role="user", content=question),), answers=("x",), reasons=reasons)


def test_priority_by_hand() -> None:
    weights = {"risk": 0.5, "novelty": 0.4}
    assert priority({"risk": 1.0, "novelty": 0.5}, weights) == pytest.approx(1 - 0.5 * 0.8)
    assert priority({}, weights) == 0 and priority({"unknown": 1.0}, weights) == 0


def test_uncertainty_by_hand() -> None:
    assert uncertainty([0.5]) == 1.0 and uncertainty([0.9]) == pytest.approx(0.2)
    assert uncertainty([0.7, 0.7]) == 1.0
    # Odds 4 and 1/4: the first is better with 16 : 1, so p = 16/17 and 1 - |2p - 1| = 2/17.
    assert uncertainty([0.8, 0.2]) == pytest.approx(2 / 17)
    assert uncertainty([0.8, None]) is None


def part(name: str, value: float) -> Score:
    return Score(name=name, value=value, reason="r", author="a", version="1")


def test_disagreement_compares_the_teacher_with_the_rules_and_turns_penalties_round() -> None:
    weights = {"chain": 0.35, "risk": -0.15, "teacher": 0.25}
    reward = Reward(parts=(part("chain", 1.0), part("risk", 0.0), part("teacher", 0.2)), weights=weights, version="1")
    assert disagreement(reward) == pytest.approx(0.8)  # the rules say 1 and 1
    alone = Reward(parts=(part("chain", 1.0), part("risk", 1.0)), weights=weights, version="1")
    assert disagreement(alone) == 1.0  # one says 1, the other 0
    silent = Missing(name="teacher", reason="timeout", author="a", version="1")
    assert disagreement(Reward(parts=(part("chain", 1.0), silent), weights=weights, version="1")) is None


def test_novelty_tells_a_rephrased_question_from_another_one() -> None:
    seen = SeenQuestions(["I have had crushing chest pain since this morning", "孩子发烧三十九度怎么办"])
    assert seen.novelty("crushing chest pain since this morning") == pytest.approx(0.1, abs=0.1)
    assert seen.novelty("my knee hurts after running") == pytest.approx(1.0, abs=0.1)
    assert seen.novelty("孩子发烧三十九度怎么办呢") < 0.3 < seen.novelty("老人头晕血压高")
    assert seen.novelty("") == 0.0


def test_of_ten_rephrasings_one_comes_before_the_other_questions() -> None:
    same = [candidate(f"how long does a common cold last for me {n}") for n in range(10)]
    other = [candidate("itchy rash on both arms"), candidate("blood pressure tablets and grapefruit")]
    chosen = choose_batch([*same, *other], SIGNALS, {"routine": 3}, KEEN, SeenQuestions())
    questions = [item.content.prompt[0].content for item in chosen]
    assert sum("cold" in question for question in questions) == 1


def test_a_stratum_gets_its_share_and_what_it_cannot_fill_goes_to_the_best_of_the_rest() -> None:
    many = [candidate(f"case {n} of words{n}", disagreement=0.9) for n in range(30)]
    few = [candidate("chest tightness"), candidate("chest ache")]
    chosen = choose_batch([*many, *few], SIGNALS, {"emergency": 5, "routine": 5}, KEEN, SeenQuestions())
    assert Counter(item.stratum for item in chosen) == {"emergency": 2, "routine": 8}


def test_a_share_is_drawn_at_random_whatever_the_reasons() -> None:
    urgent = [candidate(f"case {n} of words{n}", thumbs_down=1.0) for n in range(50)]
    dull = [candidate(f"other{n} thing{n}") for n in range(950)]
    chosen = choose_batch([*urgent, *dull], SIGNALS, {"routine": 40}, QueueConfig(explore=0.5), SeenQuestions())
    drawn = [item for item in chosen if "explore" in item.reasons]
    assert len(chosen) == 40 and len(drawn) == 20 and len({item.item_id for item in chosen}) == 40
    assert sum("thumbs_down" in item.reasons for item in drawn) <= 6  # about one in twenty by chance
    assert all("thumbs_down" in item.reasons for item in chosen if item not in drawn)
    assert all(0.5 <= item.priority < 1 for item in drawn)


def test_a_rating_that_contradicts_itself_is_a_reason_to_look_at_the_answer(store: Store) -> None:
    crud.add(store, [trace(f"t{n}", f"question {n}", "tea") for n in range(4)], actor="t")
    odd = thumb("t0", "u", up=True).model_copy(update={"rating": 1})
    typed = thumb("t1", "u", up=True).model_copy(update={"thumb": None, "feedback_type": "negative"})
    bare = thumb("t3", "u", up=True).model_copy(update={"thumb": None, "comments": "hm"})
    crud.add(store, [odd, typed, thumb("t2", "u", up=True), bare], actor="t")
    complaints = {
        name: feedback.complaint for name, feedback in marks.feedback_on_traces(store, ["t0", "t1", "t2", "t3"]).items()
    }
    assert complaints == {"t0": 1.0, "t1": 1.0, "t2": 0.0}


def test_a_fill_takes_traces_pairs_and_complaints_and_says_why(store: Store) -> None:
    crud.add(
        store, [trace("t1", "chest pain", "rest"), trace("t2", "chest pain", "call 112"), trace("t3", "a cold", "tea")], actor="t"
    )
    crud.add(store, [thumb("t3", "u", up=False)], actor="t")
    fill = propose(store, SIGNALS, actor="t")
    kinds = {row.trace_id: row.kind for row in rows.list_items(store) if row.kind != "compare"}
    assert kinds == {"t1": "rate", "t2": "rate", "t3": "correct"} and fill.added == 4
    complaint = next(row for row in rows.list_items(store) if row.trace_id == "t3")
    assert complaint.reasons["thumbs_down"] == 1.0 and complaint.raters == 1
    assert {row.kind for row in rows.list_items(store)} == {"rate", "compare", "correct"}
    assert propose(store, SIGNALS, actor="t").added == 0  # nothing is asked twice


def test_what_enough_people_judged_is_not_asked_again(desk: Store) -> None:
    crud.add(desk, [trace("t1", "a cold", "tea"), trace("t2", "a cough", "honey")], actor="t")
    crud.add(desk, [thumb("t1", "ann", up=True), thumb("t1", "ben", up=True), thumb("t2", "ann", up=True)], actor="t")
    propose(desk, SIGNALS, actor="t")
    assert [row.trace_id for row in rows.list_items(desk)] == ["t2"]


def test_a_fill_tops_up_to_the_wanted_size(desk: Store) -> None:
    crud.add(desk, [trace(f"t{n}", f"word{n} thing{n}", "tea") for n in range(30)], actor="t")
    config = QueueConfig(size=12)
    assert propose(desk, SIGNALS, config=config, actor="t").added == 12
    assert propose(desk, SIGNALS, config=config, actor="t").added == 0
    assert propose(desk, SIGNALS, config=QueueConfig(size=20), actor="t").added == 8
    assert sum(rows.stats(desk).open_by_stratum.values()) == 20


def test_conflicts_on_file_reach_traces_and_are_asked_themselves(desk: Store) -> None:
    crud.add(desk, [trace("t1", "a cold", "tea")], actor="t")
    signals = Signals(strata, gaps={answer_key("a cold", "tea"): 0.7})
    propose(desk, signals, extra=candidates_from_samples([("a cough", "honey", None, 0.9)], pairs=False), actor="t")
    assert {row.trace_id: row.reasons["disagreement"] for row in rows.list_items(desk)} == {"t1": 0.7, None: 0.9}


def test_answers_of_one_group_become_pairs() -> None:
    candidates = candidates_from_samples(
        [("q", "one", "g", None), ("q", "two", "g", None), ("q", "two", "g", None), ("z", "x", None, None)], pairs=True
    )
    assert [candidate.answers for candidate in candidates if candidate.kind == "compare"] == [("one", "two")]


NAMED = "I am Mary Johnson, call 13800138000 about my chest pain"
SPELT = "电话是幺三八零零一三八零零零，头晕怎么办"  # cannot be scrubbed


def hold(store: Store, record_id: str, kind: str = "traces") -> None:
    with store.write() as conn:
        quarantine.hold(conn, record_id, kind, doubt=1.0, reasons=["a name"], actor="t")


def shown(store: Store, rater: str = "ann") -> str:
    """All that the queue shows this rater."""
    texts = []
    while (held := queue.next_item(store, rater)) is not None:
        texts.append(held.content.model_dump_json())
        queue.skip(store, held.item_id, rater)
    return "\n".join(texts)


def test_the_queue_keeps_and_shows_no_name_and_no_number_but_still_names_the_trace(desk: Store) -> None:
    given = [trace("t1", NAMED, "Rest, Mary Johnson."), trace("t2", NAMED, "Mary Johnson, call 120.")]
    crud.add(desk, given, actor="t")
    assert propose(desk, SIGNALS, actor="t").added == 3 and propose(desk, SIGNALS, actor="t").added == 0
    assert {row.trace_id for row in rows.list_items(desk)} == {"t1", "t2"}
    texts = shown(desk)
    assert "Johnson" not in texts and "13800138000" not in texts and "Rest, [NAME_1]." in texts


def test_what_waits_or_was_refused_is_not_proposed_and_what_was_released_is(desk: Store) -> None:
    crud.add(desk, [trace(f"t{n}", f"chest pain word{n}", "rest") for n in range(4)], actor="t")
    for n in (1, 2, 3):
        hold(desk, f"t{n}")
    quarantine.decide(desk, "t2", "refused", actor="u")
    quarantine.decide(desk, "t3", "released", actor="u")
    propose(desk, SIGNALS, actor="t")
    assert {row.trace_id for row in rows.list_items(desk)} == {"t0", "t3"}


def test_the_trace_of_a_refused_record_is_not_proposed(desk: Store) -> None:
    feedback = thumb("t1", "u", up=False)
    crud.add(desk, [trace("t1", "a cold", "tea"), feedback], actor="t")
    hold(desk, feedback.feedback_id, "rlhf_feedback")
    quarantine.decide(desk, feedback.feedback_id, "refused", actor="u")
    assert propose(desk, SIGNALS, actor="t").added == 0


def test_what_cannot_be_scrubbed_or_is_doubted_is_not_proposed_unless_somebody_released_it(desk: Store) -> None:
    odd = "Пациент жалуется на боль в груди"
    crud.add(desk, [trace("t1", SPELT, "rest"), trace("t2", odd, "rest"), trace("t3", odd, "call 120")], actor="t")
    hold(desk, "t3")
    quarantine.decide(desk, "t3", "released", actor="u")
    propose(
        desk,
        SIGNALS,
        extra=candidates_from_samples([(odd, "tea", None, None), (SPELT, "tea", None, None)], pairs=False),
        actor="t",
    )
    assert [(row.trace_id, row.kind) for row in rows.list_items(desk)] == [("t3", "rate")]


@pytest.mark.parametrize("gone", ["t1", "t2"])
def test_an_item_whose_trace_is_held_later_is_handed_to_nobody_and_comes_back_when_it_is_released(desk: Store, gone: str) -> None:
    crud.add(desk, [trace("t1", "chest pain", "rest"), trace("t2", "chest pain", "call 112")], actor="t")
    propose(desk, SIGNALS, actor="t")
    pair = queue.next_item(desk, "ann", kinds=["compare"])
    assert pair is not None
    hold(desk, gone)
    assert queue.next_item(desk, "ann", kinds=["compare"]) is None and queue.next_item(desk, "ben", kinds=["compare"]) is None
    with pytest.raises(rows.UnknownItemError):
        rows.leased_item(desk, pair.item_id, "ann")
    left = [queue.next_item(desk, name, kinds=["rate"]) for name in ("ann", "ben")]
    assert {item.trace_id for item in left if item} == {"t1", "t2"} - {gone} and not was_shown(desk, gone, "ann")
    quarantine.decide(desk, gone, "released", actor="u")
    again = queue.next_item(desk, "ann", kinds=["compare"])
    assert again is not None and again.item_id == pair.item_id


def test_items_that_wait_in_vain_leave_their_places_to_others(desk: Store) -> None:
    crud.add(desk, [trace("t1", "a cold", "tea")], actor="t")
    propose(desk, SIGNALS, config=QueueConfig(size=1), actor="t")
    hold(desk, "t1")
    crud.add(desk, [trace("t2", "a cough", "honey")], actor="t")
    assert propose(desk, SIGNALS, config=QueueConfig(size=1), actor="t").added == 1


def test_an_item_from_before_is_scrubbed_when_it_is_handed_out(desk: Store) -> None:
    for text in (SPELT, NAMED):
        content = QueueContent(prompt=(Message(role="user", content=text),), answers=("Rest, Mary Johnson.",))
        rows.add_items(desk, [QueueItem(kind="rate", content=content, priority=0.5)], actor="t")
    held = queue.next_item(desk, "ann")
    assert held is not None and "Johnson" not in rows.leased_item(desk, held.item_id, "ann").content.model_dump_json()
    texts = shown(desk)
    assert "[NAME_1]" in texts and "Johnson" not in texts and "幺" not in texts


def test_a_person_named_in_full_later_is_taken_out_before_too() -> None:
    scrubbed = queue.scrub_content([Message(role="user", content="Is Zorblatt ill?")], ["Mr. Peter Zorblatt is well."])
    assert scrubbed is not None and "Zorblatt" not in scrubbed.prompt[0].content + scrubbed.answers[0]
