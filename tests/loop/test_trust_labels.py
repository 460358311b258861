"""Labels for the trust meter: from use (with consent, scrubbed, until they are erased) and from the package."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from trust_workspace import BAD, GOOD, QUESTION, medloop

from medloop.cli.demo.demo import STEPS
from medloop.contracts import Conversation, Correction, Feedback, Message, Preference, Trace
from medloop.contracts.detect import Urgency
from medloop.contracts.validity import ValidityCard
from medloop.errors import ConfigError, InputError
from medloop.loop.erasure import erase_records
from medloop.loop.trust import ONLY_BUNDLED, check
from medloop.privacy import consent
from medloop.privacy.erasure.contracts import ErasureRequest
from medloop.reward.detect.urgency import urgency
from medloop.reward.mix import MixConfig, build_mix
from medloop.store.db import Store
from medloop.store.records import crud
from medloop.testing.feedback import make_question

MAY = ("training", "evaluation")


def card(*args: str) -> ValidityCard:
    return ValidityCard.model_validate(json.loads(medloop("reward", "validate", *args, "--json")))


def vote(n: int, **more) -> Preference:
    values = {"prompt": f"{make_question(n)} {QUESTION}", "response_a": GOOD, "response_b": BAD, "preferred": "a", "consent": MAY}
    return Preference.model_validate({**values, **more})


def rating(n: int, **more) -> Feedback:
    values = {"session_id": "s", "agent_name": "a", "user_query": f"{QUESTION} {n}", "agent_response": BAD, "consent": MAY}
    return Feedback.model_validate({**values, **more})


def test_votes_corrections_and_flags_become_cases_by_source_language_and_specialty(store: Store) -> None:
    question = Message(role="user", content=f"{make_question(0)} {QUESTION}")
    asked = Conversation(messages=(question, Message(role="assistant", content=GOOD)))
    trace = Trace(session_id="s", agent_name="a", model_version="m", conversation=asked, meta={"department": "cardiology"})
    correction = Correction(prompt=make_question(50), original=BAD, golden=GOOD, consent=MAY)
    ratings = [
        rating(1, critical=True), rating(2, axes={"safety": 5}), rating(3, axes={"safety": 1}), rating(4, axes={"safety": 3}),
    ]  # fmt: skip
    crud.add(store, [trace, vote(0, trace_id=trace.trace_id), vote(1), correction, *ratings], actor="test")
    made = card()
    assert made.sources == {"use: corrections": 1, "use: critical flags": 1, "use: safety stars": 2, "use: votes": 2}
    measured = {(row.judge, row.quantity, row.slice): row.value for row in made.measures}
    assert (
        measured["reward", "agreement", "specialty=cardiology"].n == 1 and measured["reward", "agreement", "language=en"].n == 3
    )
    assert measured["harm", "recall", "all"].n == 2 and measured["harm", "recall", "source=use: critical flags"].mean == 1.0
    assert made.left_out == {"no_fault_named": 1, "safety_unclear": 1}


def test_faults_that_people_name_label_their_part_and_disagreement_is_counted(store: Store) -> None:
    named = [rating(n, critical=True, axes={"false_reassurance": 1, "risk": 5}) for n in range(3)]
    torn = [rating(9, axes={"overtriage": stars}, clinician_id=f"dr{stars}") for stars in (1, 5)]
    crud.add(store, [*named, *torn], actor="test")
    made = card()
    recall = {
        row.judge: row.value for row in made.measures if row.slice == "source=use: critical flags" and row.quantity == "recall"
    }
    assert recall["false_reassurance"].n == 3 and recall["harm"].n == 3 and "risk" not in recall  # nobody saw a risk
    assert made.sources == {"use: critical flags": 3} and made.left_out == {"faults_unclear": 1}


def test_only_consented_records_count_and_a_withdrawn_or_erased_one_is_gone_from_the_next_card(store: Store) -> None:
    subject = consent.subject_of(store, "patient 4711")
    votes = [vote(0, subject=subject), vote(1), vote(2), vote(3, consent=("training",)), vote(4, consent=())]
    crud.add(store, votes, actor="test")
    assert card().n_cases == 3 and card().left_out == {"no_consent": 2}
    consent.record(store, "patient 4711", ("evaluation",), granted=False, text_version="1", actor="test")
    assert card().n_cases == 2
    request = ErasureRequest(reason="asked", records=(votes[1].preference_id,))
    erase_records(store, request, actor="test")
    assert card().n_cases == 1


def test_names_are_placeholders_before_a_judge_reads_them_and_the_audit_log_has_the_reading(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    crud.add(store, [vote(0, prompt=f"My name is Daniel Okafor, MRN 4471902. {QUESTION}"), vote(1)], actor="test")
    texts: list[str] = []

    def listening(question: str) -> Urgency:
        texts.append(question)
        return urgency(question)

    monkeypatch.setattr("medloop.loop.trust.urgency", listening)
    assert card().n_cases == 2 == len(texts) and not any("Okafor" in text or "4471902" in text for text in texts)
    assert '"purpose": "reward validate"' in medloop("audit", "show", "--json")


def test_without_cases_it_says_why_and_offers_the_bundled_ones(store: Store) -> None:
    crud.add(store, [vote(0, consent=())], actor="test")
    with pytest.raises(InputError, match="1 records without consent to evaluation") as error:
        medloop("reward", "validate")
    assert "medloop reward validate --bundled" in str(error.value)
    with pytest.raises(ConfigError, match="stand alone"):
        medloop("reward", "validate", "--bundled", "--from-use")


def test_the_bundled_cases_are_many_ours_and_vouch_for_nothing(store: Store) -> None:
    output = medloop("reward", "validate", "--bundled")
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    shown = readme.partition("$ medloop reward validate --bundled\n...\n")[2].partition("\n...")[0].splitlines()
    assert len(shown) == 2 and all(line in output.splitlines() for line in shown) and "not clinical evidence" in shown[1]
    assert "reward validate --bundled" in [command for _, command in STEPS]
    made = card("--bundled")
    assert (
        made.bundled
        and min(made.sources.values()) >= 60
        and [*made.sources] == ["bundled: faults", "bundled: pairs", "bundled: triage"]
    )
    languages = {row.slice for row in made.measures if row.value.n >= 30 and row.slice.startswith("language=")}
    assert {"language=en", "language=zh"} <= languages
    assert check(store.settings, build_mix(MixConfig()).objective) == (ONLY_BUNDLED,)
    crud.add(store, [vote(n) for n in range(3)], actor="test")
    card()
    assert "This card is not kept" in medloop("reward", "validate", "--bundled")  # it does not replace what people said
    assert check(store.settings, build_mix(MixConfig()).objective) != (ONLY_BUNDLED,)


def test_a_reward_that_fails_even_on_the_bundled_pairs_is_refused(store: Store) -> None:
    medloop("reward", "validate", "--bundled", "--set", "agreement=0.99")
    objective = build_mix(MixConfig()).objective
    with pytest.raises(ConfigError, match=r"The bundled cases do not support this reward: the whole reward \(agreement"):
        check(store.settings, objective)
    accepted = check(store.settings, objective, accept_untrusted=True)
    assert accepted[0].startswith("UNTRUSTED, and accepted: the whole reward") and accepted[-1] == ONLY_BUNDLED
