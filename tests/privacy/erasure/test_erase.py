"""Erasure: rows, datasets and files lose every byte of it, the proof says so, and a kill at any point leaves nothing undone."""

from __future__ import annotations

import csv
import gzip
import html
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert, select
from typer.testing import CliRunner

from medloop.cli import app
from medloop.contracts import Contract, Conversation, Correction, Feedback, LogLikelihood, Message, Preference, Trace, utc_now
from medloop.contracts.queue import QueueContent, QueueItem
from medloop.data.feedback.build import FeedbackConfig
from medloop.errors import InputError, MedloopError
from medloop.evaluate.answer_cache import AnswerCache, CachedAnswer, answer_key, likelihood_key, prompt_id
from medloop.feedback import listing
from medloop.loop.erasure import erase_records
from medloop.loop.evaluation import answer_folder
from medloop.loop.feedback import build_from_feedback
from medloop.models.safety import fingerprint
from medloop.privacy.consent import subject_of
from medloop.privacy.erasure.contracts import ErasureProof, ErasureRequest
from medloop.privacy.erasure.erase import SecondPersonNeededError, preview
from medloop.store import audit, catalog, tables
from medloop.store.db import Store, open_store
from medloop.store.files import jsonl
from medloop.store.files.artifacts import file_sha256, new_artifact, verify_artifact
from medloop.store.records import crud, lineage, review_queue
from medloop.store.records.erasing import find_by_ids
from medloop.testing.canary import told, traces_of
from medloop.testing.feedback import CONSENT, NOON, make_preference, make_question, make_thumb

WHO = "patient 4711"
OWN = "Nobody but me ever wrote a remark quite like this one about porridge on Thursdays."
ASKED = ErasureRequest(reason="asked on 3 May", subject=WHO)


def about(store: Store) -> list[Contract]:
    """One person's records, one through each door."""
    who = subject_of(store, WHO)
    talk = Conversation(messages=(Message(role="user", content=told("back")), Message(role="assistant", content="Rest a while.")))
    same: dict[str, Any] = {"consent": CONSENT, "subject": who, "timestamp": NOON}
    return [
        Trace(trace_id="tr_1", session_id="s", agent_name="a", conversation=talk, model_version="m", contexts=(told("notes"),)),
        Feedback(feedback_id="fb_1", session_id="s", agent_name="a", user_query=told("back"), agent_response="Rest a while.", thumb="down", comments=told("comment"), trace_id="tr_1", **same),
        Feedback(feedback_id="fb_2", session_id="s", agent_name="a", user_query=told("back"), agent_response="See a doctor soon.", thumb="up", **same),
        Preference(preference_id="pref_1", prompt=told("choice"), response_a="Sit down.", response_b="Stand up.", preferred="a", **same),
        Correction(correction_id="cor_1", feedback_id="fb_1", prompt=told("back"), original="Rest a while.", golden="Come in today: " + told("golden"), reason=told("reason"), **same),
    ]  # fmt: skip


def test_answers_to_erased_questions_stay_in_no_cache_of_an_evaluation(store: Store) -> None:
    """The line holds neither the question nor an id, so the whole cache goes."""
    crud.add(store, [*about(store), *others()], actor="test")
    question = (Message(role="user", content=told("back")),)
    identity = {"base": "sha256:1", "adapter": None, "codebook": None}
    key, answer = answer_key(identity, question, {}), "This will pass by itself within a week or two."
    cache = AnswerCache(answer_folder(store.settings), identity)
    cache.add_answers([CachedAnswer(key=key, prompt_id=prompt_id(question), text=answer)])
    cache.add_likelihoods({likelihood_key(question, "yes"): LogLikelihood(total=-1.0, greedy=False, tokens=1)})
    names = sorted(path.relative_to(store.settings.home).as_posix() for path in cache.path.parent.iterdir())
    assert len(names) == 2 and set(names) <= set(preview(store, ASKED, actor="test").files)
    proof = erase_records(store, ASKED, actor="test")
    assert proof.complete and list(cache.path.parent.iterdir()) == []
    assert set(names) <= {file["path"] for file in proof.files if file["action"] == "removed"}
    assert AnswerCache(answer_folder(store.settings), identity).answers == {}


def others() -> list[Contract]:
    given: list[Contract] = [make_preference(n, f"rest {n}", f"run {n}", "a", preference_id=f"pref_o{n}") for n in range(8)]
    return given + [make_thumb(n, f"sleep {n}", n % 2 == 0, feedback_id=f"fb_o{n}") for n in range(8)]


