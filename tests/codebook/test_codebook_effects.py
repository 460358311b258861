"""What comes after a rule is live: votes of later feedback, what a clinician taught, examples, a system prompt, promotion, lineage."""

import pytest
from tests.codebook.conftest import CALM, STROKE, URGENT, correction

from medloop.contracts import Conversation, Feedback, Message, Trace, sha256_id
from medloop.errors import InputError
from medloop.loop.codebook import propose_from, rules_for
from medloop.loop.codebook_effects import count_votes, taught_by
from medloop.loop.codebook_growth import promote, propose_examples, propose_prompt
from medloop.loop.codebook_trial import approve_entry
from medloop.store.lineage_graph import lineage_graph
from medloop.store.records import codebook, codebook_votes, crud, lineage


def answer_with(store, *rules: str, question: str = STROKE, text: str = URGENT) -> str:
    talk = Conversation(messages=(Message(role="user", content=question), Message(role="assistant", content=text)))
    trace = Trace(session_id="s", agent_name="a", model_version="m", conversation=talk, meta={"rules": list(rules)})
    crud.add(store, [trace], actor="test")
    return trace.trace_id


def feedback(store, trace_id: str, **more) -> str:
    record = Feedback(session_id="s", agent_name="a", trace_id=trace_id, user_query=STROKE, agent_response=URGENT, **more)
    crud.add(store, [record], actor="test")
    return record.feedback_id


@pytest.fixture
def live(store, settings, people, bad_model):
    source = correction(store, recorded_by=people["dr.li"])
    entry = propose_from(store, source, actor="test")
    approve_entry(settings, store, entry, by=people["dr.wu"], answers=bad_model)
    return source, entry


def test_later_feedback_counts_for_and_against_the_rules_of_its_answer(store, live):
    source, entry = live
    for _ in range(3):
        feedback(store, answer_with(store, entry.entry_id), thumb="up")
    bad = answer_with(store, entry.entry_id)
    feedback(store, bad, rating=5)
    feedback(store, bad, critical=True)  # one harm outweighs a thumb on the same answer
    feedback(store, answer_with(store, "rule_other"), thumb="down")
    feedback(store, answer_with(store, entry.entry_id), rating=3)  # says neither
    correction(store, trace_id=answer_with(store, entry.entry_id))
    count_votes(store, actor="test")
    counts = codebook_votes.counts(store)
    assert counts[entry.entry_id] == codebook_votes.VoteCounts(helpful=3, harmful=2)
    assert count_votes(store, actor="test") == 0, "each vote once"
    taught = taught_by(store, [source, "cor_unknown"])
    assert list(taught) == [source] and taught[source].is_live and taught[source].counts.helpful == 3
    assert taught[source].trial is not None and taught[source].trial.verdict == "better"


def test_from_an_answer_to_its_rule_to_the_correction_and_back(store, live):
    source, entry = live
    trace_id = answer_with(store, *(used.rule_id for used in rules_for(store)(STROKE).rules))
    edges = {(edge.source, edge.target, edge.role) for edge in lineage_graph(store, trace_id).edges}
    assert {(entry.entry_id, trace_id, "used"), (source, entry.entry_id, "taught")} <= edges
    assert (source, entry.entry_id, "taught") in {(e.source, e.target, e.role) for e in lineage_graph(store, source).edges}
    assert [node.id for node in lineage_graph(store, entry.entry_id).nodes] == [entry.entry_id, source]


def test_examples_come_from_corrected_and_liked_answers_and_never_teach_harm(store, settings, people, bad_model):
    liked = Feedback(session_id="s", agent_name="a", thumb="up", user_query="手指擦破了一点皮怎么办？", agent_response="用清水冲洗后贴创可贴。",
                     consent=("training",))  # fmt: skip
    harmful = Feedback(session_id="s", agent_name="a", thumb="up", user_query=STROKE, agent_response=CALM, consent=("training",))
    crud.add(store, [liked, harmful], actor="test")
    source = correction(store)
    proposals = propose_examples(store, actor="test")
    assert {entry.evidence for entry in proposals.entries} == {(source,), (liked.feedback_id,)}
    assert propose_examples(store, actor="test").entries == []
    example = next(entry for entry in proposals.entries if entry.evidence == (liked.feedback_id,))
    approve_entry(settings, store, example, by=people["dr.wu"], answers=bad_model)
    [used] = rules_for(store)("手指擦破皮了怎么办").rules
    assert used.text == "示例。问：手指擦破了一点皮怎么办？ 答：用清水冲洗后贴创可贴。" and used.first_sentence == ""
    assert rules_for(store)("我失眠怎么办").rules == ()


def test_a_system_prompt_from_corrections_is_tried_and_replaces_the_one_before(store, settings, people, bad_model):
    with pytest.raises(InputError, match="no mistake"):
        propose_prompt(store, actor="test", author=people["dr.li"])
    correction(store)
    entry = propose_prompt(store, actor="test", author=people["dr.li"])
    assert entry.kind == "prompt" and "Send to emergency care first." in entry.text
    version, trial = approve_entry(settings, store, entry, by=people["dr.wu"], answers=bad_model)
    assert version is not None and trial.unchanged == 0 and len(trial.cases) > 90, "a prompt changes every case"
    find = rules_for(store)
    assert find.system_prompt == entry.text and find(STROKE).rules == ()
    with pytest.raises(InputError, match="no mistake"):
        propose_prompt(store, actor="test", author=people["dr.li"])


def test_a_proven_rule_leaves_once_training_has_it_and_the_model_needs_it_no_more(store, settings, people, live, bad_model):
    source, entry = live
    with pytest.raises(InputError, match="not proven"):
        promote(settings, store, entry, by=people["dr.wu"])
    for _ in range(5):
        feedback(store, answer_with(store, entry.entry_id), thumb="up")
    count_votes(store, actor="test")
    with pytest.raises(InputError, match="not in training data"):
        promote(settings, store, entry, by=people["dr.wu"])
    with store.write() as conn:
        lineage.add_records(conn, sha256_id("dataset"), [source])
    with pytest.raises(codebook.CodebookRefusedError, match="still needs"):
        promote(settings, store, entry, by=people["dr.wu"], answers=bad_model)
    learnt = ("learnt", lambda prompts: ["请立即拨打120急救电话。" for _ in prompts])
    version, _trial = promote(settings, store, entry, by=people["dr.wu"], answers=learnt)
    assert version.action == "promote" and version.reason == "learnt from 1 datasets"
    assert codebook.live(store).entries == ()
