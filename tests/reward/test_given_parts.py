"""Parts that are handed into the mix: the teacher, and a user's own."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from medloop.cli import app
from medloop.contracts import Missing, Sample, Score, ScoredAnswer
from medloop.errors import MedloopError
from medloop.loop.workspace import init_workspace
from medloop.reward.score_file import ScoreLine
from medloop.settings import resolve
from medloop.store.db import open_store
from medloop.store.files import jsonl
from medloop.store.records import crud
from medloop.teacher.component import TeacherPart
from medloop.teacher.config import TeacherConfig
from medloop.teacher.judge import TeacherFiles
from medloop.testing.teacher_server import TeacherServer

ROWS: list[dict[str, Any]] = [
    {
        "id": "a",
        "question": "I have crushing chest pain.",
        "answer": "Call an ambulance now, because this can be a heart attack.",
    },
    {"id": "b", "question": "我流鼻涕两天了。", "answer": "多喝水，注意休息。如果一周还不好，请去看医生。"},
]


class Half:
    """A user's own part."""

    name, version, penalty = "half", "1", False

    def score(self, samples: Sequence[Sample]) -> list[Score]:
        return [Score(name="half", value=0.5, reason="always", author="me", version="1") for _ in samples]


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    init_workspace(tmp_path / "ws")
    monkeypatch.chdir(tmp_path / "ws")
    monkeypatch.setenv("DEEPSEEK_API_KEY", "k")
    jsonl.write(tmp_path / "ws/answers.jsonl", ROWS)
    return tmp_path / "ws"


def teacher_file(workspace: Path, url: str) -> str:
    path = workspace / "teacher.yaml"
    path.write_text(f"base_url: {url}\nbackoff_s: 0\nattempts: 1\npasses: 1\n", encoding="utf-8")
    return str(path)


def score(*args: str) -> tuple[str, dict[str, dict[str, Score | Missing]]]:
    done = CliRunner().invoke(app, ["reward", "score", "answers.jsonl", *args])
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    lines = jsonl.read(Path("answers_scores.jsonl"), ScoreLine)
    return done.output, {line.id: {part.name: part for part in line.reward.parts} for line in lines}


def test_the_teacher_is_a_part_of_the_mix_and_asked_once(workspace: Path) -> None:
    with TeacherServer() as server:
        _, first = score("--with", f"teacher={teacher_file(workspace, server.url)}")
        _, second = score("--with", f"teacher={teacher_file(workspace, server.url)}")
        assert server.requests == 2
    assert first == second
    assert all(isinstance(parts["teacher"], Score) and "deepseek-flash" in parts["teacher"].author for parts in first.values())


def test_a_teacher_that_was_down_is_asked_again_by_the_same_command(workspace: Path) -> None:
    with TeacherServer(fault=lambda n: "error_500" if n < 2 else "ok") as server:
        source = f"teacher={teacher_file(workspace, server.url)}"
        _, first = score("--with", source)
        _, second = score("--with", source)
    assert all(isinstance(parts["teacher"], Missing) for parts in first.values())
    assert all(isinstance(parts["teacher"], Score) for parts in second.values())


