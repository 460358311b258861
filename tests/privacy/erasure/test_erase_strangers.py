"""An erasure takes nothing of people who only used the same server, asked the same everyday question or got the same answer."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import delete, insert, select
from typer.testing import CliRunner

from medloop.cli import app
from medloop.contracts import AuditEvent, CodebookEntry, Conversation, EntryText, Feedback, Message, Trace
from medloop.contracts.queue import QueueContent, QueueItem
from medloop.loop.erasure import erase_records, replay_erasures
from medloop.privacy.consent import subject_of
from medloop.privacy.erasure import journal
from medloop.privacy.erasure.contracts import ErasureProof, ErasureRequest
from medloop.privacy.erasure.erase import preview
from medloop.privacy.erasure.plan import make_plan
from medloop.store import audit, tables
from medloop.store.db import Store, open_store
from medloop.store.records import codebook, crud, review_queue
from medloop.testing.feedback import CONSENT

WHO = "patient 7"
ASKED = ErasureRequest(reason="asked on 3 May", subject=WHO)
SERVER = "http://10.20.30.144:8001/v1"
RULE = "rule_01a1e418-70a2-7d31-9c55-0f6b9d2c1a44"
ANSWER = "Asthma is a long-term disease of the airways. They swell and narrow, which makes it hard to breathe. " * 3
PASSAGE = "Asthma: a chronic inflammatory disorder of the airways in which many cells and cellular elements play a role. " * 2
OWN = "My phone is 13800138000 and my left knee has hurt since I carried the piano of my aunt Zuleika up the stairs."


def gateway_trace(store: Store, trace_id: str, question: str, *, who: str | None = None, answer: str = ANSWER) -> Trace:
    """A trace as serve/gateway/answer_trace.py writes it."""
    meta: dict[str, Any] = {
        "finish_reason": "stop", "seconds": 1.5, "prefix": 0, "guards": [{"guard": "emergency-2026.11.19", "act": "none"}],
        "backend": SERVER, "rules": [RULE], "passages": ["psg_01a1e418d0c7447291645b"],
    }  # fmt: skip
    messages = (Message(role="user", content=question), Message(role="assistant", content=answer))
    return Trace(
        trace_id=trace_id, session_id=f"ep_{trace_id}", agent_name="assistant", model_version="base",
        conversation=Conversation(messages=messages), contexts=(PASSAGE,), meta=meta,
        user_hash=None if who is None else subject_of(store, who),
    )  # fmt: skip


def plant(store: Store, own: str = OWN) -> None:
    """One conversation of the person, and those of people who asked without an id; one rule was in all answers."""
    entry = CodebookEntry(entry_id=RULE, content=EntryText(text="Ask when the pain began."), author="usr_1")
    codebook.propose(store, entry, actor="test")
    questions = ("What is asthma?", "hello", "What can I do about a headache?", "Is it safe to eat grapefruit?")
    strangers = [gateway_trace(store, f"tr_stranger_{number}", text) for number, text in enumerate(questions)]
    crud.add(store, [gateway_trace(store, "tr_own", own, who=WHO), *strangers], actor="test")


def erased(store: Store) -> ErasureProof:
    return erase_records(store, ASKED, actor="test")


@pytest.mark.parametrize(
    "own", [OWN, "What is asthma?", "What can I do about a headache?", "The page http://127.0.0.1:8001 does not open, hello"]
)
def test_people_who_asked_without_an_id_keep_their_conversations(sqlite_settings, own: str) -> None:
    with open_store(sqlite_settings) as store:
        plant(store, own)
        proof = erased(store)
        assert {stone["record_id"] for stone in proof.tombstones} == {"tr_own"} and proof.complete, proof.left
        assert crud.count(store, Trace) == 4


def test_the_server_the_rules_and_the_passages_of_an_answer_are_not_searched_for(sqlite_settings) -> None:
    """They are in the settings, in logs, in documents and in plain columns, and nothing there is about the person."""
    system = f"gateway:\n  backends: {SERVER}\n# {RULE}\n{PASSAGE}\n"
    files = [sqlite_settings.home / name for name in ("medloop.yaml", "logs/model-server.log", "knowledge/asthma.txt")]
    for file in files:
        file.parent.mkdir(exist_ok=True)
        file.write_text(system)
    with open_store(sqlite_settings) as store:
        plant(store)
        for number in range(4):  # nobody else has this address and this passage any more
            erase_records(store, ErasureRequest(reason="asked", records=(f"tr_stranger_{number}",)), actor="test")
        proof = erased(store)
    assert proof.complete and proof.files == () and proof.left == (), (proof.files, proof.left)
    assert all(file.read_text() == system for file in files)


@pytest.mark.parametrize("old_tree", [False, True])
def test_after_a_restore_an_erasure_with_a_rule_of_the_codebook_is_finished_again(sqlite_settings, old_tree: bool) -> None:
    with open_store(sqlite_settings) as store:
        plant(store)
        (tree,) = sqlite_settings.workspace.keys.glob("*.tree")
        copy = tree.read_bytes()
        with store.read() as conn:
            rows = [dict(row._mapping) for row in conn.execute(select(tables.traces))]
        assert erased(store).complete
        with store.write() as conn:
            for table in (tables.tombstones, tables.traces):
                conn.execute(delete(table))
            conn.execute(insert(tables.traces), rows)
    if old_tree:
        tree.write_bytes(copy)
    proofs = replay_erasures(sqlite_settings, actor="test")
    assert [(proof.complete, proof.left) for proof in proofs] == [(True, ())]
    with open_store(sqlite_settings) as store:
        assert crud.count(store, Trace) == 4
    assert replay_erasures(sqlite_settings, actor="test") == []


def test_an_erasure_that_an_older_version_could_not_finish_is_finished_and_takes_nothing_more(sqlite_settings) -> None:
    """Its journal has the ids of rules and the server's address among the texts to search for."""
    file = sqlite_settings.home / "medloop.yaml"
    file.write_text("gateway:\n  backends: http://127.0.0.1:8001\n")
    with open_store(sqlite_settings) as store:
        plant(store)
        planned = make_plan(store, ASKED, "test")
        assert planned is not None
        words = (*planned.plan.words, (RULE, True), ("http://127.0.0.1:8001", True))
        folder = sqlite_settings.workspace.reports / "erasure"
        folder.mkdir(parents=True, exist_ok=True)
        journal.keep(store, planned.plan.model_copy(update={"words": words}), folder)
        proof = erased(store)
        assert proof.complete and proof.erasure_id == planned.plan.erasure_id and proof.by_hand == ()
    assert "127.0.0.1" in file.read_text()


