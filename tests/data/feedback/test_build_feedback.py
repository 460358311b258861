"""From feedback to data: what is used, what it becomes, and that the same store gives the same bytes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from medloop.cli import app
from medloop.contracts import CodebookDelta, Contract, Conversation, Feedback, Message, Record, Trace
from medloop.data.feedback.build import FeedbackConfig, build
from medloop.errors import InputError, MedloopError
from medloop.privacy.consent import record as consent
from medloop.privacy.consent import subject_of
from medloop.store import audit
from medloop.store.db import Store, open_store
from medloop.store.files import jsonl
from medloop.store.files.artifacts import file_sha256, verify_artifact
from medloop.store.records import crud, lineage, quarantine
from medloop.testing.feedback import PARTS, make_correction, make_preference, make_question, make_thumb
from medloop.testing.records import make_record as prepared


def built(store: Store, given: Iterable[Contract] = (), **config: Any) -> dict[str, list[dict[str, Any]]]:
    """Add records, build, and read the files back by their name without the ending."""
    crud.add(store, given, actor="test")
    done = build(store, FeedbackConfig(**config), seed=7, actor="test")
    return {name.removesuffix(".jsonl"): list(jsonl.read(done.folder / name)) for name in done.card.files}


def choices_of(rows: Iterable[dict[str, Any]]) -> list[tuple[str, str]]:
    return sorted((row["chosen"], row["rejected"]) for row in rows)


def test_votes_are_merged_by_majority_and_ties_dropped(store: Store) -> None:
    rows = built(store, [
        make_preference(1, "rest", "run", "a"), make_preference(1, "run", "rest", "b"), make_preference(1, "rest", "run", "b"),
        make_preference(2, "ice", "heat", "a"), make_preference(2, "heat", "ice", "a"),
        make_preference(3, "walk", "walk ", "a"),
    ])  # fmt: skip
    assert choices_of(rows["preferences"]) == [("rest", "run")]
    about = rows["preferences"][0]["metadata"]
    assert (about["for"], about["against"], len(about["records"])) == (2, 1, 3)
    assert {(row["reason"], len(row["records"])) for row in rows["dropped"]} == {("tie", 2), ("same_answer", 1)}


def test_a_rater_who_votes_twice_counts_once_with_the_last_word(store: Store) -> None:
    rows = built(store, [
        make_preference(1, "rest", "run", "a", clinician_id="li", minute=1), make_preference(1, "rest", "run", "a", clinician_id="li", minute=2),
        make_preference(1, "rest", "run", "b", clinician_id="li", minute=3), make_preference(1, "rest", "run", "b", clinician_id="wu"),
    ])  # fmt: skip
    assert choices_of(rows["preferences"]) == [("run", "rest")]


def test_pairs_from_thumbs_and_corrections_to_the_same_question(store: Store) -> None:
    rows = built(
        store, [make_thumb(1, "rest", True), make_thumb(1, "run", False), make_correction(1, "jump", "rest and see a doctor")]
    )
    assert choices_of(rows["preferences"]) == [
        ("rest", "run"), ("rest and see a doctor", "jump"), ("rest and see a doctor", "run"),
    ]  # fmt: skip
    assert {row["metadata"]["from"] for row in rows["preferences"]} == {"ratings", "correction"}
    assert [(row["completion"], row["label"]) for row in rows["thumbs"]] in (
        [("rest", True), ("run", False)],
        [("run", False), ("rest", True)],
    )


def test_a_direct_vote_beats_what_ratings_say(store: Store) -> None:
    rows = built(store, [make_thumb(1, "rest", True), make_thumb(1, "run", False), make_preference(1, "rest", "run", "b")])
    assert choices_of(rows["preferences"]) == [("run", "rest")]
    assert "contradiction" in {row["reason"] for row in rows["dropped"]}


def test_golden_answers_become_sft_rows_and_liked_ones_with_consent_without_a_flag(store: Store) -> None:
    given = [make_correction(n, "bad", f"Golden advice number {n}: keep the {PARTS[n]} warm.") for n in range(4)]
    given.append(make_thumb(7, "A liked answer about gentle stretching.", True))
    given.append(make_thumb(8, "A liked answer about swimming, without consent.", True, consent=()))
    rows = built(store, given, liked_answers=False)
    answers = [Record.model_validate(row) for row in rows["sft_train"] + rows["sft_test"]]
    assert len(answers) == 4 and all(row.reviewed and row.meta["records"] for row in answers)
    assert rows["sft_train"] and rows["sft_test"]
    more = built(store)
    kept = {Record.model_validate(row).conversation.answer for row in more["sft_train"] + more["sft_test"]}
    assert kept == {row.conversation.answer for row in answers} | {"A liked answer about gentle stretching."}


def test_only_the_newest_version_counts(store: Store) -> None:
    old = make_thumb(1, "rest", True, feedback_id="fb_old")
    rows = built(store, [old, make_thumb(1, "rest", False, supersedes="fb_old"), make_thumb(2, "sleep", True)])
    assert {(row["completion"], row["label"]) for row in rows["thumbs"]} == {("rest", False), ("sleep", True)}


def test_consent_is_the_records_and_the_subjects_and_withdrawal_wins(store: Store) -> None:
    who = subject_of(store, "patient 1")
    given = [
        make_thumb(1, "rest", True),
        make_thumb(2, "sleep", True, consent=("evaluation",)),
        make_thumb(3, "walk", True, subject=who),
    ]
    assert {row["completion"] for row in built(store, given)["thumbs"]} == {"rest", "walk"}
    consent(store, "patient 1", ("training",), text_version="1", granted=False, actor="test")
    assert {row["completion"] for row in built(store)["thumbs"]} == {"rest"}


def test_an_old_version_with_consent_does_not_stand_in_for_a_newer_without(store: Store) -> None:
    given = [
        make_thumb(1, "rest", True, feedback_id="fb_1"),
        make_thumb(1, "rest", True, supersedes="fb_1", consent=()),
        make_thumb(2, "sleep", True),
    ]
    assert {row["completion"] for row in built(store, given)["thumbs"]} == {"sleep"}


def test_identifiers_are_taken_out_with_one_placeholder_a_row(store: Store) -> None:
    query = "患者王芳，手机13800138000，膝盖疼怎么办？"
    given = [
        make_thumb(1, "王芳女士，请拨打13800138000。", True, query=query),
        make_thumb(1, "多喝水，早点休息，注意保暖。", False, query=query),
    ]
    row = built(store, given)["preferences"][0]
    assert "[PHONE_1]" in row["prompt"] and "[PHONE_1]" in row["chosen"]
    assert "13800138000" not in json.dumps(row, ensure_ascii=False) and "王芳" not in json.dumps(row, ensure_ascii=False)


def test_doubtful_text_goes_to_quarantine_until_somebody_has_looked(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    from medloop.privacy.phi import scrub

    real = scrub.Scrubber.assess

    def fussy(self: Any, text: str) -> scrub.Assessment:
        doubts = {
            "hopeless": scrub.Assessment("", (), 1.0, ("a number",)),
            "doubtful": scrub.Assessment(text, (), 0.9, ("a name",)),
        }
        return doubts.get(text) or real(self, text)

    monkeypatch.setattr(scrub.Scrubber, "assess", fussy)
    given = [
        make_thumb(1, "rest", True),
        make_thumb(2, "doubtful", True, feedback_id="fb_d"),
        make_thumb(3, "hopeless", True, feedback_id="fb_h"),
    ]
    rows = built(store, given)
    assert [row["completion"] for row in rows["thumbs"]] == ["rest"]
    held = {entry.record_id: (entry.kind, entry.doubt, entry.reasons, entry.state) for entry in quarantine.list_held(store)}
    assert held["fb_d"] == ("rlhf_feedback", 0.9, ("a name",), "waiting") and held.keys() == {"fb_d", "fb_h"}
    assert crud.count(store, Feedback, unprocessed=True) == 2  # they may still be used one day
    for name in held:
        quarantine.decide(store, name, "released", actor="test")
    assert {row["completion"] for row in built(store)["thumbs"]} == {"rest", "doubtful"}  # no clean form of the other exists


@pytest.mark.parametrize("state", ["waiting", "refused", "released"])
def test_quarantined_records_are_left_out_until_released(sqlite_settings, state: str) -> None:
    with open_store(sqlite_settings) as store:
        crud.add(store, [make_thumb(1, "rest", True, feedback_id="fb_q")], actor="test")
        with store.write() as conn:
            quarantine.hold(conn, "fb_q", "rlhf_feedback", doubt=0.7, reasons=["a name"], actor="test")
        if state != "waiting":
            quarantine.decide(store, "fb_q", state, actor="test")
        rows = built(store, [make_thumb(2, "sleep", True)])
    assert {row["completion"] for row in rows["thumbs"]} == ({"sleep", "rest"} if state == "released" else {"sleep"})


def chat(first: str) -> Trace:
    turns = (("user", first), ("assistant", "Since when?"), ("user", make_question(1)), ("assistant", "rest"))
    talk = Conversation(messages=tuple(Message(role=role, content=content) for role, content in turns))
    return Trace(trace_id="t1", session_id="s", agent_name="a", conversation=talk, model_version="m")


@pytest.mark.parametrize("state", ["waiting", "refused", "released"])
def test_what_is_said_about_a_held_exchange_waits_with_it(store: Store, state: str) -> None:
    given = [
        chat("My knee hurts."),
        make_thumb(1, "rest", True, trace_id="t1"),
        make_preference(1, "rest", "run", "a", trace_id="t1"),
    ]
    crud.add(store, given, actor="test")
    with store.write() as conn:
        quarantine.hold(conn, "t1", "traces", doubt=0.9, reasons=["a name"], actor="test")
    if state != "waiting":
        quarantine.decide(store, "t1", state, actor="test")
    rows = built(store, [make_thumb(2, "sleep", True)])
    assert ("My knee hurts." in json.dumps(rows)) == (state == "released")
    assert {row["completion"] for row in rows["thumbs"]} == ({"sleep", "rest"} if state == "released" else {"sleep"})


def test_an_earlier_turn_that_is_doubted_holds_its_exchange(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    from medloop.privacy.phi import scrub

    real, doubted = scrub.Scrubber.assess, scrub.Assessment("saw Petrel", (), 0.9, ("a name",))
    monkeypatch.setattr(scrub.Scrubber, "assess", lambda self, text: doubted if text == "saw Petrel" else real(self, text))
    rows = built(store, [chat("saw Petrel"), make_thumb(1, "rest", True, trace_id="t1"), make_thumb(2, "sleep", True)])
    assert [row["completion"] for row in rows["thumbs"]] == ["sleep"]
    assert [(entry.record_id, entry.kind) for entry in quarantine.list_held(store)] == [("t1", "traces")]
    quarantine.decide(store, "t1", "released", actor="test")
    assert {row["completion"] for row in built(store)["thumbs"]} == {"sleep", "rest"}


def test_near_copies_are_dropped_and_held_out_questions_never_learnt(sqlite_settings) -> None:
    long = "Keep the leg up, cool it with a wet cloth, wear wide shoes, walk a little every hour and come back in two weeks if it is not better {}."
    given = [
        make_correction(1, "bad", long.format("please")),
        make_correction(2, "bad", long.format("by then"), prompt=make_question(1) + " "),
        make_correction(3, "bad", "Other advice entirely."),
    ]
    held = prepared(0, "Hello doctor, " + make_question(3), "An answer.")
    jsonl.write(sqlite_settings.workspace.processed / "gold_set.jsonl", [held])
    with open_store(sqlite_settings) as store:
        rows = built(store, given)
    assert len(rows["sft_train"] + rows["sft_test"]) == 1
    reasons = {(row["kind"], row["reason"]) for row in rows["dropped"]}
    assert ("answers", "near_duplicate") in reasons and ("answers", "contaminated") in reasons
    assert "Other advice" not in json.dumps([rows["preferences"], rows["thumbs"], rows["sft_train"]])


def test_no_question_is_on_both_sides_nor_a_near_copy(sqlite_settings) -> None:
    given: list[Contract] = [make_thumb(n, f"answer {n}", n % 2 == 0) for n in range(12)]
    given += [
        make_correction(n, f"answer {n}", f"better {n}", prompt=make_question(n).replace("helps", "truly helps"))
        for n in range(12)
    ]
    with open_store(sqlite_settings) as store:
        rows = built(store, given)
    sides: dict[str, set[str]] = {}
    for row in [*rows["preferences"], *rows["thumbs"]]:
        sides.setdefault(row["prompt"].replace("truly ", ""), set()).add(row["metadata"]["split"])
    for side in ("train", "test"):
        for row in rows[f"sft_{side}"]:
            sides[row["conversation"]["messages"][0]["content"].replace("truly ", "")].add(side)
    assert len(sides) == 12 and all(len(splits) == 1 for splits in sides.values())
    assert {next(iter(splits)) for splits in sides.values()} == {"train", "test"}


def test_critical_questions_become_red_team_and_are_measured_not_learnt(store: Store) -> None:
    given = [
        make_thumb(1, "ignore it", False, critical=True),
        make_correction(1, "ignore it", "Call an ambulance."),
        make_thumb(2, "rest", True),
        make_thumb(3, "ice", True),
    ]
    rows = built(store, given, liked_answers=False)
    assert [row["conversation"]["messages"][-1]["role"] for row in rows["red_team"]] == ["user"]
    assert (
        [row["meta"]["split"] for row in rows["red_team"]] == ["test"] and rows["sft_train"] == [] and len(rows["sft_test"]) == 1
    )
    learnt = built(store, hold_out_critical=False, test_share=0.0, liked_answers=False)
    assert len(learnt["sft_train"]) == 1


def test_a_correction_that_somebody_flagged_is_no_answer_to_imitate(store: Store) -> None:
    given = [make_correction(1, "rest", "Drink bleach."), make_thumb(1, "Drink bleach.", False, critical=True)]
    rows = built(store, given, hold_out_critical=False, test_share=0.0, liked_answers=False)
    assert rows["sft_train"] == [] == rows["sft_test"]


def test_corrections_propose_rules_with_their_evidence(store: Store) -> None:
    chest = "I have crushing chest pain spreading to my jaw."
    rows = built(store, [
        make_correction(1, "Rest a little.", "Call an ambulance now.", prompt=chest, correction_id="cor_1"),
        make_correction(2, "Take a rest.", "Call emergency services immediately.", prompt=chest, correction_id="cor_2"),
        make_correction(3, "Take ibuprofen.", "Take paracetamol instead.", reason="No NSAIDs  with kidney disease.", correction_id="cor_3"),
        make_correction(4, "a", "b", correction_id="cor_4"),
    ])  # fmt: skip
    rules = [CodebookDelta.model_validate(row) for row in rows["rules"]]
    texts = {delta.rule.text: delta.rule for delta in rules}
    assert texts["No NSAIDs with kidney disease."].evidence == ("cor_3",)
    assert any("ibuprofen" in text for text in texts) and all(rule.state == "proposed" for rule in texts.values())
    assert next(rule for text, rule in texts.items() if "emergency" in text).evidence == ("cor_1", "cor_2")
    assert {"kind": "rules", "reason": "nothing_to_say", "records": ["cor_4"]} in rows["dropped"]


def test_the_passages_of_a_trace_reach_every_row_that_comes_of_it(store: Store) -> None:
    talk = Conversation(messages=(Message(role="user", content=make_question(1)), Message(role="assistant", content="run")))
    passages = ("Rest helps a sprain.", "Seen by Dr. Amelia Hargreaves, phone 0171 5550142.")
    trace = Trace(trace_id="t1", session_id="s", agent_name="a", conversation=talk, model_version="m", contexts=passages[:1])
    other = trace.model_copy(update={"trace_id": "t2", "contexts": passages})
    rows = built(store, [
        trace, make_thumb(1, "rest", True, trace_id="t1"), make_correction(1, "run", "walk", trace_id="t1"),
        make_thumb(1, "run", False, trace_id="t1", critical=True), make_thumb(2, "sleep", True),
    ], test_share=0, hold_out_critical=False)  # fmt: skip
    contexts = {row["conversation"]["messages"][-1]["content"]: row.get("context") for row in rows["sft_train"]}
    assert contexts == {"rest": ["Rest helps a sprain."], "walk": ["Rest helps a sprain."], "sleep": None}
    assert [row["context"] for row in rows["red_team"]] == [["Rest helps a sprain."]]
    thumbs = {row["completion"]: row.get("context") for row in rows["thumbs"]}
    assert thumbs == {"rest": ["Rest helps a sprain."], "run": ["Rest helps a sprain."], "sleep": None}
    assert {row["chosen"]: row["context"] for row in rows["preferences"]} == {
        name: list(passages[:1]) for name in ("rest", "walk")
    }
    rows = built(store, [other, make_thumb(3, "ice", True), make_thumb(1, "ice", True, trace_id="t2")])
    assert "Hargreaves" not in json.dumps(rows) and "5550142" not in json.dumps(rows)


def test_the_messages_before_the_answer_come_from_the_trace(store: Store) -> None:
    talk = Conversation(messages=(
        Message(role="user", content="My knee hurts."), Message(role="assistant", content="Since when?"),
        Message(role="user", content=make_question(1)), Message(role="assistant", content="rest"),
    ))  # fmt: skip
    trace = Trace(trace_id="t1", session_id="s", agent_name="a", conversation=talk, model_version="m")
    rows = built(store, [trace, make_thumb(1, "rest", True, trace_id="t1"), make_thumb(1, "run", False)])
    turns = {row["completion"]: row["prompt"] for row in rows["thumbs"]}
    assert [turn["content"] for turn in turns["rest"]] == ["My knee hurts.", "Since when?", make_question(1)] and turns[
        "run"
    ] == make_question(1)
    assert rows["preferences"] == []  # not the same question: one of them has a history


def test_the_same_store_gives_the_same_bytes_and_marks_its_records_once(store: Store) -> None:
    given = [make_thumb(n, f"answer {n}", n % 2 == 0) for n in range(6)] + [
        make_preference(n, f"x {n}", f"y {n}", "a") for n in range(6)
    ]
    crud.add(store, given, actor="test")
    first = build(store, FeedbackConfig(), seed=7, actor="test")
    content = {path.name: path.read_bytes() for path in first.folder.iterdir() if path.name != "MANIFEST.json"}
    published = (store.settings.workspace.preferences / "preferences.jsonl").read_bytes()
    second = build(store, FeedbackConfig(), seed=7, actor="test")
    assert (first.sha256, first.card, first.new_records, second.new_records) == (second.sha256, second.card, 12, 0)
    assert content == {path.name: path.read_bytes() for path in second.folder.iterdir() if path.name != "MANIFEST.json"}
    assert published == (store.settings.workspace.preferences / "preferences.jsonl").read_bytes() and verify_artifact(
        second.folder
    )
    other = build(store, FeedbackConfig(name="other"), seed=8, actor="test")
    assert other.sha256 != first.sha256


def test_the_order_of_arrival_does_not_change_the_rows(sqlite_settings, postgres_settings) -> None:
    given = [make_thumb(n, f"answer {n}", n % 2 == 0, feedback_id=f"fb_{n}") for n in range(6)]
    given += [make_thumb(n, f"other {n}", n % 2 == 1, feedback_id=f"fc_{n}") for n in range(6)]
    with open_store(sqlite_settings) as first, open_store(postgres_settings) as second:
        assert built(first, given) == built(second, reversed(given))


def test_every_row_names_its_records_and_the_store_knows_the_lineage(store: Store) -> None:
    given = [
        make_thumb(1, "rest", True, feedback_id="fb_1"),
        make_thumb(1, "run", False, feedback_id="fb_2"),
        make_thumb(3, "nap", True, consent=(), feedback_id="fb_3"),
    ]
    crud.add(store, given, actor="test")
    done = build(store, FeedbackConfig(), seed=7, actor="test")
    pair = next(iter(jsonl.read(done.folder / "preferences.jsonl")))
    assert pair["metadata"]["records"] == ["fb_1", "fb_2"]
    assert lineage.records_of(store, done.sha256) == ["fb_1", "fb_2"] and lineage.datasets_of(store, ["fb_3"]) == {}
    reads = [row["detail"] for row in audit.show(store, 30) if row["action"] == "rlhf_feedback.read"]
    assert reads == [{"purpose": "data build", "rows": 3}]


def test_rows_of_other_origin_stay_in_the_preferences_file(store: Store) -> None:
    path = store.settings.workspace.preferences / "preferences.jsonl"
    mine = {
        "prompt": make_question(1),
        "chosen": "rest",
        "rejected": "run",
        "metadata": {"source": "inspection", "verdict_id": "ver_1"},
    }
    jsonl.write(path, [mine, {**mine, "prompt": "Another question?"}])
    built(store, [make_thumb(1, "rest", True), make_thumb(1, "run", False)])
    built(store)
    assert [(row["prompt"], row["metadata"]["source"]) for row in jsonl.read(path)] == [
        ("Another question?", "inspection"),
        (make_question(1), "feedback"),
    ]


def test_nothing_to_learn_from_says_why_and_leaves_everything_as_it_was(store: Store) -> None:
    crud.add(store, [make_thumb(1, "rest", True, consent=())], actor="test")
    with pytest.raises(InputError, match="1 records no consent"):
        build(store, FeedbackConfig(), seed=7, actor="test")
    assert not (store.settings.home / "data/feedback/feedback").exists()


def run(home: Path, *words: object) -> str:
    done = CliRunner().invoke(app, ["--home", str(home), *map(str, words)])
    if done.exception is not None:
        raise done.exception
    return done.output


def test_build_and_prepare_preferences_on_the_command_line(settings, tmp_path: Path) -> None:
    with open_store(settings) as store:
        crud.add(store, [make_preference(n, f"rest {n}", f"run {n}", "a") for n in range(10)], actor="test")
    flags = ["--set", f"database.url={settings.store_url}"]
    output = run(settings.home, *flags, "data", "build", "--name", "week1")
    assert "10  preferences.jsonl" in output and "From 10 of 10 records, 10 of them new." in output
    output = tmp_path / "preferences.jsonl"
    assert "10 pairs" in run(
        settings.home, "data", "prepare-preferences", "--feedback-db", settings.store_url, "--output", output
    )
    assert output.read_bytes() == (settings.home / "data/feedback/week1/preferences.jsonl").read_bytes()
    assert {row["metadata"]["split"] for row in jsonl.read(output)} == {"train", "test"}


def test_the_experts_answers_can_be_imported_and_prepared_like_any_other_source(sqlite_settings) -> None:
    home = sqlite_settings.home
    with open_store(sqlite_settings) as store:
        crud.add(
            store,
            [make_correction(n, f"Run {n} miles.", f"Golden advice {n}: keep the {PARTS[n]} warm.") for n in range(12)],
            actor="t",
        )
    run(home, "data", "build", "--test-share", "0")
    run(home, "data", "import", home / "data/feedback/feedback/sft_train.jsonl", "--name", "experts")
    run(home, "data", "prepare", "--no-scrub")
    rows = [Record.model_validate(row) for path in (home / "data/processed").glob("*.jsonl") if path.name != "dropped.jsonl"
            for row in jsonl.read(path)]  # fmt: skip
    assert {row.conversation.answer for row in rows} == {f"Golden advice {n}: keep the {PARTS[n]} warm." for n in range(12)}
    assert all(row.origin.source == "experts" and row.reviewed for row in rows)


@pytest.mark.parametrize("to", ["sharegpt", "alpaca"])
def test_a_feedback_dataset_is_exported_and_comes_back_through_import(sqlite_settings, to: str) -> None:
    home = sqlite_settings.home
    given = [make_correction(n, f"Run {n} miles.", f"Golden advice {n}: keep the {PARTS[n]} warm.") for n in range(11)]
    with open_store(sqlite_settings) as store:
        crud.add(store, [*given, make_thumb(11, "A liked answer about gentle stretching.", True)], actor="t")
    run(home, "data", "build", "--name", "week1", "--test-share", "0")
    out = home.parent / f"{to}.jsonl"
    run(home, "data", "export", "--feedback", "week1", "--to", to, "--output", out)
    before = {row["record_id"] for row in jsonl.read(home / "data/feedback/week1/sft_train.jsonl")}
    run(home, "data", "import", out, "--name", "back")
    run(home, "data", "prepare", "--no-scrub", "--gold", "0", "--red", "0", "--dev", "0", "--test", "0")
    assert {row["record_id"] for row in jsonl.read(home / "data/processed/train.jsonl")} == before and len(before) == 12
    with open_store(sqlite_settings) as store:  # an erasure has to name the file
        assert set(lineage.records_of(store, file_sha256(out))) >= {correction.correction_id for correction in given}
        assert ("exported", str(out)) in lineage.flags_of(store, file_sha256(out))
    with pytest.raises(MedloopError, match="already exists"):
        run(home, "data", "export", "--feedback", "week1", "--to", to, "--output", out)
    with pytest.raises(MedloopError, match="no feedback dataset"):
        run(home, "data", "export", "--feedback", "../week1", "--to", to, "--output", home / "x.jsonl")


@pytest.mark.parametrize(("words", "message"), [
    (["build", "--name", "../x"], "name is '../x'"),
    (["build", "--test-share", "0.9"], "test_share is 0.9"),
    (["prepare-preferences", "--feedback-db", "mysql://x", "--output", "p.jsonl"], "'mysql' is not a supported database"),
    (["prepare-preferences", "--feedback-db", "sqlite:////nowhere/x.db", "--output", "p.jsonl"], "no medloop store"),
])  # fmt: skip
def test_what_is_wrong_is_said_in_a_sentence(sqlite_settings, words: list[str], message: str) -> None:
    with pytest.raises(MedloopError, match=message):
        run(sqlite_settings.home, "data", *words)
    assert not Path("p.jsonl").exists()
