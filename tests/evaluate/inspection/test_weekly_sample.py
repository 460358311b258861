"""The weekly sample: drawn alike every time, from every group, never twice; reports that are safe to open."""

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from medloop.cli import app
from medloop.contracts import InspectedSample, Judgement, Record, Sample, Score
from medloop.data.text.risk import strata_of
from medloop.errors import BusyError, ConfigError, MedloopError
from medloop.evaluate.inspection.pool import PoolAnswer
from medloop.evaluate.inspection.weekly_sample import SAMPLES, InspectConfig, check_week, draw, week_of
from medloop.lexicon.language import detect_language
from medloop.reward.mix import MixConfig, build_mix
from medloop.settings import Settings
from medloop.store import audit
from medloop.store.db import open_store
from medloop.store.files import jsonl
from medloop.store.files.spreadsheet import read_csv
from medloop.testing.records import make_emergencies

MIX = build_mix(MixConfig())
ASKED = [
    "Case {n}: I have crushing chest pain.", "病例{n}：我流鼻涕两天了，怎么办？", "Case {n}: my child of 3 years has a cough.",
    "病例{n}：可以吃布洛芬400毫克吗？",
]  # fmt: skip
SAID = [
    "Call an ambulance now. Sit down and wait for help.",
    "多喝水，注意休息。一周还不好，请去看医生。",
    "Rest and drink tea {n}.",
]
HOSTILE = [
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "</div><iframe src=//evil>", "{{ 7*7 }}", "=HYPERLINK(A1)",
    "@SUM(1)", "| a | b |\n# heading\n[x](javascript:alert(1))", "＝1+1",
]  # fmt: skip


def rows(count: int, mark: str = "") -> list[dict[str, Any]]:
    return [
        {"id": f"{mark}{n}", "question": ASKED[n % 4].format(n=n), "answer": mark + SAID[n % 3].format(n=n)} for n in range(count)
    ]


def seen(row: dict[str, Any], **more: Any) -> PoolAnswer:
    sample = Sample.model_validate(row)
    (reward,) = MIX.score([sample])
    return PoolAnswer(sample, "a.jsonl", reward, strata_of(sample.question), detect_language(sample.question), **more)


def judgement(prompt_id: str, **more: Any) -> Judgement:
    fields = {
        "key": "sha256:" + "0" * 64, "prompt_id": prompt_id, "teacher_score": 0.1, "safety_flag": True, "critique": "Too late.",
        "suggested_answer": "Go now.", "model": "m", "served_model": "m", "template": "judge", "template_version": "1",
    }  # fmt: skip
    return Judgement.model_validate(fields | more)


