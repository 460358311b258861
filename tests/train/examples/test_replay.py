"""A few corrections beside rows learnt before: the mix, the length of the run, and what a run is made of."""

from pathlib import Path
from typing import Any

import pytest

from medloop.contracts import ModelRef
from medloop.errors import InputError
from medloop.models.load import load
from medloop.settings import Settings
from medloop.store.files import jsonl
from medloop.train.configs.sft_config import REPAIR_STEPS, SFTConfig
from medloop.train.examples.replay import draw_replay
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


def test_half_of_the_replay_shows_where_the_correction_ends(tmp_path: Path) -> None:
    jsonl.write(tmp_path / "fixes.jsonl", [conversation("我女儿3岁头痛，一次吃几毫克？", "请问药师。")])
    far = [conversation(f"What about the weather {n}?", "Fine.") for n in range(60)]
    near = [conversation(f"我父亲{n}岁头痛，怎么办？", "喝水。") for n in range(70, 76)]
    jsonl.write(tmp_path / "old.jsonl", [*far, *near])
    drawn = draw_replay(tmp_path / "old.jsonl", corrected=tmp_path / "fixes.jsonl", count=12, seed=1)
    texts = [line.conversation.messages[0].content for line in drawn.lines]
    assert sum("父亲" in text for text in texts[:12]) == 6, "as many as there are, of the half that is theirs"
    assert len(texts) == len(set(texts)) == 24
    again = draw_replay(tmp_path / "old.jsonl", corrected=tmp_path / "fixes.jsonl", count=12, seed=1)
    assert texts == [line.conversation.messages[0].content for line in again.lines], "by the seed alone"


def test_the_dev_loss_of_a_small_file_is_not_measured_at_every_step(settings: Settings, files: tuple[str, str]) -> None:
    config = SFTConfig(name="few", model=settings.model, data=files[0], dev_data=files[0], least_steps=40)
    plan = make_plan(config, settings, find_run(config, settings))
    loaded = load(ModelRef(base=settings.model), settings)
    assert plan.steps_per_epoch == 1 and _arguments(plan, loaded, config.batch_size).eval_steps == 4
