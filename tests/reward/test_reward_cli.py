"""`medloop reward`, through the door a user takes."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from medloop.cli import app
from medloop.contracts import Sample
from medloop.errors import InputError, MedloopError
from medloop.loop.workspace import init_workspace
from medloop.reward import score_file as reward_file
from medloop.reward.mix import MixConfig, build_mix
from medloop.reward.score_file import ScoreLine, score_file
from medloop.store.files import jsonl
from medloop.store.files.answer_lines import read_samples
from medloop.teacher import prompt_templates

ROWS: list[dict[str, Any]] = [
    {"id": "a", "question": "I have crushing chest pain.", "answer": "Call an ambulance now. Sit down and wait for help to come."},
    {"record_id": "b", "question": "我流鼻涕两天了。", "text": "多喝水，注意休息。如果一周还不好，请去看医生。"},
    {"messages": [
        {"role": "user", "content": "My chest hurts, it is a crushing chest pain."},
        {"role": "assistant", "content": "Since when?"},
        {"role": "user", "content": "For an hour now."},
        {"role": "assistant", "content": "Rest at home and have some tea, it will soon feel better I am sure."},
    ]},
    {"id": "d", "question": "I have a cough.", "text": "", "finish_reason": "error"},
]  # fmt: skip


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    init_workspace(tmp_path / "ws")
    monkeypatch.chdir(tmp_path / "ws")
    return tmp_path / "ws"


def answers(folder: Path, rows: list[dict[str, Any]] = ROWS) -> Path:
    path = folder / "answers.jsonl"
    jsonl.write(path, rows)
    return path


def medloop(*args: str) -> str:
    done = CliRunner().invoke(app, list(args))
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


def test_score_prints_a_summary_and_writes_every_part(workspace: Path) -> None:
    out = medloop("reward", "score", str(answers(workspace)))
    lines = list(jsonl.read(workspace / "answers_scores.jsonl", ScoreLine))
    assert [line.id for line in lines] == ["a", "b", "3", "d"]
    assert [line.reward.value is None for line in lines] == [False, False, False, True]
    assert all({part.name for part in line.reward.parts} == set(MixConfig().parts) for line in lines)
    reward = next(row for row in out.splitlines() if row.startswith("reward"))
    assert reward.split()[-3:] == ["3", "0", "1"] and "Scored 4 answers" in out


def test_a_red_flag_of_an_earlier_message_still_counts(workspace: Path) -> None:
    sample = list(read_samples(answers(workspace)))[2]
    (reward,) = build_mix(MixConfig()).score([sample])
    emergency = next(part for part in reward.parts if part.name == "emergency")
    assert emergency.applies and emergency.value == 0.0  # type: ignore[union-attr]


def test_a_second_run_scores_nothing_and_a_new_weight_everything(workspace: Path) -> None:
    path = answers(workspace)
    medloop("reward", "score", str(path))
    before = (workspace / "answers_scores.jsonl").read_bytes()
    assert "4 of them earlier" in medloop("reward", "score", str(path))
    assert (workspace / "answers_scores.jsonl").read_bytes() == before
    assert "before" not in medloop("reward", "score", str(path), "--set", "version=2")
    versions = {line.reward.version[:2] for line in jsonl.read(workspace / "answers_scores.jsonl", ScoreLine)}
    assert versions == {"2+"}


def test_a_stopped_run_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reward_file, "AT_ONCE", 2)
    source, output, mix = answers(tmp_path), tmp_path / "out.jsonl", build_mix(MixConfig())

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        score_file(source, output, mix, progress=stop)
    assert len(list(jsonl.read(output))) == 2
    ids: list[str] = []
    summary = score_file(source, output, mix, on_scored=lambda samples, rewards: ids.extend(s.id for s in samples))
    assert ids == ["3", "d"] and (summary.answers, summary.already_there) == (4, 2)
    score_file(source, tmp_path / "whole.jsonl", mix)
    assert output.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


def test_with_normalise_the_whole_file_is_scored_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reward_file, "AT_ONCE", 1)
    mix = build_mix(MixConfig(normalise="batch"))
    output = tmp_path / "out.jsonl"
    for rows in (ROWS[:2], ROWS):  # a grown file: the values of the first two change with their new neighbours
        source = answers(tmp_path, rows)
        score_file(source, output, mix, whole=True)
    values = [line.reward.value for line in jsonl.read(output, ScoreLine)]
    alone = [reward.value for reward in mix.score(list(read_samples(source)))]
    assert values == alone and len({value for value in values if value is not None}) > 1


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"id": "x", "answer": "secret words"}, "no question"),
        ({"id": "x", "question": "secret words"}, "no answer"),
        ({"id": "x", "question": "q", "answer": 5}, "the answer must be text"),
        ({"id": "x", "messages": "secret words"}, "messages must be a list"),
        ({"id": "a", "question": "q", "answer": "a"}, "duplicate id .first seen on line 1"),
    ],
)
def test_a_bad_line_is_named_without_its_content_and_nothing_is_written(tmp_path: Path, row: dict[str, Any], says: str) -> None:
    source, output = answers(tmp_path, [*ROWS, row]), tmp_path / "out.jsonl"
    with pytest.raises(InputError, match=f"line 5: .*{says}") as error:
        score_file(source, output, build_mix(MixConfig()))
    assert "secret" not in str(error.value) and not output.exists()


def test_the_input_is_never_the_output(workspace: Path) -> None:
    path = answers(workspace)
    before = path.read_bytes()
    with pytest.raises(MedloopError, match="is the input itself"):
        medloop("reward", "score", str(path), "--output", str(path))
    assert path.read_bytes() == before


def test_explain_shows_value_reason_and_words(workspace: Path) -> None:
    out = medloop("reward", "explain", str(answers(workspace)), "--id", "a")
    line = next(row for row in out.splitlines() if row.startswith("emergency"))
    assert "1.000" in line and "crushing chest pain" in line
    assert "teacher: declared absent" in out
    assert "0.600" in medloop("reward", "explain", "--question", "I am pregnant.", "--answer", "Take ibuprofen 400 mg.")
    with pytest.raises(MedloopError, match="no answer with the id 'zz'"):
        medloop("reward", "explain", str(workspace / "answers.jsonl"), "--id", "zz")
    with pytest.raises(MedloopError, match="nothing to explain"):
        medloop("reward", "explain")


def test_rules_writes_the_page_with_every_part_weight_and_version(workspace: Path) -> None:
    out = medloop("reward", "rules")
    page = (workspace / "data/rl/reward_rules.md").read_text(encoding="utf-8")
    mix = build_mix(MixConfig())
    assert mix.version in out and mix.version in page
    for name, part in MixConfig().parts.items():
        version = mix.rules[name].version if name in mix.rules else "absent"
        assert f"| {name} | {part.weight:+g} |" in page and f"## {name}" in page and f"`{version}`" in page
    assert "R = 0.35·chain + 0.25·emergency - 0.15·risk + 0.25·teacher" in page


def test_the_page_of_the_rules_has_the_teachers_template_version_rubric_and_modes(workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "group.yaml").write_text("mode: group\n")
    medloop("reward", "rules", "--with", f"teacher={tmp_path / 'group.yaml'}")
    page = (workspace / "data/rl/reward_rules.md").read_text(encoding="utf-8")
    assert "| chain | +0.35 | +0.35 … +1 |" in page and "| risk | -0.15 | -1 … -0.15 |" in page  # weight and its range
    for name in ("group", "judge", "review"):
        template = prompt_templates.load(name)
        assert f"### {name}, version `{template.version}`" in page and template.system.strip() in page
    assert "mode `group`" in page and "| dangerous_advice | fault | -1 | -1 … 0 | `teacher.risk` |" in page
    assert all(words in page for words in ("| training: ", "| inspection: ", "`medloop teacher review`"))
    medloop("reward", "rules", "--set", "parts.teacher.weight=0")
    assert "mode `absolute`" in (workspace / "data/rl/reward_rules.md").read_text(encoding="utf-8")


def test_an_impossible_weight_is_refused_in_one_sentence(workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "mix.yaml").write_text("parts: {chain: {weight: 1}, risk: {weight: 0.5}}\nbounds: [1, 0]\nnormalize: group\n")
    with pytest.raises(MedloopError, match="unknown setting 'normalize'") as error:
        medloop("reward", "rules", "--config", str(tmp_path / "mix.yaml"))
    assert "bounds" in str(error.value)


def test_one_weight_is_set_from_the_command_line_and_the_others_stay(workspace: Path) -> None:
    shown = medloop(
        "reward", "rules", "--set", "parts.chain.weight=0.5", "--set", "parts.rel.weight=0.2", "--set", "parts.rel.given=true"
    )
    assert "R = 0.5·chain + 0.25·emergency" in shown and "0.2·rel" in shown


@pytest.mark.parametrize(
    "pair", ["parts.chain.weight=.nan", "parts.chain.wait=1", "parts.nobody.weight=1", "bounds.low.er=1", "part.chain=1"]
)
def test_a_setting_inside_a_setting_is_checked_like_any_other(workspace: Path, pair: str) -> None:
    with pytest.raises(MedloopError):
        medloop("reward", "rules", "--set", pair)


def test_a_folder_in_place_of_answers_is_refused_in_one_sentence(workspace: Path) -> None:
    with pytest.raises(MedloopError, match="is a folder"):
        medloop("reward", "score", ".")


def test_a_scored_line_survives_the_file(tmp_path: Path) -> None:
    mix = build_mix(MixConfig())
    score_file(answers(tmp_path), tmp_path / "out.jsonl", mix)
    rewards = mix.score(list(read_samples(tmp_path / "answers.jsonl")))
    assert [line.reward for line in jsonl.read(tmp_path / "out.jsonl", ScoreLine)] == rewards
    assert Sample.from_json(json.dumps({"id": "1", "question": "q", "answer": None})).answer is None