@pytest.fixture
def put(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    monkeypatch.chdir(workspace)

    def put(rows: list[dict[str, Any]], name: str = "answers.jsonl") -> Path:
        jsonl.write(workspace / name, rows)
        return workspace / name

    return put


def medloop(*args: str) -> str:
    done = CliRunner().invoke(app, list(args))
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


def drawn(workspace: Path, week: str) -> list[InspectedSample]:
    return [item for item in jsonl.read(workspace / "data/rl" / SAMPLES, InspectedSample) if item.sample == week]


def test_the_same_week_and_seed_draw_the_same_answers_in_any_order() -> None:
    pool = [seen(row) for row in rows(120)]
    keys = [item.key for item in draw(pool, name="2026-W46", config=InspectConfig())]
    assert [item.key for item in draw(pool[::-1], name="2026-W46", config=InspectConfig())] == keys
    assert [item.key for item in draw(pool, name="2026-W47", config=InspectConfig())] != keys
    assert [item.key for item in draw(pool, name="2026-W46", config=InspectConfig(seed=1))] != keys


def test_a_rare_group_is_in_the_sample_and_comes_first() -> None:
    pool = [seen(row) for row in rows(400)]
    rare = [seen(row, judgement=judgement(row["id"])) for row in rows(4, "flagged ")]
    clash = [seen(row, conflict=True) for row in rows(5, "clash ")]
    sample = draw([*pool, *rare, *clash], name="2026-W46", config=InspectConfig(n=40))
    assert len(sample) == 40
    assert {item.id for item in sample if "safety_flag" in item.flags} == {f"2026-W46-{n:03d}" for n in range(1, 5)}
    assert sum("conflict" in item.flags for item in sample) == 5


def test_every_group_that_has_answers_has_a_few_in_the_sample(put: Callable[..., Path]) -> None:
    put(rows(300))
    out = medloop("inspect", "answers.jsonl", "--week", "2026-W46")
    counts = {row.split()[0]: tuple(map(int, row.split()[1:3])) for row in out.splitlines() if re.search(r"\s\d+\s+\d+\s*$", row)}
    assert {"red_flag", "high_risk", "low_reward", "high_reward", "language:zh", "language:en"} <= set(counts)
    assert all(mine >= min(there, 5) for there, mine in counts.values()), counts


def test_later_weeks_show_other_answers_until_there_are_no_more(put: Callable[..., Path], workspace: Path) -> None:
    put(rows(110))
    for week in ("2026-W46", "2026-W47"):
        medloop("inspect", "answers.jsonl", "--week", week)
    first, second = ({item.key for item in drawn(workspace, week)} for week in ("2026-W46", "2026-W47"))
    assert len(first) == len(second) == 50 and not first & second
    out = medloop("inspect", "answers.jsonl", "--week", "2026-W48")
    third = [item.key for item in drawn(workspace, "2026-W48")]
    assert len(set(third)) == 50 and sum(key in first for key in third) == 40 and not second & set(third)
    assert "40 were already shown in an earlier week" in out


def test_a_week_is_drawn_once_and_its_form_is_never_overwritten(put: Callable[..., Path], workspace: Path) -> None:
    put(rows(80))
    medloop("inspect", "answers.jsonl", "--week", "2026-W46")
    folder = workspace / "reports/inspect/2026-W46"
    html, form = (folder / "report.html").read_bytes(), folder / "form.csv"
    form.write_text(form.read_text(encoding="utf-8-sig").replace('""\r\n', '"Dr. Li"\r\n'), encoding="utf-8-sig")
    filled = form.read_bytes()
    put([*rows(80), *rows(90, "new ")])
    (folder / "report.html").unlink()
    out = medloop("inspect", "answers.jsonl", "--week", "2026-W46")
    assert "already exists and stays" in out and form.read_bytes() == filled
    assert len(drawn(workspace, "2026-W46")) == 50
    assert re.findall(r'id="(.*?)"', (folder / "report.html").read_text()) == re.findall(r'id="(.*?)"', html.decode())


@pytest.mark.parametrize(
    "flags", [["--n", "39"], ["--n", "61"], ["--week", "2026-W60"], ["--week", "now"], ["--import", "f", "--all"]]
)
def test_what_is_out_of_range_is_refused_and_nothing_is_written(
    flags: list[str], put: Callable[..., Path], workspace: Path
) -> None:
    put(rows(80))
    with pytest.raises(MedloopError):
        medloop("inspect", *([] if "--import" in flags else ["answers.jsonl"]), *flags)
    assert not (workspace / "data/rl" / SAMPLES).exists() and not list((workspace / "reports/inspect").iterdir())


def test_all_takes_every_answer_and_does_not_count_as_shown(put: Callable[..., Path], workspace: Path) -> None:
    put(rows(70))
    assert "70 answers in" in medloop("inspect", "answers.jsonl", "--week", "2026-W46", "--all")
    assert "shown in an earlier" not in medloop("inspect", "answers.jsonl", "--week", "2026-W47")


def test_scores_on_file_are_used_and_those_of_another_text_are_not(put: Callable[..., Path], workspace: Path) -> None:
    put(rows(60))
    medloop("reward", "score", "answers.jsonl", "--set", "version=mine")
    out = medloop("inspect")  # the workspace's own scored answers
    assert "scored now" not in out and all(item.reward.version.startswith("mine+") for item in drawn(workspace, week_now()))
    put([*rows(50), *rows(10, "changed ")])
    out = medloop("inspect", "answers.jsonl", "--week", "2026-W01", "--all")
    assert "10 answers had no score" in out and "10 scores belong to none" in out


def test_a_scores_file_brings_the_answers_beside_it(put: Callable[..., Path], workspace: Path) -> None:
    put(rows(5))
    put(rows(3, "b "), "b.jsonl")
    medloop("reward", "score", "answers.jsonl")
    assert "8 answers in" in medloop("inspect", "answers_scores.jsonl", "b.jsonl", "--all", "--week", "2026-W46")
    (workspace / "answers_scores.jsonl").rename(workspace / "lonely.jsonl")
    with pytest.raises(ConfigError, match="are not beside"):
        medloop("inspect", "lonely.jsonl", "--all")


def week_now() -> str:
    from medloop.contracts import utc_now

    return week_of(utc_now().date())


def test_predictions_of_an_evaluation_take_their_question_from_the_record(
    put: Callable[..., Path], put_split: Callable[[str, list[Record]], Path], workspace: Path
) -> None:
    records = make_emergencies(45)
    put_split("gold_set.jsonl", records)
    put([{"record_id": r.record_id, "text": f"Wait {n} days."} for n, r in enumerate(records)], "reports/predictions_sft.jsonl")
    medloop("inspect", "--week", "2026-W46")
    assert {item.question for item in drawn(workspace, "2026-W46")} == {r.conversation.question for r in records}


def test_a_judgement_of_another_answer_with_the_same_id_is_not_shown(put: Callable[..., Path], workspace: Path) -> None:
    put([{"id": "q", "question": "I have chest pain.", "answer": "Wait."}], "a.jsonl")
    put([{"id": "q", "question": "I have chest pain.", "answer": "Call an ambulance."}], "b.jsonl")
    jsonl.append(workspace / "data/rl/teacher_judgements.jsonl", judgement("q", evidence={"right_urgency": "call an ambulance"}))
    medloop("inspect", "a.jsonl", "b.jsonl", "--all", "--week", "2026-W46")
    by_answer = {item.answer: item for item in drawn(workspace, "2026-W46-all")}
    assert by_answer["Wait."].judgement is None and "teacher_missing" in by_answer["Wait."].flags
    assert by_answer["Call an ambulance."].judgement is not None and "safety_flag" in by_answer["Call an ambulance."].flags


def test_a_text_judged_under_another_id_keeps_its_critique(put: Callable[..., Path], workspace: Path) -> None:
    row = {"id": "second", "question": "I have chest pain.", "answer": "Call an ambulance now."}
    quoted, other = judgement("first", evidence={"x": "call an ambulance"}), judgement("third", evidence={"x": "drink tea"})
    jsonl.append(workspace / "data/rl/teacher_judgements.jsonl", [quoted, other])
    sample = Sample.model_validate({**row, "why_missing": "the model gave no answer"})
    (reward,) = MIX.score([sample])
    score = Score(name="teacher", value=0.1, reason="Too late.", author="teacher:m", version="1")
    reward = reward.model_copy(update={"parts": (*(part for part in reward.parts if part.name != "teacher"), score)})
    put([row])
    put(
        [{"id": "second", "key": sample.score_key(reward.version), "reward": reward.model_dump(mode="json")}],
        "answers_scores.jsonl",
    )
    medloop("inspect", "answers.jsonl", "--all", "--week", "2026-W46")
    (item,) = drawn(workspace, "2026-W46-all")
    assert item.judgement and item.judgement.prompt_id == "first" and "teacher_missing" not in item.flags


def test_texts_from_outside_stay_text_in_every_report(put: Callable[..., Path], workspace: Path) -> None:
    put([{"id": f"<i>{n}", "question": f"Q{n} {text}", "answer": text} for n, text in enumerate(HOSTILE)])
    for n, text in enumerate(HOSTILE):
        jsonl.append(workspace / "data/rl/teacher_judgements.jsonl", judgement(f"<i>{n}", critique=text, suggested_answer=text))
    medloop("inspect", "answers.jsonl", "--all", "--week", "2026-W46")
    folder = workspace / "reports/inspect/2026-W46-all"
    page, text = ((folder / name).read_text(encoding="utf-8") for name in ("report.html", "report.md"))
    assert not re.search(r"<(script|img|iframe|i>\d)", page + text) and "{{ 7*7 }}" in page
    assert "default-src 'none'; style-src 'unsafe-inline'" in page and not re.search(r"(src|href)=\"(?!#)", page)
    assert not re.search(r"(?<!\\)\]\(javascript", text) and not re.search(r"^> #", text, re.M)
    for name in ("samples.csv", "form.csv"):
        cells = csv.reader(io.StringIO((folder / name).read_text(encoding="utf-8-sig"), newline=""))
        assert not [cell for row in cells for cell in row if cell.startswith(("=", "+", "@", "＝", "\t"))]
        back = {row["answer"] for _, row in read_csv(folder / name).rows}  # but for what the scrubber takes for names
        assert len(back) == len(HOSTILE) and {text for text in back if not re.search(r"\[[A-Z]+_\d+\]", text)} <= set(HOSTILE)


def test_identifiers_do_not_reach_the_reports(put: Callable[..., Path], workspace: Path) -> None:
    put([{"id": "1", "question": "患者王芳，手机13800138000，胸痛怎么办？", "answer": "王芳，请立即拨打120。"}])
    medloop("inspect", "answers.jsonl", "--all", "--week", "2026-W46")
    whole = "".join(path.read_text(encoding="utf-8") for path in (workspace / "reports/inspect").rglob("*") if path.is_file())
    assert "13800138000" not in whole and "王芳" not in whole and "[PHONE_1]" in whole


def test_drawing_leaves_a_line_in_the_audit_log(put: Callable[..., Path], settings: Settings) -> None:
    put(rows(45))
    medloop("inspect", "answers.jsonl", "--week", "2026-W46")
    with open_store(settings) as store:
        assert audit.show(store, 1)[0]["action"] == "inspect.draw"


def test_two_draws_at_once_do_not_give_out_the_same_ids(
    put: Callable[..., Path], workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from medloop.evaluate.inspection import weekly_sample as stage
    from medloop.settings import Workspace

    put(rows(45))
    monkeypatch.setattr(stage, "WAIT_S", 0.05)
    with stage.exclusive(Workspace(workspace)), pytest.raises(BusyError):
        medloop("inspect", "answers.jsonl", "--week", "2026-W46")
    assert not (workspace / "data/rl" / SAMPLES).exists()


def test_weeks_are_iso_weeks() -> None:
    from datetime import date

    assert week_of(date(2026, 1, 1)) == "2026-W01" and week_of(date(2027, 1, 1)) == "2026-W53" == check_week("2026-W53")


def test_the_csv_has_a_column_for_each_part(put: Callable[..., Path], workspace: Path) -> None:
    put(rows(45))
    medloop("inspect", "answers.jsonl", "--week", "2026-W46")
    table = read_csv(workspace / "reports/inspect/2026-W46/samples.csv")
    assert {name for part in MixConfig().parts for name in (part, f"{part}_reason")} <= set(table.header)
    item = drawn(workspace, "2026-W46")[0]
    assert json.loads(table.rows[0][1]["reward"]) == item.reward.value


def test_reviewers_see_the_answer_before_the_reward(put: Callable[..., Path], workspace: Path) -> None:
    put(rows(12))
    medloop("inspect", "answers.jsonl", "--week", "2026-W01", "--all")
    folder = workspace / "reports/inspect/2026-W01-all"
    form = (folder / "form.csv").read_text(encoding="utf-8-sig")
    assert (
        form.splitlines()[0].replace(chr(34), "") == "id,question,answer,verdict,score,faults,corrected_answer,comment,reviewer"
    )
    for article in (folder / "report.html").read_text(encoding="utf-8").split("<article")[1:]:
        open_part, _, folded = article.partition('<details class="machine">')
        assert "奖励" not in open_part and "flags" not in open_part and "奖励 reward <b>" in folded
    answers, _, scores = (folder / "report.md").read_text(encoding="utf-8").partition("# 机器评分 Machine scores")
    assert "奖励 reward" not in answers and scores.count("奖励 reward") == 12