def plant(store: Store) -> None:
    crud.add(store, [*about(store), *others()], actor="test")


def erased(store: Store, request: ErasureRequest = ASKED) -> ErasureProof:
    return erase_records(store, request, actor="user:li")


def test_every_door_and_the_dataset_lose_every_byte(store: Store) -> None:
    plant(store)
    before = build_from_feedback(store, FeedbackConfig(), seed=7, actor="test")
    assert traces_of(store.settings.home), "the canary was planted"
    proof = erased(store)
    assert traces_of(store.settings.home) == []
    assert proof.complete and proof.verified["hits"] == 0 and proof.left == ()
    page = (store.settings.workspace.reports / f"erasure/{proof.erasure_id}.md").read_text(encoding="utf-8")
    assert "**Complete**" in page and str(proof.subject) in page and "data/feedback/feedback" in page and "0 hits" in page
    assert all(stone["record_id"] in page and stone["proof"] in page for stone in proof.tombstones)
    assert proof.rows == {"rlhf_corrections": 1, "rlhf_feedback": 2, "rlhf_preferences": 1, "traces": 1}
    assert {row["record_id"] for row in proof.tombstones} == {"fb_1", "fb_2", "pref_1", "cor_1", "tr_1"}
    after = verify_artifact(before.folder).sha256
    assert after != before.sha256 and crud.count(store, Feedback) == 8
    assert lineage.datasets_of(store, ["fb_1", "pref_1"]) == {} and "fb_o1" in lineage.records_of(store, after)
    card = json.loads((before.folder / "card.json").read_text())
    gone = next(file["rows"] for file in proof.files if file["path"] == "data/feedback/feedback")
    assert card["erased"] == [{"erasure_id": proof.erasure_id, "before": before.sha256, "rows": gone}]
    assert "## Erased" in (before.folder / "DATA_CARD.md").read_text()
    for name, entry in card["files"].items():
        assert (
            file_sha256(before.folder / name) == entry["sha256"] and len(list(jsonl.read(before.folder / name))) == entry["rows"]
        )
    assert catalog.newest(store, "feedback").sha256 == after  # type: ignore[union-attr]
    old = catalog.find(store, before.sha256)
    assert old is not None and old.flags == ("erased",)
    again = build_from_feedback(store, FeedbackConfig(), seed=7, actor="test")
    assert (
        traces_of(store.settings.home) == []
        and len(list(jsonl.read(again.folder / "preferences.jsonl"))) == card["files"]["preferences.jsonl"]["rows"]
    )


def test_a_backed_up_row_can_be_matched_with_its_tombstone_but_not_read(store: Store) -> None:
    plant(store)
    with store.read() as conn:
        row = conn.execute(select(tables.rlhf_feedback).where(tables.rlhf_feedback.c.feedback_id == "fb_1")).one()
    from medloop.store.records.erasing import row_hash as proof_of

    stones = {stone["record_id"]: stone["proof"] for stone in erased(store).tombstones}
    assert stones["fb_1"] == proof_of(row)
    actions = [line["action"] for line in audit.show(store, 40)]
    assert "erasure.rows" in actions and "erasure.done" in actions and audit.verify(store).ok


def test_what_others_said_stays_byte_for_byte(store: Store) -> None:
    plant(store)
    folder = store.settings.workspace.preferences
    build_from_feedback(store, FeedbackConfig(), seed=7, actor="test")
    jsonl.append(folder / "preferences.jsonl", {"prompt": "q", "chosen": "a", "rejected": "b", "metadata": {"source": "x"}})
    before = (folder / "preferences.jsonl").read_bytes().splitlines()
    erased(store)
    after = (folder / "preferences.jsonl").read_bytes().splitlines()
    assert after == [line for line in before if b"canary" not in line] and len(after) < len(before)


