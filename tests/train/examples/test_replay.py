"""A few corrections beside rows learnt before: the mix, the length of the run, and what a run is made of."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from medloop.cli import main
from medloop.contracts import Message, ModelRef
from medloop.errors import InputError
from medloop.models.load import load
from medloop.settings import Settings
from medloop.store.files import jsonl
from medloop.train.configs.sft_config import REPAIR_STEPS, SFTConfig
from medloop.train.examples.replay import draw_replay
from medloop.train.examples.same_mistake import making_the_mistake
from medloop.train.examples.sft_examples import IGNORED
from medloop.train.runs.find_run import find_run
from medloop.train.sft import REPAIRED, REPLAY_TIMES, _arguments, make_plan


def conversation(question: str, answer: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]}


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    jsonl.write(tmp_path / "fixes.jsonl", [conversation(f"Question {n}?", "Call 120 now.") for n in range(3)])
    jsonl.write(tmp_path / "old.jsonl", [conversation(f"What about {n}?", f"Rest for {n} days.") for n in range(1000)])
    return str(tmp_path / "fixes.jsonl"), str(tmp_path / "old.jsonl")


def test_corrections_are_repeated_and_three_times_as_many_old_rows_join(settings: Settings, files: tuple[str, str]) -> None:
    config = SFTConfig(name="fix", model=settings.model, data=files[0], replay_data=files[1])
    plan = make_plan(config, settings, find_run(config, settings))
    repeated = -(-REPAIRED // 3) * 3
    assert len(plan.train.rows) == len(plan.train.lengths) == (1 + REPLAY_TIMES) * repeated
    texts = [tuple(row["input_ids"]) for row in plan.train.rows]
    assert {texts.count(text) for text in texts[:repeated]} == {repeated // 3}
    assert len(set(texts[repeated:])) == REPLAY_TIMES * repeated, "no old row twice"
    assert [len(text) for text in texts] == plan.train.lengths
    assert plan.steps == config.least_steps == REPAIR_STEPS
    assert plan.run.identity["inputs"].keys() == {"train", "replay"}


def test_what_is_given_counts_and_other_runs_stay_as_they_were(settings: Settings, files: tuple[str, str]) -> None:
    given = SFTConfig(data=files[0], replay_data=files[1], epochs=2)
    assert given.least_steps == 0 and SFTConfig(data=files[0], replay_data=files[1], least_steps=40).least_steps == 40
    plain = SFTConfig(name="plain", model=settings.model, data=files[0])
    assert given.rate_for(1000) == plain.rate_for(1000) / 2
    assert not {"least_steps", "replay_data"} & find_run(plain, settings).identity["config"].keys()
    longer = plain.model_copy(update={"least_steps": 7})
    assert make_plan(longer, settings, find_run(longer, settings)).steps == 7


def test_a_missing_file_of_replay_is_told(settings: Settings, files: tuple[str, str]) -> None:
    config = SFTConfig(name="fix", model=settings.model, data=files[0], replay_data="nosuch.jsonl")
    with pytest.raises(InputError, match="no file of replay"):
        find_run(config, settings)


def test_old_answers_to_corrected_questions_are_not_replayed_and_what_is_left_out_is_told(
    settings: Settings, files: tuple[str, str]
) -> None:
    unanswered = {"messages": [{"role": "user", "content": "And then?"}]}
    long = conversation("Why? " * 3000, "So.")
    wrong = [conversation(f"Question  {n}? ", "Stay at home.") for n in range(3)]
    right = [conversation(f"What about {n}?", f"Rest for {n} days.") for n in range(20)]
    jsonl.write(Path(files[1]), [*wrong, unanswered, long, *right])
    config = SFTConfig(name="fix", model=settings.model, data=files[0], replay_data=files[1])
    examples = make_plan(config, settings, find_run(config, settings)).train
    corrections = -(-REPAIRED // 3) * 3
    assert len(examples.lengths) == len(examples.rows) == corrections + 20
    assert (examples.superseded, examples.unanswered, examples.too_long) == (3, 1, 1)
    learnt = sum(label != IGNORED for labels in examples.rows["labels"] for label in labels)
    assert examples.learnt_tokens == learnt, "counted, not estimated"


def medloop(monkeypatch: pytest.MonkeyPatch, settings: Settings, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["medloop", "--home", str(settings.home), *words, "--model", settings.model])
    with pytest.raises(SystemExit) as caught:
        main()
    return int(caught.value.code or 0)


def test_dangerous_answers_are_not_replayed_unless_the_check_is_off(
    settings: Settings, files: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    dangerous = conversation("I feel nervous before every exam. What can I do?", "Take diazepam 20 mg whenever you feel nervous.")
    alone = conversation("My father has crushing chest pain and is sweating.", "Drink some water and have a rest.")
    plain = [conversation(f"My ankle hurts since {n} days.", "Rest it, and see a doctor if it does not heal.") for n in range(3)]
    jsonl.write(Path(files[1]), [dangerous, alone, *plain])
    command = ["train", "sft", "--name", "fix", "--data", files[0], "--replay-data", files[1], "--set", "max_steps=1"]
    assert medloop(monkeypatch, settings, *command) == 0
    assert "2 of 5 replay rows left out: " in (said := capsys.readouterr().out) and "risk 2" in said
    card = json.loads((settings.home / "models/lora/fix/card.json").read_text())
    assert (card["metrics"]["replay_checked"], card["metrics"]["replay_left_out_risk"]) == (5, 2)
    assert card["metrics"]["examples"] == -(-REPAIRED // 3) * 3 + 3 and "risk " in card["config"]["replay_check"]
    assert medloop(monkeypatch, settings, *command, "--no-replay-check") == 2, "another run"
    assert medloop(monkeypatch, settings, *command, "--no-replay-check", "--replace") == 0
    assert "left out" not in capsys.readouterr().out
    card = json.loads((settings.home / "models/lora/fix/card.json").read_text())
    assert card["metrics"]["examples"] == -(-REPAIRED // 3) * 3 + 5 and not {"replay_check"} & card["config"].keys()


def test_a_file_with_nothing_but_dangerous_answers_is_refused(
    settings: Settings, files: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row = conversation("I feel nervous before every exam. What can I do?", "Take diazepam 20 mg whenever you feel nervous.")
    jsonl.write(Path(files[1]), [row])
    assert medloop(monkeypatch, settings, "train", "sft", "--name", "fix", "--data", files[0], "--replay-data", files[1]) == 3
    assert "the rules find a fault in each of 1" in capsys.readouterr().err


def test_half_of_the_replay_shows_where_the_correction_ends(tmp_path: Path) -> None:
    corrected = [((Message(role="user", content="我女儿3岁头痛，一次吃几毫克？"),), "先问医生。")]
    far = [conversation(f"What about the weather {n}?", "Fine.") for n in range(60)]
    near = [conversation(f"我父亲{n}岁头痛，怎么办？", "喝水。") for n in range(70, 76)]
    jsonl.write(tmp_path / "old.jsonl", [*far, *near])
    drawn = draw_replay(tmp_path / "old.jsonl", corrected=corrected, count=12, seed=1)
    texts = [line.conversation.messages[0].content for line in drawn.lines]
    assert sum("父亲" in text for text in texts[:12]) == 6, "as many as there are, of the half that is theirs"
    assert len(texts) == len(set(texts)) == 24
    again = draw_replay(tmp_path / "old.jsonl", corrected=corrected, count=12, seed=1)
    assert texts == [line.conversation.messages[0].content for line in again.lines], "by the seed alone"


def test_the_dev_loss_of_a_small_file_is_not_measured_at_every_step(settings: Settings, files: tuple[str, str]) -> None:
    config = SFTConfig(name="few", model=settings.model, data=files[0], dev_data=files[0], least_steps=40)
    plan = make_plan(config, settings, find_run(config, settings))
    loaded = load(ModelRef(base=settings.model), settings)
    assert plan.steps_per_epoch == 1 and _arguments(plan, loaded, config.batch_size).eval_steps == 4


SAID = "Come back in three days."


def pregnant(number: int, said: str) -> dict[str, Any]:
    return conversation(f"I am {number} weeks pregnant and have pain {number}. What can I do?", said)


def test_old_answers_that_make_the_corrected_mistake_are_not_replayed(
    settings: Settings, files: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    jsonl.write(Path(files[0]), [pregnant(n, f"Rest for {n} days. {SAID}") for n in range(5, 10)])
    mistakes, others = [pregnant(n, f"Rest for {n} days.") for n in range(10, 30)], [
        conversation(f"My brother had pain {n} times. What can he do?", f"Rest for {n} days.") for n in range(600)
    ]  # fmt: skip
    told = [pregnant(40, f"Rest. {SAID}")]
    jsonl.write(Path(files[1]), [*mistakes, *told, *others])
    command = ["train", "sft", "--name", "fix", "--data", files[0], "--replay-data", files[1], "--set", "max_steps=1"]
    assert medloop(monkeypatch, settings, *command) == 0
    assert "lack the sentence that these add: 20." in capsys.readouterr().out
    card = json.loads((settings.home / "models/lora/fix/card.json").read_text())
    assert card["metrics"]["replay_left_out_same_mistake"] == 20
    assert card["metrics"]["examples"] == -(-REPAIRED // 5) * 5 + 601, "a row that has the sentence stays"


@pytest.mark.parametrize("fixes", [
    [("I am {n} weeks pregnant.", f"Rest. {SAID}")] * 2,
    [("I am {n} weeks pregnant.", "Rest {n} days. Come back on day {n}.")] * 6,
    [("I am {n} weeks pregnant.", "Drink water.")] * 6,
])  # fmt: skip
def test_nothing_is_a_mistake_by_two_corrections_by_other_words_or_by_a_sentence_of_before(fixes: list[tuple[str, str]]) -> None:
    corrections = [(question.format(n=n), answer.format(n=n)) for n, (question, answer) in enumerate(fixes)]
    rows = [(f"I am {n} weeks pregnant.", f"Rest for {n} days.") for n in range(10, 40)]
    rows += [(f"Something else, {n}?", "Drink water.") for n in range(600)]
    assert making_the_mistake(corrections, rows) == set()
