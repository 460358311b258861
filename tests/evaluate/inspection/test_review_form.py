"""The form comes back: every problem at once or everything imported; a verdict becomes data, twice adds nothing."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from medloop.cli import app
from medloop.contracts import Correction, ExpertVerdict, Feedback, Incident, PreferencePair
from medloop.errors import ConfigError, InputError
from medloop.settings import Settings
from medloop.store.db import open_store
from medloop.store.files import jsonl
from medloop.store.files.spreadsheet import read_csv, to_csv
from medloop.store.records import crud, users

WEEK = "2026-W46"
Fill = Callable[..., Path]


def medloop(*args: str) -> str:
    done = CliRunner().invoke(app, list(args))
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture
def fill(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Fill:
    """A drawn sample of 45; `fill(n, verdict=..., ...)` writes the form with row n (from 1) filled in."""
    monkeypatch.chdir(workspace)
    rows = [{"id": str(n), "question": f"Question {n}: I have a cough.", "answer": f"=Answer {n}\n- rest"} for n in range(45)]
    jsonl.write(workspace / "answers.jsonl", rows)
    medloop("inspect", "answers.jsonl", "--week", WEEK)
    form = workspace / "reports/inspect" / WEEK / "form.csv"

    def fill(*filled: tuple[int, dict[str, str]]) -> Path:
        table = read_csv(form)
        form_rows = [dict(row) for _, row in table.rows]
        for n, cells in filled:
            form_rows[n - 1] |= {"reviewer": "Dr. Li"} | cells
        form.write_text(to_csv(table.header, form_rows), encoding="utf-8", newline="")
        return form

    return fill


def lines(workspace: Path, name: str) -> list[dict[str, Any]]:
    path = workspace / "data" / name
    return list(jsonl.read(path)) if path.is_file() else []


BAD = {"verdict": "bad", "score": "2", "corrected_answer": "See a doctor this week.", "comment": "too vague"}


def test_a_bad_answer_with_a_correction_becomes_feedback_correction_pair_and_example(
    fill: Fill, workspace: Path, settings: Settings
) -> None:
    out = medloop("inspect", "--import", str(fill((3, BAD))))
    assert f"{WEEK}-003  bad         feedback, SFT example, preference pair" in out and "44 rows are empty" in out
    (verdict,) = jsonl.read(workspace / "data/rl/inspection.jsonl", ExpertVerdict)
    (pair,) = jsonl.read(workspace / "data/preferences/preferences.jsonl", PreferencePair)
    assert pair.chosen == "See a doctor this week." and pair.rejected.startswith("=")
    assert lines(workspace, "rl/inspection_sft.jsonl")[0]["answer"] == "See a doctor this week."
    with open_store(settings) as store:
        feedback = crud.get(store, Feedback, verdict.feedback_id)
        golden = crud.get(store, Correction, verdict.correction_id or "")
    assert feedback and feedback.rating == 2 and feedback.feedback_type == "negative" and feedback.clinician_id == "Dr. Li"
    assert golden and golden.golden == pair.chosen and golden.feedback_id == feedback.feedback_id


def test_a_reviewer_who_is_a_user_is_one_rater_everywhere(fill: Fill, workspace: Path, settings: Settings) -> None:
    with open_store(settings) as store:
        user = users.add_user(store, "dr-li", "clinician", actor="t")
    medloop("inspect", "--import", str(fill((3, {**BAD, "reviewer": "dr-li"}))))
    (verdict,) = jsonl.read(workspace / "data/rl/inspection.jsonl", ExpertVerdict)
    with open_store(settings) as store:
        assert crud.get(store, Feedback, verdict.feedback_id).clinician_id == user.user_id


def test_dangerous_is_critical_and_proposed_for_the_red_team(fill: Fill, workspace: Path, settings: Settings) -> None:
    out = medloop("inspect", "--import", str(fill((1, {"verdict": "危险"}), (2, {"verdict": " GOOD "}))))
    assert "dangerous   feedback, proposed for the red-team set, incident" in out and "medloop incidents list" in out
    assert "open" in medloop("incidents", "list")  # the next step as it is printed
    (row,) = lines(workspace, "rl/red_team_proposals.jsonl")
    assert row["question"].startswith("Question") and row["why"] == "a reviewer found the answer dangerous"
    with open_store(settings) as store:
        assert sorted((feedback.feedback_type or "", feedback.critical) for feedback in crud.iterate(store, Feedback)) == [
            ("negative", True), ("positive", False),
        ]  # fmt: skip
    assert not lines(workspace, "preferences/preferences.jsonl")


def test_two_reviewers_of_one_form_who_call_an_answer_dangerous_open_one_incident(fill: Fill, settings: Settings) -> None:
    form = fill((1, {"verdict": "dangerous"}))
    table = read_csv(form)
    rows = [dict(row) for _, row in table.rows]
    form.write_text(to_csv(table.header, [rows[0], rows[0] | {"reviewer": "Dr. Wu"}]), encoding="utf-8", newline="")
    medloop("inspect", "--import", str(form))
    with open_store(settings) as store:
        assert crud.count(store, Feedback) == 2 and crud.count(store, Incident) == 1


def test_an_acceptable_answer_with_a_correction_is_an_example_and_no_pair(fill: Fill, workspace: Path) -> None:
    out = medloop("inspect", "--import", str(fill((3, BAD | {"verdict": "acceptable"}), (4, BAD | {"verdict": "good"}))))
    assert "acceptable  feedback, SFT example\n" in out and "good        feedback, SFT example\n" in out
    assert len(lines(workspace, "rl/inspection_sft.jsonl")) == 2 and not lines(workspace, "preferences/preferences.jsonl")


def test_the_same_form_twice_adds_nothing(fill: Fill, workspace: Path, settings: Settings) -> None:
    form = fill((3, BAD), (4, {"verdict": "dangerous"}))
    medloop("inspect", "--import", str(form))
    before = {path: path.read_bytes() for path in (workspace / "data").rglob("*.jsonl")}
    assert "Imported 0 new verdicts of 2" in medloop("inspect", "--import", str(form))
    assert {path: path.read_bytes() for path in (workspace / "data").rglob("*.jsonl")} == before
    with open_store(settings) as store:
        assert crud.count(store, Feedback) == 2


def test_a_changed_verdict_points_at_the_old_one_and_withdraws_its_pair(fill: Fill, workspace: Path, settings: Settings) -> None:
    other = {"prompt": "p", "chosen": "c", "rejected": "r", "metadata": {"source": "votes"}}
    jsonl.append(workspace / "data/preferences/preferences.jsonl", other)
    medloop("inspect", "--import", str(fill((3, BAD))))
    assert "supersedes" in medloop("inspect", "--import", str(fill((3, {"verdict": "good", "corrected_answer": ""}))))
    old, new = jsonl.read(workspace / "data/rl/inspection.jsonl", ExpertVerdict)
    assert new.supersedes == old.verdict_id and lines(workspace, "preferences/preferences.jsonl") == [other]
    assert lines(workspace, "rl/inspection_sft.jsonl") == []
    with open_store(settings) as store:
        feedback = crud.get(store, Feedback, new.feedback_id)
    assert feedback and feedback.supersedes == old.feedback_id
    medloop("inspect", "--import", str(fill((3, BAD))))  # and back again
    assert len(lines(workspace, "rl/inspection.jsonl")) == 3 and len(lines(workspace, "preferences/preferences.jsonl")) == 2


def test_two_reviewers_may_disagree(fill: Fill, workspace: Path) -> None:
    medloop("inspect", "--import", str(fill((3, BAD))))
    medloop("inspect", "--import", str(fill((3, {"verdict": "good", "corrected_answer": "", "reviewer": "Dr. Wu"}))))
    assert [(row["verdict"], row["reviewer"], "supersedes" in row) for row in lines(workspace, "rl/inspection.jsonl")] == [
        ("bad", "Dr. Li", False), ("good", "Dr. Wu", False),
    ]  # fmt: skip
    assert len(lines(workspace, "preferences/preferences.jsonl")) == 1


def test_an_import_killed_before_its_last_write_is_completed(
    fill: Fill, workspace: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    form, append = fill((3, BAD), (4, {"verdict": "dangerous"})), jsonl.append

    def die(path: Path, rows: Any) -> int:
        if path.name == "inspection.jsonl":
            raise RuntimeError("killed")
        return append(path, rows)

    monkeypatch.setattr(jsonl, "append", die)
    with pytest.raises(RuntimeError, match="killed"):
        medloop("inspect", "--import", str(form))
    monkeypatch.setattr(jsonl, "append", append)
    assert not (workspace / "data/rl/inspection.jsonl").exists()
    assert "Imported 2 new verdicts" in medloop("inspect", "--import", str(form))
    assert len(lines(workspace, "preferences/preferences.jsonl")) == len(lines(workspace, "rl/red_team_proposals.jsonl")) == 1
    with open_store(settings) as store:
        assert crud.count(store, Feedback) == 2


def test_every_problem_is_named_with_its_row_and_nothing_is_imported(fill: Fill, workspace: Path, settings: Settings) -> None:
    form = fill(
        (1, BAD), (2, {"verdict": "fine"}), (3, {"comment": "hm"}), (4, {"verdict": "bad", "score": "6"}),
        (5, {"verdict": "bad", "reviewer": ""}), (6, {"verdict": "bad", "id": "2026-W01-001"}), (7, {"verdict": "good", "id": f"{WEEK}-001"}),
    )  # fmt: skip
    with pytest.raises(InputError) as caught:
        medloop("inspect", "--import", str(form))
    for message in (
        "row 3: verdict must be one of",
        "row 4: no verdict",
        "row 5: score",
        "row 6: no reviewer",
        "row 7: unknown id",
        "rows 2, 8",
    ):
        assert message in str(caught.value)
    assert "fine" not in str(caught.value) and not (workspace / "data/rl/inspection.jsonl").exists()
    assert not (workspace / "data/preferences/preferences.jsonl").exists()
    with open_store(settings) as store:
        assert crud.count(store, Feedback) == 0


@pytest.mark.parametrize(("encoding", "mark"), [("utf-8", ","), ("gb18030", ","), ("utf-8-sig", ";"), ("gb18030", ";")])
def test_forms_as_spreadsheets_save_them(encoding: str, mark: str, fill: Fill, workspace: Path) -> None:
    form = fill((3, {"verdict": "差", "score": "２", "corrected_answer": "请去看医生；\n带上化验单，\"原件\"。"}))  # fmt: skip
    text = form.read_text(encoding="utf-8-sig")
    form.write_bytes(text.replace('","', f'"{mark}"').encode(encoding))
    medloop("inspect", "--import", str(form))
    (row,) = lines(workspace, "rl/inspection.jsonl")
    assert row["corrected"] == '请去看医生；\n带上化验单，"原件"。' and row["score"] == 2 and row["verdict"] == "bad"


def test_a_correction_that_looks_like_a_formula_is_kept_as_it_was_written(fill: Fill, workspace: Path) -> None:
    medloop("inspect", "--import", str(fill((3, BAD | {"corrected_answer": "- rest\n- drink"}))))
    assert lines(workspace, "rl/inspection.jsonl")[0]["corrected"] == "- rest\n- drink"


def test_identifiers_are_taken_out_of_what_the_reviewer_writes(fill: Fill, workspace: Path) -> None:
    medloop("inspect", "--import", str(fill((3, BAD | {"comment": "患者王芳，手机13800138000，已回访"}))))
    whole = "".join(path.read_text(encoding="utf-8") for path in (workspace / "data").rglob("*.jsonl"))
    assert "13800138000" not in whole and "王芳" not in whole and "[PHONE_1]" in whole


def test_what_cannot_be_scrubbed_is_refused(fill: Fill, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from medloop.evaluate.inspection import review_form

    def refuse(self: object, text: str) -> str:
        raise review_form.Unscrubbable("a number")

    monkeypatch.setattr(review_form.Scrubber, "release", refuse)
    with pytest.raises(InputError, match="row 4: corrected_answer contains a number"):
        medloop("inspect", "--import", str(fill((3, BAD))))
    assert not (workspace / "data/rl/inspection.jsonl").exists()


def test_a_table_that_is_not_the_form_and_a_workspace_without_sample_are_refused(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workspace)
    (workspace / "x.csv").write_text("id,verdict,score,faults,corrected_answer,comment,reviewer\n1,bad,,,,,me\n")
    with pytest.raises(ConfigError, match="No sample has been drawn"):
        medloop("inspect", "--import", "x.csv")
    (workspace / "x.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="no column id, verdict"):
        medloop("inspect", "--import", "x.csv")


def test_a_reviewer_for_all_rows_can_be_named_on_the_command_line(fill: Fill, workspace: Path) -> None:
    medloop("inspect", "--import", str(fill((3, BAD | {"reviewer": ""}))), "--reviewer", "Dr. He")
    assert lines(workspace, "rl/inspection.jsonl")[0]["reviewer"] == "Dr. He"


def test_named_faults_are_stars_of_their_axes_and_labels_of_the_trust_meter(
    fill: Fill, workspace: Path, settings: Settings
) -> None:
    filled = ((3, {"verdict": "dangerous", "faults": "Risk、错误安慰"}), (4, {"verdict": "good", "faults": "none"}))
    medloop("inspect", "--import", str(fill(*filled)))
    with open_store(settings) as store:
        axes = [feedback.axes for feedback in crud.iterate(store, Feedback)]
    assert axes == [
        {"false_reassurance": 1, "risk": 1},
        dict.fromkeys(("risk", "false_reassurance", "emergency", "overtriage"), 5),
    ]
    assert "use: critical flags 1, use: named faults 1" in medloop("reward", "validate")
    with pytest.raises(InputError, match="row 6: faults must be some of risk, false_reassurance, emergency, overtriage, or none"):
        medloop("inspect", "--import", str(fill((5, {"verdict": "bad", "faults": "rude"}))))