def test_own_words_in_a_document_go_although_the_gateway_gave_them_back_as_a_passage(sqlite_settings) -> None:
    """Of a passage nothing is searched for, but what the person wrote is searched for in all passages and documents."""
    document = sqlite_settings.home / "knowledge/cases.txt"
    document.parent.mkdir(exist_ok=True)
    document.write_text(f"{PASSAGE}\nCase report. {OWN}\n")
    with open_store(sqlite_settings) as store:
        plant(store)
        quoted = {"contexts": (f"Case report. {OWN}",)}
        crud.add(store, [gateway_trace(store, "tr_own_2", OWN, who=WHO).model_copy(update=quoted)], actor="test")
        crud.add(store, [gateway_trace(store, "tr_quoted", "hello").model_copy(update=quoted)], actor="test")
        proof = erased(store)
        assert proof.complete
        assert {stone["record_id"] for stone in proof.tombstones} == {"tr_own", "tr_own_2", "tr_quoted"}
    assert OWN not in document.read_text() and PASSAGE in document.read_text()


def test_the_name_of_a_model_in_a_comment_takes_nothing_and_can_be_erased(sqlite_settings) -> None:
    """Models of other records are called so, in a column that is not encrypted and in the settings."""
    own = f"{OWN} The model qwen2.5-7b-instruct-2026 told me to rest."
    with open_store(sqlite_settings) as store:
        plant(store, own)
        other = gateway_trace(store, "tr_same_model", "hello").model_copy(update={"model_version": "qwen2.5-7b-instruct-2026"})
        crud.add(store, [other], actor="test")
        proof = erased(store)
        assert proof.complete and {stone["record_id"] for stone in proof.tombstones} == {"tr_own"}, proof.columns