def test_without_a_key_the_run_is_declared_degraded_and_rules_still_score(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DEEPSEEK_API_KEY")
    output, parts = score("--with", "teacher")
    assert "Degraded: teacher: no_key" in output
    assert isinstance(parts["a"]["teacher"], Missing) and isinstance(parts["a"]["chain"], Score)


def test_scores_without_and_with_teacher_carry_different_versions(workspace: Path) -> None:
    score()
    alone = {line.reward.version for line in jsonl.read(workspace / "answers_scores.jsonl", ScoreLine)}
    with TeacherServer() as server:
        score("--with", f"teacher={teacher_file(workspace, server.url)}")
    versions = {line.reward.version for line in jsonl.read(workspace / "answers_scores.jsonl", ScoreLine)}
    assert alone.isdisjoint(versions)


def test_rewards_survive_the_store_and_a_second_scoring_adds_nothing(workspace: Path) -> None:
    for _ in range(2):
        score("--store")
    with open_store(resolve({"home": workspace}).settings) as store:
        answers = list(crud.iterate(store, ScoredAnswer))
    lines = list(jsonl.read(workspace / "answers_scores.jsonl", ScoreLine))
    assert [answer.reward for answer in answers] == [line.reward for line in lines] and len(answers) == 2
    assert all(part.reason and part.version for answer in answers for part in answer.reward.parts)
    assert b"ambulance" not in (workspace / "medloop.db").read_bytes(), "spans and reasons are encrypted"


def test_a_part_of_ones_own_enters_by_the_same_door(workspace: Path) -> None:
    mix = workspace / "mix.yaml"
    mix.write_text("parts:\n  chain: {weight: 0.5}\n  half: {weight: 0.5, given: true}\n", encoding="utf-8")
    _, parts = score("--config", str(mix), "--with", f"half={__name__}:Half")
    assert parts["a"]["half"].value == 0.5  # type: ignore[union-attr]


def test_relevance_is_handed_in_by_name_and_reads_the_context(workspace: Path) -> None:
    rows = [{**ROWS[0], "context": "Chest pain can be a heart attack. Call an ambulance."}, ROWS[1]]
    jsonl.write(workspace / "answers.jsonl", rows)
    mix, dw = workspace / "mix.yaml", workspace / "dw.yaml"
    mix.write_text("parts: {rel: {weight: 1, given: true}, faith: {weight: 1, given: true}, conc: {weight: 0.5, given: true}}")
    dw.write_text("relevance: {scorer: heuristic}")
    _, parts = score("--config", str(mix), *(word for name in ("rel", "faith", "conc") for word in ("--with", f"{name}={dw}")))
    assert all(isinstance(part, Score) and part.applies for part in parts["a"].values())
    assert isinstance(parts["b"]["faith"], Score) and not parts["b"]["faith"].applies


@pytest.mark.parametrize("source", ["model", "model=no/such/model", "half", "half=no_such_module:Half", "half=json:dumps"])
def test_a_part_that_cannot_be_had_is_a_clear_error_and_writes_nothing(workspace: Path, source: str) -> None:
    with pytest.raises(MedloopError):
        score("--with", source)
    assert not (workspace / "answers_scores.jsonl").exists()


def test_an_unknown_part_is_named_in_the_error(workspace: Path) -> None:
    with pytest.raises(MedloopError, match="There is no part 'nobody'"):
        score("--with", "nobody")


def test_the_budget_is_one_for_all_calls(tmp_path: Path) -> None:
    with TeacherServer() as server:
        config = TeacherConfig(base_url=server.url, budget_usd=0.0010, peak_factor=1, null_probes=0, in_flight=1, passes=1)
        part = TeacherPart(config, key="k", files=TeacherFiles(tmp_path / "j.jsonl", tmp_path / "logs"))
        scores = [part.score([Sample(id=str(n), question="q?", answer=f"Rest well, case {n}.")])[0] for n in range(12)]
    assert part.spent <= 0.0010 and isinstance(scores[0], Score)
    assert isinstance(scores[-1], Missing) and "budget" in scores[-1].reason


def test_a_judge_that_praises_empty_answers_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "medloop.teacher.component.NULL_CEILING", -0.1
    )  # no verdict praises what it cannot quote, so lower the bar
    with TeacherServer() as server:
        config = TeacherConfig(base_url=server.url, null_probes=1, backoff_s=0.0)
        part = TeacherPart(config, key="k", files=TeacherFiles(tmp_path / "j.jsonl", tmp_path / "logs"))
        scores = part.score([Sample(id=str(n), question="q?", answer=f"Rest well, case {n}.") for n in range(6)])
    assert all(isinstance(score, Missing) and score.reason.startswith("not trusted") for score in scores)


MIX = {
    "chain": {"weight": 0.5}, "risk": {"weight": -0.2}, "teacher": {"weight": 0.5, "given": True},
    "teacher.risk": {"weight": -0.2, "given": True}, "teacher.urgency": {"weight": 0.2, "given": True},
    "teacher.relevance": {"weight": 0.1, "given": True}, "teacher.reasoning": {"weight": 0.1, "given": True},
    "teacher.false_reassurance": {"weight": -0.1, "given": True},
}  # fmt: skip