def files_with_canary(home: Path) -> dict[str, bytes]:
    """The words as every other stage writes them down."""
    text = told("back")
    row = {"id": "1", "question": text, "answer": "Rest."}
    cells = io.StringIO()
    table = csv.writer(cells, quoting=csv.QUOTE_ALL, lineterminator="\r\n")
    table.writerows([["id", "answer"], ["1", f'He said "{text}"\nand left'], ["2", "fine"]])
    return {
        "jobs/train_grpo-x/samples.jsonl": json.dumps(row).encode() + b'\n{"id":"2","answer":"fine"}\n',
        "data/rl/teacher_judgements.jsonl": (
            json.dumps({"critique": text}, ensure_ascii=False) + '\n{"critique":"good"}\n'
        ).encode(),
        "reports/inspect/2026-W46/form.csv": b"\xef\xbb\xbf" + cells.getvalue().encode(),
        "reports/inspect/2026-W46/report.md": f"# Week\n\n> {text}\n\nfine\n".encode(),
        "reports/inspect/2026-W46/report.html": f"<p>{html.escape(text)}</p><p>fine</p>".encode(),
        "reports/eval/x/eval_report.json": json.dumps({"worst": [{"answer": text}], "mean": 0.25}, indent=2).encode(),
        "logs/train.log": f"step 1\nsample: {text[:80]}…\nstep 2\n".encode(),
        "data/wide.csv": f'id,answer\r\n1,"{text}"\r\n2,fine\r\n'.encode("utf-16"),
        "data/packed.jsonl.gz": gzip.compress(json.dumps(row).encode() + b'\n{"id":"2"}\n'),
        "logs/deepseek_teacher/x.jsonl": json.dumps({"body": json.dumps({"content": text})}).encode() + b"\n",
    }


def test_every_way_of_writing_text_down_is_found_and_the_rest_is_kept(sqlite_settings) -> None:
    home = sqlite_settings.home
    for name, data in files_with_canary(home).items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_bytes(data)
    with open_store(sqlite_settings) as store:
        plant(store)
        proof = erased(store)
    assert traces_of(home) == [] and proof.complete
    assert {file["path"] for file in proof.files} == set(files_with_canary(home))
    assert (home / "jobs/train_grpo-x/samples.jsonl").read_bytes() == b'{"id":"2","answer":"fine"}\n'
    assert list(csv.reader(io.StringIO((home / "reports/inspect/2026-W46/form.csv").read_text("utf-8-sig"), newline=""))) == [
        ["id", "answer"],
        ["2", "fine"],
    ]
    assert (home / "reports/inspect/2026-W46/report.html").read_text() == "<p>[erased]</p><p>fine</p>"
    assert json.loads((home / "reports/eval/x/eval_report.json").read_text()) == {"worst": [{"answer": "[erased]"}], "mean": 0.25}
    assert (home / "data/wide.csv").read_bytes().decode("utf-16") == "id,answer\r\n2,fine\r\n"
    assert gzip.decompress((home / "data/packed.jsonl.gz").read_bytes()) == b'{"id":"2"}\n'


def test_verdicts_on_erased_samples_go_with_them(sqlite_settings) -> None:
    rl = sqlite_settings.workspace.rl
    sample = {"id": "W46-001", "sample": "2026-W46", "answer_id": "a", "question": told("back"), "answer": "Rest."}
    jsonl.write(
        rl / "inspection.jsonl",
        [{"verdict_id": "ver_1", "inspected": "W46-001"}, {"verdict_id": "ver_2", "inspected": "W46-002"}],
    )
    jsonl.write(rl / "inspection_samples.jsonl", [sample, {**sample, "id": "W46-002", "question": "Other?"}])
    with open_store(sqlite_settings) as store:
        plant(store)
        erased(store)
    assert [row["id"] for row in jsonl.read(rl / "inspection_samples.jsonl")] == ["W46-002"]
    assert [row["verdict_id"] for row in jsonl.read(rl / "inspection.jsonl")] == ["ver_2"]


def model(home: Path, name: str, sha256: str, *, parent: str | None = None, samples: str = "") -> Path:
    card = {"name": name, "inputs": {"train": sha256}, **({"parent": parent} if parent else {})}
    with new_artifact(home / "models/rl" / name) as folder:
        (folder / "card.json").write_text(json.dumps(card))
        (folder / "weights.safetensors").write_bytes(b"weights" * 100)
        (folder / "samples.jsonl").write_text(samples + '{"answer":"fine"}\n')
    return home / "models/rl" / name