def test_a_code_in_the_audit_log_stays_and_is_named_so_that_the_erasure_ends(settings) -> None:
    with open_store(settings) as store:
        plant(store)
        with store.write() as conn:
            audit.append(conn, AuditEvent(actor="test", action="test.line", subject="call 13800138000"))
        proof = erased(store)
        assert proof.complete and [place.split(" ")[0] for place in proof.by_hand] == ["audit_log.subject"]
        assert audit.verify(store).ok


def test_a_code_and_a_long_text_of_the_person_are_found_in_records_without_an_id_and_the_dry_run_says_which(settings) -> None:
    long = "My left knee has hurt since I carried the piano of my aunt Zuleika up the stairs to the fourth floor."
    with open_store(settings) as store:
        plant(store, f"{long} My phone is 13800138000.")
        form = Feedback(
            feedback_id="fb_form", session_id="form", agent_name="x", user_query=long, agent_response="Rest.", rating=1,
            consent=CONSENT,
        )  # fmt: skip
        crud.add(store, [form, gateway_trace(store, "tr_phone", "I am at 13800138000")], actor="test")
        plan = preview(store, ASKED, actor="test")
        matches = {record.record_id: record.match for record in plan.foreign}
        assert matches == {"fb_form": f"the same text of {len(long)} characters", "tr_phone": "a code that the person's text has"}
    words = ["--home", str(settings.home), "--set", f"database.url={settings.store_url}", "erase", "--subject", WHO]
    dry = CliRunner().invoke(app, [*words, "--reason", "asked", "--dry-run"])
    assert dry.exit_code == 0 and "fb_form: the same text of" in dry.output and "tr_phone: a code that" in dry.output
    assert "13800138000" not in dry.output and "piano" not in dry.output
    with open_store(settings) as store:
        assert {stone["record_id"] for stone in erased(store).tombstones} == {"tr_own", "fb_form", "tr_phone"}


def test_an_everyday_question_takes_no_item_of_the_queue_about_others(sqlite_settings) -> None:
    prompt = (Message(role="user", content="What is asthma?"),)
    items = [
        QueueItem(
            kind="compare", content=QueueContent(prompt=prompt, answers=("One.", "Two."), traces=("tr_a", "tr_b")), priority=0.5
        ),
        QueueItem(kind="rate", content=QueueContent(prompt=prompt, answers=("Three.",)), priority=0.5),
    ]
    with open_store(sqlite_settings) as store:
        plant(store, "What is asthma?")
        review_queue.add_items(store, items, actor="test")
        assert "queue_items" not in erased(store).rows
        assert len(review_queue.list_items(store)) == 2


def test_a_text_that_another_person_wrote_too_takes_no_record_without_an_id(sqlite_settings) -> None:
    common = "What are the most common side effects of metformin in older people with weak kidneys, and which are dangerous?"
    with open_store(sqlite_settings) as store:
        plant(store, common)
        crud.add(store, [gateway_trace(store, "tr_known", common, who="patient 8")], actor="test")
        crud.add(store, [gateway_trace(store, "tr_unknown", common)], actor="test")
        assert {stone["record_id"] for stone in erased(store).tombstones} == {"tr_own"}


def test_the_settings_are_never_edited_and_the_person_is_told_to_do_it(sqlite_settings) -> None:
    file = sqlite_settings.home / "medloop.yaml"
    text = "# call 13800138000 if the server is down\nseed: 7\n"
    file.write_text(text)
    with open_store(sqlite_settings) as store:
        plant(store)
        assert preview(store, ASKED, actor="test").by_hand[0].startswith("medloop.yaml")
    words = ["--home", str(sqlite_settings.home), "erase", "--subject", WHO, "--reason", "asked"]
    done = CliRunner().invoke(app, words)
    assert file.read_text() == text and done.exit_code == 0, done.output
    assert "BY HAND    medloop.yaml" in done.output and "13800138000" not in done.output
    with open_store(sqlite_settings) as store:
        proof = erased(store)
    assert proof.complete and proof.by_hand[0].startswith("medloop.yaml")
    page = (sqlite_settings.workspace.reports / f"erasure/{proof.erasure_id}.md").read_text()
    assert "medloop.yaml" in page and "13800138000" not in page