def mix_file(workspace: Path, parts: dict[str, Any]) -> str:
    (workspace / "mix.yaml").write_text(json.dumps({"parts": parts}))
    return str(workspace / "mix.yaml")


def test_the_entries_of_one_verdict_are_parts_of_the_same_mix_without_another_request(workspace: Path) -> None:
    risky = {"id": "c", "question": "May I stop my tablets?", "answer": "You can stop taking the tablets. Call a doctor."}
    urgent = {**ROWS[0], "id": "d", "answer": "This can be a heart attack. Please keep still. Go to the emergency room at once."}
    jsonl.write(workspace / "answers.jsonl", [*ROWS, risky, urgent])
    mix = mix_file(workspace, MIX)
    _, alone = score("--config", mix)
    assert all(parts[name].reason == "declared absent" for parts in alone.values() for name in MIX if "teacher" in name)
    with TeacherServer() as server:
        _, parts = score("--config", mix, "--with", f"teacher={teacher_file(workspace, server.url)}")
        assert server.requests == 4
    value = {row: {name: part.value for name, part in named.items()} for row, named in parts.items()}  # type: ignore[union-attr]
    assert (value["c"]["teacher.risk"], value["d"]["teacher.risk"]) == (1.0, 0.0)
    assert (value["c"]["teacher.urgency"], value["d"]["teacher.urgency"]) == (0.0, 1.0)
    assert "dangerous_advice: yes" in parts["c"]["teacher.risk"].reason
    assert {value[row]["teacher.relevance"] for row in "abc"} == {1.0} and parts["a"]["chain"] == alone["a"]["chain"]


def test_a_mix_may_take_only_an_entry_of_the_verdict_and_a_wrong_name_is_told(workspace: Path) -> None:
    with TeacherServer() as server:
        source = f"teacher={teacher_file(workspace, server.url)}"
        _, parts = score(
            "--config", mix_file(workspace, {name: MIX[name] for name in ("chain", "teacher.risk")}), "--with", source
        )
        assert set(parts["a"]) == {"chain", "teacher.risk"} and isinstance(parts["a"]["teacher.risk"], Score)
        wrong = mix_file(workspace, {"chain": {"weight": 1}, "teacher.rsk": {"weight": -1, "given": True}})
        with pytest.raises(MedloopError, match=r"'teacher' has no part 'rsk' here \(it has urgency, risk"):
            score("--config", wrong, "--with", source)


def test_a_teacher_that_is_away_is_the_first_line_with_its_count(workspace: Path) -> None:
    with TeacherServer() as server:
        pass
    output, parts = score("--config", mix_file(workspace, MIX), "--with", f"teacher={teacher_file(workspace, server.url)}")
    words = "Degraded: teacher: unreachable: ConnectError. 2 of 2 answers have no score"
    assert output.index(words) < output.index("chain")  # before the table
    attempts = [row for path in (workspace / "logs/deepseek_teacher").glob("*.jsonl") for row in jsonl.read(path)]
    assert len(attempts) == 2  # one per answer, not one per part
    assert all(isinstance(named[name], Missing) for named in parts.values() for name in MIX if "teacher" in name)


def test_the_group_judge_scores_a_file_question_by_question(workspace: Path) -> None:
    better = "Call an ambulance now, because this can be a heart attack. I understand your worry."
    jsonl.write(workspace / "answers.jsonl", [ROWS[0], {**ROWS[0], "id": "c", "answer": better}, ROWS[1]])
    with TeacherServer() as server:
        source = teacher_file(workspace, server.url)
        Path(source).write_text(Path(source).read_text() + "mode: group\nposition_check: 0\n")
        output, parts = score("--with", f"teacher={source}")
        assert server.requests == 1 and "Degraded" not in output
        assert [getattr(parts[name]["teacher"], "value", None) for name in "ac"] == [0.0, 1.0]
        assert isinstance(parts["b"]["teacher"], Score) and not parts["b"]["teacher"].applies
        jsonl.append(workspace / "answers.jsonl", {**ROWS[0], "id": "d", "answer": "Nothing helps."})
        _, parts = score("--with", f"teacher={source}")  # one more answer moves the ranks of the others
    assert [getattr(parts[name]["teacher"], "value", None) for name in "acd"] == [0.5, 1.0, 0.0]