def test_models_that_learnt_from_it_are_flagged_with_their_children_and_jobs(sqlite_settings) -> None:
    home = sqlite_settings.home
    with open_store(sqlite_settings) as store:
        plant(store)
        old = build_from_feedback(store, FeedbackConfig(), seed=7, actor="test")
        used = file_sha256(sqlite_settings.workspace.preferences / "preferences.jsonl")
        crud.add(store, [make_preference(9, "rest 9", "run 9", "a")], actor="test")
        build_from_feedback(store, FeedbackConfig(), seed=7, actor="test")  # the file they learnt from is gone, its hash is known
        first = model(home, "first", used, samples=json.dumps({"answer": told("back")}) + "\n")
        sha = verify_artifact(first).sha256
        catalog.register(store, "policy", first, {}, actor="test")
        model(home, "child", "sha256:" + "0" * 64, parent=sha)
        model(home, "other", "sha256:" + "1" * 64)
        model(home, "by_weights", "sha256:" + "3" * 64, parent=fingerprint(first))  # as the trainers name it
        model(home, "grandchild", "sha256:" + "2" * 64, parent=verify_artifact(home / "models/rl/child").sha256)
        job = home / "jobs/train_dpo-x"
        (job / "checkpoints/step-1").mkdir(parents=True)
        (job / "config.json").write_text(json.dumps({"identity": {"inputs": {"train": used}}, "started": "x"}))
        proof = erased(store)
        assert [flag["path"] for flag in proof.flagged] == [
            "models/rl/by_weights",
            "models/rl/child",
            "models/rl/first",
            "models/rl/grandchild",
        ] and proof.jobs == ("jobs/train_dpo-x",)
        entry = catalog.find(store, verify_artifact(first).sha256)
        assert entry is not None and entry.flags == ("tainted",) and old.sha256 != entry.sha256
    assert traces_of(home) == [] and (first / "weights.safetensors").read_bytes() == b"weights" * 100


def test_a_checkpoint_that_holds_the_words_is_removed_whole(sqlite_settings) -> None:
    folder = sqlite_settings.workspace.jobs / "train_ppo-x/checkpoints"
    for step, text in (("step-1", "fine"), ("step-2", told("back"))):
        with new_artifact(folder / step) as temp:
            (temp / "state.json").write_text(json.dumps({"buffer": [text]}))
    with open_store(sqlite_settings) as store:
        plant(store)
        assert erased(store).complete
    assert [path.name for path in folder.iterdir()] == ["step-1"]


def test_one_record_goes_with_its_versions_and_leaves_what_others_share(store: Store) -> None:
    plant(store)
    shared = told("back")
    new = Feedback(
        feedback_id="fb_3",
        session_id="s",
        agent_name="a",
        user_query="What about a walk?",
        agent_response="Yes.",
        thumb="up",
        supersedes="fb_2",
        comments=OWN,
        consent=CONSENT,
    )
    crud.add(store, [new], actor="test")
    jsonl.write(store.settings.workspace.rl / "x.jsonl", [{"a": shared}, {"a": OWN}])
    for feedback_id in ("fb_2", "fb_3"):
        assert find_by_ids(store, [feedback_id])[0] == {"rlhf_feedback": {"fb_2", "fb_3"}}
    proof = erased(store, ErasureRequest(reason="r", records=("fb_3",)))
    assert {row["record_id"] for row in proof.tombstones} == {"fb_2", "fb_3"} and proof.shared > 0
    assert [row["a"] for row in jsonl.read(store.settings.workspace.rl / "x.jsonl")] == [shared]
    assert crud.get(store, Trace, "tr_1") is not None
    whole = erased(store, ErasureRequest(reason="r", records=("tr_1",)))
    assert {row["record_id"] for row in whole.tombstones} == {"tr_1", "fb_1", "cor_1"}
    assert list(jsonl.read(store.settings.workspace.rl / "x.jsonl")) == []


def test_words_of_somebody_else_are_not_taken_from_them(store: Store) -> None:
    common = "How much water should I drink on a hot day when I work outside in the garden?"
    mine = make_thumb(1, "Three litres.", True, query=common, subject=subject_of(store, WHO), feedback_id="fb_mine")
    hers = make_thumb(2, "Two litres.", True, query=common, subject=subject_of(store, "patient 2"), feedback_id="fb_hers")
    crud.add(store, [mine, hers], actor="test")
    jsonl.write(store.settings.workspace.rl / "x.jsonl", [{"question": common}])
    proof = erased(store)
    assert (proof.rows, proof.shared) == ({"rlhf_feedback": 1}, 1) and crud.get(store, Feedback, "fb_hers") is not None
    assert len(list(jsonl.read(store.settings.workspace.rl / "x.jsonl"))) == 1