def test_what_is_left_in_the_database_is_named_by_its_column_and_nobody_is_told_to_remove_it(settings) -> None:
    """Names of sessions are not encrypted, and the record of somebody else has this one."""
    with open_store(settings) as store:
        plant(store)
        other = gateway_trace(store, "tr_other", "hello", who="patient 8").model_copy(update={"session_id": "call 13800138000"})
        crud.add(store, [other], actor="test")
    words = [
        "--home",
        str(settings.home),
        "--set",
        f"database.url={settings.store_url}",
        "erase",
        "--subject",
        WHO,
        "--reason",
        "asked",
    ]
    done = CliRunner().invoke(app, words)
    assert done.exit_code != 0 and "traces.session_id (tr_other)" in done.output, done.output
    advice = str(done.exception) + done.output
    assert "Remove" not in advice and "Never remove or edit the database" in advice and "13800138000" not in advice
    with open_store(settings) as store:
        erase_records(store, ErasureRequest(reason="asked", records=("tr_other",)), actor="test")
        assert erased(store).complete


def test_metadata_of_an_application_that_looks_like_ours_is_the_persons(sqlite_settings) -> None:
    """An application that fills in the same fields wrote the others: they are searched for, and take nothing from the search."""
    note = "The patient lives in the yellow house beside the old mill and has a parrot that is called Bartholomew."
    meta = {"finish_reason": "stop", "seconds": 1, "prefix": 0, "guards": "none", "note": f"{note} Call 13800138000."}
    file = sqlite_settings.home / "exports/notes.jsonl"
    file.parent.mkdir(exist_ok=True)
    file.write_text(f'{{"a": "Call 13800138000"}}\n{{"a": "{note}"}}\n{{"a": "tea"}}\n')
    with open_store(sqlite_settings) as store:
        plant(store)
        sent = gateway_trace(store, "tr_sent", "hello", who=WHO).model_copy(update={"meta": meta})
        crud.add(store, [sent], actor="test")
        assert erased(store).complete
    assert file.read_text() == '{"a": "tea"}\n'


def test_what_a_model_gave_to_a_tool_takes_nothing_from_the_search(sqlite_settings) -> None:
    """A model repeats what somebody wrote, also to a tool that does not exist."""
    file = sqlite_settings.home / "exports/calls.jsonl"
    file.parent.mkdir(exist_ok=True)
    file.write_text('{"a": "Call 13800138000"}\n{"a": "tea"}\n')
    with open_store(sqlite_settings) as store:
        plant(store)
        for trace_id, who in (("tr_tool", WHO), ("tr_stranger_with_tool", None)):
            trace = gateway_trace(store, trace_id, "hello", who=who)
            tools = [{"tool": "book", "arguments": {"phone": "13800138000"}, "error": "unknown tool", "milliseconds": 0.0}]
            crud.add(store, [trace.model_copy(update={"meta": {**trace.meta, "tools": tools}})], actor="test")
        proof = erased(store)
        assert proof.complete
        assert {stone["record_id"] for stone in proof.tombstones} == {"tr_own", "tr_tool", "tr_stranger_with_tool"}
    assert file.read_text() == '{"a": "tea"}\n'


def test_a_dose_takes_no_rows_of_datasets_and_no_records_of_others(sqlite_settings) -> None:
    file = sqlite_settings.home / "data/raw/leaflet.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    rows = '{"question": "How much?", "answer": "Adults: 500-1000 mg, at most 4 g a day."}\n{"question": "L4-L5-S1?", "answer": "Vertebrae."}\n'
    file.write_text(rows)
    with open_store(sqlite_settings) as store:
        plant(store, "I take 500-1000 mg of paracetamol since my back hurts, they say L4-L5-S1.")
        crud.add(store, [gateway_trace(store, "tr_dose", "Is 500-1000 mg too much?")], actor="test")
        proof = erased(store)
        assert proof.complete and {stone["record_id"] for stone in proof.tombstones} == {"tr_own"} and proof.files == ()
    assert file.read_text() == rows
