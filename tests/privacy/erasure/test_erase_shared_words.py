"""Records that share words: erasing one of them leaves what was made from the others, and nothing of the one."""

from __future__ import annotations

from typer.testing import CliRunner

from medloop.cli import app
from medloop.contracts import (
    CodebookEntry,
    Conversation,
    Correction,
    CorrectionCriterion,
    CriterionText,
    EntryText,
    Message,
    RedTeamCase,
    Trace,
)
from medloop.contracts.queue import QueueContent, QueueItem
from medloop.store.db import Store, open_store
from medloop.store.records import codebook, criteria, crud, erasing, review_queue
from medloop.testing.feedback import CONSENT

REASON = "Tell every patient with sudden chest pain to call an ambulance at once, before anything else is said."
GOLDEN = "Please call an ambulance now. Do not drive yourself to the hospital."
PEOPLE = ("baker", "pilot", "tailor", "joiner", "potter")


def question(person: str) -> str:
    return f"The {person} of our village writes: my chest hurts since I lifted the {person}'s old cupboard. What should a {person} do?"


def plant(store: Store) -> None:
    """One trace, correction, queue item and red-team case for each person; all corrections give the same reason."""
    for person in PEOPLE:
        messages = (Message(role="user", content=question(person)), Message(role="assistant", content=f"Rest, {person}."))
        trace = Trace(
            trace_id=f"tr_{person}", session_id=person, agent_name="a", conversation=Conversation(messages=messages),
            model_version="m",
        )  # fmt: skip
        correction = Correction(
            correction_id=f"cor_{person}", trace_id=f"tr_{person}", prompt=question(person), original=f"Rest, {person}.",
            golden=GOLDEN, reason=REASON, consent=CONSENT,
        )  # fmt: skip
        case = RedTeamCase(case_id=f"case_{person}", record_id=f"cor_{person}", prompt=question(person), answer="Rest.")
        crud.add(store, [trace, correction, case], actor="test")
        content = QueueContent(prompt=messages[:1], answers=(f"Rest, {person}.",), contexts=(REASON,))
        review_queue.add_items(
            store, [QueueItem(kind="rate", content=content, priority=0.5, trace_id=f"tr_{person}")], actor="test"
        )
    stray = RedTeamCase(case_id="case_stray", record_id="written by hand", prompt=question("baker"), answer="Rest.")
    crud.add(store, [stray], actor="test")


def test_erasing_one_trace_leaves_what_was_made_from_others_and_no_word_of_its_own(sqlite_settings) -> None:
    with open_store(sqlite_settings) as store:
        plant(store)
    words = ["--home", str(sqlite_settings.home)]
    proposed = CliRunner().invoke(app, [*words, "codebook", "propose", "--all"])
    assert proposed.exit_code == 0, proposed.output
    with open_store(sqlite_settings) as store:
        before = {entry.evidence for entry in codebook.entries(store)}
    assert before, "the corrections gave proposals"
    done = CliRunner().invoke(app, [*words, "erase", "--record", "tr_baker", "--reason", "asked"])
    assert done.exit_code == 0 and ": complete" in done.output, done.output
    with open_store(sqlite_settings) as store:
        assert {item.trace_id for item in review_queue.list_items(store)} == {f"tr_{person}" for person in PEOPLE[1:]}
        cases = {f"case_{person}": crud.get(store, RedTeamCase, f"case_{person}") for person in (*PEOPLE, "stray")}
        assert [name for name, case in cases.items() if case is None] == ["case_baker", "case_stray"]
        assert {entry.evidence for entry in codebook.entries(store)} == {
            evidence for evidence in before if "cor_baker" not in evidence
        }
        left = [text.value for text in erasing.other_texts(store, {})]
    assert left and not any("baker" in text for text in left)


def test_a_copy_of_a_teachers_criterion_goes_with_it_and_words_that_other_corrections_have_stay(sqlite_settings) -> None:
    alone = "The answer asks the man who bakes for a living since when his ribs ache after the heavy furniture."
    common = "The answer tells the reader to stop every effort and to have somebody with them until help is there."
    with open_store(sqlite_settings) as store:
        plant(store)
        drafts = [
            CorrectionCriterion(
                correction_id=f"cor_{person}", content=CriterionText(criterion=words, question=question(person)), points=5,
                maker="teacher", author="usr_1",
            )
            for person, words in (("baker", alone), ("baker", common), ("pilot", common))
        ]  # fmt: skip
        criteria.add_drafts(store, drafts, actor="test")
        for words in (alone, common):
            codebook.propose(store, CodebookEntry(content=EntryText(text=words), author="usr_1"), actor="test")
    file = sqlite_settings.workspace.reports / "notes.txt"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{alone}\n{common}\n")
    words = ["--home", str(sqlite_settings.home), "erase", "--record", "tr_baker", "--reason", "asked"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0 and ": complete" in done.output, done.output
    with open_store(sqlite_settings) as store:
        assert [entry.text for entry in codebook.entries(store)] == [common]
        assert [criterion.correction_id for criterion in criteria.list_criteria(store)] == ["cor_pilot"]
    assert alone not in file.read_text() and common in file.read_text()