def test_what_was_made_of_it_in_other_tables_goes_and_an_incident_stays_without_its_note(store: Store) -> None:
    from medloop.contracts import Incident, IncidentStep, RedTeamCase

    plant(store)
    crud.add(store, [
        Incident(incident_id="inc_1", record_id="fb_1", steps=(IncidentStep(step="proposed", by="usr_1"),), notes=(told("note"),)),
        RedTeamCase(case_id="case_1", record_id="fb_1", prompt=told("back"), answer="Rest a while."),
    ], actor="test")  # fmt: skip
    with store.write() as conn:
        key = store.keys.writing(conn).for_row(None, "q_1")
        sealed = key.encrypt(json.dumps({"question": told("back")}).encode(), "queue_items", "q_1", "content")
        item = {
            "item_id": "q_1",
            "kind": "rate",
            "trace_id": "tr_1",
            "content": sealed,
            "priority": 1.0,
            "reasons": [],
            "stratum": "routine",
            "language": "en",
            "raters": 1,
            "state": "open",
            **key.columns,
        }
        conn.execute(insert(tables.queue_items).values(**item, timestamp=utc_now()))
        conn.execute(insert(tables.queue_turns).values(item_id="q_1", rater="li", state="held", until=utc_now()))
    with pytest.raises(SecondPersonNeededError, match="incidents: 1"):
        erased(store)
    ids = preview(store, ASKED, actor="test").ids_sha256
    proof = erased(store, replace(ASKED, approved_by="usr_2", approved_ids=ids))
    assert proof.rows["red_team_cases"] == proof.rows["queue_items"] == 1 and proof.evidence == {"incidents": 1}
    incident = crud.get(store, Incident, "inc_1")
    assert incident is not None and incident.notes is None and len(incident.steps) == 1 and incident.state == "open"
    assert crud.get(store, RedTeamCase, "case_1") is None


def test_a_copy_made_by_a_reviewer_goes_with_the_subject(store: Store) -> None:
    plant(store)
    copy = Feedback(
        feedback_id="fb_c",
        session_id="inspection 2026-W46",
        agent_name="x",
        user_query=told("back"),
        agent_response="Rest a while.",
        rating=1,
        consent=CONSENT,
    )
    crud.add(store, [copy], actor="test")
    assert "fb_c" in {stone["record_id"] for stone in erased(store).tombstones}


def test_sealed_bytes_are_gone_from_the_database_file(sqlite_settings) -> None:
    with open_store(sqlite_settings) as store:
        plant(store)
        with store.read() as conn:
            blobs = (
                conn.execute(select(tables.rlhf_feedback.c.comments).where(tables.rlhf_feedback.c.feedback_id == "fb_1"))
                .scalars()
                .all()
            )
        erased(store)
        data = b"".join(path.read_bytes() for path in sqlite_settings.home.glob("medloop.db*"))
    assert blobs[0][1:33] not in data


def test_asking_again_gives_the_same_proof_and_a_record_sent_again_is_not_used(store: Store) -> None:
    plant(store)
    first = erased(store)
    assert erased(store) == first and erased(store, ErasureRequest(reason="again", records=("fb_1",))) == first
    crud.add(store, [make_thumb(1, "back again", True, feedback_id="fb_1")], actor="test")
    built = build_from_feedback(store, FeedbackConfig(), seed=7, actor="test")
    assert built.card.records["rlhf_feedback"]["erased"] == 1 and "fb_1" not in lineage.records_of(store, built.sha256)


def test_a_record_that_came_back_is_in_no_list_and_replaces_nothing(store: Store) -> None:
    plant(store)
    erased(store)
    turns = (("user", told("back")), ("assistant", "Since when?"), ("user", make_question(2)), ("assistant", "fine"))
    talk = Conversation(messages=tuple(Message(role=role, content=content) for role, content in turns))  # type: ignore[arg-type]
    back = [
        make_thumb(1, "back again", True, feedback_id="fb_1", supersedes="fb_o1", recorded_by="usr_1"),
        Trace(trace_id="tr_1", session_id="s", agent_name="a", conversation=talk, model_version="m"),
    ]
    crud.add(store, [*back, make_thumb(2, "fine", True, feedback_id="fb_n", trace_id="tr_1")], actor="test")
    for reader in (listing.Reader("usr_1", own_only=True, texts=True), listing.Reader("x", own_only=False, texts=False)):
        shown = listing.list_records(store, Feedback, listing.FeedbackFilter(), reader, limit=200).items
        assert (
            "fb_1" not in {record["feedback_id"] for record in shown}
            and listing.get_record(store, Feedback, "fb_1", reader) is None
        )
    assert "fb_1" not in "".join(
        listing.export(store, Feedback, listing.RecordFilter(), reader, form="csv", note=lambda event: None)
    )
    built = build_from_feedback(store, FeedbackConfig(), seed=7, actor="test")
    assert built.card.records["rlhf_feedback"] == {"erased": 1, "used": 9}  # the one it claims to replace is used
    assert traces_of(built.folder) == []  # nor is the trace that came back


def test_a_dry_run_changes_nothing_and_names_the_files(sqlite_settings) -> None:
    with open_store(sqlite_settings) as store:
        plant(store)
        built = build_from_feedback(store, FeedbackConfig(), seed=7, actor="test")
        plan = preview(store, ASKED, actor="test")
        assert "data/feedback/feedback/preferences.jsonl" in plan.files and sum(plan.rows.values()) == 5
        assert crud.count(store, Feedback) == 10 and verify_artifact(built.folder).sha256 == built.sha256


def test_a_file_that_cannot_be_cut_is_named_and_the_same_command_finishes_later(sqlite_settings) -> None:
    odd = sqlite_settings.home / "data/notes.bin"
    odd.write_bytes(b"\x00" + told("back").encode() + b"\x00")
    (sqlite_settings.home / "data/x.parquet").write_bytes(b"PAR1 whatever")
    with open_store(sqlite_settings) as store:
        plant(store)
        proof = erased(store)
        assert not proof.complete and proof.left == ("data/notes.bin",) and proof.unsearched == ("data/x.parquet (Parquet)",)
        odd.unlink()
        again = erased(store)
        assert again.complete and again.erasure_id == proof.erasure_id and again.rows == proof.rows


@pytest.mark.parametrize(("request_", "message"), [
    (ErasureRequest(reason="r"), "one subject or a list of records"), (ErasureRequest(reason="r", subject="a", records=("b",)), "one subject or a list of records"),
    (ErasureRequest(reason=" ", subject="a"), "needs a reason"), (ErasureRequest(reason="r", subject="nobody"), "nothing about that subject"),
    (ErasureRequest(reason="r", records=("fb_none",)), "no record fb_none"),
])  # fmt: skip
def test_what_cannot_be_erased_is_said_and_nothing_goes(sqlite_settings, request_: ErasureRequest, message: str) -> None:
    with open_store(sqlite_settings) as store:
        plant(store)
        with pytest.raises(InputError, match=message):
            erased(store, request_)
        assert crud.count(store, Feedback) == 10


def test_the_command_prints_the_proof_without_a_word_of_it(settings) -> None:
    with open_store(settings) as store:
        plant(store)
        build_from_feedback(store, FeedbackConfig(), seed=7, actor="test")
    cache = settings.workspace.answer_cache / "a.jsonl"  # nobody can tell whose question a line answers
    cache.parent.mkdir(parents=True)
    cache.write_text("{}\n")
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
    dry = CliRunner().invoke(app, [*words, "--dry-run"])
    assert dry.exit_code == 0 and "nothing was changed" in dry.output
    assert (
        "1  caches of models' answers in reports/eval/answers/" in dry.output and "reports/eval/answers/a.jsonl" not in dry.output
    )
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "1  caches of models' answers" in done.output and "rows or places in reports/eval/answers" not in done.output
    assert not cache.exists()
    assert ": complete" in done.output and ": 0 hits" in done.output and "canary" not in done.output + dry.output
    wrong = CliRunner().invoke(app, [*words[:-4], "--record", "fb_x", "--reason", "r"])
    assert isinstance(wrong.exception, MedloopError)


def test_queue_items_go_by_their_second_trace_and_by_their_question(store: Store) -> None:
    plant(store)
    messages = (Message(role="user", content=told("back")),)
    second = QueueContent(prompt=messages, answers=("One.", "Two."), traces=("tr_other", "tr_1"))
    from_file = QueueContent(prompt=messages, answers=("Three.",))
    unlike = QueueContent(prompt=(Message(role="user", content="May I run?"),), answers=("Yes.",))
    items = [
        QueueItem(kind="compare", content=second, priority=0.5, trace_id="tr_other"),
        QueueItem(kind="rate", content=from_file, priority=0.5),
        QueueItem(kind="rate", content=unlike, priority=0.5),
    ]
    review_queue.add_items(store, items, actor="test")
    assert erased(store).rows["queue_items"] == 2
    assert [item.item_id for item in review_queue.list_items(store)] == [items[2].item_id]
